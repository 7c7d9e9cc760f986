"""Makes the recordings of this folder from all of them: the first rows of blocks.safetensors, one model with
logits of the first tokens of its prompt, and edge/.

usage: subset.py RECORDINGS/gguf .
"""
import json
import os
import shutil
import struct
import sys

ROWS, HALVES, PROMPT, TAG, MODEL = 1, 128, 4, "qwen2", "tiny_qwen2/qwen2-q8_0.gguf"


def some(name, keep):
    """Copies the first keep(name, tensor) rows of each tensor; 0: it is left out."""
    with open(os.path.join(sys.argv[1], name), "rb") as f:
        bytes_ = f.read()
    size = struct.unpack("<Q", bytes_[:8])[0]
    header, data, kept, out = json.loads(bytes_[8:8 + size]), bytes_[8 + size:], b"", {}
    for key, t in header.items():
        if key == "__metadata__" or keep(key, t) == 0:
            continue
        begin, end = t["data_offsets"]
        end = begin + (end - begin) // t["shape"][0] * keep(key, t)
        t["shape"][0] = keep(key, t)
        out[key] = dict(t, data_offsets=[len(kept), len(kept) + end - begin])
        kept += data[begin:end]
    text = json.dumps(out, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(sys.argv[2], name), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + kept)


some("blocks.safetensors", lambda name, t: ROWS if len(t["shape"]) == 2 else HALVES)
some("logits.safetensors", lambda name, t: PROMPT if name.startswith(TAG + ".q8_0.logits_d") else 0)
with open(os.path.join(sys.argv[1], "runs.json")) as f:
    runs = json.load(f)
runs[TAG + ".q8_0"]["prompt"] = runs[TAG + ".q8_0"]["prompt"][:PROMPT]
with open(os.path.join(sys.argv[2], "runs.json"), "w") as f:
    json.dump({k: v for k, v in runs.items() if k in (TAG + ".q8_0", TAG + ".tokens")}, f)
os.makedirs(os.path.join(sys.argv[2], os.path.dirname(MODEL)), exist_ok=True)
shutil.copy(os.path.join(sys.argv[1], MODEL), os.path.join(sys.argv[2], MODEL))
shutil.copytree(os.path.join(sys.argv[1], "edge"), os.path.join(sys.argv[2], "edge"), dirs_exist_ok=True)
