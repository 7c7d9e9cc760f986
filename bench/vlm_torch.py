"""vlm_torch.py - OmniLMM and MiniCPM-V 2.6 in plain PyTorch, as a rival and as a second opinion.

Written from docs/omnilmm.md and docs/minicpmv.md: the towers and the resampler are here, the decoders are transformers'
Mistral and Qwen2, LoRA is PEFT's. What makes it quick: F.scaled_dot_product_attention everywhere; pictures of own sizes
lie one behind the other, not padded to the longest, so that products see all of them at once and attention one at a time;
queries are projected once for all pictures; the tower runs without gradients; the head can be left to labelled rows.
Tensors carry the names of the files.
"""
import glob
import json
import os

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch import nn
from transformers import MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

EPS = 1e-6
# Upstream's: attention of the text model; MiniCPM-V's tower has "layers" too, which "llm" keeps out.
TARGETS = {"omnilmm": r".*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)",
           "minicpmv": r"llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)"}


def tree(**children):
    module = nn.Module()
    for name, child in children.items():
        setattr(module, name, child)
    return module


def table(*shape):
    return nn.Parameter(torch.empty(*shape))


def heads(x, count):
    """[pictures, rows, count * d] -> [pictures, count, rows, d]"""
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def attention(q, k, v, count):
    y = F.scaled_dot_product_attention(heads(q, count), heads(k, count), heads(v, count))
    return y.transpose(1, 2).flatten(2)


def each(q, k, v, count, rows, queries=None):
    """Attention inside each of several pictures of rows[i] rows, whose rows lie one behind the other."""
    if len(set(rows)) == 1:
        many = lambda x: x.view(len(rows), -1, x.shape[-1])
        return attention(many(q), many(k), many(v), count).flatten(0, 1)
    qs = q.split(queries if queries else rows)
    return torch.cat([attention(a[None], b[None], c[None], count)[0] for a, b, c in zip(qs, k.split(rows), v.split(rows))])


