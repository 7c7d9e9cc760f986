#!/usr/bin/env python3
"""Makes small mistakes in functions of src by rule and sees whether a test notices each.

mutate.py [--since REV] [--match REGEX] [--sample N] [--seed S] [--least PERCENT] [--quick] [--list] [FILE or FOLDER]...

Without a file or folder: all of src. --since: only functions that changed since REV. --match: only places whose line in
the list of equivalent ones (below) has it. --sample: N of the places, drawn by the seed (1). --quick: without shell tests
of the command. --list shows the places, and runs nothing.

negate  if, while: the opposite        never  if: not taken                arms  c ? a : b: c ? b : a
join    && for ||, || for &&           equal  == for !=, != for ==         one   + 1 or - 1 left out
bound   < for <=, > for >= and back; a loop one short                      sign  + for -, - for +
drop    a statement left out: a call, or what a field or an element is set to

A copy of the tree in a temporary folder gets all mistakes at once, each behind its number, `sheaf_mutant(17) ? a <= b :
a < b`, and is built once; SHEAF_MUTANT=17 switches one on. Every test runs once without a mistake, which shows its time
and what it reaches; then each mistake meets the tests that reach it, those of its room first, then the quickest, until one
fails or as many took SECONDS without it. tests/mutants/equivalent.txt lists mistakes that no test can notice:
"FILE FUNCTION RULE | LINE WITH THE MISTAKE | REASON". Ends with the counts; 1 where fewer than --least (100) percent of the
others are noticed.
"""
import argparse, json, os, random, re, resource, shutil, signal, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS, LIMIT, JOBS = 60, 600, os.cpu_count()
FIRST_KILLED = ['sh', '-c', 'echo 1000 >/proc/self/oom_score_adj; exec "$@"', 'sh']  # and no others, if it takes all memory
LATE = ['maybe-uninitialized', 'uninitialized', 'array-bounds', 'stringop-overflow', 'stringop-overread', 'format-truncation']
SWITCH = r'''
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static unsigned char *reached;
static int now;
__attribute__((constructor)) static void begin(void)
{
    const char *what = getenv("SHEAF_MUTANT"); /* a number, or the file that notes what is reached */
    const int file = what != NULL && *what == '/' ? open(what, O_RDWR) : -1;
    now = what != NULL ? atoi(what) : 0;
    if (file >= 0) {
        reached = mmap(NULL, %d, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
}
int sheaf_mutant(int number)
{
    if (reached != NULL)
        reached[number] = 1;
    return number == now;
}
'''
# What nvcc compiles, and what x86-64 does not, is not in this build.
ABSENT = ('src/ops/devices/gpu/cuda/kernels/', 'src/ops/lanes.h')
# What only a leak, a race, the text of a message or a failed allocation would show is left alone.
QUIET = re.compile(r'free|close|release|unlock|lock$|expected|found|try_this|note|warn|unlink|pthread|assert|va_end|va_start|print|advise|yield')
TOKEN = re.compile(r'''//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|
    \d(?:[eEpP][+-]|[\w.])*|->|\+\+|--|<<=|>>=|&&|\|\||[<>=!]=|<<|>>|[-+*/%&|^]=|\S''', re.S | re.M | re.X)
