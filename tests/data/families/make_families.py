#!/usr/bin/env python3
"""Tiny models of families that are Llama's kin, recorded with transformers 5.23.0, peft 0.21.2 and
torch 2.15 on a CPU in float32: forward, gradients of some tensors, generation, three trainings (in
full, of some tensors, by LoRA) of 3 steps x 2 micro-batches, in the form of the recordings of
../llama; and the logits of one Llama under each type of rotary embedding. tests/parity/llama_test.c
reads it. The three trainings see the same batches: one tensor [step, micro-batch, ids | labels |
mask, row, position] of bytes. Of what they end with, weights and both moments, a sample: of each
trained tensor in the order of its name in the file, elements i (n - 1) / 7 for i from 0 to 7.

What it writes is what lies here, byte for byte, but for the numbers of another processor or torch.

    make_families.py OUT [NAME...]
"""
import contextlib, copy, json, math, os, sys
import torch, transformers, peft
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
T = 13
COMMON = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.3)


def qwen3():
    from transformers import Qwen3Config
    return Qwen3Config(vocab_size=37, hidden_size=20, intermediate_size=22, num_hidden_layers=3,
                       num_attention_heads=5, num_key_value_heads=5, head_dim=6,
                       max_position_embeddings=64, rms_norm_eps=1e-5, use_sliding_window=True,
                       sliding_window=5, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
                       layer_types=["sliding_attention", "full_attention", "sliding_attention"], **COMMON)


def smollm3():
    from transformers import SmolLM3Config
    return SmolLM3Config(vocab_size=35, hidden_size=18, intermediate_size=14, num_hidden_layers=4,
                         num_attention_heads=6, num_key_value_heads=3, head_dim=4, max_position_embeddings=64,
                         no_rope_layers=[1, 0, 1, 0], use_sliding_window=True, sliding_window=6,
                         mlp_bias=True, rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 5e4,
                                                         "original_max_position_embeddings": 16},
                         tie_word_embeddings=True, **COMMON)


def olmo2():
    from transformers import Olmo2Config
    return Olmo2Config(vocab_size=33, hidden_size=24, intermediate_size=26, num_hidden_layers=2,
                       num_attention_heads=6, num_key_value_heads=3, max_position_embeddings=64,
                       rope_parameters={"rope_type": "default", "rope_theta": 5e4}, **COMMON)


def phi3():
    from transformers import Phi3Config
    return Phi3Config(vocab_size=31, hidden_size=24, intermediate_size=14, num_hidden_layers=2,
                      num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=64,
                      original_max_position_embeddings=16, sliding_window=9,
                      rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
                                       "short_factor": [1.0, 1.05, 1.25], "long_factor": [4.5, 9.75, 16.25]},
                      **COMMON)


def mixtral():
    from transformers import MixtralConfig
    return MixtralConfig(vocab_size=29, hidden_size=12, intermediate_size=7, num_hidden_layers=2,
                         num_attention_heads=3, num_key_value_heads=1, head_dim=4, max_position_embeddings=64,
                         num_local_experts=5, num_experts_per_tok=2, sliding_window=9, rms_norm_eps=1e-5,
                         rope_parameters={"rope_type": "default", "rope_theta": 1e4}, **COMMON)


def gemma3():
    from transformers import Gemma3TextConfig
    return Gemma3TextConfig(vocab_size=29, hidden_size=12, intermediate_size=10, num_hidden_layers=4,
                            num_attention_heads=3, num_key_value_heads=1, head_dim=6, query_pre_attn_scalar=11,
                            max_position_embeddings=64, sliding_window=5, sliding_window_pattern=3,
                            rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 1e2},
                                             "full_attention": {"rope_type": "linear", "factor": 4.0,
                                                                "rope_theta": 1e4}}, **COMMON)


def gemma3_old(config):
    """The same as 4.x writes it."""
    for key in ("rope_parameters", "layer_types", "dtype"):
        config.pop(key)
    config.update(rope_theta=1e4, rope_local_base_freq=1e2, rope_scaling={"rope_type": "linear", "factor": 4.0},
                  sliding_window_pattern=3, cache_implementation="hybrid", torch_dtype="bfloat16")


