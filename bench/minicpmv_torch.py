"""minicpmv_torch.py - MiniCPM-V 2.6 in plain PyTorch, as its published code computes it: images of a batch padded to the
largest and masked, a SigLIP NaViT tower, the resampler on all of them at once, Qwen2.

  minicpmv_torch.py FOLDER     holds it to the recordings of the original program there (v2_6)
"""
import glob
import json
import math
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn


def sizes(folder):
    """The published form of a config, or the recordings'."""
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    text, vision = c.get("text", c), c.get("vision", c.get("vision_config"))
    layers = vision["num_hidden_layers"]
    return {"hidden": text["hidden_size"], "inner": text["intermediate_size"], "layers": text["num_hidden_layers"],
            "heads": text["num_attention_heads"], "kv": text["num_key_value_heads"], "vocab": text["vocab_size"],
            "eps": text["rms_norm_eps"], "theta": text["rope_theta"], "queries": c["query_num"],
            "rheads": c.get("resampler_num_heads", text["hidden_size"] // 128),
            "width": vision["hidden_size"], "vinner": vision["intermediate_size"], "vheads": vision["num_attention_heads"],
            "vlayers": layers - ("vision_config" in c and c.get("drop_vision_last_layer", True)),
            "patch": vision["patch_size"], "side": vision["image_size"] // vision["patch_size"]}


class Lora(nn.Module):
    """A linear layer with factors beside it; the type that they compute in may be another."""

    def __init__(self, base, rank, alpha, dtype):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.a = nn.Parameter(torch.empty(rank, base.in_features, dtype=dtype))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank, dtype=dtype))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + (F.linear(F.linear(x.to(self.a.dtype), self.a), self.b) * self.scale).to(x.dtype)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        w = c["width"]
        self.heads = c["vheads"]
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(w, 1e-6), nn.LayerNorm(w, 1e-6)
        self.self_attn, self.mlp = nn.Module(), nn.Module()
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self.self_attn, name, nn.Linear(w, w))
        self.mlp.fc1, self.mlp.fc2 = nn.Linear(w, c["vinner"]), nn.Linear(c["vinner"], w)

    def forward(self, x, mask):
        n, l, w = x.shape
        y, a = self.layer_norm1(x), self.self_attn
        q, k, v = (f(y).view(n, l, self.heads, -1).transpose(1, 2) for f in (a.q_proj, a.k_proj, a.v_proj))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + a.out_proj(y.transpose(1, 2).reshape(n, l, w))
        return x + self.mlp.fc2(F.gelu(self.mlp.fc1(self.layer_norm2(x)), approximate="tanh"))


