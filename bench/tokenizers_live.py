"""sheaf tokenize against the tokenizers library, over tokenizers of every form trained here, and over texts in 35 scripts with odd
Unicode.   usage: tokenizers_live.py --sheaf PROGRAM --work DIR [--bytes N]   (N of texts in all, 12000000)
Prints "ok - " or "not ok - " for each tokenizer: ids with and without what is put around a text, special tokens as text and not,
decoded texts, each text as a line and all as one."""
import argparse, json, os, subprocess, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "tests", "data", "tokenizers"))
from make_recordings import line, tokenizers  # noqa: E402
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--sheaf", required=True)
parser.add_argument("--work", required=True)
parser.add_argument("--bytes", type=int, default=12_000_000)
args = parser.parse_args()
os.makedirs(args.work, exist_ok=True)


def sheaf(*flags, text=None):
    out = subprocess.run([args.sheaf, "tokenize", *flags], capture_output=True, input=text)
    if out.returncode:
        print("#", out.stderr.decode()[:400].replace("\n", " | "))
    return out.stdout


def lists(*flags):
    return [json.loads(row) for row in sheaf(*flags).splitlines()]


def compare(name, t, path, texts, whole):
    """What differs, in words."""
    lines, all_of = os.path.join(args.work, "lines"), os.path.join(args.work, "whole")
    open(lines, "wb").write("".join(text + "\n" for text in texts).encode())
    open(all_of, "wb").write(whole.encode())
    wrong = []
    for flags, plain, around in ((["--specials", "--add-special"], False, True), (["--specials"], False, False), ([], True, False)):
        t.encode_special_tokens = plain
        want = [e.ids for e in t.encode_batch(texts, add_special_tokens=around)]
        got = lists("--tokenizer", path, "--lines", *flags, lines)
        bad = sum(g != w for g, w in zip(got, want)) + abs(len(got) - len(want))
        if bad:
            first = next((i for i, (g, w) in enumerate(zip(got, want)) if g != w), 0)
            wrong.append(f"{bad} of {len(texts)} with {flags}, the first {texts[first]!r}")
    t.encode_special_tokens = False
    want = t.encode(whole, add_special_tokens=False).ids
    if lists("--tokenizer", path, "--specials", all_of) != [want]:
        wrong.append("all texts as one")
    rows = "".join(json.dumps(t.encode(text).ids) + "\n" for text in texts[:2000]).encode()
    back = b"".join(t.decode(json.loads(row), skip_special_tokens=False).encode() + b"\n" for row in rows.splitlines())
    if sheaf("--tokenizer", path, "--lines", "--decode", "-", text=rows) != back:
        wrong.append("decoded texts")
    return wrong


def every_point():
    """Every code point, alone and beside marks, through each normalizer and each pre-tokenizer that goes by classes of characters. The
    ids are the bytes of what comes out, and of a blank before each piece."""
    kinds = {"NFC": normalizers.NFC()}
    splits = {"Digits": pre_tokenizers.Digits(individual_digits=False)}
    points = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000 and chr(c) not in "\n"]
    texts = ["".join("x" + p + "\u0301\u0323" + p for p in points[i : i + 64]) for i in range(0, len(points), 64)]
    for name, kind in {**kinds, **splits}.items():
        alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
        t = Tokenizer(models.BPE(alphabet, []))
        if name in kinds:
            t.normalizer, t.pre_tokenizer = kind, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        else:
            t.pre_tokenizer = pre_tokenizers.Sequence([kind, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
        t.decoder = decoders.ByteLevel()
        yield name, t, texts


made, number, total = tokenizers(), 5 * 10**6, 0
for name, t in made.items():
    texts, size = [], 0
    while size < args.bytes // len(made):
        texts.append(line(number).replace("\n", "\x0b"))
        size, number = size + len(texts[-1].encode()), number + 1
    path = os.path.join(args.work, name + ".json")
    t.save(path)
    total += size
    wrong = compare(name, t, path, texts, "\n".join(line(number + i) for i in range(len(texts) // 10)))
    print("not ok" if wrong else "ok", "-", f"{name}: {size} bytes in {len(texts)} texts", "; ".join(wrong), flush=True)
for name, t, texts in every_point():
    path = os.path.join(args.work, name + ".json")
    t.save(path)
    total += sum(len(text.encode()) for text in texts)
    wrong = compare(name, t, path, texts, texts[0])
    print("not ok" if wrong else "ok", "-", f"{name}: every code point", "; ".join(wrong), flush=True)
print(f"# {total} bytes compared")
