"""Makes src/inputs/tokenizer/scripts_table.c: what the pre-tokenizer UnicodeScripts of `tokenizers` says of each code point.
usage: make_scripts.py FILE"""
import sys
from tokenizers import __version__, pre_tokenizers

split = pre_tokenizers.UnicodeScripts().pre_tokenize_str
first, points, last = [], [], 0  # of each script the code point that was met first
for c in range(0x110000):
    if 0xD800 <= c < 0xE000 or not split(chr(c)):  # of any script
        script = 0
    else:
        alike = (i for i in [last - 1] * (last > 0) + list(range(len(first))) if len(split(chr(first[i]) + chr(c))) == 1)
        script = next(alike, len(first)) + 1
        first += [c] * (script > len(first))
    if script != last:
        points.append(c << 8 | script)
    last = script
assert len(first) < 255
lines = [""]
for item in (f" {hex(p)}," for p in points):
    if len(lines[-1] + item) > 95:
        lines.append("")
    lines[-1] += item
header = "scripts" + ".h"  # beside the table
open(sys.argv[1], "w").write(f"""/* scripts_table.c - see scripts.h; made by tests/data/tokenizers/make_scripts.py with tokenizers
 * {__version__}. */
#include "{header}"

/* clang-format off */
const uint32_t sheaf__script_points[] = {{
""" + "\n".join("   " + line for line in lines) + f"""
}};
const int sheaf__script_points_count = {len(points)};
/* clang-format on */
""")