SET = re.compile(r'\w+(?: (?:\.|->) \w+| \[[^=;]*\])+ (?:[-+|&]=|=) ')
KEYWORDS = ('if', 'while', 'for', 'switch', 'return', 'sizeof')
OTHER = {'&&': '||', '||': '&&', '==': '!=', '!=': '==', '<': '<=', '<=': '<', '>': '>=', '>=': '>'}
RULE = {'&&': 'join', '||': 'join', '==': 'equal', '!=': 'equal'}
BEFORE = {*'([{,;}?:', *'= += -= *= /= %= &= |= ^= <<= >>= return case else do'.split()}  # an expression


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

    def begin_of(self, i):
        while self.t[i - 1] not in BEFORE:
            i = self.mate[i - 1] if self.t[i - 1] in ')]' else i - 1
        return i

    def places(self, first, last):
        """(rule, first token, behind the last, the text there with the mistake, how both stand there) of each mistake."""
        t, mate, bounds, i = self.t, self.mate, set(), first
        either, opposite = 'sheaf_mutant(%d) ? {} : (', 'sheaf_mutant(%d) == !('

        def within(rule, begin, end, new):
            """The expression around it, with these tokens replaced."""
            a, z = self.begin_of(begin), self.end_of(end, ',;)]}:?')
            text = self.part(a, begin) + f' {new} ' + self.part(end, z)
            return rule, a, z, ' '.join(text.split()), either
        while i < last:
            now, i = i, i + 1
            if t[now] in ('if', 'while') and t[i] == '(':
                end, inside = mate[i], self.part(i + 1, mate[i])
                if t[now] == 'if' and 'no_memory' in ' '.join(t[end:self.end_of(end + 1, ';')]):
                    i = self.end_of(end + 1, ';')
                    continue
                if not set(t[i:end]) & set(OTHER):
                    yield 'negate', i + 1, end, f'!({inside})', opposite
                if t[now] == 'if':
                    yield 'never', i + 1, end, f'0 && ({inside})', '!sheaf_mutant(%d) && ('
            elif t[now] == 'for' and t[i] == '(':
                middle = self.end_of(i + 1, ';')
                bounds |= set(range(middle, self.end_of(middle + 1, ';')))
            elif t[now] in ('malloc', 'calloc', 'realloc'):
                i = mate[i]
            elif t[now] in RULE:
                if 'NULL' not in (t[now - 1], t[i]) and not (t[i + 1] == '?' and t[i + 2][0] == '"'):
                    yield within(RULE[t[now]], now, i, OTHER[t[now]])
            elif t[now] in OTHER:
                short = now in bounds and {'<': '+ 1 <', '>': '- 1 >'}.get(t[now])
                yield within('bound', now, i, short or OTHER[t[now]])
            elif t[now] in '+-' and re.match(r'[\w)\]]', t[now - 1]) and t[now - 1] not in ('return', 'case'):
                if t[i] != '1':
                    yield within('sign', now, i, '-' if t[now] == '+' else '+')
                elif t[i + 1] not in '*/%<<>>':
                    yield within('one', now, i + 1, '')
            elif t[now] == '?':
                begin, end = self.begin_of(now), self.end_of(self.end_of(i, ':') + 1)
                if '?' not in t[i:end] and t[i][0] != '"':
                    yield 'arms', begin, now, f'!({self.part(begin, now)})', opposite
            elif re.match(r'[A-Za-z_]', t[now]) and (t[now - 1] in ('{', '}', ';', 'else') or
                                                     t[now - 1] == ')' and t[mate[now - 1] - 1] in ('if', 'for', 'while')):
                end = self.end_of(now, ';{')
                what = t[self.end_of(i + 1, ',') + 1] if t[now] == 'TRY' else t[now]
                call = t[i] == '(' and mate[i] + 1 == end and not QUIET.search(what)
                if t[end] == ';' and (call and what not in KEYWORDS or SET.match(' '.join(t[now:end]))):
                    yield 'drop', now, end, '/* ' + self.part(now, end).replace('*/', '') + ' */', 'sheaf_mutant(%d) ? (void)0 : (void)('

    def part(self, first, last):
        return self.text[self.tokens[first].start():self.tokens[last - 1].end()] if first < last else ''


class Place:
    def __init__(self, source, function, rule, first, last, new, form):
        self.source, self.begin, self.end = source, source.tokens[first].start(), source.tokens[last - 1].end()
        self.lines = range(source.line(self.begin), source.line(self.end) + 1)
        self.form = form.format(new) if '{}' in form else form
        line = source.text[source.text.rfind('\n', 0, self.begin) + 1:self.begin] + new + source.text[self.end:].split('\n', 1)[0]
        self.key = f'{source.path} {function} {rule} | {" ".join(line.split())}'

    def __str__(self):
        return f'{self.source.path}:{self.lines[0]} {self.key.split(" ", 1)[1]}'


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
        wanted = not path.startswith(ABSENT) and (since is None or path in since)
        for name, first, last in source.functions() if wanted else []:
            span = range(source.line(source.tokens[first].start()), source.line(source.tokens[last - 1].end()) + 1)
            if since is None or since[path].intersection(span):
                yield from (Place(source, name, *place) for place in source.places(first, last))


