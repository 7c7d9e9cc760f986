"""merged_range.py BASE ADAPTER MERGED LAYER...: are the linear weights of these layers in MERGED what PEFT's rule gives?

BASE is a folder of NF4 weights (bitsandbytes' names, blocks of 64 absmax in float32), ADAPTER PEFT's, MERGED the dequantised
result in bfloat16: round(round(code * absmax) + scale * (B A)) with the products in float32. Written with numpy alone and
tensor by tensor, so that models of any size can be checked; B A in another order of sums may be one rounding of the result
off, which is counted, and where base and terms of B A cancel, by what r + 1 roundings in float32 make of the terms.
Ends with `N tensors, M elements one rounding off`; exits 1 for anything else.
"""
import glob
import json
import os
import struct
import sys

import numpy as np

CODES = np.array([int(x, 16) for x in (
    "bf800000 bf3239b1 bf066b30 beca32a0 be91a24d be3d353f bdba7871 0 3da2faff 3e24cae3 3e7c04dd 3ead033a 3ee1a4b8 "
    "3f1007ab 3f3913b3 3f800000").split()], np.uint32).view(np.float32)


def tensors(folder):
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        with open(path, "rb") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            for name, t in json.loads(f.read(n)).items():
                if name != "__metadata__":
                    found[name] = (path, 8 + n + t["data_offsets"][0], t)
    return found


def read(found, name):
    path, at, t = found[name]
    kind = {"F32": np.float32, "BF16": np.uint16, "U8": np.uint8}[t["dtype"]]
    size = t["data_offsets"][1] - t["data_offsets"][0]
    x = np.fromfile(path, kind, size // np.dtype(kind).itemsize, offset=at).reshape(t["shape"])
    return floats(x) if t["dtype"] == "BF16" else x


def floats(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def main(base, adapter, merged, *layers):
    base, factors, merged = tensors(base), tensors(adapter), tensors(merged)
    config = json.load(open(os.path.join(sys.argv[2], "adapter_config.json")))
    scale, count, off = np.float32(config["lora_alpha"] / config["r"]), 0, 0
    for name in sorted(factors):
        module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        if ".lora_A." not in name or not any(".layers.%s." % i in name for i in layers):
            continue
        weight, a = module + ".weight", read(factors, name)
        b = read(factors, name.replace(".lora_A.", ".lora_B."))
        shape, absmax = (b.shape[0], a.shape[1]), read(base, weight + ".absmax")
        packed = read(base, weight).reshape(-1)
        codes = np.stack([packed >> 4, packed & 15], 1).reshape(-1)
        plain = (CODES[codes].reshape(-1, 64) * absmax.reshape(-1, 1)).reshape(shape)
        plain = floats(bf16(plain))
        want, got = bf16(plain + scale * (b @ a)), bf16(read(merged, weight))
        if got.shape != shape:
            print("%s: %s, expected %s" % (weight, got.shape, shape))
            return 1
        near = np.abs(want.astype(np.int32) - got) <= 1
        terms = 2 * (config["r"] + 1) * 2.0**-24 * (abs(plain) + scale * (np.abs(b) @ np.abs(a)))
        far = ~near & ~(np.abs(floats(want) - floats(got)) <= terms)
        if far.any():
            print("%s: %d elements differ by more than a rounding" % (weight, int(far.sum())))
            return 1
        count, off = count + 1, off + int((want != got).sum())
    print("%d tensors, %d elements one rounding off" % (count, off))
    return count == 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
