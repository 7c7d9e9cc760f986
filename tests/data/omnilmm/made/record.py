"""Records what plain torch computes of an OmniLMM whose sizes nothing divides: record.py FOLDER > FOLDER/expected.json

FOLDER: this one, or made_equal, whose tower is as wide as its text model: upstream's kv_proj is Identity there.
Weights, pictures and tokens are hashes of names and places, so that no file holds them; the test makes the same. The tower and
the resampler are written here from docs/omnilmm.md with torch's own modules, the decoder is transformers' Mistral. Needs torch
and transformers; no test runs this.
"""
import json, math, os, sys
import numpy as np
import torch
import torch.nn.functional as F
from transformers import MistralConfig, MistralForCausalLM

torch.set_num_threads(1)
c = json.load(open(os.path.join(sys.argv[1], "config.json")))
v = c["vision_config"]
H, W, Q, V = c["hidden_size"], v["embed_dim"], c["num_query"], c["vocab_size"]


def units(name, n):
    """n numbers in [0, 1) of a name."""
    h = 2166136261
    for b in name.encode():
        h = (h ^ b) * 16777619 & 0xFFFFFFFF
    x = (h + np.arange(n, dtype=np.uint64) * 2654435761) & 0xFFFFFFFF
    x ^= x >> 16
    x = x * 2246822507 & 0xFFFFFFFF
    x ^= x >> 13
    x = x * 3266489909 & 0xFFFFFFFF
    x ^= x >> 16
    return torch.from_numpy(((x >> 8).astype(np.float64) / 2**24).astype(np.float32))


def is_norm(name):
    return name.endswith("weight") and ("norm" in name or ".ln_" in name)


parameter = {}


def make(name, *shape):
    u = units(name, math.prod(shape)).reshape(shape) - 0.5
    value = 1 + 0.5 * u if is_norm(name) else 0.25 * u
    parameter[name] = value.clone().requires_grad_(True)
    return parameter[name]


