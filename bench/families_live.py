"""families_live.py - random models of Llama's kin, held against transformers and PEFT.

  families_live.py --sheaf build/sheaf --work DIR [--seed N] [--models N]

Each model has a family, sizes, windows, biases and a rotary embedding drawn at random. Compared are
  * logits of `sheaf eval` in float32 (5e-6 of the largest: sums in another order) and bfloat16 (0.08:
    roundings to 8 bits, some of which the two programs do at other places);
  * logits of an adapter that `sheaf train --method lora` made, loaded by PEFT, and of its merge.
Prints "ok - ..." or "not ok - ..." per case; exit code 1 if any failed.
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import warnings

import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Olmo2Config, Phi3Config, Qwen3Config, SmolLM3Config

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore")
TOLERANCE = {"float32": 5e-6, "bfloat16": 0.08}
failures = 0


def case(name, good, detail=""):
    global failures
    print("%s - %s%s" % ("ok" if good else "not ok", name, "" if good else ": " + detail), flush=True)
    failures += not good


def sheaf(*words):
    done = subprocess.run([args.sheaf, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError("sheaf %s: %s" % (" ".join(words), done.stderr[-500:]))


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


def config_of(r):
    kv, group, width, layers = r.choice([1, 2, 3]), r.choice([1, 2, 4]), r.choice([8, 16, 24]), r.randint(1, 5)
    heads = kv * group
    sizes = dict(vocab_size=r.randint(60, 300), hidden_size=r.randint(3, 12) * 8, intermediate_size=r.randint(20, 200),
                 num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv, head_dim=width,
                 max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.08)
    kind = r.choice(["qwen3", "smollm3", "olmo2", "phi3", "llama"])
    odd = lambda: r.random() < 0.5
    if kind == "qwen3":
        return kind, Qwen3Config(**sizes, rope_parameters=rope(r, width // 2), attention_bias=odd(), tie_word_embeddings=odd(),
                                 use_sliding_window=True, sliding_window=r.randint(2, 20),
                                 layer_types=[r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)])
    if kind == "smollm3":
        return kind, SmolLM3Config(**sizes, rope_parameters=rope(r, width // 2), attention_bias=odd(), mlp_bias=odd(),
                                   use_sliding_window=odd(), sliding_window=r.randint(2, 20),
                                   no_rope_layers=[r.randint(0, 1) for _ in range(layers)])
    if kind == "olmo2":
        return kind, Olmo2Config(**sizes, rope_parameters=rope(r, width // 2), attention_bias=odd())
    sizes["hidden_size"] = heads * width
    if kind == "llama":
        return kind, LlamaConfig(**sizes, rope_parameters=rope(r, width // 2), attention_bias=odd(), mlp_bias=odd())
    sizes.pop("head_dim")
    part = r.choice([1.0, 0.75, 0.5])
    values = {"rope_type": r.choice(["default", "longrope"]), "rope_theta": 1e4, "partial_rotary_factor": part}
    if values["rope_type"] == "longrope":
        values.update(lists(r, int(width * part) // 2))
    return kind, Phi3Config(**sizes, rope_parameters=values, sliding_window=r.choice([None, 7]),
                            original_max_position_embeddings=r.choice([16, 64]))


def new_model(config, seed):
    """Weights that bfloat16 holds; norms not all one."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.copy_((0 if name.endswith("bias") else 1) + 0.2 * torch.randn_like(p))
            p.copy_(p.bfloat16().float())
    return model


def inputs_of(r, vocab, path):
    length = r.choice([9, 33, 90])
    ids = torch.randint(3, vocab, (2, length))
    mask = torch.ones_like(ids)
    mask[1, -4:] = 0
    save_file({"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}, path)
    return ids, mask


def theirs(model, inputs):
    with torch.no_grad():
        return model(input_ids=inputs[0], attention_mask=inputs[1]).logits.float()[inputs[1].bool()]


def ours(inputs, data, *words):
    path = os.path.join(args.work, "logits.safetensors")
    if os.path.exists(path):
        os.remove(path)
    sheaf("eval", "--data", data, "--save-logits", path, "--micro-batch", "2", *words)
    return load_file(path)["logits"][:, :inputs[0].shape[1]][inputs[1].bool()]


def compare(name, got, want, tolerance):
    off = ((got - want).abs().max() / want.abs().max()).item()
    case(name, off <= tolerance, "%.2g of the largest, allowed %.2g" % (off, tolerance))


def check(i, r):
    kind, config = config_of(r)
    folder, data, run = (os.path.join(args.work, x) for x in ("model", "data.safetensors", "run"))
    for old in (folder, run, run + "-merged"):
        shutil.rmtree(old, ignore_errors=True)
    model = new_model(config, 1000 * args.seed + i)
    model.save_pretrained(folder)
    inputs = inputs_of(r, config.vocab_size, data)
    name = "%d: %s, rope %s, %d positions" % (i, kind, config.rope_parameters["rope_type"], inputs[0].shape[1])
    for dtype in TOLERANCE:
        got = ours(inputs, data, "--model", folder, "--dtype", dtype, "--tp", str(r.choice([1, 2, 3])))
        compare("%s, %s" % (name, dtype), got, theirs(model.to(getattr(torch, dtype)), inputs), TOLERANCE[dtype])
    targets = "all-linear" if r.random() < 0.5 or config.tie_word_embeddings else \
        {"phi3": "qkv_proj,embed_tokens"}.get(kind, "q_proj,down_proj,embed_tokens")
    sheaf("train", "--model", folder, "--data", data, "--out", run, "--steps", "2", "--lr", "1e-2", "--dtype", "float32",
          "--lora-rank", "3", "--lora-targets", targets, "--tp", "2")
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    adapted = PeftModel.from_pretrained(base, os.path.join(run, "adapter")).eval()
    want = theirs(adapted, inputs)
    compare(name + ", adapter of " + targets, ours(inputs, data, "--model", folder, "--adapter", os.path.join(run, "adapter"), "--dtype", "float32"),
            want, TOLERANCE["float32"])
    sheaf("merge", folder, os.path.join(run, "adapter"), run + "-merged", "--dtype", "float32")
    compare(name + ", merged", ours(inputs, data, "--model", run + "-merged", "--dtype", "float32"), want, 2e-5)


parser = argparse.ArgumentParser()
parser.add_argument("--sheaf", required=True)
parser.add_argument("--work", required=True)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--models", type=int, default=24)
args = parser.parse_args()
os.makedirs(args.work, exist_ok=True)
torch.set_num_threads(1)
choices = random.Random(args.seed)
for number in range(args.models):
    check(number, choices)
print("families: %d models compared, %d failures" % (args.models, failures))
sys.exit(failures > 0)