def gemma2():
    from transformers import Gemma2Config
    return Gemma2Config(vocab_size=27, hidden_size=18, intermediate_size=7, num_hidden_layers=3,
                        num_attention_heads=6, num_key_value_heads=3, head_dim=4, query_pre_attn_scalar=5,
                        max_position_embeddings=64, sliding_window=6, attn_logit_softcapping=2.5,
                        final_logit_softcapping=3.5,
                        rope_parameters={"rope_type": "default", "rope_theta": 1e3}, **COMMON)


OLD_STYLE = {"gemma3": gemma3_old}
FAMILIES = {"qwen3": (qwen3, ["q_proj", "o_proj", "embed_tokens"]),
            "smollm3": (smollm3, ["v_proj", "gate_proj"]),
            "olmo2": (olmo2, ["q_proj", "k_proj", "o_proj"]),
            "phi3": (phi3, ["qkv_proj", "gate_up_proj", "down_proj"]),
            "mixtral": (mixtral, ["gate", "w1", "w2"]),
            "gemma3": (gemma3, ["q_proj", "v_proj", "o_proj", "up_proj", "embed_tokens"]),
            "gemma2": (gemma2, ["q_proj", "k_proj", "gate_proj", "down_proj", "embed_tokens"])}
SEEDS = {"olmo2": 100, "phi3": 111, "qwen3": 102, "smollm3": 113, "mixtral": 104, "gemma2": 353, "gemma3": 707}


class Experts(torch.nn.Module):
    """A block of Mixtral by the names its files have: linear layers, which PEFT finds."""

    def __init__(self, config):
        super().__init__()
        def linear(a, b):
            return torch.nn.Linear(a, b, bias=False)
        hidden, ffn = config.hidden_size, config.intermediate_size
        self.k = config.num_experts_per_tok
        self.gate = linear(hidden, config.num_local_experts)
        self.experts = torch.nn.ModuleList(
            torch.nn.ModuleDict({"w1": linear(hidden, ffn), "w2": linear(ffn, hidden), "w3": linear(hidden, ffn)})
            for _ in range(config.num_local_experts))

    def forward(self, x):
        p = torch.softmax(self.gate(x).float(), -1)
        best, which = torch.topk(p, self.k, dim=-1)
        best = best / best.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for i, e in enumerate(self.experts):
            share = (best * (which == i)).sum(-1, keepdim=True)
            y = y + (e["w2"](torch.nn.functional.silu(e["w1"](x)) * e["w3"](x)) * share).to(x.dtype)
        return y


def by_file_names(model):
    """transformers 5 holds all experts in two tensors; the same model, as its files name them."""
    ids = torch.arange(3, 15)[None]
    before = model(input_ids=ids).logits
    for layer in model.model.layers:
        block, m = Experts(model.config), layer.mlp
        with torch.no_grad():
            block.gate.weight.copy_(m.gate.weight)
            for i, e in enumerate(block.experts):
                e["w1"].weight.copy_(m.experts.gate_up_proj[i].chunk(2)[0])
                e["w3"].weight.copy_(m.experts.gate_up_proj[i].chunk(2)[1])
                e["w2"].weight.copy_(m.experts.down_proj[i])
        del layer.mlp
        layer.block_sparse_moe = block
        object.__setattr__(layer, "mlp", block)
    model.config.model_type = "mixtral, as its files have it"  # else PEFT adapts the two tensors
    assert torch.allclose(model(input_ids=ids).logits, before, atol=1e-5)
    return model


