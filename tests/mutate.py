#!/usr/bin/env python3
"""Makes small mistakes in functions of src by rule, one at a time, and sees whether a test notices each.

mutate.py [--since REV] [--match REGEX] [--sample N] [--seed S] [--least PERCENT] [--quick] [--list] [FILE or FOLDER]...

Without a file or folder: all of src. --since: only functions that changed since REV. --match: only places whose line in
the list of equivalent ones (below) has it. --sample: N of the places, drawn by the seed (1). --quick: without shell tests
of the command. --list shows the places and their tests, and runs nothing.

negate  if, while: the opposite        never  if: not taken                arms  c ? a : b: c ? b : a
join    && for ||, || for &&           equal  == for !=, != for ==         one   + 1 or - 1 left out
bound   < for <=, > for >= and back; a loop one short                      sign  + for -, - for +
drop    a statement left out: a call, or what a field or an element is set to

The tree is copied to a temporary folder; there each mistake is tried against at most MOST tests of the file (the stem of
its name), of its header, its folder and its room, and MOST / 2 of a like name or of what stands on the room (BEYOND).
A test that fails must pass without the mistake. tests/mutants/equivalent.txt lists mistakes that no test can notice:
"FILE FUNCTION RULE | LINE WITH THE MISTAKE | REASON". Ends with the counts; 1 where fewer than --least (100) percent of the
others are noticed.
"""
import argparse, fnmatch, json, os, random, re, resource, shutil, signal, subprocess, sys, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST, LIMIT, LIMIT_CLI, MEMORY = 20, 120, 300, 12 << 30
BEHIND, FAR = 6, 99  # how near a test is to a source
BEYOND = {  # tests that stand elsewhere than a room and have not its name
    'base': 'formats/safetensors data/records cli/outputs', 'catalog': 'dialects/* cli/verify', 'formats': 'dialects/* cli/verify',
    'checkpoint': 'cli/verify cli/convert', 'comm': 'train/run cli/ranks', 'dialects': 'cli/convert cli/namings cli/another_model',
    'families': 'parity/families parity/minicpmv', 'http': 'cli/serve', 'infer': 'parity/llama parity/successors_hf cli/talk cli/answers',
    'inputs': 'data/data_text cli/pictures cli/tokenize cli/render', 'layout': 'schema/schema tape/trained',
    'library': 'cli/usage cli/bad_input', 'lora': 'checkpoint/merge cli/merge cli/namings', 'models': 'parity/llama parity/families',
    'monitor': 'cli/progress cli/prometheus', 'ops': 'tape/layers', 'plan': 'cli/fits', 'schema': 'families/families cli/namings',
    'tape': 'train/run parity/llama', 'train': 'cli/evaluate cli/resume', 'driver': 'cli/restarts cli/stopped',
    'cli': 'cli/usage cli/bad_input', 'pages': 'cli/report cli/browser'}
# What only a leak, a race, the text of a message or a failed allocation would show is left alone.
QUIET = re.compile(r'free|close|unlock|lock$|expected|found|try_this|note|warn|unlink|pthread|assert|va_end|va_start|print|advise|yield')
TOKEN = re.compile(r'''//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|
    \d(?:[eEpP][+-]|[\w.])*|->|\+\+|--|<<=|>>=|&&|\|\||[<>=!]=|<<|>>|[-+*/%&|^]=|\S''', re.S | re.M | re.X)
SET = re.compile(r'\w+(?: (?:\.|->) \w+| \[[^=;]*\])+ (?:[-+|&]=|=) ')
KEYWORDS = ('if', 'while', 'for', 'switch', 'return', 'sizeof')
OTHER = {'&&': '||', '||': '&&', '==': '!=', '!=': '==', '<': '<=', '<=': '<', '>': '>=', '>=': '>'}
RULE = {'&&': 'join', '||': 'join', '==': 'equal', '!=': 'equal'}


