"""families_live.py - random models of Llama's kin, held against transformers and PEFT.

  families_live.py --sheaf build/sheaf --work DIR [--seed N] [--models N] [--family NAME]

Each model has a family, sizes, windows, caps, biases and a rotary embedding drawn at random. Compared are
  * logits of `sheaf eval` in float32 and bfloat16, at random ranks;
  * three steps of a training by LoRA, of some tensors, or in full: losses, norms of the gradients, and
    the logits that the trained model gives, in float32 and (losses and norms) in bfloat16;
  * logits of an adapter that `sheaf train --method lora` made, loaded by PEFT, and of its merge, by both.

Bounds. In float32 the truth is transformers in float64: sheaf may miss it by FLOAT of the largest value,
or by TIMES what transformers in float32 misses it by; so a model where roundings grow does not count as an
error, and one where they do not is held tight. What a trained model gives is missed by more or less from
run to run, as AdamW makes much of the roundings of small gradients: there the worst of three float32
trainings counts, two of them of weights that lie a rounding away. In bfloat16 the same with HALF. A mixture whose
router is undecided takes another expert for a rounding: of its bfloat16 logits half of all rows are held.
Prints "ok - ..." or "not ok - ..." per case; exit code 1 if any failed.
"""
import argparse
import copy
import json
import os
import random
import shutil
import sys

import peft
import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, Gemma2Config, Gemma3TextConfig, LlamaConfig, MixtralConfig, Olmo2Config,
                          Phi3Config, Qwen3Config, SmolLM3Config)

from live import Live, base_model, logits_of

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data", "families"))
import make_families  # noqa: E402  (by_file_names, in_double)

FLOAT, HALF, TIMES = 5e-6, 0.02, 8
STEPS, MICROS, LR, DECAY = 3, 2, 5e-3, 0.1


# ---- models ----

def rope(r, pairs):
    kind = r.choice(["default", "linear", "dynamic", "yarn", "longrope", "llama3"])
    values = {"rope_type": kind, "rope_theta": r.choice([1e3, 1e4, 5e5])}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        values["factor"] = r.choice([2.0, 4.0, 8.0])
    if kind in ("yarn", "longrope", "llama3"):
        values["original_max_position_embeddings"] = r.choice([16, 32, 64])
    if kind == "llama3":
        values.update(low_freq_factor=1.0, high_freq_factor=4.0)
    if kind == "longrope":
        values.update(lists(r, pairs))
    return values


def lists(r, pairs):
    return {"short_factor": [1 + r.random() for _ in range(pairs)], "long_factor": [1 + 4 * r.random() for _ in range(pairs)]}


def qwen3(r, sizes, odd):
    layers = sizes["num_hidden_layers"]
    return Qwen3Config(**sizes, rope_parameters=rope(r, sizes["head_dim"] // 2), attention_bias=odd(), tie_word_embeddings=odd(),
                       use_sliding_window=True, sliding_window=r.randint(2, 20),
                       layer_types=[r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)])