def tensors(out, name, values, **meta):
    path = os.path.join(out, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    def plain(v):
        return v.detach().to(torch.int32 if v.dtype == torch.int64 else v.dtype).contiguous().clone()
    save_file({k: plain(v) for k, v in values.items()}, path, metadata=meta or None)


def text(out, name, value):
    path = os.path.join(out, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(value, f, separators=(",", ":"))
        f.write("\n")


def small(path):
    """The same JSON without spaces."""
    with open(path) as f:
        value = json.load(f)
    text(os.path.dirname(path), os.path.basename(path), value)


def new_model(config, seed):
    """Weights that bfloat16 holds, so that their file is small; norms not all one.
    Gemma's norms multiply by one more than their weight."""
    centre = 0 if config.model_type.startswith("gemma") else 1
    torch.manual_seed(seed)
    if config.model_type == "mixtral":  # one expert after the other; its other way takes no odd sizes
        config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.copy_((0 if name.endswith("bias") else centre) + 0.3 * torch.randn_like(p))
            p.copy_(p.bfloat16().float())
    return model.eval()


def trainable(config, seed):
    config = copy.deepcopy(config)
    model = new_model(config, seed)
    return (by_file_names(model) if config.model_type == "mixtral" else model).train()


def save_model(out, model):
    """A copy: Gemma's scale of the embedding is a buffer, which would stay rounded."""
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(os.path.join(out, "hf"))
    for name in ("config.json", "generation_config.json"):
        small(os.path.join(out, "hf", name))


def batch(vocab, seed, rows=2, pad=3):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab, (rows, T), generator=g)
    mask = torch.ones_like(ids)
    labels = ids.clone()
    labels[torch.rand(labels.shape, generator=g) < 0.2] = -100
    if pad:
        ids[-1, -pad:] = 0
        mask[-1, -pad:] = 0
        labels[-1, -pad:] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def nll(model, b):
    logits = model(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits.float()
    return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]),
                                             b["labels"][:, 1:].reshape(-1), ignore_index=-100, reduction="sum")


def labels_of(batches):
    return sum(int((b["labels"][:, 1:] != -100).sum()) for b in batches)


def some(names):
    """A layer's q, k, norms and biases, what is fused, and a tied table."""
    keep = []
    last = max((int(n.split(".layers.")[1].split(".")[0]) for n in names if ".layers." in n), default=0)
    for n in names:
        first = ".layers.0." in n and ("norm" in n or "bias" in n or "q_proj" in n or "k_proj" in n)
        second = f".layers.{last}." in n and ("_norm" in n or "qkv" in n or "gate_up" in n or "gate.weight" in n
                                              or ".w1." in n or ".experts.2." in n)
        table = n == "model.embed_tokens.weight" and "lm_head.weight" not in names
        if first or second or table or n == "model.norm.weight":
            keep.append(n)
    return keep


def record_forward(out, model):
    v = model.config.vocab_size
    b = batch(v, 11)
    model.zero_grad()
    logits = model(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
    loss = nll(model, b) / labels_of([b])
    loss.backward()
    grads = {n: p.grad for n, p in model.named_parameters()}
    tensors(out, "fwd_inputs.safetensors", b)
    tensors(out, "fwd_outputs.safetensors", {"logits": logits})
    tensors(out, "fwd_grads.safetensors", {n: grads[n] for n in some(list(grads))})
    text(out, "info.json", {"transformers": transformers.__version__, "torch": torch.__version__,
                            "peft": peft.__version__, "loss": loss.item(), "label_tokens": labels_of([b])})
    ids = torch.randint(3, v, (1, 40), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        tensors(out, "long_forward.safetensors", {"input_ids": ids, "logits_last8": model(input_ids=ids).logits[:, -8:]})


def record_generation(out, model):
    cases = []
    g = torch.Generator().manual_seed(7)
    for n, more in ((3, 8), (6, 20), (12, 20)):
        prompt = torch.randint(3, model.config.vocab_size, (1, n), generator=g)
        settings = {"do_sample": False, "max_new_tokens": more, "eos_token_id": 2}
        r = model.generate(prompt, attention_mask=torch.ones_like(prompt), return_dict_in_generate=True,
                           output_scores=True, pad_token_id=0, **settings)
        gap = min(float(torch.topk(s[0], 2).values.diff().abs()) for s in r.scores)
        cases.append({"prompt": prompt[0].tolist(), "settings": settings,
                      "sequence": r.sequences[0].tolist(), "min_top2_gap": gap})
    text(out, "generation.json", cases)


def schedule(kind, s, warmup, total):
    if s < warmup:
        return s / max(1, warmup)
    if kind == "linear":
        return (total - s) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * (s - warmup) / max(1, total - warmup)))


STEPS, MICROS = 3, 2


def batches_of(vocab):
    """Of step s and micro-batch m; the second ones have a row with padding."""
    return [[batch(vocab, 51 + 100 * s + m, pad=2 * m) for m in range(MICROS)] for s in range(STEPS)]


def record_batches(out, vocab):
    assert vocab < 128
    all_of = [torch.stack([torch.stack([b["input_ids"], b["labels"], b["attention_mask"]]) for b in step])
              for step in batches_of(vocab)]
    tensors(out, "batches.safetensors", {"batches": torch.stack(all_of).to(torch.int8)})


