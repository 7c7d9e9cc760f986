"""Records small models of MiniCPM-V 2.0, 2.5 and 2.6 in the form of the golden folders.

Plain torch, written from the formulas of docs/minicpmv.md, from no program, so that it is
a second opinion. Upstream's 2.5 looks at padding: v2_5 holds each picture by itself (one_row), and
what upstream computes for one row of pictures of several sizes (padded).

  python3 record_minicpmv.py FOLDER
"""
import json
import math
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

H, HEADS, FFN, LAYERS, VOCAB = 16, 2, 18, 1, 24
W, VHEADS, VFFN, DEPTH, PATCH, SIDE = 12, 2, 14, 1, 2, 4
Q, RHEADS = 4, 2
EMB, DEEP, BASE = 12, 1.4, 4


def tensors(version, seed):
    g = torch.Generator().manual_seed(seed)
    kv = H if version == 20 else H // 2
    w = {}

    def new(name, *shape, scale=0.15):
        w[name] = torch.randn(*shape, generator=g) * scale

    def norm(name, n):
        w[name + ".weight"] = 1 + torch.randn(n, generator=g) * 0.1
        w[name + ".bias"] = torch.randn(n, generator=g) * 0.1

    new("llm.model.embed_tokens.weight", VOCAB, H)
    new("llm.lm_head.weight", VOCAB, H)
    w["llm.model.norm.weight"] = 1 + torch.randn(H, generator=g) * 0.1
    for i in range(LAYERS):
        p = f"llm.model.layers.{i}."
        for n, rows in (("q", H), ("k", kv), ("v", kv)):
            new(p + f"self_attn.{n}_proj.weight", rows, H)
            if version == 26:
                new(p + f"self_attn.{n}_proj.bias", rows)
        new(p + "self_attn.o_proj.weight", H, H)
        new(p + "mlp.gate_proj.weight", FFN, H)
        new(p + "mlp.up_proj.weight", FFN, H)
        new(p + "mlp.down_proj.weight", H, FFN)
        for n in ("input_layernorm", "post_attention_layernorm"):
            w[p + n + ".weight"] = 1 + torch.randn(H, generator=g) * 0.1
    timm = version == 20
    e = "vpm.patch_embed.proj" if timm else "vpm.embeddings.patch_embedding"
    new(e + ".weight", W, 3, PATCH, PATCH)
    new(e + ".bias", W)
    new("vpm.pos_embed" if timm else "vpm.embeddings.position_embedding.weight",
        *((1, SIDE * SIDE, W) if timm else (SIDE * SIDE, W)))
    for i in range(DEPTH):
        p = f"vpm.blocks.{i}." if timm else f"vpm.encoder.layers.{i}."
        norm(p + ("norm1" if timm else "layer_norm1"), W)
        norm(p + ("norm2" if timm else "layer_norm2"), W)
        for n in ([("attn.qkv", 3 * W)] if timm else [(f"self_attn.{x}_proj", W) for x in "qkv"]):
            new(p + n[0] + ".weight", n[1], W)
            new(p + n[0] + ".bias", n[1])
        o = "attn.proj" if timm else "self_attn.out_proj"
        new(p + o + ".weight", W, W)
        new(p + o + ".bias", W)
        new(p + "mlp.fc1.weight", VFFN, W)
        new(p + "mlp.fc1.bias", VFFN)
        new(p + "mlp.fc2.weight", W, VFFN)
        new(p + "mlp.fc2.bias", W)
    norm("vpm.norm" if timm else "vpm.post_layernorm", W)
    new("resampler.query", Q, H)
    new("resampler.proj", H, H)
    new("resampler.kv_proj.weight", H, W)
    new("resampler.attn.in_proj_weight", 3 * H, H)
    new("resampler.attn.in_proj_bias", 3 * H)
    new("resampler.attn.out_proj.weight", H, H)
    new("resampler.attn.out_proj.bias", H)
    for n in ("ln_q", "ln_kv", "ln_post"):
        norm("resampler." + n, H)
    if timm:
        w["resampler.pos_embed"] = sincos(2, 2).reshape(Q, H)
    return {n: t.bfloat16().float() for n, t in w.items()}  # stored in half of the bytes


