"""Records a small MiniCPM-V 4.5 with frames of a video: the folder minicpmv_frames.

  python3 make_frames.py FOLDER

Plain numpy in double precision, from the formulas of docs/minicpmv.md and docs/families/minicpmv-4.md,
from no program; on the weights and inputs of the recording that upstream's program made it gives that
one's logits within 1e-5. Sizes are odd on purpose: one key/value head, heads wider than hidden / heads.
"""
import json
import os
import sys

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "version": 4.5, "architectures": ["MiniCPMV"], "model_type": "minicpmv", "hidden_act": "silu",
    "hidden_size": 16, "intermediate_size": 18, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 12, "vocab_size": 26, "bos_token_id": 1, "eos_token_id": 2,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "rope_scaling": None,
    "attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02,
    "tie_word_embeddings": False, "torch_dtype": "float32", "query_num": 4, "batch_3d_resampler": True,
    "drop_vision_last_layer": False, "image_size": 8, "patch_size": 2, "resampler_num_heads": 2,
    "slice_mode": False, "use_image_id": True,
    "vision_config": {"model_type": "siglip", "hidden_size": 12, "image_size": 8, "intermediate_size": 14,
                      "num_attention_heads": 2, "num_hidden_layers": 1, "patch_size": 2},
}


def weights(c, random):
    h, w, v = c["hidden_size"], c["vision_config"]["hidden_size"], c["vision_config"]
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    out = {}

    def new(name, *shape):
        out[name] = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))

    def norm(name, n, bias=True):
        out[name + ".weight"] = 1 + 0.2 * random.standard_normal(n)
        if bias:
            out[name + ".bias"] = 0.1 * random.standard_normal(n)

    def linear(name, rows, cols):
        new(name + ".weight", rows, cols)
        out[name + ".bias"] = 0.1 * random.standard_normal(rows)

    for name in ("embed_tokens", "lm_head"):
        new("llm." + ("model." if name == "embed_tokens" else "") + name + ".weight", c["vocab_size"], h)
    norm("llm.model.norm", h, False)
    for i in range(c["num_hidden_layers"]):
        p = f"llm.model.layers.{i}."
        for n, rows, cols in (("q", q, h), ("k", kv, h), ("v", kv, h), ("o", h, q)):
            new(p + f"self_attn.{n}_proj.weight", rows, cols)
        for n in "qk":
            norm(p + f"self_attn.{n}_norm", c["head_dim"], False)
        new(p + "mlp.gate_proj.weight", c["intermediate_size"], h)
        new(p + "mlp.up_proj.weight", c["intermediate_size"], h)
        new(p + "mlp.down_proj.weight", h, c["intermediate_size"])
        for n in ("input_layernorm", "post_attention_layernorm"):
            norm(p + n, h, False)
    new("vpm.embeddings.patch_embedding.weight", w, 3, v["patch_size"], v["patch_size"])
    out["vpm.embeddings.patch_embedding.bias"] = 0.1 * random.standard_normal(w)
    side = v["image_size"] // v["patch_size"]
    out["vpm.embeddings.position_embedding.weight"] = 0.5 * random.standard_normal((side * side, w))
    for i in range(v["num_hidden_layers"]):
        p = f"vpm.encoder.layers.{i}."
        for n in ("layer_norm1", "layer_norm2"):
            norm(p + n, w)
        for n in ("q_proj", "k_proj", "v_proj", "out_proj"):
            linear(p + "self_attn." + n, w, w)
        linear(p + "mlp.fc1", v["intermediate_size"], w)
        linear(p + "mlp.fc2", w, v["intermediate_size"])
    norm("vpm.post_layernorm", w)
    new("resampler.query", c["query_num"], h)
    new("resampler.proj", h, h)
    new("resampler.kv_proj.weight", h, w)
    new("resampler.attn.in_proj_weight", 3 * h, h)
    out["resampler.attn.in_proj_bias"] = 0.1 * random.standard_normal(3 * h)
    linear("resampler.attn.out_proj", h, h)
    for n in ("ln_q", "ln_kv", "ln_post"):
        norm("resampler." + n, h)
    return {n: t.astype(np.float32) for n, t in out.items()}