def train(model, lr, decay, kind, warmup, decays):
    params = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [{"params": [p for n, p in params if decays(n)], "weight_decay": decay},
              {"params": [p for n, p in params if not decays(n)], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.999), eps=1e-8)
    log = []
    for s, these in enumerate(batches_of(model.config.vocab_size)):
        rate = lr * schedule(kind, s, warmup, STEPS)
        for group in opt.param_groups:
            group["lr"] = rate
        opt.zero_grad()
        count, total = labels_of(these), 0.0
        for b in these:
            loss = nll(model, b) / count
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in params], 1.0)
        opt.step()
        log.append({"step": s, "loss": total, "label_tokens": count, "grad_norm_before_clip": norm.item(), "lr": rate})
    return log, sample({n: (p, opt.state[p]["exp_avg"], opt.state[p]["exp_avg_sq"]) for n, p in params})


def sample(values):
    def eight(x):
        return torch.stack([x.detach().flatten()[i * (x.numel() - 1) // 7] for i in range(8)])
    names = sorted(n.replace(".default", "") for n in values)
    values = {n.replace(".default", ""): v for n, v in values.items()}
    return {what: torch.stack([eight(values[n][i]) for n in names])
            for i, what in enumerate(("master", "exp_avg", "exp_avg_sq"))}


def log_of(steps, lr, decay, kind, warmup):
    return {"optimizer": {"name": "AdamW", "lr": lr, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": decay},
            "max_grad_norm": 1.0, "schedule": kind, "warmup_steps": warmup, "total_steps": len(steps),
            "gradient_accumulation": MICROS, "steps": steps}


@contextlib.contextmanager
def in_double():
    """Also where a class says float32."""
    single, softmax = torch.Tensor.float, torch.nn.functional.softmax
    torch.Tensor.float = torch.Tensor.double
    torch.nn.functional.softmax = lambda x, dim=None, **_: softmax(x, dim=dim)
    yield
    torch.Tensor.float, torch.nn.functional.softmax = single, softmax


def well_conditioned(make, log, *how):
    """Where a rounding moves gradients by more than the test allows, a recording shows nothing: a short
    row of the embedding before the first norm can do that. Such a seed is no good. make: the model anew."""
    model = make().double()
    with in_double():
        exact, _ = train(model, *how)
    for got, want in zip(log, exact):
        for key, bound in (("loss", 2e-6), ("grad_norm_before_clip", 8e-6)):
            off = abs(got[key] - want[key])
            assert off <= bound, f"step {got['step']}: {key} is {off:.1e} off in float32; take another seed"


def no_decay(name):
    return "norm" in name or name.endswith("bias")


def record_full(out, config, seed):
    model = trainable(config, seed)
    how = 2e-3, 0.1, "cosine_with_warmup", 1, lambda n: not no_decay(n)
    log, final = train(model, *how)
    well_conditioned(lambda: trainable(config, seed), log, *how)
    tensors(out, "full_train/sample.safetensors", final)
    text(out, "full_train/log.json", log_of(log, 2e-3, 0.1, "cosine_with_warmup", 1))


def record_head(out, config, seed):
    """The head, or the tied table, and every norm from the last layer on."""
    last = f"model.layers.{config.num_hidden_layers - 1}."
    head = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"

    def make():
        model = trainable(config, seed)
        for n, p in model.named_parameters():
            p.requires_grad = n in (head, "model.norm.weight") or (n.startswith(last) and n.endswith("norm.weight"))
        return model
    model, how = make(), (1e-2, 0.1, "linear", 0, lambda n: not no_decay(n))
    log, final = train(model, *how)
    well_conditioned(make, log, *how)
    chosen = [n for n, p in model.named_parameters() if p.requires_grad]
    tensors(out, "head_train/sample.safetensors", final)
    text(out, "head_train/log.json", dict(log_of(log, 1e-2, 0.1, "linear", 0), train=chosen))


def shrink(folder):
    """No copies of base tables beside the factors, and no machine's paths."""
    path = os.path.join(folder, "adapter_config.json")
    with open(path) as f:
        config = json.load(f)
    config["base_model_name_or_path"] = None
    config["target_modules"] = sorted(config["target_modules"])
    text(folder, "adapter_config.json", config)
    readme = os.path.join(folder, "README.md")
    if os.path.exists(readme):
        os.remove(readme)


def record_lora(out, config, seed, targets):
    def make():
        model = trainable(config, seed)
        torch.manual_seed(seed + 1)
        m = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_alpha=5, target_modules=targets,
                                                       task_type="CAUSAL_LM"))
        with torch.no_grad():  # B is not zero, so that every gradient is something from the first step on
            for n, p in m.named_parameters():
                if "lora_B" in n or "lora_embedding_A" in n:
                    p.copy_(0.05 * torch.randn_like(p))
        return m
    m, how = make(), (2e-2, 0.01, "linear", 0, lambda n: True)
    m.save_pretrained(os.path.join(out, "lora/adapter_init"), save_embedding_layers=False)
    log, final = train(m, *how)
    well_conditioned(make, log, *how)
    m.eval()
    m.save_pretrained(os.path.join(out, "lora/adapter_final"), save_embedding_layers=False)
    for folder in ("adapter_init", "adapter_final"):
        shrink(os.path.join(out, "lora", folder))
    b = batch(config.vocab_size, 11)
    with torch.no_grad():
        logits = m(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
    tensors(out, "lora/sample.safetensors", final)
    tensors(out, "lora/logits_final.safetensors", {"logits_adapter": logits})
    text(out, "lora/log.json", log_of(log, 2e-2, 0.01, "linear", 0))


def record_family(root, name):
    make, targets = FAMILIES[name]
    out, seed = os.path.join(root, name), SEEDS[name]
    model = new_model(make(), seed)
    record_generation(out, model)
    save_model(out, model)
    record_forward(out, trainable(make(), seed).eval() if name == "mixtral" else model)
    if name in OLD_STYLE:
        with open(os.path.join(out, "hf/config.json")) as f:
            config = json.load(f)
        OLD_STYLE[name](config)
        text(out, "config_4x_style.json", config)
    record_batches(out, model.config.vocab_size)
    record_full(out, make(), seed)
    record_head(out, make(), seed)
    record_lora(out, make(), seed, targets)


ROPES = {"linear": {"rope_type": "linear", "factor": 2.5},
         "dynamic": {"rope_type": "dynamic", "factor": 3.0},
         "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
         "yarn_scaled": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 12, "mscale": 0.7,
                         "mscale_all_dim": 1.3, "beta_fast": 20, "beta_slow": 2, "truncate": False},
         "yarn_attention": {"rope_type": "yarn", "factor": 3.0, "attention_factor": 1.25,
                            "original_max_position_embeddings": 16},
         "longrope": {"rope_type": "longrope", "original_max_position_embeddings": 16,
                      "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 2.0, 3.0, 5.0]},
         "longrope_factor": {"rope_type": "longrope", "original_max_position_embeddings": 20, "factor": 6.0,
                             "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 2.0, 3.0, 5.0]}}


def record_ropes(root):
    """One Llama; its last logits at 12 and at 40 positions, the model was made for 32."""
    from transformers import LlamaConfig
    out = os.path.join(root, "ropes")
    base = dict(vocab_size=29, hidden_size=16, intermediate_size=10, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, head_dim=8, max_position_embeddings=32, **COMMON)
    model = new_model(LlamaConfig(rope_parameters={"rope_type": "default", "rope_theta": 1e3}, **base), 200)
    save_model(out, model)
    weights = model.state_dict()
    ids = torch.randint(3, 29, (1, 40), generator=torch.Generator().manual_seed(6))
    logits = {"input_ids": ids}
    for name, rope in ROPES.items():
        config = LlamaConfig(rope_parameters=dict(rope, rope_theta=1e3), **base)
        m = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        m.load_state_dict(weights)
        with torch.no_grad():
            for n in (12, 40):
                logits[f"{name}.{n}"] = m(input_ids=ids[:, :n]).logits[:, -4:]
        config.architectures = ["LlamaForCausalLM"]
        text(out, f"{name}.json", config.to_dict())
    tensors(out, "logits.safetensors", logits)


if __name__ == "__main__":
    root, names = sys.argv[1], sys.argv[2:] or list(FAMILIES) + ["ropes"]
    for name in names:
        record_ropes(root) if name == "ropes" else record_family(root, name)
