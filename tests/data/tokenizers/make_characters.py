"""Makes src/inputs/tokenizer/characters_table.c: what `tokenizers` says of each code point.
usage: make_characters.py FILE   (needs tokenizers, and libutf8proc.so.2, version 2.8)"""
import ctypes, itertools, sys
from tokenizers import __version__, normalizers as N, pre_tokenizers as P

u8 = ctypes.CDLL("libutf8proc.so.2")
u8.utf8proc_category_string.argtypes = [ctypes.c_int32]
u8.utf8proc_category_string.restype = ctypes.c_char_p
u8.utf8proc_tolower.argtypes = [ctypes.c_int32]
u8.utf8proc_tolower.restype = ctypes.c_int32
u8.utf8proc_map.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int]
u8.utf8proc_map.restype = ctypes.c_ssize_t
u8.utf8proc_version.restype = ctypes.c_char_p
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]
ALL = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
cat = {c: u8.utf8proc_category_string(c).decode() for c in ALL}


def form(text, compat):
    """NFD or NFKD by utf8proc."""
    raw, at = text.encode(), ctypes.c_void_p()
    n = u8.utf8proc_map(raw, len(raw), ctypes.byref(at), 2 | 16 | (4 if compat else 0))
    out = ctypes.string_at(at, n).decode()
    libc.free(at)
    return out


def lies_in(split):
    """For each code point, between two 'a': the piece it lies in, relative to it; None: removed."""
    out = {}
    for k in range(0, len(ALL), 4096):
        block = ALL[k : k + 4096]
        where = {}
        for _, (b, e) in split.pre_tokenize_str("a" + "".join(chr(c) + "a" for c in block)):
            where.update((i, (b, e)) for i in range(b, e))
        for j, c in enumerate(block):
            w = where.get(1 + 2 * j)
            out[c] = w and (w[0] - 1 - 2 * j, w[1] - 1 - 2 * j)
    return out


def alone(split):
    return {c for c, w in lies_in(split).items() if w == (0, 1)}


def changed(normalizer):
    out = {c: normalizer.normalize_str("b" + chr(c) + "b")[1:-1] for c in ALL}
    return {c: t for c, t in out.items() if t != chr(c)}


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


nfd, nfkd = changed(N.NFD()), changed(N.NFKD())
bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
word = lies_in(P.Whitespace())
oracle = {
    "numeric": alone(P.Digits(individual_digits=True)),
    "punct": alone(P.Punctuation("isolated")),
    "other": {c for c, t in changed(N.BertNormalizer(**{**bert, "clean_text": True})).items() if t == ""} - {0xFFFD},
    "nonspacing": {c for c, t in changed(N.BertNormalizer(**{**bert, "strip_accents": True})).items() if t == ""},
    "mark": {c for c, t in changed(N.StripAccents()).items() if t == ""},
    "word": {c for c, w in word.items() if w and w != (0, 1)},
}
# The normal forms: decompositions, and the order of marks beside one mark of each class that all versions know.
unknown = {c for c in ALL if (c in nfd or cat[c] != "Cn") and nfd.get(c, chr(c)) != form(chr(c), False)}
unknown |= {c for c in ALL if (c in nfkd or cat[c] != "Cn") and nfkd.get(c, chr(c)) != form(chr(c), True)}
classes = [0x334, 0x93C, 0x3099, 0x94D, 0x5B0, 0x64B, 0x670, 0x711, 0xC55, 0xE38, 0xE48, 0xEB8, 0xEC8, 0xF71, 0xF72, 0xF74,
           0x321, 0x1DCE, 0x31B, 0x316, 0x59A, 0x302E, 0x1D16D, 0x5AE, 0x301, 0x315, 0x35F, 0x35D, 0x345]
for c in ALL:
    if c in oracle["mark"]:
        text = "".join("b" + chr(c) + chr(m) + "b" + chr(m) + chr(c) for m in classes)
        if N.NFD().normalize_str(text) != form(text, False):
            unknown.add(c)
lower = changed(N.Lowercase())
differ = {c: lower.get(c, chr(c)) for c in ALL if c != 0x130 and lower.get(c, chr(c)) != chr(u8.utf8proc_tolower(c))}
assert all(len(t) == 1 for t in differ.values()) and lower[0x130] == "i\u0307"

# Decompositions of Unicode 15.1 to 17.0, which a newer utf8proc has.
newer = [0xA7F1, 0x105C9, 0x105E4, *range(0x11383, 0x11392), *range(0x113C5, 0x113C9), *range(0x16121, 0x16129),
         *range(0x16D68, 0x16D6B), *range(0x1CCD6, 0x1CCFA)]
unknown |= {c for c in newer if c not in nfkd}
unknown = {c for c in unknown if cat[c][0] != "M" or c in nfkd or form(chr(c), True) != chr(c)}  # marks: is_mark() says it

header = "characters" + ".h"  # beside the table
out = f"""/* characters_table.c - made by tests/data/tokenizers/make_characters.py with tokenizers
 * {__version__}. */
#include "{header}"

/* clang-format off */
"""


def table(head, rows):
    lines, line = [], "   "
    for row in rows:
        item = " { " + ", ".join(row) + " },"
        if len(line + item) > 98:
            lines.append(line)
            line = "   "
        line += item
    count = "sheaf__" + head.split("sheaf__")[-1].removesuffix("[]") + "_count"
    return f"{head} = {{\n" + "\n".join(lines + [line]) + f"\n}};\nconst int {count} = {len(rows)};\n"


classes, rows = {c: sum(1 << i for i, name in enumerate(oracle) if c in oracle[name]) for c in ALL}, []
for c in ALL:
    if classes[c] and rows and rows[-1][2] == c - 1 and rows[-1][1] == classes[c]:
        rows[-1][2] = c
    elif classes[c]:
        rows.append([c, classes[c], c])
out += table("const sheaf__character_range sheaf__character_ranges[]", [[hex(a), str(k), hex(b)] for a, k, b in rows])
out += table("const sheaf__character_range sheaf__character_unknown[]", [[hex(a), "0", hex(b)] for a, b in ranges(unknown)])
rows = []
for c, add in [(c, ord(t) - c) for c, t in sorted(differ.items())]:
    if rows and rows[-1][1] == c - 1 and rows[-1][2] == add:
        rows[-1][1] = c
    else:
        rows.append([c, c, add])
out += table("const sheaf__character_lower sheaf__character_lowers[]", [[hex(a), hex(b), str(d)] for a, b, d in rows])
open(sys.argv[1], "w").write(out + "/* clang-format on */\n")
