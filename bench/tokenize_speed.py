"""tokenize.py - how fast a tokenizer.json opens, and texts become ids and come back: sheaf and `tokenizers`.

    ninja -C build bench/tokenize_bench
    python3 bench/tokenize_speed.py TOKENIZER.json TEXT [build/bench/tokenize_bench]

Both on one core, in turns, three times; processor time, the best of each. `tokenizers` gets the first 4 MB of the
text, as it is slow at long ones. The ids are compared.
"""
import os
import platform
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = os.environ["TOKENIZERS_PARALLELISM"] = "1"
import tokenizers

path, text_path = sys.argv[1:3]
program = sys.argv[3] if len(sys.argv) > 3 else "build/bench/tokenize_bench"
whole = open(text_path, encoding="utf-8", newline="").read()
text = whole.encode()[:4_000_000].decode(errors="ignore")
best = {}


def keep(name, seconds):
    best[name] = min(best.get(name, seconds), seconds)


def timed(name, call):
    begin = time.process_time()
    result = call()
    keep(name, time.process_time() - begin)
    return result


with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="") as short:
    short.write(text)
    short.flush()
    for _ in range(3):
        for file, of in ((text_path, "all"), (short.name, "short")):
            for line in subprocess.run([program, path, file], check=True, capture_output=True,
                                       text=True).stdout.splitlines():
                word, seconds, *count = line.split()
                keep(("sheaf", word, of), float(seconds))
                if count:
                    ours = int(count[0])
        t = timed(("tokenizers", "open"), lambda: tokenizers.Tokenizer.from_file(path))
        ids = timed(("tokenizers", "encode"), lambda: t.encode(text, add_special_tokens=False)).ids
        timed(("tokenizers", "decode"), lambda: t.decode(ids, skip_special_tokens=False))
size, part = len(whole.encode()) / 1e6, len(text.encode()) / 1e6
print("machine: %s, Python %s, tokenizers %s" % (platform.processor() or platform.machine(),
                                                 platform.python_version(), tokenizers.__version__))
print("%-28s %10s %10s" % ("", "sheaf", "tokenizers"))
print("%-28s %8.3f s %8.3f s" % ("open", best["sheaf", "open", "all"], best["tokenizers", "open"]))
for word in ("encode", "decode"):
    print("%-28s %5.1f MB/s %5.1f MB/s" % ("%s %.1f MB" % (word, part), part / best["sheaf", word, "short"],
                                           part / best["tokenizers", word]))
    print("%-28s %5.1f MB/s" % ("%s %.1f MB" % (word, size), size / best["sheaf", word, "all"]))
print("ids of the first part: %s" % ("as many" if ours == len(ids) else "%d and %d" % (ours, len(ids))))