class Tree:
    """A copy of the sources with mistakes, of which a number chooses one; `places` loses those that do not compile."""

    def __init__(self, root, places, quick):
        unwanted = {'sheaf:large', 'sheaf:rules', 'sheaf:package', 'sheaf:ranks', 'sheaf:examples', *(('sheaf:cli', 'sheaf:mpi') if quick else ())}
        self.root, self.build, self.places = root, root / 'build', places
        shutil.copytree(ROOT, root, dirs_exist_ok=True, symlinks=True, ignore=lambda folder, names: [
            n for n in names if Path(folder) == ROOT and (n == '.git' or n.startswith('build'))])
        (root / 'switch.c').write_text(SWITCH % (len(places) + 1))
        subprocess.run(['gcc', '-O2', '-shared', '-fPIC', '-o', root / 'libswitch.so', root / 'switch.c'], check=True)
        subprocess.run(['meson', 'setup', '-Dwerror=true', '-Dgpu_kinds=', '-Db_asneeded=false', self.build, root], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, 'LDFLAGS': f'{root}/libswitch.so -Wl,-rpath,{root}'})
        root.chmod(0o755)
        about = lambda what: json.loads(subprocess.check_output(['meson', 'introspect', '--' + what, self.build]))
        files = {x['id']: [os.path.relpath(f, self.build) for f in x['filename']] for x in about('targets')}
        tests = [test for test in about('tests') if not set(test['suite']) & unwanted]
        targets = sorted({f for test in tests for d in test['depends'] for f in files[d]})
        self.write({p.source for p in places})
        while (made := subprocess.run(['ninja', '-k', '0', '-C', self.build, *targets], capture_output=True, text=True)).returncode != 0:
            said = re.sub(r'\x1b\[[0-9;]*[mK]', '', made.stdout)
            wrong = {(m[1], int(m[2])) for m in re.finditer(r'^\.\./(src/[^:\s]+):(\d+):.*error', said, re.M)}
            bad = [p for p in places if p and any((p.source.path, line) in wrong for line in p.lines)]
            if not bad:
                sys.exit('mutate.py: the tree does not compile\n' + '\n'.join(re.findall('.*error.*', said)))
            for place in bad:
                places[places.index(place)] = None
            self.write({p.source for p in bad})
        apart = ['unshare', '-Urpf', '--mount-proc', '--kill-child']  # what a mistake kills must not be ours
        self.apart = apart if shutil.which('unshare') and self.run(apart + ['true'], 10, {}, 0) else []
        with ThreadPoolExecutor(JOBS) as pool:
            self.tests = [test for test in pool.map(self.sound, tests) if test]

    def sound(self, test):
        """The test, its seconds and what it reaches; None: it fails without a mistake."""
        marks = self.root / ('reached.' + test['name'].replace('/', '.'))
        marks.write_bytes(bytes(len(self.places) + 1))
        marks.chmod(0o666)
        begin = time.monotonic()
        if self.run_test(test, LIMIT, marks):
            return test, time.monotonic() - begin, marks.read_bytes()
        print(f'# {test["name"]} fails without a mistake', flush=True)

    def write(self, sources):
        """Sources with their mistakes, one within the other. Their warnings are left out: by a marker, and by name what it leaves."""
        quiet = ''.join(f'#pragma GCC diagnostic ignored "-W{w}"\n' for w in LATE)
        for source in sources:
            at, text = {}, source.text
            for number, p in sorted(enumerate(self.places, 1), key=lambda x: x[1].end - x[1].begin if x[1] else 0):
                if p and p.source is source:
                    at[p.begin] = '(' + p.form.replace('%d', str(number), 1) + at.get(p.begin, '')
                    at[p.end] = at.get(p.end, '') + '))'
            for where in sorted(at, reverse=True):
                text = text[:where] + at[where] + text[where:]
            (self.root / source.path).write_text(f'int sheaf_mutant(int);\n{quiet}# 1 "../{source.path}" 3\n{text}')

    def run_test(self, test, limit, mutant):
        return self.run(self.apart + test['cmd'], limit, test['env'], mutant, test['workdir'])

    def run(self, command, limit, env, mutant, folder=None):
        who = {'user': 65534, 'group': 65534, 'extra_groups': []} if os.getuid() == 0 else {}
        with tempfile.TemporaryDirectory(dir=self.root, prefix='', ignore_cleanup_errors=True) as own:
            os.chmod(own, 0o1777)
            run = subprocess.Popen(FIRST_KILLED + command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   cwd=folder or own, env={**os.environ, **env, 'TMPDIR': own, 'SHEAF_MUTANT': str(mutant)}, start_new_session=True, **who)
            try:
                return run.wait(limit) == 0
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
                return False

    def judge(self, number, place):
        """killed, survived or broken, and by what."""
        if place is None:
            return 'broken', 'compiler'
        room = place.source.path.split('/')[1]
        spent, met = 0, []
        for test, seconds, reached in sorted(self.tests, key=lambda x: (not x[0]['name'].startswith(room + '/'), x[1])):
            if reached[number] and spent < SECONDS:
                spent += seconds
                met.append(test['name'])
                if not self.run_test(test, 10 + 10 * seconds, number):
                    return 'killed', met[-1]
        return 'survived', ' '.join(met) or 'no test reaches it'


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
    print(f'# {len(chosen)} places')
    if options.sample is not None and options.sample < len(chosen):
        drawn = random.Random(options.seed).sample(range(len(chosen)), options.sample)
        chosen = [chosen[i] for i in sorted(drawn)]
    if options.list:
        return print(*chosen, sep='\n')
    listed = (ROOT / 'tests/mutants/equivalent.txt').read_text().splitlines()
    known = dict(row.rsplit(' | ', 1) for row in listed if row[:1] not in ('', '#'))
    count = dict.fromkeys(['killed', 'survived', 'broken', 'equivalent'], 0)
    left = [p for p in chosen if p.key not in known]
    count['equivalent'], given = len(chosen) - len(left), list(left)
    with tempfile.TemporaryDirectory(prefix='mutate.') as folder, ThreadPoolExecutor(JOBS) as pool:
        tree = Tree(Path(folder).resolve(), left, options.quick)
        for place, (verdict, by) in zip(given, pool.map(tree.judge, range(1, len(left) + 1), left)):
            count[verdict] += 1
            print(f'# {verdict}: {place} ({by})', flush=True)
    judged = count['killed'] + count['survived']
    share = 100 * count['killed'] // judged if judged else 100
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f'{"ok" if share >= options.least else "not ok"} - {share} % of mistakes by rule are noticed, wanted {options.least}')
    print('{killed} killed, {survived} survived, {broken} do not compile, {equivalent} equivalent'.format(**count),
          f'in {used.ru_utime + used.ru_stime:.0f} seconds of a processor')
    return 0 if share >= options.least else 1


if __name__ == '__main__':
    sys.exit(main())