# ---- the tower ----
side, native = -(-c["image_size"] // v["patch_size"]), v["img_size"] // v["patch_size"]
F_ = int(W * v["mlp_ratio"])


def ln(x, name, width):
    return F.layer_norm(x, (width,), make(name + ".weight", width), make(name + ".bias", width), 1e-6)


def tower(x):
    t = "model.vision_tower."
    n, pad = x.shape[0], side * v["patch_size"] - x.shape[-1]
    x = F.conv2d(F.pad(x, (0, pad, 0, pad)), make(t + "patch_embed.proj.weight", W, 3, v["patch_size"], v["patch_size"]),
                 make(t + "patch_embed.proj.bias", W), stride=v["patch_size"]).flatten(2).transpose(1, 2)
    x = torch.cat([make(t + "cls_token", 1, 1, W).expand(n, -1, -1), x], 1)
    table = make(t + "pos_embed", 1, native * native + 1, W)
    grid = table[:, 1:].reshape(1, native, native, W).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, (side, side), mode="bicubic", antialias=True).permute(0, 2, 3, 1).reshape(1, -1, W)
    x = x + torch.cat([table[:, :1], grid], 1)
    for i in range(v["depth"] - 1):
        b = f"{t}blocks.{i}."
        bias = torch.cat([make(b + "attn.q_bias", W), torch.zeros(W), make(b + "attn.v_bias", W)])
        q, k, w = (F.linear(x, make(b + "attn.qkv.weight", 3 * W, W), bias)
                   .reshape(n, -1, 3, v["num_heads"], W // v["num_heads"]).permute(2, 0, 3, 1, 4))
        a = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(W // v["num_heads"]), -1) @ w
        a = F.linear(a.transpose(1, 2).reshape(n, -1, W), make(b + "attn.proj.weight", W, W), make(b + "attn.proj.bias", W))
        x = x + ln(a, b + "norm1", W)
        h = F.gelu(F.linear(x, make(b + "mlp.fc1.weight", F_, W), make(b + "mlp.fc1.bias", F_)))
        x = x + ln(F.linear(h, make(b + "mlp.fc2.weight", W, F_), make(b + "mlp.fc2.bias", W)), b + "norm2", W)
    return ln(x, t + "norm", W)[:, 1:]


# ---- the resampler ----
def sincos(n):
    omega = 1 / 10000 ** (torch.arange(H // 4, dtype=torch.float64) / (H // 4))
    at = torch.arange(n, dtype=torch.float64)[:, None] * omega
    one = torch.cat([at.sin(), at.cos()], 1)
    return torch.cat([one[None].expand(n, -1, -1), one[:, None].expand(-1, n, -1)], 2).reshape(n * n, H).float()


def resampler(x):
    r, n, g = "model.resampler.", x.shape[0], math.isqrt(Q)
    z = ln(x if W == H else F.linear(x, make(r + "kv_proj.weight", H, W)), r + "ln_kv", H)
    table = sincos(g)
    keys = F.interpolate(table.reshape(1, g, g, H).permute(0, 3, 1, 2), (side, side), mode="bicubic",
                         align_corners=False).permute(0, 2, 3, 1).reshape(-1, H)
    q = ln(make(r + "query", Q, H), r + "ln_q", H) + table
    y, _ = F.multi_head_attention_forward(
        q[:, None].expand(-1, n, -1), (z + keys).transpose(0, 1), z.transpose(0, 1), H, c.get("resampler_num_heads", H // 128),
        make(r + "attn.in_proj_weight", 3 * H, H), make(r + "attn.in_proj_bias", 3 * H), None, None, False, 0.0,
        make(r + "attn.out_proj.weight", H, H), make(r + "attn.out_proj.bias", H), need_weights=False)
    return ln(y.transpose(0, 1), r + "ln_post", H) @ make(r + "proj", H, H)


# ---- the text ----
text = MistralForCausalLM(MistralConfig(
    vocab_size=V, hidden_size=H, intermediate_size=c["intermediate_size"], num_hidden_layers=c["num_hidden_layers"],
    num_attention_heads=c["num_attention_heads"], num_key_value_heads=c["num_key_value_heads"], head_dim=c["head_dim"],
    max_position_embeddings=128, rms_norm_eps=1e-5, rope_parameters={"rope_theta": 5000.0, "rope_type": "default"},
    sliding_window=c["sliding_window"], tie_word_embeddings=False, attn_implementation="eager"))
for name, p in text.named_parameters():
    p.data = make(name, *p.shape).detach().clone()
    parameter[name] = p

# Rows: two pictures; none; one. As the test writes them.
start, patch, end = c["im_start_token"], c["im_patch_token"], c["im_end_token"]
mark = [start] + Q * [patch] + [end]
rows = [[1] + mark + [5, 9] + mark + [17, 33, 4, 60], [1, 80, 81, 7, 90, 12, 13, 14, 15, 16, 17, 40, 41, 42, 43, 3], [1, 6] + mark + [8, 22, 150]]
length = max(map(len, rows))
ids = torch.tensor([r + (length - len(r)) * [2] for r in rows])
mask = torch.tensor([len(r) * [1] + (length - len(r)) * [0] for r in rows])
labels = ids.clone()
labels[(mask == 0) | (ids >= patch)] = -100
labels[:, :2] = -100
pixels = (units("images", 3 * 3 * c["image_size"] ** 2).reshape(3, 3, c["image_size"], c["image_size"]) - 0.5) * 4

given = resampler(tower(pixels))
x = text.model.embed_tokens(ids)
x = x.masked_scatter((ids == patch)[..., None], given)
logits = text(inputs_embeds=x, attention_mask=mask).logits
loss = F.cross_entropy(logits[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1))
loss.backward()


def along(x, name):
    """A number of all elements: their sum, each times a number of its own."""
    return float((x.detach().double().flatten() * (units(name, x.numel()).double() - 0.5)).sum())


told = mask.bool()
out = {
    "rows": len(rows), "length": length, "ids": ids.flatten().tolist(), "mask": mask.flatten().tolist(), "labels": labels.flatten().tolist(),
    "loss": float(loss.detach()),
    "logits": [[round(along(logits[r, t], "logits"), 6) if told[r, t] else None for t in range(length)] for r in range(len(rows))],
    "gradients": {n: [float(f"{float(p.grad.double().norm()):.7g}"), float(f"{along(p.grad, n):.7g}")] for n, p in sorted(parameter.items())},
}
print(json.dumps(out, separators=(",", ":")).replace('"gradients"', '\n"gradients"').replace('],"model', '],\n"model').replace('"logits"', '\n"logits"'))