def linear(w, name, x):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def layernorm(w, name, x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w[name + ".weight"] + w[name + ".bias"]


def rmsnorm(w, name, x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name + ".weight"]


def attention(q, k, v, causal=False):
    """[heads, rows, width] each."""
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if causal:
        s = s + np.triu(np.full(s.shape[1:], -np.inf), 1)
    p = np.exp(s - s.max(-1, keepdims=True))
    return ((p / p.sum(-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)


def heads(x, n):
    return x.reshape(x.shape[0], n, -1).transpose(1, 0, 2)


def tower(c, w, image):
    """The rows of a picture [3, height, width]."""
    v = c["vision_config"]
    p, side = v["patch_size"], v["image_size"] // v["patch_size"]
    h, width = image.shape[1] // p, image.shape[2] // p
    x = image.reshape(3, h, p, width, p).transpose(1, 3, 0, 2, 4).reshape(h * width, -1)
    e = "vpm.embeddings.patch_embedding"
    x = x @ w[e + ".weight"].reshape(w[e + ".weight"].shape[0], -1).T + w[e + ".bias"]
    edges = np.arange(1 / side, 1, 1 / side, dtype=np.float32)
    bucket = [np.digitize(np.arange(0, 1 - 1e-6, 1 / n, dtype=np.float32), edges) for n in (h, width)]
    x = x + w["vpm.embeddings.position_embedding.weight"][(bucket[0][:, None] * side + bucket[1]).ravel()]
    for i in range(v["num_hidden_layers"]):
        n = f"vpm.encoder.layers.{i}."
        y = layernorm(w, n + "layer_norm1", x)
        y = attention(*(heads(linear(w, n + f"self_attn.{k}_proj", y), v["num_attention_heads"]) for k in "qkv"))
        x = x + linear(w, n + "self_attn.out_proj", y)
        y = linear(w, n + "mlp.fc1", layernorm(w, n + "layer_norm2", x))
        y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y ** 3)))
        x = x + linear(w, n + "mlp.fc2", y)
    return layernorm(w, "vpm.post_layernorm", x)


