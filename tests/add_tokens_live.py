#!/usr/bin/env python3
"""Added tokens against transformers and PEFT, now: add_tokens_live.py SHEAF TOKENIZER WORK, for `./run soak`.

sheaf trains adapters with --add-tokens; their rows, tokenizers, logits and merged models are compared with what
add_tokens(), resize_token_embeddings() and PeftModel give. Then PEFT writes an adapter of a resized model, which
sheaf runs on the model as it was."""
import json
import os
import shutil
import subprocess
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (AddedToken, AutoModelForCausalLM, AutoTokenizer, Gemma2Config, LlamaConfig, MistralConfig, Olmo2Config, Phi3Config,
                          Qwen2Config, Qwen3Config)

sheaf, tokenizer, work = sys.argv[1:]
TOLERANCE = 2e-5  # of logits of about 1 in float32, which sheaf and torch sum in other orders
TOKENS = ["[ACT]", {"content": "<tool>", "special": True}, "hello world", {"content": "<l>", "lstrip": True}]
TEXT = "say [ACT] or <tool>, hello world, to  <l> a b c d"
compared = 0


def case(name, good, why=""):
    global compared
    compared += 1
    print("%s - %s" % ("ok" if good else "not ok", name))
    if not good:
        print("# " + str(why))


def run(*words):
    done = subprocess.run([sheaf, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit("not ok - sheaf %s\n# %s" % (" ".join(map(str, words)), done.stderr))
    return done.stdout


def logits(ids, *words):
    save_file({"input_ids": ids, "labels": ids.clone()}, work + "/ids.safetensors")
    if os.path.exists(work + "/logits.safetensors"):
        os.remove(work + "/logits.safetensors")
    run("eval", *words, "--data", work + "/ids.safetensors", "--dtype", "float32", "--save-logits", work + "/logits.safetensors")
    return list(load_file(work + "/logits.safetensors").values())[0]


def near(a, b):
    return tuple(a.shape) == tuple(b.shape) and (a - b).abs().max().item() < TOLERANCE


shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
with open(work + "/tokens.json", "w") as file:
    json.dump(TOKENS, file)
with open(work + "/data.jsonl", "w") as file:
    for i in range(6):
        file.write(json.dumps({"text": TEXT + " %d" % i}) + "\n")
old = AutoTokenizer.from_pretrained(tokenizer)
size = dict(vocab_size=len(old), hidden_size=72, intermediate_size=88, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3,
            max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)
models = [("llama", LlamaConfig(**size)), ("llama, tied", LlamaConfig(**size, tie_word_embeddings=True)),
          ("qwen2, tied, with spare rows", Qwen2Config(**{**size, "vocab_size": len(old) + 2}, tie_word_embeddings=True)),
          ("qwen3, with more spare rows than tokens", Qwen3Config(**{**size, "vocab_size": len(old) + 9}, head_dim=12)),
          ("mistral", MistralConfig(**size)), ("olmo2", Olmo2Config(**size)), ("gemma2, tied", Gemma2Config(**size, head_dim=12)),
          ("phi3", Phi3Config(**size))]
for number, (name, config) in enumerate(models):
    torch.manual_seed(number)
    base = "%s/base%d" % (work, number)
    AutoModelForCausalLM.from_config(config).save_pretrained(base)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer + "/" + file, base)
    here = AutoTokenizer.from_pretrained(base)
    first = len(here)
    here.add_tokens([AddedToken(t, special=False) if isinstance(t, str) else AddedToken(**t) for t in TOKENS])

    train = ["train", base, work + "/data.jsonl", "--add-tokens", work + "/tokens.json", "--micro-batch", 2, "--lora-rank", 3, "--dtype", "float32",
             "--loss-on", "all"]
    run(*train, "--out", base + "-begun", "--steps", 1, "--lr", "1e-30")
    run(*train, "--out", base + "-out", "--steps", 30, "--lr", "1e-2", "--tp", 2)
    begun, adapter = load_file(base + "-begun/adapter/adapter_model.safetensors"), base + "-out/adapter"
    was = load_file(base + "/model.safetensors")
    rows = max(config.vocab_size, len(here))
    for table in ["model.embed_tokens.weight"] + ([] if config.tie_word_embeddings else ["lm_head.weight"]):
        is_now = begun["base_model.model." + table]
        mean = was[table][:first].double().mean(0).float()
        # zeros of the row of padding may have become 1e-30
        case("%s: rows of %s" % (name, table), is_now.shape[0] == rows and torch.allclose(is_now[:first], was[table][:first], 0, 1e-29)
             and torch.equal(is_now[first:len(here)], mean.expand(len(here) - first, -1))
             and torch.equal(is_now[len(here):], was[table][len(here):]))

    there = AutoTokenizer.from_pretrained(adapter)
    case("%s: the tokenizer beside the adapter" % name, there.get_vocab() == here.get_vocab() and there(TEXT).input_ids == here(TEXT).input_ids,
         (there(TEXT).input_ids, here(TEXT).input_ids))
    here.save_pretrained(work + "/saved")
    with open(work + "/saved/tokenizer.json") as theirs, open(adapter + "/tokenizer.json") as ours:
        case("%s: its list of added tokens" % name, json.load(theirs)["added_tokens"] == json.load(ours)["added_tokens"])
    ids = torch.tensor([here(TEXT).input_ids])

    model = AutoModelForCausalLM.from_pretrained(base)
    if len(here) > config.vocab_size:
        model.resize_token_embeddings(len(here), mean_resizing=False)
    model = PeftModel.from_pretrained(model, adapter).eval()
    with torch.no_grad():
        theirs = model(ids).logits
    mine = logits(ids, "--model", base, "--adapter", adapter)
    case("%s: PEFT's logits" % name, near(mine, theirs), (mine.shape, theirs.shape, mine.shape == theirs.shape and (mine - theirs).abs().max()))
    run("merge", base, adapter, base + "-merged")
    merged = AutoModelForCausalLM.from_pretrained(base + "-merged").eval()
    with torch.no_grad():
        theirs = merged(ids).logits
    case("%s: the merged model in transformers" % name, near(mine, theirs), (mine.shape, theirs.shape))
    there = AutoTokenizer.from_pretrained(base + "-merged")
    case("%s: and its tokenizer" % name, there(TEXT).input_ids == ids[0].tolist())
    same = torch.equal(logits(ids, "--model", base, "--adapter", adapter, "--tp", 3), mine)
    case("%s: three ranks" % name, same)

    # PEFT's own: the resized tables are saved unasked (save_embedding_layers).
    model = AutoModelForCausalLM.from_pretrained(base)
    if len(here) <= config.vocab_size:
        continue
    model.resize_token_embeddings(len(here))
    model = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear", init_lora_weights=False)).eval()
    model.save_pretrained(base + "-peft", save_embedding_layers=True)
    with torch.no_grad():
        theirs = model(ids).logits
    mine = logits(ids, "--model", base, "--adapter", base + "-peft")
    case("%s: PEFT's adapter of a resized model on the model as it was" % name, near(mine, theirs), (mine.shape, theirs.shape))
print("%d comparisons of added tokens" % compared)