def sincos(height, width, size):
    """[height * width, size]: sines and cosines of the column, then of the row."""
    rate = 10000.0 ** -(torch.arange(size // 4, dtype=torch.float32) / (size / 4))
    col = torch.arange(width).float()[None, :, None] * rate
    row = torch.arange(height).float()[:, None, None] * rate
    return torch.cat([x.expand(height, width, -1) for x in (col.sin(), col.cos(), row.sin(), row.cos())], -1).flatten(0, 1)


def resized(grid, height, width, antialias):
    """A table of side * side rows on another grid, in float32."""
    side = int(len(grid) ** 0.5)
    if (height, width) == (side, side):
        return grid
    x = grid.float().view(1, side, side, -1).permute(0, 3, 1, 2)
    return F.interpolate(x, (height, width), mode="bicubic", antialias=antialias, align_corners=False).permute(0, 2, 3, 1).flatten(0, 2).to(grid.dtype)


def patches(image, size):
    """[3, H, W] -> [patches, 3 * size * size]"""
    _, height, width = image.shape
    return image.view(3, height // size, size, width // size, size).permute(1, 3, 0, 2, 4).flatten(0, 1).flatten(1)


class Resampler(nn.Module):
    def __init__(self, hidden, width, queries, count, stored):
        super().__init__()
        self.count, self.queries, self.stored = count, queries, stored
        self.query, self.proj = table(queries, hidden), table(hidden, hidden)
        if stored:
            self.pos_embed = nn.Parameter(torch.empty(queries, hidden), requires_grad=False)
        self.kv_proj = nn.Linear(width, hidden, bias=False) if width != hidden else nn.Identity()
        self.attn = tree(in_proj_weight=table(3 * hidden, hidden), in_proj_bias=table(3 * hidden), out_proj=nn.Linear(hidden, hidden))
        self.ln_q, self.ln_kv, self.ln_post = (nn.LayerNorm(hidden, EPS) for _ in range(3))

    def positions(self, sizes):
        if self.stored:
            once = resized(self.pos_embed, *sizes[0], False)
            return once.repeat(len(sizes), 1)
        return torch.cat([sincos(*size, self.query.shape[1]) for size in sizes])

    def forward(self, x, sizes):
        wq, wk, wv = self.attn.in_proj_weight.chunk(3)
        bq, bk, bv = self.attn.in_proj_bias.chunk(3)
        v = self.ln_kv(self.kv_proj(x))
        k = v + self.positions(sizes).to(v.dtype)
        q = self.ln_q(self.query)
        if self.stored:
            q = q + self.pos_embed
        q = F.linear(q, wq, bq).repeat(len(sizes), 1)
        y = each(q, F.linear(k, wk, bk), F.linear(v, wv, bv), self.count, [h * w for h, w in sizes], self.queries)
        return self.ln_post(self.attn.out_proj(y)) @ self.proj


class EvaBlock(nn.Module):
    def __init__(self, width, inner, count, eps):
        super().__init__()
        self.count = count
        self.attn = tree(qkv=nn.Linear(width, 3 * width, bias=False), q_bias=table(width), v_bias=table(width), proj=nn.Linear(width, width))
        self.mlp = tree(fc1=nn.Linear(width, inner), fc2=nn.Linear(inner, width))
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)

    def forward(self, x):
        a = self.attn
        q, k, v = F.linear(x, a.qkv.weight, torch.cat([a.q_bias, torch.zeros_like(a.q_bias), a.v_bias])).chunk(3, -1)
        x = x + self.norm1(a.proj(attention(q, k, v, self.count)))
        return x + self.norm2(self.mlp.fc2(F.gelu(self.mlp.fc1(x))))


class Eva(nn.Module):
    """The last block is no part of it: what is wanted is what goes into that."""

    def __init__(self, c):
        super().__init__()
        width, eps = c["embed_dim"], c["layer_norm_eps"]
        self.patch_embed = tree(proj=nn.Conv2d(3, width, c["patch_size"], c["patch_size"]))
        self.cls_token, self.pos_embed = table(1, 1, width), table(1, (c["img_size"] // c["patch_size"]) ** 2 + 1, width)
        self.blocks = nn.ModuleList(EvaBlock(width, int(width * c["mlp_ratio"]), c["num_heads"], eps) for _ in range(c["blocks_present"]))
        self.norm = nn.LayerNorm(width, eps)

    def forward(self, images, seen):
        x = self.patch_embed.proj(torch.stack(images))
        height, width = x.shape[2:]
        x = x.flatten(2).transpose(1, 2)
        grid = resized(self.pos_embed[0, 1:], height, width, True)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + torch.cat([self.pos_embed[0, :1], grid])
        seen("vit_input", x)
        for i, block in enumerate(self.blocks):
            x = block(x)
            seen("vit_block%d_out" % i, x)
        x = self.norm(x[:, 1:])
        seen("vit_features", x)
        return x.flatten(0, 1), [(height, width)] * len(images)


class SiglipBlock(nn.Module):
    def __init__(self, width, inner, count):
        super().__init__()
        self.count = count
        self.self_attn = tree(**{n: nn.Linear(width, width) for n in ("q_proj", "k_proj", "v_proj", "out_proj")})
        self.mlp = tree(fc1=nn.Linear(width, inner), fc2=nn.Linear(inner, width))
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)

    def forward(self, x, rows):
        a, y = self.self_attn, self.layer_norm1(x)
        x = x + a.out_proj(each(a.q_proj(y), a.k_proj(y), a.v_proj(y), self.count, rows))
        return x + self.mlp.fc2(F.gelu(self.mlp.fc1(self.layer_norm2(x)), approximate="tanh"))


class Siglip(nn.Module):
    """NaViT: every picture on a grid of its own, positions by buckets."""

    def __init__(self, c):
        super().__init__()
        width, self.patch = c["hidden_size"], c["patch_size"]
        self.side = c["image_size"] // self.patch
        self.embeddings = tree(patch_embedding=nn.Conv2d(3, width, self.patch, self.patch),
                               position_embedding=nn.Embedding(self.side ** 2, width))
        self.encoder = tree(layers=nn.ModuleList(SiglipBlock(width, c["intermediate_size"], c["num_attention_heads"])
                                                 for _ in range(c["num_hidden_layers"])))
        self.post_layernorm = nn.LayerNorm(width, EPS)

    def buckets(self, n):
        edges = torch.arange(1 / self.side, 1.0, 1 / self.side)
        return torch.bucketize(torch.arange(0, 1 - 1e-6, 1 / n), edges, right=True)

    def forward(self, images, seen):
        e, sizes = self.embeddings, [(x.shape[1] // self.patch, x.shape[2] // self.patch) for x in images]
        x = F.linear(torch.cat([patches(image, self.patch) for image in images]), e.patch_embedding.weight.flatten(1), e.patch_embedding.bias)
        where = torch.cat([(self.buckets(h)[:, None] * self.side + self.buckets(w)).flatten() for h, w in sizes])
        x = x + e.position_embedding(where)
        rows = [h * w for h, w in sizes]
        seen("vit_embeddings", x, rows)
        for layer in self.encoder.layers:
            x = layer(x, rows)
        x = self.post_layernorm(x)
        seen("vit_last_hidden", x, rows)
        return x, sizes


# ---- whole models ----

class Vlm:
    """parts: the module as PEFT may have wrapped it; names differ between the families, and nothing else here."""

    def __init__(self, module, config):
        self.module, self.config, self.omni = module, config, "text" not in config

    def parts(self):
        m = self.module.get_base_model() if hasattr(self.module, "get_base_model") else self.module
        return (m, m.model.vision_tower, m.model.resampler) if self.omni else (m.llm, m.vpm, m.resampler)

    def hidden(self, batch, seen=lambda *told: None):
        lm, tower, resampler = self.parts()
        h = lm.model.embed_tokens(batch["input_ids"])
        if batch["images"]:
            dtype = h.dtype
            trained = any(p.requires_grad for p in tower.parameters())
            with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
                x, sizes = tower([image.to(dtype) for image in batch["images"]], seen)
            x = resampler(x, sizes)
            seen("image_features", x)
            h = h.flatten(0, 1).index_copy(0, batch["where"], x.to(dtype)).view(h.shape)
        seen("inputs_embeds", h)
        mask = batch.get("attention_mask") if self.omni else None
        if mask is not None and bool(mask.all()):
            mask = None
        return lm.model(inputs_embeds=h, attention_mask=mask, use_cache=False).last_hidden_state

    def logits(self, batch, seen=lambda *told: None):
        h = self.hidden(batch, seen)
        return self.parts()[0].lm_head(h)

    def loss(self, batch, every_row=False):
        """Mean over the labels; every_row: the head on all rows, as upstream, else only where there is a label."""
        h, labels = self.hidden(batch).flatten(0, 1), batch["targets"].flatten()
        if every_row:
            return F.cross_entropy(self.parts()[0].lm_head(h).float(), labels)
        where = (labels != -100).nonzero().flatten()
        return F.cross_entropy(self.parts()[0].lm_head(h[where]).float(), labels[where])


def read_config(folder):
    with open(os.path.join(folder, "config.json")) as f:
        return json.load(f)


def build(c, dtype=torch.float32):
    """A model without storage, but for rotary embedding's constants."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    text = dict(c.get("text", c))
    width = c["vision_config"]["embed_dim"] if "vision_config" in c else c["vision"]["hidden_size"]
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "max_position_embeddings", "rms_norm_eps", "rope_theta", "tie_word_embeddings")
    words = dict({key: text[key] for key in keys}, attn_implementation="sdpa")
    try:
        with torch.device("meta"):
            if "text" in c:
                lm = Qwen2ForCausalLM(Qwen2Config(use_sliding_window=False, **words))
                module = tree(llm=lm, vpm=Siglip(c["vision"]),
                              resampler=Resampler(text["hidden_size"], width, c["query_num"], c["resampler_num_heads"], False))
            else:
                module = lm = MistralForCausalLM(MistralConfig(sliding_window=None, **words))
                lm.model.vision_tower = Eva(c["vision_config"])
                lm.model.resampler = Resampler(text["hidden_size"], width, c["num_query"], c["resampler_num_heads"], True)
    finally:
        torch.set_default_dtype(before)
    lm.model.rotary_emb = type(lm.model.rotary_emb)(lm.config)
    return module


def load(folder, dtype=torch.float32, rank=0, alpha=1.0, lora_float=True, saved=("resampler",), targets=None):
    """rank > 0: with PEFT's LoRA on upstream's targets, and copies of `saved` that are trained in full."""
    config = read_config(folder)
    module, state = build(config, dtype), {}
    for path in sorted(glob.glob(os.path.join(folder, "model*.safetensors"))):
        state.update(load_file(path))
    missing, unexpected = module.load_state_dict({n: x.to(dtype) for n, x in state.items()}, strict=False, assign=True)
    if missing or unexpected:
        raise SystemExit("%s: missing %s, unexpected %s" % (folder, missing[:3], unexpected[:3]))
    if rank:
        targets = targets or TARGETS["minicpmv" if "text" in config else "omnilmm"]
        settings = LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, modules_to_save=list(saved))
        module = get_peft_model(module, settings, autocast_adapter_dtype=lora_float)
        for name, p in module.named_parameters():
            if name.endswith("pos_embed"):
                p.requires_grad_(False)
    return Vlm(module, config)


# ---- batches ----

def batches(data, config, size):
    """Batches of `size` rows of a file's tensors: pictures, and the places of their queries among the batch's positions."""
    ids, found = data["input_ids"], []
    queries = config.get("num_query", config.get("query_num"))
    row_of, pictures, starts = rows_of(data, config)
    for first in range(0, len(ids), size):
        mine = [i for i, r in enumerate(row_of) if first <= r < first + size]
        where = [torch.arange(queries) + starts[i] + (row_of[i] - first) * ids.shape[1] for i in mine]
        batch = {"input_ids": ids[first:first + size], "images": [pictures[i] for i in mine], "where": torch.cat(where) if where else None}
        if "attention_mask" in data:
            batch["attention_mask"] = data["attention_mask"][first:first + size]
        targets = data["labels_shifted"] if "labels_shifted" in data else F.pad(data["labels"][:, 1:], (0, 1), value=-100)
        batch["targets"] = targets[first:first + size]
        found.append(batch)
    return found


def rows_of(data, config):
    """Row, pixels and first position of every picture, in their order."""
    if "images" in data:
        marks = (data["input_ids"] == config["im_start_token"]).nonzero()
        return marks[:, 0].tolist(), list(data["images"]), (marks[:, 1] + 1).tolist()
    counts = data["images_per_row"].tolist() if "images_per_row" in data else [len(data["image_bound"])]
    at = [(r, j) for r, n in enumerate(counts) for j in range(n)]
    return [r for r, _ in at], [data["image_%d_%d_chw" % place] for place in at], data["image_bound"][:, 0].tolist()