def resampler(c, w, frames):
    """The rows of a group: [(rows of the tower, height, width, time)]; a time of -1 is none."""
    e, n = c["hidden_size"], c["resampler_num_heads"]
    quarter = 10000.0 ** (-np.arange(e // 4) / (e / 4))
    half = 10000.0 ** (-np.arange(e // 2) / (e / 2))
    keys, values = [], []
    for x, height, width, time in frames:
        z = layernorm(w, "resampler.ln_kv", linear(w, "resampler.kv_proj", x))
        row, col = (np.repeat(np.arange(height), width), np.tile(np.arange(width), height))
        angles = [col[:, None] * quarter, row[:, None] * quarter]
        k = z + np.concatenate([f(a) for a in angles for f in (np.sin, np.cos)], -1)
        if time >= 0:
            k = k + np.concatenate([np.sin(time * half), np.cos(time * half)])
        keys.append(k)
        values.append(z)
    rows = [layernorm(w, "resampler.ln_q", w["resampler.query"]), np.concatenate(keys), np.concatenate(values)]
    third = [slice(i * e, (i + 1) * e) for i in range(3)]
    q, k, v = (heads(x @ w["resampler.attn.in_proj_weight"][t].T + w["resampler.attn.in_proj_bias"][t], n)
               for x, t in zip(rows, third))
    y = linear(w, "resampler.attn.out_proj", attention(q, k, v))
    return layernorm(w, "resampler.ln_post", y) @ w["resampler.proj"]


def turn(x, theta):
    width, at = x.shape[-1], np.arange(x.shape[1])[:, None]
    angle = at * (1 / theta ** (np.arange(0, width, 2) / width))
    cos, sin = (np.concatenate([f(angle)] * 2, -1) for f in (np.cos, np.sin))
    a, b = np.split(x, 2, -1)
    return x * cos + np.concatenate([-b, a], -1) * sin


def text(c, w, ids, groups, bounds):
    """Embedded rows and logits of a row of ids, with the rows of each group at its bounds."""
    x = w["llm.model.embed_tokens.weight"][ids].astype(np.float64)
    for rows, (begin, end) in zip(groups, bounds):
        x[begin:end] = rows
    embeds, eps, kv = x.copy(), c["rms_norm_eps"], c["num_key_value_heads"]
    for i in range(c["num_hidden_layers"]):
        n = f"llm.model.layers.{i}."
        y = rmsnorm(w, n + "input_layernorm", x, eps)
        q, k, v = (heads(linear(w, n + f"self_attn.{m}_proj", y), h)
                   for m, h in (("q", c["num_attention_heads"]), ("k", kv), ("v", kv)))
        q, k = (turn(rmsnorm(w, n + f"self_attn.{m}_norm", y, eps), c["rope_theta"]) for m, y in (("q", q), ("k", k)))
        k, v = (np.repeat(y, c["num_attention_heads"] // kv, 0) for y in (k, v))
        x = x + linear(w, n + "self_attn.o_proj", attention(q, k, v, True))
        y = rmsnorm(w, n + "post_attention_layernorm", x, eps)
        gate = linear(w, n + "mlp.gate_proj", y)
        x = x + linear(w, n + "mlp.down_proj", gate / (1 + np.exp(-gate)) * linear(w, n + "mlp.up_proj", y))
    return embeds, linear(w, "llm.lm_head", rmsnorm(w, "llm.model.norm", x, eps))


def loss_of(logits, labels):
    top = logits.max(-1, keepdims=True)
    log = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return -np.mean([log[i, t] for i, t in enumerate(labels) if t >= 0])


def save(folder, name, tensors):
    kept = {n: np.ascontiguousarray(t.astype(np.float32) if t.dtype == np.float64 else t) for n, t in tensors.items()}
    save_file(kept, os.path.join(folder, name + ".safetensors"))


def frames_of(c, w, images, times):
    """The rows of the tower, and those of each group of frames."""
    patch = c["vision_config"]["patch_size"]
    seen = [tower(c, w, x.astype(np.float64)) for x in images]
    with_size = [(s, x.shape[1] // patch, x.shape[2] // patch) for s, x in zip(seen, images)]
    groups, at = [], 0
    for group in times:
        groups.append(resampler(c, w, [with_size[at + i] + (t,) for i, t in enumerate(group)]))
        at += len(group)
    return seen, groups


def row_of(c, random, groups, length):
    """Ids, labels and bounds of a row with so many groups of pictures."""
    q, at, bounds = c["query_num"], 2, []
    ids = random.integers(3, c["vocab_size"], length)
    for _ in range(groups):
        bounds.append([at, at + q])
        ids[at:at + q] = 0
        at += q + 1
    labels = np.full(length, -100)
    labels[at:length - 1] = ids[at + 1:]
    return ids, labels, np.array(bounds, dtype=np.int32)


def main(folder):
    c, random = CONFIG, np.random.default_rng(45)
    w = weights(c, random)
    os.makedirs(os.path.join(folder, "hf"), exist_ok=True)
    save(os.path.join(folder, "hf"), "model", w)
    with open(os.path.join(folder, "hf", "config.json"), "w", encoding="utf-8") as f:
        json.dump(c, f, indent=1)
    patch, width = c["vision_config"]["patch_size"], c["vision_config"]["hidden_size"]

    def picture(h, x):
        return random.standard_normal((3, h * patch, x * patch)).astype(np.float32)

    length, times = 17, [[0, 3, 7], [12, 20]]
    images = [picture(3, 4) for _ in range(5)]
    ids, labels, bounds = row_of(c, random, len(times), length)
    seen, groups = frames_of(c, w, images, times)
    embeds, logits = text(c, w, ids, groups, bounds)
    at = np.arange(length)[None]
    save(folder, "video_inputs", {"input_ids": ids[None], "labels_shifted": labels[None], "position_ids": at,
                                  "image_bound.0": bounds, **{f"image_0_{i}_chw": x for i, x in enumerate(images)}})
    save(folder, "video_outputs", {"video.logits": logits[None], "video.loss": np.array([loss_of(logits, labels)]),
                                   "video.vit_last_hidden": np.stack(seen), "video.resampler_out": np.stack(groups),
                                   "video.inputs_embeds": embeds[None]})
    # beside it a row without a picture, and one with
    rows = [row_of(c, random, n, length) for n in (0, 1)]
    image = picture(4, 2)
    out = [text(c, w, rows[0][0], [], [])[1], text(c, w, rows[1][0], frames_of(c, w, [image], [[-1]])[1], rows[1][2])[1]]
    save(folder, "inputs", {"input_ids": np.stack([r[0] for r in rows]), "labels_shifted": np.stack([r[1] for r in rows]),
                            "position_ids": np.concatenate([at, at]), "image_bound.1": rows[1][2], "image_1_0_chw": image})
    save(folder, "outputs", {"logits": np.stack(out)})
    # the resampler alone: frames of unequal size, one hours later, a picture
    sizes, alone = np.array([[3, 2], [2, 4], [4, 4], [1, 3]], dtype=np.int32), [[5, 71999], [-1], [0]]
    x = np.zeros((4, 16, width), dtype=np.float32)
    for i, (a, b) in enumerate(sizes):
        x[i, :a * b] = random.standard_normal((a * b, width))
    parts = [(x[i, :a * b].astype(np.float64), a, b) for i, (a, b) in enumerate(sizes)]
    batch, i = [], 0
    for group in alone:
        batch.append(resampler(c, w, [parts[i + k] + (t,) for k, t in enumerate(group)]))
        i += len(group)
    save(folder, "resampler_only", {"x": x, "tgt_sizes": sizes, "batch": np.stack(batch)})
    with open(os.path.join(folder, "info.json"), "w", encoding="utf-8") as f:
        json.dump({"groups_of_frames": {"temporal_ids": times}, "resampler_only": {"temporal_ids": alone}}, f)


if __name__ == "__main__":
    main(sys.argv[1])
