"""preference.py - DPO and GRPO steps of sheaf beside TRL, and supervised ones beside PyTorch + PEFT, in one run.

A pair is a prompt of 256 tokens and two answers of as many. Each pair is read once: the seconds of a run are those of its
steps, and of sheaf's reference, which it computes before the first step where TRL computes it in every step. The ratio of
supervised steps is measured beside it, as the machine is now. A step of GRPO is whole: 8 completions of a prompt are
sampled, by TRL with transformers' generate, judged by the same function, and learnt from.
"""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys

import torch
from safetensors.torch import save_file

import compare

PAIRS, LENGTH = 2, 512
ANSWERS, PROMPT, MAX_NEW = 8, 64, 128
WANTED_GRPO = 5
VOCABULARY = {"mini": 8192, "tiny1b-4l": 32000}


def make_pairs(path, rows, vocabulary):
    ids = torch.randint(3, vocabulary, (2, rows, LENGTH), dtype=torch.int32, generator=torch.Generator().manual_seed(20261129))
    ids[1, :, :LENGTH // 2] = ids[0, :, :LENGTH // 2]
    labels = ids.clone()
    labels[:, :, :LENGTH // 2] = -100
    save_file({"%s.%s" % (side, name): of[i].contiguous() for i, side in enumerate(("chosen", "rejected"))
               for name, of in (("input_ids", ids), ("labels", labels))}, path)


def make_prompts(data, tokenizer, rows, vocabulary):
    """Prompts of PROMPT tokens, and a tokenizer of bytes and pieces of random words that fills the vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    draw = random.Random(20261129)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(3 * vocabulary)]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.train_from_iterator([" ".join(words)], trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False,
                                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.save(tokenizer)
    with open(data, "w") as out:
        for _ in range(rows):
            ids = made.encode(" ".join(draw.choices(words, k=PROMPT))).ids[:PROMPT]
            out.write(json.dumps({"prompt": made.decode(ids)}) + "\n")


def ours(args, model, dtype, more=()):
    """A run's median step, and what stands between its start and the first one beyond a supervised run."""
    run = compare.run_sheaf(args, model, dtype, 8, more)
    return run | {"before": run["start_to_first"] - run["first_step"]}


def theirs(args, model, dtype, data, program="rival_dpo.py", rows=PAIRS, more=()):
    command = [sys.executable, os.path.join(compare.HERE, program), "--model", os.path.join(args.work, "%s-%s" % (model, dtype)),
               "--data", data, "--dtype", dtype, "--steps", str(args.steps), "--micro-batch", str(rows), "--threads", str(args.threads), *more]
    env = compare.quiet_environment() | {"OMP_NUM_THREADS": str(args.threads)}
    return json.loads(subprocess.run(command, check=True, capture_output=True, env=env).stdout.decode().splitlines()[-1])


def measure(args, model, dtype):
    print("\n%s, %s: DPO of %d pairs of 2 x %d tokens, LoRA r 16 on all linears, %d threads" % (model, dtype, PAIRS, LENGTH, args.threads), flush=True)
    data = os.path.join(args.work, model + "-pairs.safetensors")
    make_pairs(data, PAIRS * args.steps, VOCABULARY[model])
    flags = ("--data", data, "--objective", "dpo")
    found = {"sheaf": [], "trl": [], "sheaf_sft": [], "torch_sft": []}
    for _ in range(args.rounds):
        found["sheaf_sft"].append(ours(args, model, dtype))
        found["torch_sft"].append(compare.run_rival(args, model, dtype, ("sdpa", "float32")))
        found["sheaf"].append(ours(args, model, dtype, flags))
        found["trl"].append(theirs(args, model, dtype, data))
    if abs(found["sheaf"][0]["loss"] - found["trl"][0]["losses"][0]) > (1e-4 if dtype == "float32" else 2e-2):
        sys.exit("preference: both begin with log 2, but the first loss is %g, TRL's %g" % (found["sheaf"][0]["loss"], found["trl"][0]["losses"][0]))
    before = max(0, min(r["before"] for r in found["sheaf"]) - min(r["before"] for r in found["sheaf_sft"]))
    step = min(r["median_step"] for r in found["sheaf"])
    rival = min(statistics.median(r["step_seconds"][1:]) for r in found["trl"])
    whole, supervised = rival / (step + before / args.steps), max(r["speed"] for r in found["sheaf_sft"]) / max(r["speed"] for r in found["torch_sft"])
    print("  seconds a step: sheaf %.2f and %.2f for its reference, TRL %.2f" % (step, before / args.steps, rival))
    print("  peak memory: sheaf %.0f MB, TRL %.0f MB" % (max(r["peak"] for r in found["sheaf"]) / 1e6, max(r["peak_rss_bytes"] for r in found["trl"]) / 1e6))
    compare.row("speed ratio, reference included", "%.2f" % whole, ">= %.2f, of supervised steps" % supervised, whole >= supervised)
    return found


def ours_grpo(args, model, dtype, data, tokenizer):
    out = os.path.join(args.work, "grpo")
    shutil.rmtree(out, ignore_errors=True)
    command = [args.sheaf, "train", os.path.join(args.work, "%s-%s" % (model, dtype)), data, "--tokenizer", tokenizer, "--out", out, "--objective", "grpo",
               "--reward", "exec %s -B %s" % (sys.executable, os.path.join(compare.HERE, "reward_letters.py")), "--generations", str(ANSWERS),
               "--max-new", str(MAX_NEW), "--lora-rank", "16", "--lora-alpha", "32", "--lora-targets", "all-linear", "--micro-batch", str(ANSWERS),
               "--accumulate", "1", "--steps", str(args.steps), "--dtype", dtype, "--threads", str(args.threads), "--no-shuffle", "--lr", "1e-4",
               "--schedule", "constant", "--warmup", "0", "--clip", "1", "--weight-decay", "0"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=compare.quiet_environment(), text=True)
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit("preference: %s\n%s" % (" ".join(command), said[-2000:]))
    lines = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
    rollouts = [json.loads(line) for line in open(os.path.join(out, "rollouts.jsonl"))]
    return {"step_seconds": [line["tokens"] / line["tokens_per_s"] for line in lines], "peak_rss_bytes": usage.ru_maxrss * 1024,
            "processor_seconds": usage.ru_utime + usage.ru_stime, "tokens": sum(len(r["completion_ids"]) for r in rollouts), "said": said}


def measure_grpo(args, model, dtype):
    print("\n%s, %s: GRPO of %d completions of up to %d tokens to a prompt of %d, LoRA r 16 on all linears, %d threads"
          % (model, dtype, ANSWERS, MAX_NEW, PROMPT, args.threads), flush=True)
    data, tokenizer = (os.path.join(args.work, model + name) for name in ("-prompts.jsonl", "-tokenizer.json"))
    make_prompts(data, tokenizer, args.steps, VOCABULARY[model])
    more = ("--tokenizer", tokenizer, "--generations", str(ANSWERS), "--max-new", str(MAX_NEW))
    found = {"sheaf": [], "trl": []}
    for _ in range(args.rounds):
        found["sheaf"].append(ours_grpo(args, model, dtype, data, tokenizer))
        found["trl"].append(theirs(args, model, dtype, data, "rival_grpo.py", ANSWERS, more))
    if any("another log-probability" in r["said"] for r in found["sheaf"]):
        sys.exit("preference: a ratio is not 1 on policy")
    seconds = {name: min(statistics.median(r["step_seconds"][1:]) for r in runs) for name, runs in found.items()}
    print("  completion tokens: sheaf %d, TRL %d" % (found["sheaf"][0]["tokens"], found["trl"][0]["tokens"]))
    print("  whole steps a minute: sheaf %.2f, TRL %.2f" % (60 / seconds["sheaf"], 60 / seconds["trl"]))
    busy = {name: min(r["processor_seconds"] for r in runs) / args.steps for name, runs in found.items()}
    print("  processor seconds a step: sheaf %.1f, start and end included, TRL %.1f, ratio %.2f" % (busy["sheaf"], busy["trl"], busy["trl"] / busy["sheaf"]))
    print("  peak memory: sheaf %.0f MB, TRL %.0f MB" % tuple(max(r["peak_rss_bytes"] for r in found[name]) / 1e6 for name in ("sheaf", "trl")))
    ratio = seconds["trl"] / seconds["sheaf"]
    compare.row("speed ratio", "%.2f" % ratio, ">= %d" % WANTED_GRPO, ratio >= WANTED_GRPO)
    return found


MEASURES = {"dpo": measure, "grpo": measure_grpo}


def main():
    args = compare.arguments(rounds=2, steps=6, objectives="dpo,grpo")
    print("machine: " + compare.machine())
    results = {"%s, %s, %s" % (model, dtype, objective): MEASURES[objective](args, model, dtype)
               for model in args.models.split(",") for dtype in args.dtypes.split(",") for objective in args.objectives.split(",")}
    path = os.path.join(args.work, "preference.json")
    with open(path, "w") as out:
        json.dump(results, out, indent=1)
    print("\nversions: %s\nevery run: %s" % (", ".join("%s %s" % v for v in next(iter(results.values()))["trl"][0]["versions"].items()), path))


if __name__ == "__main__":
    main()
