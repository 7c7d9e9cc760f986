"""cog_torch.py - CogVLM and CogAgent in plain PyTorch, as a rival and as a second opinion.

Written from the description of SAT's models: EVA2-CLIP-E ViT, GLU adapter, visual-expert decoder, EVA02-CLIP-L tower,
cross-attention, and SAT's LoRA with factors for each part of a fused layer. What makes it quick: rows stay sorted by
expert (text, then image) through all layers, so that each expert is one product on a slice and only attention reorders
them; F.scaled_dot_product_attention everywhere; the head sees rows with a label alone, unless all are asked for; the
tower and the ViT run once per image. Tensors carry SAT's names; factors are held fused, and split under SAT's names in
load() alone.
"""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn

TOWER_EPS, ADAPTER_EPS, RMS_EPS = 1e-6, 1e-5, 1e-5


class Linear(nn.Module):
    def __init__(self, inside, outside, bias=False, parts=1):
        super().__init__()
        self.parts, self.scale = parts, 0.0
        self.weight = nn.Parameter(torch.empty(outside, inside))
        self.bias = nn.Parameter(torch.empty(outside)) if bias else None
        self.lora_a = self.lora_b = None

    def add_lora(self, rank, alpha, dtype):
        outside, inside = self.weight.shape
        self.scale = alpha / rank
        bound = inside ** -0.5
        self.lora_a = nn.Parameter(torch.empty(self.parts * rank, inside, dtype=dtype).uniform_(-bound, bound))
        self.lora_b = nn.Parameter(torch.zeros(self.parts, outside // self.parts, rank, dtype=dtype))

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)
        if self.lora_a is None:
            return y
        b = self.lora_b[0] if self.parts == 1 else torch.block_diag(*self.lora_b)
        z = F.linear(x.to(b.dtype), self.lora_a)
        if b.dtype == y.dtype:
            return torch.addmm(y.view(-1, y.shape[-1]), z.view(-1, z.shape[-1]), b.t(), alpha=self.scale).view(y.shape)
        return y + (F.linear(z, b) * self.scale).to(y.dtype)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, RMS_EPS)


def tree(**children):
    module = nn.Module()
    for name, child in children.items():
        if isinstance(child, (nn.Module, nn.Parameter)):
            setattr(module, name, child)
        else:
            module.register_buffer(name, child)
    return module


def table(*shape):
    return nn.Parameter(torch.empty(*shape))


