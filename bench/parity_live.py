"""parity_live.py - does transformers + PEFT load what sheaf wrote, and compute the same?

  parity_live.py --sheaf build/sheaf --golden DIR --work DIR

For each tiny model: trains a few LoRA variants with the command, then
  * loads base + adapter with PEFT, and the merged folder with transformers alone;
  * compares their logits with `sheaf eval --save-logits` of both (2e-5, the
    tolerance of the recordings), and the merged weights with merge_and_unload();
  * does the same with a model that `sheaf init` made and `train --method full` trained.
Prints "ok - ..." or "not ok - ..." per case; exit code 1 if any failed.
"""
import argparse
import os
import shutil
import sys

import torch
from peft import PeftModel
from safetensors.torch import load_file

from live import Live, base_model, logits_of

TOLERANCE = 2e-5
VARIANTS = {
    "all-linear": ["--lora-rank", "8", "--lora-alpha", "16", "--lora-targets", "all-linear"],
    "odd rank on two": ["--lora-rank", "3", "--lora-alpha", "7", "--lora-targets", "q_proj,down_proj"],
    "rslora": ["--lora-rank", "8", "--lora-alpha", "8", "--lora-targets", "q_proj,v_proj", "--lora-rslora"],
    "patterns": ["--lora-rank", "4", "--lora-alpha", "8", "--lora-targets", "q_proj,k_proj,o_proj",
                 "--lora-rank-pattern", "k_proj=6", "--lora-alpha-pattern", "o_proj=3"],
    "modules to save": ["--lora-rank", "4", "--lora-alpha", "8", "--lora-targets", "v_proj", "--modules-to-save", "up_proj,norm"],
    "head to save": ["--lora-rank", "4", "--lora-alpha", "8", "--lora-targets", "v_proj", "--modules-to-save", "lm_head"],
}


def ours(data, *words):
    return live.logits(data, *words, "--tp", "3", "--json")


def compare(name, mine, other, mask):
    difference = (mine - other).abs()[mask.bool()].max().item()
    live.case("%s: logits differ by %.1e" % (name, difference), difference <= TOLERANCE, "more than %.0e" % TOLERANCE)


def check_variant(model, data, inputs, variant, flags):
    name = "%s, %s" % (os.path.basename(os.path.dirname(model)), variant)
    out, merged = live.at("out"), live.at("merged")
    for folder in (out, merged):
        shutil.rmtree(folder, ignore_errors=True)
    live.sheaf("train", "--dtype", "float32", "--model", model, "--data", data, "--out", out, "--method", "lora", *flags,
          "--steps", "4", "--micro-batch", "2", "--lr", "2e-2", "--tp", "2")
    adapter = os.path.join(out, "adapter")
    adapted = PeftModel.from_pretrained(base_model(model), adapter)
    compare(name + ": adapter", ours(data, "--model", model, "--adapter", adapter), logits_of(adapted, inputs), inputs["attention_mask"])
    live.sheaf("merge", model, adapter, merged)
    alone = base_model(merged)
    compare(name + ": merged", ours(data, "--model", merged), logits_of(alone, inputs), inputs["attention_mask"])
    by_peft = adapted.merge_and_unload().state_dict()
    wrong = [n for n, t in alone.state_dict().items() if not torch.equal(t, by_peft[n])]
    live.case(name + ": merged weights equal PEFT's bit for bit", not wrong, ", ".join(wrong[:3]))


def check_full(spec, data, inputs):
    new, out = live.at("new"), live.at("full")
    for folder in (new, out):
        shutil.rmtree(folder, ignore_errors=True)
    live.sheaf("init", spec, new, "--seed", "3")
    compare("init: " + spec.split(os.sep)[-3], ours(data, "--model", new), logits_of(base_model(new), inputs), inputs["attention_mask"])
    live.sheaf("train", "--dtype", "float32", "--model", new, "--data", data, "--out", out, "--method", "full", "--steps", "3", "--micro-batch", "2", "--lr", "1e-3", "--tp", "3")
    trained = os.path.join(out, "model")
    compare("full: " + spec.split(os.sep)[-3], ours(data, "--model", trained), logits_of(base_model(trained), inputs), inputs["attention_mask"])


parser = argparse.ArgumentParser()
parser.add_argument("--sheaf", default="build/sheaf")
parser.add_argument("--golden", required=True)
parser.add_argument("--work", required=True)
args = parser.parse_args()
live = Live(args.sheaf, args.work)
torch.set_num_threads(2)
for name in ("tiny_llama", "tiny_mistral", "tiny_qwen2", "tiny_llama3rope"):
    folder = os.path.join(args.golden, "llama", name)
    model, data = os.path.join(folder, "hf"), os.path.join(folder, "fwd_inputs.safetensors")
    inputs = load_file(data)
    tied = '"tie_word_embeddings": true' in open(os.path.join(model, "config.json")).read()
    for variant, flags in VARIANTS.items():
        if tied and variant == "head to save":
            continue  # refused: embed_tokens and lm_head are one tensor there (tests/cli/bad_input.sh)
        try:
            check_variant(model, data, inputs, variant, flags)
        except Exception as error:
            live.case("%s, %s" % (name, variant), False, str(error))
    try:
        check_full(os.path.join(model, "config.json"), data, inputs)
    except Exception as error:
        live.case("%s, init and full" % name, False, str(error))
sys.exit(live.failures > 0)
