"""Makes the recordings of this folder: what llama.cpp's own script for towers of MiniCPM-V writes of a small model.

usage: record.py fill FOLDER        gives the tensors of a model of config.json (sheaf init, bfloat16) numbers by a rule
       record.py list FILE.gguf     prints a hash of all before the data, and one of each tensor

Between the two llama.cpp's minicpmv-surgery.py and minicpmv-convert-image-encoder-to-gguf.py ran on the folder, with
--minicpmv_version 3, means and deviations of 0.5, and their constants set to the numbers in config.json, which newer
versions read there; f32.txt is of --use-f32. What numpy computes itself, resampler.pos_embed_k, differs in its last bit
from one processor to another: of it a hash of some numbers, rounded to three digits.
"""
import json
import struct
import sys

import numpy as np

FNV = 0xcbf29ce484222325


def fnv(data, value=FNV):
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


def fill(folder):
    path = folder + "/model.safetensors"
    with open(path, "rb") as file:
        data = bytearray(file.read())
    size = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + x for x in t["data_offsets"])
        index = np.arange((end - begin) // 2, dtype=np.uint64)
        turned = (np.uint64(fnv(name.encode())) + index * np.uint64(2654435761)) & np.uint64(0xffffffff)
        numbers = ((turned >> np.uint64(24)).astype(np.float32) - 128) / 256
        data[begin:end] = (numbers.view(np.uint32) >> 16).astype("<u2").tobytes()
    with open(path, "wb") as file:
        file.write(data)


def listing(path):
    from gguf import GGUFReader

    reader = GGUFReader(path)
    with open(path, "rb") as file:
        print("header %016x" % fnv(file.read(reader.data_offset)))
    for t in reader.tensors:
        some = t.data
        if t.name == "resampler.pos_embed_k":
            some = np.rint(t.data.reshape(-1)[::997].astype(np.float64) * 1000).astype("<i4")
        print("%s %016x" % (t.name, fnv(some.tobytes())))


{"fill": fill, "list": listing}[sys.argv[1]](sys.argv[2])
