"""preference.py - DPO steps of sheaf beside TRL, and supervised ones beside PyTorch + PEFT, in one run.

A pair is a prompt of 256 tokens and two answers of as many. Each pair is read once: the seconds of a run are those of its
steps, and of sheaf's reference, which it computes before the first step where TRL computes it in every step. The ratio of
supervised steps is measured beside it, as the machine is now.
"""
import json
import os
import statistics
import subprocess
import sys

import torch
from safetensors.torch import save_file

import compare

PAIRS, LENGTH = 2, 512
VOCABULARY = {"mini": 8192, "tiny1b-4l": 32000}


def make_pairs(path, rows, vocabulary):
    ids = torch.randint(3, vocabulary, (2, rows, LENGTH), dtype=torch.int32, generator=torch.Generator().manual_seed(20261129))
    ids[1, :, :LENGTH // 2] = ids[0, :, :LENGTH // 2]
    labels = ids.clone()
    labels[:, :, :LENGTH // 2] = -100
    save_file({"%s.%s" % (side, name): of[i].contiguous() for i, side in enumerate(("chosen", "rejected"))
               for name, of in (("input_ids", ids), ("labels", labels))}, path)


def ours(args, model, dtype, more=()):
    """A run's median step, and what stands between its start and the first one beyond a supervised run."""
    run = compare.run_sheaf(args, model, dtype, 8, more)
    return run | {"before": run["start_to_first"] - run["first_step"]}


def theirs(args, model, dtype, data):
    command = [sys.executable, os.path.join(compare.HERE, "rival_dpo.py"), "--model", os.path.join(args.work, "%s-%s" % (model, dtype)),
               "--data", data, "--dtype", dtype, "--steps", str(args.steps), "--micro-batch", str(PAIRS), "--threads", str(args.threads)]
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


def main():
    args = compare.arguments(rounds=2, steps=6)
    print("machine: " + compare.machine())
    results = {"%s, %s" % (model, dtype): measure(args, model, dtype) for model in args.models.split(",") for dtype in args.dtypes.split(",")}
    path = os.path.join(args.work, "preference.json")
    with open(path, "w") as out:
        json.dump(results, out, indent=1)
    print("\nversions: %s\nevery run: %s" % (", ".join("%s %s" % v for v in next(iter(results.values()))["trl"][0]["versions"].items()), path))


if __name__ == "__main__":
    main()
