"""usage: gguf_seeds.py tests/fuzz/gguf: small GGUF models of one layer for the reader `gguf`, which together
have every type of tensor that is read, rows of q and k in pairs, experts, Gemma's norms and factors of angles.
Blocks hold arbitrary bytes; written without the gguf package, which refuses such small ones."""
import random
import struct
import sys

TYPES = {  # number, elements and bytes of a block
    "f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22),
    "q5_1": (7, 32, 24), "q8_0": (8, 32, 34), "q2_K": (10, 256, 84), "q3_K": (11, 256, 110),
    "q4_K": (12, 256, 144), "q5_K": (13, 256, 176), "q6_K": (14, 256, 210), "bf16": (30, 1, 2),
}
U32, F32, STRING = 4, 6, 8


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def key(name, value):
    if isinstance(value, str):
        return text(name) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, float):
        return text(name) + struct.pack("<If", F32, value)
    return text(name) + struct.pack("<II", U32, value)


def values(kind, shape, drawn):
    count = 1
    for size in shape:
        count *= size
    if kind == "f32":
        return struct.pack(f"<{count}f", *(drawn.randrange(1, 9) / 4 for _ in range(count)))
    _, elements, size = TYPES[kind]
    return bytes(drawn.randrange(1, 60) for _ in range(count // elements * size))


def write(path, architecture, keys, tensors):
    drawn = random.Random(path.rsplit("/", 1)[-1])
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys) + 1)
    head += key("general.architecture", architecture)
    for name, value in keys.items():
        head += key(f"{architecture}.{name}", value)
    data = b""
    for name, (kind, *shape) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        head += struct.pack("<IQ", TYPES[kind][0], len(data))
        data += values(kind, shape, drawn)
        data += bytes(-len(data) % 32)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


def layer(hidden, rows, kv, mlp, kinds, norm="f32"):
    kind = iter(kinds)
    return {
        "token_embd.weight": (next(kind), 3, hidden),
        "output_norm.weight": (norm, hidden),
        "blk.0.attn_norm.weight": (norm, hidden),
        "blk.0.ffn_norm.weight": (norm, hidden),
        "blk.0.attn_q.weight": (next(kind), rows, hidden),
        "blk.0.attn_k.weight": (next(kind), kv, hidden),
        "blk.0.attn_v.weight": (next(kind), kv, hidden),
        "blk.0.attn_output.weight": (next(kind), hidden, rows),
        "blk.0.ffn_gate.weight": (next(kind), mlp, hidden),
        "blk.0.ffn_up.weight": (next(kind), mlp, hidden),
        "blk.0.ffn_down.weight": (next(kind), hidden, mlp),
    }


def sizes(hidden, mlp, heads, kv, **more):
    return {"block_count": 1, "context_length": 64, "embedding_length": hidden, "feed_forward_length": mlp,
            "attention.head_count": heads, "attention.head_count_kv": kv,
            "attention.layer_norm_rms_epsilon": 1e-5, **more}


def main(folder):
    k_blocks = layer(256, 4, 2, 2, ["q6_K", "q2_K", "q3_K", "q4_K", "f16", "q5_K", "q6_K", "f16"], "f16")
    write(f"{folder}/k_blocks", "llama",
          sizes(256, 2, 2, 1, **{"attention.key_length": 2, "attention.value_length": 2,
                                 "rope.dimension_count": 2}), k_blocks)
    blocks = layer(32, 32, 16, 32, ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_0", "q5_1"])
    blocks["output.weight"] = ("f16", 3, 32)
    blocks["rope_freqs.weight"] = ("f32", 8)
    write(f"{folder}/blocks", "llama", sizes(32, 32, 2, 1), blocks)
    experts = layer(8, 8, 4, 8, ["bf16"] * 8)
    for name in ("gate", "up", "down"):
        del experts[f"blk.0.ffn_{name}.weight"]
        experts[f"blk.0.ffn_{name}_exps.weight"] = ("bf16", 2, 8, 8)
    experts["blk.0.ffn_gate_inp.weight"] = ("f32", 2, 8)
    write(f"{folder}/experts", "llama", sizes(8, 8, 2, 1, expert_count=2, expert_used_count=1), experts)
    gemma = layer(8, 8, 4, 8, ["f16"] * 8)
    for name in ("post_attention_norm", "post_ffw_norm"):
        gemma[f"blk.0.{name}.weight"] = ("f32", 8)
    for name in ("attn_q_norm", "attn_k_norm"):
        gemma[f"blk.0.{name}.weight"] = ("f32", 4)
    write(f"{folder}/gemma3", "gemma3",
          sizes(8, 8, 2, 1, **{"attention.key_length": 4, "attention.value_length": 4,
                               "attention.sliding_window": 4, "rope.freq_base": 10000.0}), gemma)


main(sys.argv[1])