def smollm3(r, sizes, odd):
    return SmolLM3Config(**sizes, rope_parameters=rope(r, sizes["head_dim"] // 2), attention_bias=odd(), mlp_bias=odd(),
                         use_sliding_window=odd(), sliding_window=r.randint(2, 20),
                         no_rope_layers=[r.randint(0, 1) for _ in range(sizes["num_hidden_layers"])])


def olmo2(r, sizes, odd):
    return Olmo2Config(**sizes, rope_parameters=rope(r, sizes["head_dim"] // 2), attention_bias=odd())


def llama(r, sizes, odd):
    sizes["hidden_size"] = sizes["num_attention_heads"] * sizes["head_dim"]
    return LlamaConfig(**sizes, rope_parameters=rope(r, sizes["head_dim"] // 2), attention_bias=odd(), mlp_bias=odd())


def phi3(r, sizes, odd):
    width = sizes.pop("head_dim")
    sizes["hidden_size"] = sizes["num_attention_heads"] * width
    part = r.choice([1.0, 0.75, 0.5])
    values = {"rope_type": r.choice(["default", "longrope"]), "rope_theta": 1e4, "partial_rotary_factor": part}
    if values["rope_type"] == "longrope":
        values.update(lists(r, int(width * part) // 2))
    return Phi3Config(**sizes, rope_parameters=values, sliding_window=r.choice([None, 7]),
                      original_max_position_embeddings=r.choice([16, 64]))


def mixtral(r, sizes, odd):
    experts = r.choice([2, 3, 4, 8])
    return MixtralConfig(**sizes, rope_parameters=rope(r, sizes["head_dim"] // 2), num_local_experts=experts,
                         num_experts_per_tok=r.randint(1, min(3, experts)), sliding_window=r.choice([None, 5, 20]),
                         tie_word_embeddings=odd())


def gemma2(r, sizes, odd):
    return Gemma2Config(**sizes, rope_parameters=rope(r, sizes["head_dim"] // 2), attention_bias=odd(), tie_word_embeddings=odd(),
                        query_pre_attn_scalar=r.choice([sizes["head_dim"], 7, 144]), sliding_window=r.randint(2, 20),
                        attn_logit_softcapping=r.choice([None, 1.5, 50.0]), final_logit_softcapping=r.choice([None, 2.5, 30.0]),
                        layer_types=[r.choice(["full_attention", "sliding_attention"]) for _ in range(sizes["num_hidden_layers"])])


def gemma3(r, sizes, odd):
    layers = sizes["num_hidden_layers"]
    return Gemma3TextConfig(**sizes, attention_bias=odd(), tie_word_embeddings=odd(), sliding_window=r.randint(2, 20),
                            query_pre_attn_scalar=r.choice([sizes["head_dim"], 7, 144]),
                            final_logit_softcapping=r.choice([None, 2.5]),
                            rope_parameters={"full_attention": rope(r, sizes["head_dim"] // 2),
                                             "sliding_attention": {"rope_type": "default", "rope_theta": r.choice([1e2, 1e4])}},
                            layer_types=[r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)])


FAMILIES = {f.__name__: f for f in (qwen3, smollm3, olmo2, phi3, llama, mixtral, gemma2, gemma3)}


def config_of(r, kind):
    kv, group, width, layers = r.choice([1, 2, 3, 5]), r.choice([1, 2, 3, 4]), r.choice([8, 16, 24]), r.randint(1, 5)
    sizes = dict(vocab_size=r.randint(60, 300), hidden_size=kv * group * r.choice([4, 7, 10]), intermediate_size=r.randint(20, 200),
                 num_hidden_layers=layers, num_attention_heads=kv * group, num_key_value_heads=kv, head_dim=width,
                 max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=r.choice([0, None, -1, 5]), initializer_range=0.08)
    return FAMILIES[kind](r, sizes, lambda: r.random() < 0.5)


def new_model(config, seed):
    """Weights that bfloat16 holds; norms not all one, or zero where one is added."""
    centre = 0 if config.model_type.startswith("gemma") else 1
    torch.manual_seed(seed)
    if config.model_type == "mixtral":
        config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.copy_((0 if name.endswith("bias") else centre) + 0.2 * torch.randn_like(p))
            p.copy_(p.bfloat16().float())
    return model


def with_file_names(model):
    """The names that the files have: those of Mixtral's experts are not those of its class."""
    model = copy.deepcopy(model)
    return make_families.by_file_names(model) if model.config.model_type == "mixtral" else model


# ---- data ----

def inputs_of(r, config, path):
    """STEPS times MICROS batches of two rows; all of them are one file. The token that pads is in texts too."""
    vocab, pad = config.vocab_size, config.pad_token_id
    length, left = r.choice([9, 17, 33, 60]), r.random() < 0.3
    ids = torch.randint(3, vocab, (STEPS * MICROS * 2, length))
    if pad is not None:
        ids[torch.rand(ids.shape) < 0.1] = pad % vocab
    mask = torch.ones_like(ids)
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    # sheaf goes by the length of each row without its padding, transformers by that of the batch
    apart = rope["rope_type"] == "longrope" and length > rope["original_max_position_embeddings"]
    for row in range(1, len(ids), 2):
        pad = 0 if apart else r.randint(0, 4)
        mask[row, :pad] = 0 if left else 1
        if not left and pad > 0:
            mask[row, -pad:] = 0
    ids = ids.masked_fill(mask == 0, 0)
    labels = ids.masked_fill((mask == 0) | (torch.rand(ids.shape) < 0.3), -100)
    labels[:, 1:][mask[:, :-1] == 0] = -100
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    save_file(inputs, path)
    return inputs


def seen(logits, inputs):
    return logits[inputs["attention_mask"].bool()].double()


# ---- comparisons ----

def off(got, truth):
    """The largest distance, and of rows the median of it, as shares of the largest value."""
    away = (got - truth).abs()
    rows = away.reshape(-1, away.shape[-1]).amax(-1) if away.ndim > 1 else away
    most = truth.abs().max()
    return (away.max() / most).item(), (rows.median() / most).item()


def compare(name, got, theirs, truth, share, median=False):
    """theirs: what transformers computed, or a list of it with other roundings, of which the worst counts."""
    theirs = theirs if isinstance(theirs, list) else [theirs]
    mine, other = off(got, truth)[median], max(off(t, truth)[median] for t in theirs)
    live.case(name, mine <= max(share, TIMES * other), "%.2g of the largest off, transformers %.2g" % (mine, other))


def eval_logits(inputs, data, *words):
    return live.logits(data, *words, "--micro-batch", "2")[:, :inputs["input_ids"].shape[1]]


def check_forward(name, r, model, inputs, data, folder):
    with make_families.in_double():
        truth = seen(logits_of(copy.deepcopy(model).double(), inputs), inputs)
    for dtype, share in (("float32", FLOAT), ("bfloat16", HALF)):
        theirs = seen(logits_of(copy.deepcopy(model).to(getattr(torch, dtype)), inputs), inputs)
        mine = seen(eval_logits(inputs, data, "--model", folder, "--dtype", dtype, "--tp", str(r.choice([1, 2, 3, 5]))), inputs)
        compare("%s, %s" % (name, dtype), mine, theirs, truth, share, model.config.model_type == "mixtral" and dtype != "float32")


def nll(model, inputs, rows):
    logits = model(input_ids=inputs["input_ids"][rows], attention_mask=inputs["attention_mask"][rows]).logits.float()
    return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]),
                                             inputs["labels"][rows][:, 1:].reshape(-1), ignore_index=-100, reduction="sum")


def train(model, chosen, inputs, decays, dtype):
    """Losses and norms of the steps. In bfloat16 the weights that are trained are float32 and rounded for each step."""
    masters = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert [n for n, _ in masters] and all(chosen(n) for n, _ in masters)
    worker = copy.deepcopy(model).to(dtype) if dtype == torch.bfloat16 else model
    working = dict(worker.named_parameters())
    groups = [{"params": [p for n, p in masters if decays(n)], "weight_decay": DECAY},
              {"params": [p for n, p in masters if not decays(n)], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=LR)
    told = []
    for s in range(STEPS):
        for group in opt.param_groups:
            group["lr"] = LR * (STEPS - s) / STEPS
        batches = [slice((s * MICROS + m) * 2, (s * MICROS + m) * 2 + 2) for m in range(MICROS)]
        count = sum(int((inputs["labels"][b][:, 1:] != -100).sum()) for b in batches)
        worker.zero_grad()
        loss = 0.0
        for b in batches:
            part = nll(worker, inputs, b) / count
            part.backward()
            loss += part.item()
        for n, p in masters:
            p.grad = working[n].grad.to(p.dtype) if working[n].grad is not None else None
        told += [loss, torch.nn.utils.clip_grad_norm_([p for _, p in masters], 1.0).item()]
        opt.step()
        with torch.no_grad():
            for n, p in masters:
                working[n].copy_(p)
    return torch.tensor(told, dtype=torch.float64).reshape(STEPS, 2)


def sheaf_train(inputs, data, folder, run, *words):
    shutil.rmtree(run, ignore_errors=True)
    live.sheaf("train", "--model", folder, "--data", data, "--out", run, "--steps", str(STEPS), "--micro-batch", "2",
               "--accumulate", str(MICROS), "--lr", str(LR), "--weight-decay", str(DECAY), "--clip", "1", "--schedule", "linear",
               "--warmup", "0", "--no-shuffle", *words)
    with open(os.path.join(run, "metrics.jsonl")) as f:
        steps = [json.loads(line) for line in f]
    return torch.tensor([[s["loss"], s["grad_norm"]] for s in steps if "grad_norm" in s], dtype=torch.float64)


def moved(model, seed):
    """With half of the weights one rounding up or down."""
    other = copy.deepcopy(model)
    choice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in other.parameters():
            way = torch.randint(-1, 3, p.shape, generator=choice)
            p.copy_(torch.where(way.abs() == 1, torch.nextafter(p, way * torch.inf), p))
    return other


def plain_decay(name):
    return "norm" not in name and not name.endswith("bias")


def adapted(model, r, kind, tied):
    """The model with LoRA at random places, factors not zero."""
    targets = {"phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], "mixtral": ["q_proj", "v_proj", "gate", "w1", "w2", "w3"]}
    names = targets.get(kind, ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
    names = r.sample(names, r.randint(1, len(names))) + (["embed_tokens"] if r.random() < 0.5 else [])
    m = peft.get_peft_model(model, peft.LoraConfig(r=r.randint(1, 5), lora_alpha=r.randint(1, 9), target_modules=names,
                                                   use_rslora=r.random() < 0.3, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for n, p in m.named_parameters():
            if "lora_B" in n or "lora_embedding_A" in n:
                p.copy_(0.05 * torch.randn_like(p))
    return m, "LoRA of " + ",".join(names)


def some_tensors(model, r):
    """For --method head: the head or table, or some tensors of some layers."""
    names = [n for n, _ in model.named_parameters()]
    head = "lm_head.weight" if "lm_head.weight" in names else "model.embed_tokens.weight"
    return [head] if r.random() < 0.3 else sorted(r.sample(names, min(len(names), r.randint(1, 6))))


def check_training(name, r, model, inputs, data, folder, kind):
    method, ranks = r.choice(["lora", "head", "full"]), str(r.choice([1, 2, 3]))
    run, words = live.at("run"), []
    model = with_file_names(model).train()
    if method == "lora":
        model, how = adapted(model, r, kind, model.config.tie_word_embeddings)
        model.save_pretrained(live.at("begin"), save_embedding_layers=False)
        words = ["--adapter", live.at("begin")]
    else:
        chosen = some_tensors(model, r) if method == "head" else [n for n, _ in model.named_parameters()]
        for n, p in model.named_parameters():
            p.requires_grad = n in chosen
        how = method if method == "full" else "training of " + ",".join(chosen)
        words = ["--train", ",".join(chosen)] if method == "head" else []
    decays = (lambda n: True) if method == "lora" else plain_decay
    exact, half = copy.deepcopy(model).double(), copy.deepcopy(model)
    singles = [copy.deepcopy(model), moved(model, 1), moved(model, 2)]
    with make_families.in_double():
        truth = train(exact, lambda n: True, inputs, decays, torch.float64)
        last = seen(logits_of(exact, inputs), inputs)
    theirs = [train(m, lambda n: True, inputs, decays, torch.float32) for m in singles]
    rounded = train(half, lambda n: True, inputs, decays, torch.bfloat16)
    words += ["--method", method, "--tp", ranks]
    for dtype, share, other in (("bfloat16", HALF, [rounded]), ("float32", FLOAT, theirs)):
        mine = sheaf_train(inputs, data, folder, run, "--dtype", dtype, *words)
        for column, what in enumerate(("losses", "gradient norms")):
            bound = share if dtype == "float32" else 3 * share
            compare("%s, %s, %s, %s" % (name, how, dtype, what), mine[:, column], [o[:, column] for o in other], truth[:, column],
                    bound)
    out = os.path.join(run, "adapter" if method == "lora" else "model")
    words = ["--model", folder, "--adapter", out] if method == "lora" else ["--model", out]
    mine = seen(eval_logits(inputs, data, "--dtype", "float32", *words), inputs)
    compare("%s, %s, logits behind it" % (name, how), mine, [seen(logits_of(m, inputs), inputs) for m in singles], last, 2e-5)
    if method != "lora":
        compare("%s, %s, loaded by transformers" % (name, how), seen(logits_of(base_model(out), inputs), inputs), mine, mine, 2e-5)


def check_adapter(name, r, kind, inputs, data, folder, tied):
    """PEFT loads what sheaf wrote."""
    run, merged = live.at("run"), live.at("merged")
    shutil.rmtree(merged, ignore_errors=True)
    targets = {"phi3": "qkv_proj,embed_tokens", "mixtral": "q_proj,gate,w2"}.get(kind, "q_proj,down_proj,embed_tokens")
    if r.random() < 0.5 or tied and kind != "mixtral":
        targets = "all-linear"
    sheaf_train(inputs, data, folder, run, "--method", "lora", "--dtype", "float32", "--lora-rank", "3", "--lora-targets", targets, "--tp", "2")
    base = with_file_names(base_model(folder)) if kind == "mixtral" else base_model(folder)
    theirs = peft.PeftModel.from_pretrained(base, os.path.join(run, "adapter")).eval()
    want = seen(logits_of(theirs, inputs), inputs)
    with make_families.in_double():
        truth = seen(logits_of(theirs.double(), inputs), inputs)
    got = eval_logits(inputs, data, "--model", folder, "--adapter", os.path.join(run, "adapter"), "--dtype", "float32")
    compare(name + ", adapter of " + targets, seen(got, inputs), want, truth, FLOAT)
    live.sheaf("merge", folder, os.path.join(run, "adapter"), merged, "--dtype", "float32")
    mine = seen(eval_logits(inputs, data, "--model", merged, "--dtype", "float32"), inputs)
    compare(name + ", merged", mine, want, truth, 2e-5)
    compare(name + ", merged, loaded by transformers", seen(logits_of(base_model(merged), inputs), inputs), want, truth, 2e-5)


def check(i, r):
    kind = args.family or r.choice(sorted(FAMILIES))
    config = config_of(r, kind)
    folder, data = live.at("model"), live.at("data.safetensors")
    shutil.rmtree(folder, ignore_errors=True)
    model = new_model(config, 1000 * args.seed + i)
    model.save_pretrained(folder)
    inputs = inputs_of(r, config, data)
    rope_type = config.rope_parameters.get("full_attention", config.rope_parameters)["rope_type"]
    name = "%d: %s, rope %s, %d positions" % (i, kind, rope_type, inputs["input_ids"].shape[1])
    check_forward(name, r, model, inputs, data, folder)
    check_training(name, r, model, inputs, data, folder, kind)
    check_adapter(name, r, kind, inputs, data, folder, config.tie_word_embeddings)


parser = argparse.ArgumentParser()
parser.add_argument("--sheaf", required=True)
parser.add_argument("--work", required=True)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--models", type=int, default=24)
parser.add_argument("--family", choices=sorted(FAMILIES))
args = parser.parse_args()
live = Live(args.sheaf, args.work)
torch.set_num_threads(1)
for number in range(args.models):
    try:
        check(number, random.Random("%d %d" % (args.seed, number)))
    except Exception as error:
        live.case("%d: %s" % (number, type(error).__name__), False, str(error))
print("families: %d models compared, %d failures" % (args.models, live.failures))
sys.exit(live.failures > 0)
