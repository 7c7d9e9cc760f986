"""Makes blocks.safetensors of this folder from the recorded one: its first ROWS rows of each type.

usage: subset.py RECORDINGS/gguf/blocks.safetensors blocks.safetensors
"""
import json
import struct
import sys

ROWS = 3

with open(sys.argv[1], "rb") as f:
    bytes_ = f.read()
size = struct.unpack("<Q", bytes_[:8])[0]
header, data, kept = json.loads(bytes_[8:8 + size]), bytes_[8 + size:], b""
for name, t in header.items():
    if name == "__metadata__":
        continue
    begin, end = t["data_offsets"]
    if len(t["shape"]) == 2:
        end = begin + (end - begin) // t["shape"][0] * ROWS
        t["shape"][0] = ROWS
    t["data_offsets"] = [len(kept), len(kept) + end - begin]
    kept += data[begin:end]
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[2], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + kept)