class Source:
    def __init__(self, path):
        self.path, self.text = path, (ROOT / path).read_text()
        self.tokens = [m for m in TOKEN.finditer(self.text) if m[0][:2] not in ('//', '/*') and m[0].lstrip()[0] != '#']
        self.t = [m[0] for m in self.tokens] + [''] * 3
        self.mate, open_ = {}, []
        for i, t in enumerate(self.t):
            if t and t in '([{':
                open_.append(i)
            elif t and t in ')]}' and open_:
                self.mate[i] = open_.pop()
                self.mate[self.mate[i]] = i

    def line(self, at):
        return self.text.count('\n', 0, at) + 1

    def functions(self):
        """(name, first token, behind the last) of each."""
        i = begin = 0
        while i < len(self.tokens):
            if self.t[i] == '{' and self.t[i - 1] == ')' and i in self.mate:
                words = [t for t in self.t[begin:self.mate[i - 1]] if re.match(r'[A-Za-z_]', t)]
                yield words[-1], begin, self.mate[i] + 1
            if self.t[i] in '([{' and i in self.mate:
                i = self.mate[i]
            i += 1
            begin = i if self.t[i - 1] in ';}' else begin

    def end_of(self, i, stops=',;)]}:'):
        while self.t[i] not in stops:
            i = self.mate[i] + 1 if self.t[i] in '([{' else i + 1
        return i

    def places(self, first, last):
        """(rule, [(first token, behind the last, text)]) of each mistake."""
        t, mate, bounds, i = self.t, self.mate, set(), first
        while i < last:
            now, i = i, i + 1
            if t[now] in ('if', 'while') and t[i] == '(':
                end, inside = mate[i], t[i + 1:mate[i]]
                if t[now] == 'if' and 'no_memory' in ' '.join(t[end:self.end_of(end + 1, ';')]):
                    i = self.end_of(end + 1, ';')
                    continue
                if not set(inside) & set(OTHER):
                    yield 'negate', [(i + 1, i + 1, '!('), (end, end, ')')]
                if t[now] == 'if':
                    yield 'never', [(i + 1, i + 1, '0 && ('), (end, end, ')')]
            elif t[now] == 'for' and t[i] == '(':
                middle = self.end_of(i + 1, ';')
                bounds |= set(range(middle, self.end_of(middle + 1, ';')))
            elif t[now] in ('malloc', 'calloc', 'realloc'):
                i = mate[i]
            elif t[now] in RULE:
                if 'NULL' not in (t[now - 1], t[i]) and not (t[i + 1] == '?' and t[i + 2][0] == '"'):
                    yield RULE[t[now]], [(now, i, OTHER[t[now]])]
            elif t[now] in OTHER:
                short = now in bounds and {'<': '+ 1 <', '>': '- 1 >'}.get(t[now])
                yield 'bound', [(now, i, short or OTHER[t[now]])]
            elif t[now] in '+-' and re.match(r'[\w)\]]', t[now - 1]) and t[now - 1] not in ('return', 'case'):
                if t[i] != '1':
                    yield 'sign', [(now, i, '-' if t[now] == '+' else '+')]
                elif t[i + 1] not in '*/%<<>>':
                    yield 'one', [(now, i + 1, '')]
            elif t[now] == '?':
                colon, end = self.end_of(i, ':'), 0
                end = self.end_of(colon + 1)
                if '?' not in t[i:end] and t[i][0] != '"':
                    a, b = self.part(i, colon), self.part(colon + 1, end)
                    yield 'arms', [(i, colon, b), (colon + 1, end, a)]
            elif re.match(r'[A-Za-z_]', t[now]) and (t[now - 1] in ('{', '}', ';', 'else') or
                                                     t[now - 1] == ')' and t[mate[now - 1] - 1] in ('if', 'for', 'while')):
                end = self.end_of(now, ';{')
                what = t[self.end_of(i + 1, ',') + 1] if t[now] == 'TRY' else t[now]
                call = t[i] == '(' and mate[i] + 1 == end and not QUIET.search(what)
                if t[end] == ';' and (call and what not in KEYWORDS or SET.match(' '.join(t[now:end]))):
                    yield 'drop', [(now, end, '/* ' + ' '.join(self.part(now, end).split()).replace('*/', '') + ' */')]

    def part(self, first, last):
        return self.text[self.tokens[first].start():self.tokens[last - 1].end()]

    def changed(self, edits):
        text = self.text
        for first, last, new in sorted(edits, reverse=True):
            at = self.tokens[first].start()
            text = text[:at] + new + text[self.tokens[last - 1].end() if last > first else at:]
        return text