def sincos(h, w):
    """[h, w, H]: the column's sines and cosines, then the row's."""
    f = 1 / 10000 ** (torch.arange(H // 4, dtype=torch.float32) / (H / 4))
    col = torch.arange(w, dtype=torch.float32)[None, :, None] * f
    row = torch.arange(h, dtype=torch.float32)[:, None, None] * f
    parts = [col.sin(), col.cos(), row.sin(), row.cos()]
    return torch.cat([p.expand(h, w, H // 4) for p in parts], -1)


def attention(q, k, v, heads, mask=None):
    q, k, v = (x.reshape(x.shape[0], heads, -1).transpose(0, 1) for x in (q, k, v))
    s = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s + mask
    return (s.softmax(-1) @ v).transpose(0, 1).flatten(1)


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def layernorm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-6)


def positions(w, version, h, width, longest):
    if version == 20:
        t = w["vpm.pos_embed"].reshape(1, SIDE, SIDE, W).permute(0, 3, 1, 2)
        if (h, width) != (SIDE, SIDE):
            t = F.interpolate(t, (h, width), mode="bicubic", antialias=True)
        return t.permute(0, 2, 3, 1).reshape(-1, W)
    if version == 25:  # one row, as long as the batch's longest picture
        h, width = 1, longest
    edges = torch.arange(1 / SIDE, 1.0, 1 / SIDE)
    down = torch.bucketize(torch.arange(0, 1 - 1e-6, 1 / h), edges, right=True)
    across = torch.bucketize(torch.arange(0, 1 - 1e-6, 1 / width), edges, right=True)
    index = (down[:, None] * SIDE + across).flatten()
    return w["vpm.embeddings.position_embedding.weight"][index]


def see(w, version, image, longest):
    """The tower's rows of one picture, behind them those of its padding."""
    timm = version == 20
    h, width = image.shape[1] // PATCH, image.shape[2] // PATCH
    rows = image.reshape(3, h, PATCH, width, PATCH).permute(1, 3, 0, 2, 4).reshape(h * width, -1)
    rows = F.pad(rows, (0, 0, 0, longest - len(rows)))
    e = "vpm.patch_embed.proj" if timm else "vpm.embeddings.patch_embedding"
    x = rows @ w[e + ".weight"].reshape(W, -1).T + w[e + ".bias"]
    x = x + positions(w, version, h, width, longest)
    for i in range(DEPTH):
        p = f"vpm.blocks.{i}." if timm else f"vpm.encoder.layers.{i}."
        y = layernorm(w, p + ("norm1" if timm else "layer_norm1"), x)
        if timm:
            q, k, v = linear(w, p + "attn.qkv", y).chunk(3, -1)
        else:
            q, k, v = (linear(w, p + f"self_attn.{n}_proj", y) for n in "qkv")
        x = x + linear(w, p + ("attn.proj" if timm else "self_attn.out_proj"), attention(q, k, v, VHEADS))
        y = linear(w, p + "mlp.fc1", layernorm(w, p + ("norm2" if timm else "layer_norm2"), x))
        x = x + linear(w, p + "mlp.fc2", F.gelu(y, approximate="none" if timm else "tanh"))
    return layernorm(w, "vpm.norm" if timm else "vpm.post_layernorm", x)


def resample(w, version, x, h, width):
    z = layernorm(w, "resampler.ln_kv", linear(w, "resampler.kv_proj", x))
    q = layernorm(w, "resampler.ln_q", w["resampler.query"])
    if version == 20:
        q = q + w["resampler.pos_embed"]
    wq, wk, wv = w["resampler.attn.in_proj_weight"].chunk(3)
    bq, bk, bv = w["resampler.attn.in_proj_bias"].chunk(3)
    k = z + sincos(h, width).reshape(-1, H)
    y = attention(F.linear(q, wq, bq), F.linear(k, wk, bk), F.linear(z, wv, bv), RHEADS)
    y = linear(w, "resampler.attn.out_proj", y)
    return layernorm(w, "resampler.ln_post", y) @ w["resampler.proj"]


def rmsnorm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def rope(x, heads):
    n, d = x.shape[0], x.shape[1] // heads
    f = 1 / 10000 ** (torch.arange(0, d, 2).float() / d)
    a = torch.arange(n).float()[:, None] * f
    a = torch.cat([a, a], -1)
    x = x.reshape(n, heads, d)
    turned = torch.cat([-x[..., d // 2:], x[..., : d // 2]], -1)
    return (x * a.cos()[:, None] + turned * a.sin()[:, None]).flatten(1)


def decode(w, version, x):
    n = len(x)
    kv = HEADS if version == 20 else HEADS // 2
    by = DEEP / math.sqrt(LAYERS) if version == 20 else 1.0
    mask = torch.full((n, n), -math.inf).triu(1)
    for i in range(LAYERS):
        p = f"llm.model.layers.{i}."
        y = rmsnorm(x, w[p + "input_layernorm.weight"])
        q, k, v = (linear(w, p + f"self_attn.{m}_proj", y) for m in "qkv")
        q, k = rope(q, HEADS), rope(k, kv)
        k, v = (m.reshape(n, kv, -1).repeat_interleave(HEADS // kv, 1).flatten(1) for m in (k, v))
        x = x + linear(w, p + "self_attn.o_proj", attention(q, k, v, HEADS, mask)) * by
        y = rmsnorm(x, w[p + "post_attention_layernorm.weight"])
        y = F.silu(linear(w, p + "mlp.gate_proj", y)) * linear(w, p + "mlp.up_proj", y)
        x = x + linear(w, p + "mlp.down_proj", y) * by
    x = rmsnorm(x, w["llm.model.norm.weight"])
    return linear(w, "llm.lm_head", x / (H / BASE) if version == 20 else x)


def config(version, padded):
    text = {"hidden_size": H, "intermediate_size": FFN, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "num_key_value_heads": HEADS if version == 20 else HEADS // 2,
            "vocab_size": VOCAB, "max_position_embeddings": 64, "tie_word_embeddings": False,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
    vision = {"hidden_size": W, "image_size": PATCH * SIDE, "intermediate_size": VFFN,
              "num_attention_heads": VHEADS, "num_hidden_layers": DEPTH, "patch_size": PATCH}
    if version == 20:
        text |= {"scale_emb": EMB, "scale_depth": DEEP, "dim_model_base": BASE}
        vision = {"img_size": PATCH * SIDE, "patch_size": PATCH, "embed_dim": W, "depth": DEPTH + 1,
                  "num_heads": VHEADS, "mlp_ratio": 1.17, "blocks_present": DEPTH}
    c = {"model": f"MiniCPM-V {version / 10} layout", "text": text, "vision": vision, "query_num": Q,
         "resampler_num_heads": RHEADS}
    return c | ({"sheaf_padding_seen": True} if padded else {})


def record(folder, version, seed, padded=False):
    name = "padded" if padded else "one_row"
    torch.manual_seed(seed)
    w = {n: t.requires_grad_(n != "resampler.pos_embed") for n, t in tensors(version, seed).items()}
    grids = [(4, 4), (3, 5), (5, 2)]
    starts = [2, 8, 15]
    images = [torch.randn(3, h * PATCH, v * PATCH) for h, v in grids]
    ids = torch.randint(3, VOCAB, (22,))
    labels = torch.where(torch.rand(22) < 0.4, torch.randint(3, VOCAB, (22,)), -100)
    labels[-1] = -100
    longest = max(h * v for h, v in grids)
    seen = [see(w, version, im, longest if padded else h * v) for im, (h, v) in zip(images, grids)]
    rows = [resample(w, version, x[: h * v], h, v) for x, (h, v) in zip(seen, grids)]
    x = w["llm.model.embed_tokens.weight"][ids] * (EMB if version == 20 else 1)
    x = x.index_copy(0, torch.cat([torch.arange(s, s + Q) for s in starts]), torch.cat(rows))
    logits = decode(w, version, x)
    if version == 20:  # shifted inside
        loss = F.cross_entropy(logits[:-1], labels[1:])
    else:
        loss = F.cross_entropy(logits, labels)
    loss.backward()
    out = {"input_ids": ids[None], "inputs_embeds": x[None], "logits": logits[None],
           "loss": loss, "labels" if version == 20 else "labels_shifted": labels[None],
           "image_bounds" if version == 20 else "image_bound": torch.tensor([[s, s + Q] for s in starts])}
    for j in range(3):
        out[f"image_{j}_chw" if version == 20 else f"image_0_{j}_chw"] = images[j]
        out[f"vit_features_{j}"] = seen[j]
        out[f"resampler_out_{j}"] = rows[j]
    out = {n: t.detach().contiguous() for n, t in out.items()}
    os.makedirs(folder, exist_ok=True)
    save_file({n: t.detach().bfloat16() for n, t in w.items()}, f"{folder}/model.safetensors")
    save_file(out, f"{folder}/{name}.safetensors")
    some = ("pos_embed", "position_embedding.weight", "resampler.query", "patch_embedding.bias")
    save_file({f"grad.{n}": t.grad for n, t in w.items() if n.endswith(some) and t.grad is not None},
              f"{folder}/{name}_grads.safetensors")
    norms = {n: None if t.grad is None else t.grad.double().norm().item() for n, t in w.items()}
    with open(f"{folder}/{name}_grad_norms.json", "w") as f:
        json.dump({n: x and float(f"{x:.7g}") for n, x in norms.items()}, f, separators=(",", ":"))
    with open(f"{folder}/{'padded_' if padded else ''}config.json", "w") as f:
        json.dump(config(version, padded), f, indent=1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = sys.argv[1]
    record(f"{root}/v2_0", 20, 50)
    record(f"{root}/v2_5", 25, 55)
    record(f"{root}/v2_6", 26, 56)
    record(f"{root}/v2_5", 25, 55, padded=True)
