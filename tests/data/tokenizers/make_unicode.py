"""make_unicode.py - writes src/inputs/tokenizer/unicode_table.c: classes of characters as `tokenizers` sees them.

    python3 make_unicode.py > src/inputs/tokenizer/unicode_table.c

Every code point is put before the patterns \\p{L}, \\p{N} and \\s of Split (Oniguruma) and before Whitespace (\\w of
Rust's regex, which the added tokens' single_word uses).
"""
import tokenizers
from tokenizers import Regex, pre_tokenizers

codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matched(pattern):
    found = bytearray(b"\1" * len(codes))
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, codes))):
        found[begin:end] = bytes(end - begin)
    return {codes[i] for i, f in enumerate(found) if f}


def words():
    text = "".join("a" + chr(c) + "\n" for c in codes)
    pieces = pre_tokenizers.Whitespace().pre_tokenize_str(text)
    return {codes[b // 3] for _, (b, e) in pieces if b % 3 == 0 and e - b == 2}


sets = [matched(r"\p{L}"), matched(r"\p{N}"), matched(r"\s"), words()]
ranges = []
for c in range(0x110000):
    kind = sum(1 << i for i, s in enumerate(sets) if c in s)
    if kind == 0:
        continue
    if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == kind:
        ranges[-1][1] = c
    else:
        ranges.append([c, c, kind])
print("/* unicode_table.c - see unicode.h; made by tests/data/tokenizers/make_unicode.py\n"
      " * with tokenizers %s. */" % tokenizers.__version__)
print('#include "unicode.h"\n')
print("/* clang-format off */")
print("const sheaf__unicode_range sheaf__unicode_ranges[] = {")
line = "   "
for first, last, kind in ranges:
    item = " { 0x%x, %d, 0x%x }," % (first, kind, last)
    if len(line) + len(item) > 100:
        print(line)
        line = "   "
    line += item
print(line)
print("};")
print("/* clang-format on */\n")
print("const int sheaf__unicode_count = sizeof sheaf__unicode_ranges / sizeof *sheaf__unicode_ranges;")