class Place:
    def __init__(self, source, name, rule, edits):
        self.source, self.function, self.rule, self.edits = source, name, rule, edits

    @property
    def line(self):
        return self.source.line(self.source.tokens[self.edits[0][0]].start())

    @property
    def text(self):
        return self.source.changed(self.edits)

    @property
    def key(self):
        return f'{self.source.path} {self.function} {self.rule} | {" ".join(self.text.splitlines()[self.line - 1].split())}'

    def __str__(self):
        return f'{self.source.path}:{self.line} {self.key.split(" ", 1)[1]}'


def git_lines(rev):
    """The lines of each file that changed since `rev`."""
    lines, path = {}, None
    diff = subprocess.run(['git', 'diff', '-U0', rev, '--', 'src'], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for row in diff.splitlines():
        if row.startswith('+++ b/'):
            path = row[6:]
        elif m := re.match(r'@@ -\S+ \+(\d+)(?:,(\d+))? @@', row):
            lines.setdefault(path, set()).update(range(int(m[1]), int(m[1]) + max(1, int(m[2] or 1))))
    return lines


def places(options):
    since = git_lines(options.since) if options.since else None
    files = set()
    for one in options.paths or ['src']:
        at = ROOT / one
        files |= set(at.rglob('*.[ch]') if at.is_dir() else [at])
    for path in sorted(str(f.relative_to(ROOT)) for f in files if not f.name.endswith('_test.c')):
        source = Source(path)
        for name, first, last in source.functions() if since is None or path in since else []:
            span = range(source.line(source.tokens[first].start()), source.line(source.tokens[last - 1].end()) + 1)
            if since is None or since[path].intersection(span):
                yield from (Place(source, name, *place) for place in source.places(first, last))


class Tree:
    """A copy of the sources, built as far as a test needs it."""

    def __init__(self, quick):
        unwanted = {'sheaf:large', 'sheaf:rules', 'sheaf:package', 'sheaf:cli' if quick else ''}
        self.root = Path(tempfile.mkdtemp(prefix='sheaf-mutate.')).resolve()
        self.build, self.sound = self.root / 'build', {}
        shutil.copytree(ROOT, self.root, dirs_exist_ok=True, symlinks=True, ignore=lambda folder, names: [
            n for n in names if Path(folder) == ROOT and (n == '.git' or n.startswith('build'))])
        subprocess.run(['meson', 'setup', self.build, self.root], check=True, stdout=subprocess.DEVNULL)
        for folder, mode in ((self.root, 0o755), (self.root / 'tmp', 0o1777)):
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)
        about = lambda what: json.loads(subprocess.check_output(['meson', 'introspect', '--' + what, self.build]))
        targets = {x['id']: x for x in about('targets')}
        self.tests = {}
        for test in about('tests'):
            test['files'] = [os.path.relpath(f, self.build) for d in test['depends'] for f in targets[d]['filename']]
            test['sources'] = [os.path.relpath(s, self.root) for d in test['depends'] if 'sheaf:unit' in test['suite']
                               for part in targets[d]['target_sources'] for s in part.get('sources', [])]
            test['includes'] = set(re.findall(r'#include "([^"]+)"', ''.join((self.root / s).read_text() for s in test['sources'])))
            if not set(test['suite']) & unwanted:
                self.tests[test['name']] = test
        apart = ['unshare', '-Urpf', '--kill-child']  # what a mistake kills must not be ours
        self.apart = apart if shutil.which('unshare') and self.run_apart(apart + ['true'], 10, {}) else []

    def run_apart(self, command, limit, env):
        who = {'user': 65534, 'group': 65534, 'extra_groups': []} if os.getuid() == 0 else {}
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.root / 'tmp',
                               env={**os.environ, **env, 'TMPDIR': str(self.root / 'tmp')}, start_new_session=True, **who,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)))
        try:
            return run.wait(limit) == 0
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            return False

    def passes(self, name):
        """None: it does not compile."""
        test = self.tests[name]
        if subprocess.run(['ninja', '-C', self.build, *test['files']], stdout=subprocess.DEVNULL).returncode != 0:
            return None
        begin, limit = time.monotonic(), LIMIT_CLI if name.startswith('cli/') else LIMIT
        good = self.run_apart(self.apart + test['cmd'], min(limit, 10 + 10 * self.sound.get(name, limit)), test['env'])
        return good and time.monotonic() - begin

    def tests_of(self, source):
        folder, stem = os.path.split(source.path)
        stem, room = stem[:-2], folder.split('/')[1] if '/' in folder else folder
        seen = re.match(r'/\* \S+ - see (\S+\.h)', source.text)
        alike = lambda name: -len({os.path.basename(folder), *stem.split('_')} & set(re.split('[/_]', name)))
        headers = {folder[4:] + f'/{stem}.h'} | ({seen[1], folder[4:] + '/' + seen[1]} if seen else set())

        def distance(test):
            near = [s[:-len('_test.c')] for s in test['sources'] if s.endswith('_test.c')]
            if f'{folder}/{stem}' in near:
                return 0
            if any(os.path.dirname(n) == folder and (stem.startswith(os.path.basename(n) + '_') or
                                                     os.path.basename(n).startswith(stem + '_')) for n in near):
                return 1
            same = test['name'].startswith(room + '/') and test['sources'] != []
            if headers & test['includes']:
                return 2 if same else 4
            if same:
                return 3 if folder in map(os.path.dirname, near) else 5
            if alike(test['name']) != 0:
                return BEHIND
            return next((BEHIND + 1 + i for i, p in enumerate(BEYOND.get(room, '').split()) if fnmatch.fnmatch(test['name'], p)), FAR)
        near = sorted((distance(test), alike(name), name) for name, test in self.tests.items())
        return [name for d, _, name in near if d < BEHIND][:MOST] + [name for d, _, name in near if BEHIND <= d < FAR][:MOST // 2]

    def judge(self, place):
        """killed, survived, broken or unjudged, and the test."""
        at, tests = self.root / place.source.path, [n for n in self.tests_of(place.source) if self.sound.get(n) is not False]
        try:
            at.write_text(place.text)
            for name in tests:
                passed = self.passes(name)
                if passed is None:
                    return 'broken', name
                if passed is False:
                    at.write_text(place.source.text)
                    if name not in self.sound:
                        self.sound[name] = self.passes(name)  # the seconds that it takes, or False
                    if self.sound[name]:
                        return 'killed', name
                    at.write_text(place.text)
        finally:
            at.write_text(place.source.text)
        return ('survived', ' '.join(tests)) if tests else ('unjudged', 'no test')


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('paths', nargs='*')
    options.add_argument('--since')
    options.add_argument('--match')
    options.add_argument('--sample', type=int)
    options.add_argument('--seed', type=int, default=1)
    options.add_argument('--least', type=int, default=100)
    options.add_argument('--quick', action='store_true')
    options.add_argument('--list', action='store_true')
    options = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    chosen = [p for p in places(options) if not options.match or re.search(options.match, p.key)]
    if options.sample is not None and options.sample < len(chosen):
        drawn = random.Random(options.seed).sample(range(len(chosen)), options.sample)
        chosen = [chosen[i] for i in sorted(drawn)]
    listed = (ROOT / 'tests/mutants/equivalent.txt').read_text().splitlines()
    tree, known = Tree(options.quick), dict(row.rsplit(' | ', 1) for row in listed if row[:1] not in ('', '#'))
    count = dict.fromkeys(['killed', 'survived', 'broken', 'equivalent', 'unjudged'], 0)
    try:
        for place in chosen:
            if options.list:
                print(f'{place}\n    {" ".join(tree.tests_of(place.source))}')
                continue
            verdict, by = ('equivalent', known[place.key]) if place.key in known else tree.judge(place)
            count[verdict] += 1
            print(f'# {verdict}: {place} ({by})', flush=True)
    finally:
        shutil.rmtree(tree.root)
    judged = count['killed'] + count['survived']
    share = 100 * count['killed'] // judged if judged else 100
    good = share >= options.least and count['unjudged'] == 0
    print(f'{"ok" if good else "not ok"} - {share} % of mistakes by rule are noticed, wanted {options.least}')
    print('{killed} killed, {survived} survived, {broken} do not compile, {equivalent} equivalent, {unjudged} cannot be judged'.format(**count))
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
