"""A CogVLM of real size that takes little of a disk: sparse_model.py ONE_LAYER CONFIG OUT.

ONE_LAYER is the folder that `sheaf init` writes of CONFIG with one layer of each kind. OUT has the tensors of all layers. Of
every 4 MiB of a tensor only the first 256 KiB are numbers, random and finite; the rest are holes, which read as zeros.
"""
import json
import os
import random
import shutil
import struct
import sys

EVERY, SOME = 4 << 20, 256 << 10
FINITE = bytes(byte & 0x80 | 0x3C for byte in range(256))  # of bfloat16 and float32: sign, upper bits of the exponent


def numbers(count, source):
    made = bytearray(source.randbytes(count))
    made[1::2] = made[1::2].translate(FINITE)
    return made


def main(one, config_path, out):
    with open(config_path) as file:
        config = json.load(file)
    times = {"model.layers.0.": config["num_hidden_layers"],
             "model.vision.transformer.layers.0.": config["vision_config"]["num_hidden_layers"]}
    with open(f"{one}/model.safetensors", "rb") as file:
        found = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header, end, tensors = {"__metadata__": found.pop("__metadata__")}, 0, {}
    for name, tensor in found.items():
        first = next((first for first in times if name.startswith(first)), None)
        for layer in range(times.get(first, 1)):
            tensors[name.replace(".0.", f".{layer}.", 1)] = tensor, name
    for name, (tensor, _) in sorted(tensors.items()):
        begin = end
        end += tensor["data_offsets"][1] - tensor["data_offsets"][0]
        header[name] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(out)
    shutil.copy(config_path, f"{out}/config.json")
    with open(f"{out}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        data = file.tell()
        for name, (tensor, first) in tensors.items():
            source = random.Random(first if len(tensor["shape"]) == 1 else name)  # SAT has one table of frequencies
            begin, stop = header[name]["data_offsets"]
            for at in range(begin, stop, EVERY):
                file.seek(data + at)
                file.write(numbers(min(SOME, stop - at), source))
        file.truncate(data + end)


main(*sys.argv[1:])