def heads(x, batch, count):
    """[rows, count * d] -> [batch, count, rows of a sequence, d]"""
    return x.reshape(batch, -1, count, x.shape[-1] // count).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def full_attention(q, k, v, batch, count):
    return join(F.scaled_dot_product_attention(heads(q, batch, count), heads(k, batch, count), heads(v, batch, count)))


class VitLayer(nn.Module):
    def __init__(self, width, inner, count, eps):
        super().__init__()
        self.count = count
        self.input_layernorm = nn.LayerNorm(width, eps)
        self.attention = tree(query_key_value=Linear(width, 3 * width, True, 3), dense=Linear(width, width, True))
        self.post_attention_layernorm = nn.LayerNorm(width, eps)
        self.mlp = tree(dense_h_to_4h=Linear(width, inner, True), dense_4h_to_h=Linear(inner, width, True))

    def forward(self, x):
        q, k, v = self.attention.query_key_value(x).chunk(3, -1)
        x = x + self.input_layernorm(self.attention.dense(full_attention(q, k, v, x.shape[0], self.count)))
        return x + self.post_attention_layernorm(self.mlp.dense_4h_to_h(F.gelu(self.mlp.dense_h_to_4h(x))))


class Vit(nn.Module):
    def __init__(self, eva):
        super().__init__()
        width, patch, image = eva["hidden_size"], eva["patch_size"], eva["image_size"]
        patches = (image[0] // patch) * (image[1] // patch)
        self.mixins = tree(patch_embedding=tree(proj=nn.Conv2d(eva["in_channels"], width, patch, patch)))
        self.transformer = tree(
            word_embeddings=tree(weight=table(1, width)), position_embeddings=tree(weight=table(patches + 1, width)),
            layers=nn.ModuleList(VitLayer(width, eva["inner_hidden_size"], eva["num_attention_heads"], eva["layernorm_epsilon"])
                                 for _ in range(eva["num_layers"])))

    def forward(self, image, seen):
        x = self.mixins.patch_embedding.proj(image).flatten(2).transpose(1, 2)
        t = self.transformer
        x = torch.cat([t.word_embeddings.weight.expand(x.shape[0], 1, -1), x], 1) + t.position_embeddings.weight
        for i, layer in enumerate(t.layers):
            x = layer(x)
            seen("vit_layer%d.out" % i, x)
        return x[:, 1:]


class Adapter(nn.Module):
    def __init__(self, width, hidden, inner):
        super().__init__()
        self.linear_proj, self.norm1 = Linear(width, hidden), nn.LayerNorm(hidden, ADAPTER_EPS)
        self.dense_h_to_4h, self.gate_proj, self.dense_4h_to_h = Linear(hidden, inner), Linear(hidden, inner), Linear(inner, hidden)

    def forward(self, x):
        z = F.gelu(self.norm1(self.linear_proj(x)))
        return self.dense_4h_to_h(F.silu(self.gate_proj(z)) * self.dense_h_to_4h(z))


class TowerBlock(nn.Module):
    def __init__(self, width, inner, count, patches):
        super().__init__()
        self.count = count
        self.norm1, self.norm2 = nn.LayerNorm(width, TOWER_EPS), nn.LayerNorm(width, TOWER_EPS)
        self.attn = tree(q_bias=table(width), v_bias=table(width), q_proj=Linear(width, width), k_proj=Linear(width, width),
                         v_proj=Linear(width, width), inner_attn_ln=nn.LayerNorm(width, TOWER_EPS), proj=Linear(width, width, True),
                         rope=tree(freqs_cos=torch.empty(patches, width // count), freqs_sin=torch.empty(patches, width // count)))
        self.mlp = tree(w1=Linear(width, inner, True), w2=Linear(width, inner, True), ffn_ln=nn.LayerNorm(inner, TOWER_EPS),
                        w3=Linear(inner, width, True))

    def turn(self, x):
        """Interleaved pairs of all rows but the class row."""
        rope, patches = self.attn.rope, x[:, :, 1:]
        other = torch.stack((-patches[..., 1::2], patches[..., ::2]), -1).flatten(-2)
        return torch.cat([x[:, :, :1], patches * rope.freqs_cos + other * rope.freqs_sin], 2)

    def forward(self, x):
        a, batch = self.attn, x.shape[0]
        y = self.norm1(x)
        q = self.turn(heads(a.q_proj(y) + a.q_bias, batch, self.count))
        k = self.turn(heads(a.k_proj(y), batch, self.count))
        v = heads(a.v_proj(y) + a.v_bias, batch, self.count)
        x = x + a.proj(a.inner_attn_ln(join(F.scaled_dot_product_attention(q, k, v))))
        y, m = self.norm2(x), self.mlp
        return x + m.w3(m.ffn_ln(F.silu(m.w1(y)) * m.w2(y)))


class Tower(nn.Module):
    """Its last block, norm and head are in the files and never run."""

    def __init__(self, c):
        super().__init__()
        o = c["tower"]
        width, inner, patches = o["width"], o["inner"], (c["cross_image_pix"] // 14) ** 2
        count = width // o["head_width"]
        self.pos_embed = table(patches, width)
        blocks = nn.ModuleList(TowerBlock(width, inner, count, patches) for _ in range(o["layers"]))
        model = tree(cls_token=table(1, 1, width), pos_embed=table(1, patches + 1, width), patch_embed=tree(proj=nn.Conv2d(3, width, 14, 14)),
                     rope=tree(freqs_cos=torch.empty(patches, o["head_width"]), freqs_sin=torch.empty(patches, o["head_width"])),
                     blocks=blocks, norm=nn.LayerNorm(width, TOWER_EPS), head=nn.Linear(width, o["embed_dim"]))
        self.vit = tree(model=model)

    def forward(self, image, seen):
        m = self.vit.model
        x = m.patch_embed.proj(image).flatten(2).transpose(1, 2)
        x = torch.cat([m.cls_token.expand(x.shape[0], -1, -1), x], 1) + m.pos_embed
        for block in m.blocks[:-1]:
            x = block(x)
        seen("encoder_vit_out", x[:, 1:])
        return x[:, 1:] + self.pos_embed


class Layer(nn.Module):
    def __init__(self, c, cross):
        super().__init__()
        hidden, inner = c["hidden_size"], c["inner_hidden_size"]
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(hidden), RMSNorm(hidden)
        self.attention = tree(query_key_value=Linear(hidden, 3 * hidden, parts=3), dense=Linear(hidden, hidden))
        self.mlp = tree(dense_h_to_4h=Linear(hidden, inner), dense_4h_to_h=Linear(inner, hidden))
        self.cross_count = c["num_attention_heads"] if cross else 0
        if cross:
            wide = c["num_attention_heads"] * c["cross_hidden_size_per_attention_head"]
            self.post_cross_attention_layernorm = RMSNorm(hidden)
            self.cross_attention = tree(query=Linear(hidden, wide), key_value=Linear(c["cross_attn_hidden_size"], 2 * wide, parts=2),
                                        dense=Linear(wide, hidden))


class Rows:
    """Where each row of a micro-batch is: sorted by expert, and in the order of the sequences."""

    def __init__(self, batch, angles, dtype):
        expert = batch["vision_expert_mask"].flatten().bool()
        self.batch, self.length = batch["input_ids"].shape
        text, image = (~expert).nonzero().flatten(), expert.nonzero().flatten()
        self.split = text.numel()
        self.order = torch.cat([text, image])
        self.inverse = torch.empty_like(self.order)
        self.inverse[self.order] = torch.arange(self.order.numel())
        theta = batch["position_ids"].to(angles.dtype).unsqueeze(-1) * angles
        turn = torch.cat([theta, theta], -1).unsqueeze(2)
        self.cos, self.sin = turn.cos().to(dtype), turn.sin().to(dtype)

    def experts(self, text, image, x):
        return torch.cat([text(x[:self.split]), image(x[self.split:])])


class Cog(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        hidden, inner, eva, layers = c["hidden_size"], c["inner_hidden_size"], c["eva_args"], c["num_layers"]
        self.agent = "cross_image_pix" in c
        decoder = c.get("is_decoder", False)
        cross = [bool(d) for d in decoder] if isinstance(decoder, list) else [bool(decoder) and self.agent] * layers
        eva_mixin = tree(boi=table(1, 1, hidden), eoi=table(1, 1, hidden), vit_model=Vit(eva), linear_proj=Adapter(eva["hidden_size"], hidden, inner))
        if self.agent:
            eva_mixin.pos_embed = table(c["image_length"], eva["hidden_size"])
        many = lambda i, o, parts=1: nn.ModuleList(Linear(i, o, parts=parts) for _ in range(layers))
        self.mixins = tree(
            lm=tree(lm_head=Linear(hidden, c["vocab_size"])), eva=eva_mixin,
            mlp=tree(gate_proj=many(hidden, inner), vision_dense_h_to_4h_list=many(hidden, inner),
                     vision_dense_4h_to_h_list=many(inner, hidden), vision_gate_proj=many(hidden, inner)),
            rotary=tree(rotary_emb=tree(inv_freq=torch.empty(hidden // c["num_attention_heads"] // 2)),
                        vision_query_key_value_list=many(hidden, 3 * hidden, 3), vision_dense_list=many(hidden, hidden)))
        if self.agent:
            self.mixins.encoder = Tower(c)
        self.transformer = tree(word_embeddings=tree(weight=table(c["vocab_size"], hidden)),
                                layers=nn.ModuleList(Layer(c, x) for x in cross), final_layernorm=RMSNorm(hidden))

    def embed(self, batch, seen):
        eva, dtype = self.mixins.eva, self.mixins.eva.boi.dtype
        x = eva.vit_model(batch["vision_image"].to(dtype), seen)
        if self.agent:
            x = x + eva.pos_embed
        seen("adapter_in", x)
        x = eva.linear_proj(x)
        seen("adapter_out", x)
        ends = [e.expand(x.shape[0], 1, -1) for e in (eva.boi, eva.eoi)]
        x = torch.cat([ends[0], x, ends[1]], 1)
        words = F.embedding(batch["input_ids"].flatten(), self.transformer.word_embeddings.weight)
        where = batch["image_embed_mask"].flatten().nonzero().flatten()
        return words.index_copy(0, where, x.reshape(-1, x.shape[-1]))

    def attention(self, i, x, rows):
        layer, rotary, count = self.transformer.layers[i], self.mixins.rotary, self.config["num_attention_heads"]
        qkv = rows.experts(layer.attention.query_key_value, rotary.vision_query_key_value_list[i], x)
        qkv = qkv.index_select(0, rows.inverse).view(rows.batch, rows.length, 3 * count, -1)
        qk, v = qkv[:, :, :2 * count], qkv[:, :, 2 * count:]
        low, high = qk.chunk(2, -1)
        qk = qk * rows.cos + torch.cat([-high, low], -1) * rows.sin
        q, k = qk[:, :, :count], qk[:, :, count:]
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        y = join(y).view(x.shape[0], -1).index_select(0, rows.order)
        return rows.experts(layer.attention.dense, rotary.vision_dense_list[i], y)

    def cross(self, i, x, rows, tower):
        layer = self.transformer.layers[i]
        q = layer.cross_attention.query(x).index_select(0, rows.inverse)
        k, v = layer.cross_attention.key_value(tower).chunk(2, -1)
        y = full_attention(q, k, v, rows.batch, layer.cross_count)
        return layer.cross_attention.dense(y.view(x.shape[0], -1).index_select(0, rows.order))

    def mlp(self, i, x, rows):
        layer, m = self.transformer.layers[i], self.mixins.mlp
        text = lambda y: layer.mlp.dense_4h_to_h(F.silu(m.gate_proj[i](y)) * layer.mlp.dense_h_to_4h(y))
        image = lambda y: m.vision_dense_4h_to_h_list[i](F.silu(m.vision_gate_proj[i](y)) * m.vision_dense_h_to_4h_list[i](y))
        return rows.experts(text, image, x)

    def hidden(self, batch, seen=lambda name, x: None):
        """Rows sorted by expert, before the final norm. seen() gets the values of SAT's stages."""
        h = self.embed(batch, seen)
        rows = Rows(batch, self.mixins.rotary.rotary_emb.inv_freq, h.dtype)
        in_order = lambda name, x: seen(name, x.index_select(0, rows.inverse))
        seen("embedding_out", h)
        h = h.index_select(0, rows.order)
        tower = None
        if self.agent:
            tower = self.mixins.encoder(batch["cross_image"].to(h.dtype), seen)
            seen("encoder_out", tower)
        for i, layer in enumerate(self.transformer.layers):
            in_order("layer%d.in" % i, h)
            y = self.attention(i, layer.input_layernorm(h), rows)
            in_order("layer%d.attention_out" % i, y)
            h = h + y
            if layer.cross_count:
                y = self.cross(i, layer.post_cross_attention_layernorm(h), rows, tower)
                in_order("layer%d.cross_attention_out" % i, y)
                h = h + y
            y = self.mlp(i, layer.post_attention_layernorm(h), rows)
            in_order("layer%d.mlp_out" % i, y)
            h = h + y
        return h, rows

    def logits(self, batch, seen=lambda name, x: None):
        h, rows = self.hidden(batch, seen)
        x = self.transformer.final_layernorm(h.index_select(0, rows.inverse))
        seen("final_layernorm_out", x)
        y = self.mixins.lm.lm_head(x).view(rows.batch, rows.length, -1)
        seen("logits", y)
        return y

    def loss(self, batch, every_row=False):
        """Mean over the labels; every_row: the head on all rows, as SAT, else only where there is a label."""
        h, rows = self.hidden(batch)
        labels = F.pad(batch["labels"][:, 1:], (0, 1), value=-100).flatten()
        where = torch.arange(labels.numel()) if every_row else (labels != -100).nonzero().flatten()
        x = self.transformer.final_layernorm(h.index_select(0, rows.inverse[where]))
        return F.cross_entropy(self.mixins.lm.lm_head(x).float(), labels[where])


def read_config(folder):
    with open(os.path.join(folder, "model_config.json")) as f:
        return json.load(f)


def read_sat(folder, mmap=False):
    """The module of a folder's only part."""
    with open(os.path.join(folder, "latest")) as f:
        path = os.path.join(folder, f.read().strip(), "mp_rank_00_model_states.pt")
    return torch.load(path, map_location="cpu", weights_only=False, mmap=mmap)["module"]


def tower_sizes(state):
    """SAT's configuration does not have them."""
    vit = "mixins.encoder.vit.model."
    blocks = {name[len(vit):].split(".")[1] for name in state if name.startswith(vit + "blocks.")}
    return {"layers": len(blocks), "width": state[vit + "cls_token"].shape[-1], "head_width": state[vit + "rope.freqs_cos"].shape[1],
            "inner": state[vit + "blocks.0.mlp.w1.weight"].shape[0], "embed_dim": state[vit + "head.weight"].shape[0]}


def linears(model):
    return {name: m for name, m in model.named_modules() if isinstance(m, Linear)}


def sat_targets(model):
    """Of LoRA: attention of the text model and of the ViT, and cross-attention, not the visual experts."""
    ends = (".attention.query_key_value", ".attention.dense", ".cross_attention.query", ".cross_attention.key_value", ".cross_attention.dense")
    return [name for name in linears(model) if "transformer.layers." in name and name.endswith(ends)]


def add_lora(model, rank, alpha, dtype):
    for p in model.parameters():
        p.requires_grad_(False)
    found = linears(model)
    for name in sat_targets(model):
        found[name].add_lora(rank, alpha, dtype)


def set_factors(model, state):
    """SAT's matrix_A.p and matrix_B.p into the fused factors; returns what of `state` is left."""
    rest, found = {}, linears(model)
    with torch.no_grad():
        for name, value in state.items():
            module, mark, part = name.rpartition(".matrix_")
            if not mark:
                rest[name.replace(".original.", ".")] = value
                continue
            kind, _, part = part.partition(".")
            linear, part = found[module], int(part)
            rank = linear.lora_b.shape[2]
            if kind == "A":
                linear.lora_a[part * rank:(part + 1) * rank] = value
            else:
                linear.lora_b[part] = value
    return rest


def build(config, dtype=torch.float32):
    """A model without storage."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            return Cog(config)
    finally:
        torch.set_default_dtype(before)


def load(folder, dtype=torch.float32, rank=0, alpha=1.0, lora_dtype=torch.float32):
    """The model of an SAT folder with one part; rank > 0: with LoRA on SAT's targets, from the folder where it holds
    factors. What the file has in this dtype is not copied."""
    config, state = read_config(folder), read_sat(folder)
    if "cross_image_pix" in config:
        config["tower"] = tower_sizes(state)
    model = build(config, dtype)
    if rank:
        add_lora(model, rank, alpha, lora_dtype)
    state = {name: value.to(dtype) for name, value in set_factors(model, state).items()}
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    missing = [name for name in missing if not name.endswith((".lora_a", ".lora_b"))]
    if missing or unexpected:
        raise SystemExit("%s: missing %s, unexpected %s" % (folder, missing[:3], unexpected[:3]))
    return model