class Tower(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embeddings, self.encoder = nn.Module(), nn.Module()
        self.embeddings.patch_embedding = nn.Conv2d(3, c["width"], c["patch"], c["patch"])
        self.embeddings.position_embedding = nn.Embedding(c["side"] ** 2, c["width"])
        self.encoder.layers = nn.ModuleList(Block(c) for _ in range(c["vlayers"]))
        self.post_layernorm = nn.LayerNorm(c["width"], 1e-6)

    def positions(self, h, w):
        n = self.c["side"]
        edges = torch.arange(1 / n, 1.0, 1 / n)
        rows, cols = (torch.bucketize(torch.arange(0, 1 - 1e-6, 1 / k), edges, right=True) for k in (h, w))
        return (rows[:, None] * n + cols).flatten()

    def forward(self, images):
        e, p = self.embeddings, self.c["patch"]
        grids = [(i.shape[1] // p, i.shape[2] // p) for i in images]
        most = max(h * w for h, w in grids)
        # Packed as upstream packs them: a strip of patches for each image, padded to the longest.
        strips = torch.zeros(len(images), 3, p, most * p, dtype=e.patch_embedding.weight.dtype)
        places = torch.zeros(len(images), most, dtype=torch.int64)
        valid = torch.zeros(len(images), most, dtype=torch.bool)
        for i, (image, (h, w)) in enumerate(zip(images, grids)):
            strip = image.unfold(1, p, p).unfold(2, p, p).permute(0, 3, 1, 2, 4).reshape(3, p, h * w * p)
            strips[i, :, :, :h * w * p] = strip
            places[i, :h * w] = self.positions(h, w)
            valid[i, :h * w] = True
        x = e.patch_embedding(strips).flatten(2).transpose(1, 2) + e.position_embedding(places)
        mask = None if valid.all() else valid[:, None, None, :].expand(-1, -1, most, -1)
        for block in self.encoder.layers:
            x = block(x, mask)
        return self.post_layernorm(x), grids, valid


def sincos(width, h, w):
    omega = 1 / 10000 ** (torch.arange(width // 4, dtype=torch.float32) / (width / 4))
    rows, cols = (torch.arange(k, dtype=torch.float32)[:, None] * omega for k in (h, w))
    rows, cols = (torch.cat([k.sin(), k.cos()], 1) for k in (rows, cols))
    return torch.cat([cols[None].expand(h, -1, -1), rows[:, None].expand(-1, w, -1)], 2).reshape(h * w, width)


class Resampler(nn.Module):
    def __init__(self, c):
        super().__init__()
        e = c["hidden"]
        self.query, self.proj = nn.Parameter(torch.empty(c["queries"], e)), nn.Parameter(torch.empty(e, e))
        self.kv_proj = nn.Linear(c["width"], e, bias=False)
        self.attn = nn.MultiheadAttention(e, c["rheads"], batch_first=True)
        self.ln_q, self.ln_kv, self.ln_post = (nn.LayerNorm(e, 1e-6) for _ in range(3))

    def forward(self, x, grids, valid):
        x = self.ln_kv(self.kv_proj(x))
        places = torch.zeros_like(x)
        for i, (h, w) in enumerate(grids):
            places[i, :h * w] = sincos(x.shape[2], h, w).to(x.dtype)
        q = self.ln_q(self.query).expand(len(grids), -1, -1)
        y = self.attn(q, x + places, x, key_padding_mask=None if valid.all() else ~valid, need_weights=False)[0]
        return self.ln_post(y) @ self.proj


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, d = c["hidden"], c["hidden"] // c["heads"]
        self.c = c
        self.self_attn, self.mlp = nn.Module(), nn.Module()
        for name, n, bias in (("q", c["heads"], True), ("k", c["kv"], True), ("v", c["kv"], True)):
            setattr(self.self_attn, name + "_proj", nn.Linear(h, n * d, bias=bias))
        self.self_attn.o_proj = nn.Linear(h, h, bias=False)
        self.mlp.gate_proj, self.mlp.up_proj = (nn.Linear(h, c["inner"], bias=False) for _ in range(2))
        self.mlp.down_proj = nn.Linear(c["inner"], h, bias=False)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(h, c["eps"]), RMSNorm(h, c["eps"])

    def forward(self, x, cos, sin):
        n, l, h = x.shape
        y, a = self.input_layernorm(x), self.self_attn

        def turn(z):
            half = z.shape[-1] // 2
            return z * cos + torch.cat([-z[..., half:], z[..., :half]], -1) * sin

        q, k, v = (f(y).view(n, l, -1, h // self.c["heads"]).transpose(1, 2) for f in (a.q_proj, a.k_proj, a.v_proj))
        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=True)
        x = x + a.o_proj(y.transpose(1, 2).reshape(n, l, h))
        y = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(F.silu(self.mlp.gate_proj(y)) * self.mlp.up_proj(y))


class MiniCPMV(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.vpm, self.resampler, self.llm = Tower(c), Resampler(c), nn.Module()
        self.llm.model = nn.Module()
        self.llm.model.embed_tokens = nn.Embedding(c["vocab"], c["hidden"])
        self.llm.model.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.llm.model.norm = RMSNorm(c["hidden"], c["eps"])
        self.llm.lm_head = nn.Linear(c["hidden"], c["vocab"], bias=False)

    def states(self, ids, images, bounds, owner):
        """images: in order; bounds, owner: the positions of each, and its row."""
        x = self.llm.model.embed_tokens(ids)
        if images:
            seen = self.resampler(*self.vpm([i.to(x.dtype) for i in images]))
            rows = torch.repeat_interleave(torch.tensor(owner), self.c["queries"])
            places = torch.cat([torch.arange(begin, end) for begin, end in bounds])
            x = x.index_put((rows, places), seen.flatten(0, 1))
        d = self.c["hidden"] // self.c["heads"]
        angles = torch.arange(ids.shape[1])[:, None] * self.c["theta"] ** (-torch.arange(0, d, 2).float() / d)
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.llm.model.layers:
            x = layer(x, cos, sin)
        return self.llm.model.norm(x)

    def loss(self, batch, all_logits):
        """labels: the target of position t stands at t."""
        x, labels = self.states(batch["ids"], batch["images"], batch["bounds"], batch["owner"]), batch["labels"]
        if not all_logits:
            x, labels = x[labels != -100], labels[labels != -100]
        return F.cross_entropy(self.llm.lm_head(x).float().flatten(0, -2), labels.flatten())


def read_data(path):
    """Rows of a pre-tokenised file: ids, labels, images with their bounds."""
    data = load_file(path)
    count = data["input_ids"].shape[0]
    each = data["images_per_row"].tolist() if "images_per_row" in data else [len(data["image_bound"])]
    rows, first = [], 0
    for r in range(count):
        rows.append({"ids": data["input_ids"][r], "labels": data["labels_shifted"][r],
                     "images": [data["image_%d_%d_chw" % (r, j)] for j in range(each[r])],
                     "bounds": data["image_bound"][first:first + each[r]].tolist()})
        first += each[r]
    return rows


def batch_of(rows):
    return {"ids": torch.stack([r["ids"] for r in rows]), "labels": torch.stack([r["labels"] for r in rows]),
            "images": [i for r in rows for i in r["images"]], "bounds": [b for r in rows for b in r["bounds"]],
            "owner": [k for k, r in enumerate(rows) for _ in r["images"]]}


def load(folder, dtype, rank=0, alpha=0, lora_dtype=torch.float32):
    model = MiniCPMV(sizes(folder))
    state = {}
    for file in glob.glob(os.path.join(folder, "model*.safetensors")):
        state.update(load_file(file))
    model.load_state_dict(state)
    model.to(dtype)
    if rank > 0:
        model.requires_grad_(False)
        for layer in model.llm.model.layers:
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(layer.self_attn, name, Lora(getattr(layer.self_attn, name), rank, alpha, lora_dtype))
    return model


def check(folder):
    model = load(folder, torch.float32)
    for name in ("one_row", "two_rows"):
        path = os.path.join(folder, name + ".safetensors")
        recorded, batch = load_file(path), batch_of(read_data(path))
        with torch.no_grad():
            logits = model.llm.lm_head(model.states(batch["ids"], batch["images"], batch["bounds"], batch["owner"]))
            loss = model.loss(batch, True)
        worst = (logits - recorded["logits"]).abs().max().item()
        print("%s: logits differ by at most %.2g, loss by %.2g" % (name, worst, (loss - recorded["loss"]).abs().item()))
        if worst > 1e-4:
            sys.exit("minicpmv_torch: not what was recorded")


if __name__ == "__main__":
    check(sys.argv[1])
