"""make_unicode.py - writes src/inputs/tokenizer/unicode_table.c: classes of characters as `tokenizers` sees them.

    python3 make_unicode.py > src/inputs/tokenizer/unicode_table.c

Every code point is put before the patterns \\p{L}, \\p{N} and \\s of Split (Oniguruma) and before Whitespace (\\w of
Rust's regex, which the added tokens' single_word uses). The second table: characters that Unicode 14, which PCRE2
10.42 knows, sees otherwise, each with one that both see alike, of the same category, script and length in UTF-8.
Needs a Python with Unicode 14 (3.11) and the module regex (for scripts).
"""
import unicodedata

import regex
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


def categories():
    names = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
    return {c: name for name in names for c in matched(r"\p{%s}" % name)}


SCRIPTS = [regex.compile(r"\p{Script=%s}" % name) for name in
           """Common Inherited Latin Greek Cyrillic Armenian Hebrew Arabic Syriac Thaana Devanagari Bengali Gurmukhi
           Gujarati Oriya Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Georgian Hangul Ethiopic
           Khmer Mongolian Hiragana Katakana Bopomofo Han Yi Balinese Javanese Sundanese Egyptian_Hieroglyphs Ahom
           Kawi Khojki Nag_Mundari Tai_Tham Takri""".split()]


def script(code):
    for i, name in enumerate(SCRIPTS):
        if name.match(chr(code)):
            return i
    return -1


def stand_ins(seen):
    """(first, last, what stands for each) of characters that Unicode 14 sees otherwise."""
    assert unicodedata.unidata_version.startswith("14.")
    changed = [c for c in codes if seen[c] != unicodedata.category(chr(c))]
    alike = {}
    for c in codes:
        if seen[c] == unicodedata.category(chr(c)) != "Cn":
            key = seen[c], len(chr(c).encode())
            alike.setdefault(key, c)
            alike.setdefault(key + (script(c),), c)
    ranges = [[0x180E, 0x180E, 0x200B]]  # PCRE2 takes it for a blank
    for c in changed:
        key = seen[c], len(chr(c).encode())
        for_it = alike.get(key + (script(c),), alike.get(key, 0))
        if seen[c] == "Cn" or for_it == 0:
            raise SystemExit("nothing stands for U+%04X, %s" % (c, seen[c]))
        if ranges[-1][1] == c - 1 and ranges[-1][2] == for_it:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, for_it])
    return sorted(ranges)


def table(kind, name, rows):
    print("const %s %s[] = {" % (kind, name))
    line = "   "
    for item in rows:
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")


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
table("sheaf__unicode_range", "sheaf__unicode_ranges", [" { 0x%x, %d, 0x%x }," % (f, k, l) for f, l, k in ranges])
print()
table("sheaf__stand_in", "sheaf__stand_ins", [" { 0x%x, 0x%x, 0x%x }," % tuple(r) for r in stand_ins(categories())])
print("/* clang-format on */\n")
print("const int sheaf__unicode_count = sizeof sheaf__unicode_ranges / sizeof *sheaf__unicode_ranges;")
print("const int sheaf__stand_in_count = sizeof sheaf__stand_ins / sizeof *sheaf__stand_ins;")
