#!/usr/bin/env python3
"""plan_time.py - `./run bench plan`: what `sheaf plan --time` predicts beside what steps take.

By turns for each setting: a prediction from the config alone, then a run; of both the fastest counts, over all
rounds. Where one thread computes both are seconds of the processor, as others on the machine cost less truth so
(the kernel's count of the process while a step's line appears in metrics.jsonl); else those of the clock. Needs
python3 alone.

  --models mini,tiny1b-4l,cog   --dtypes float32,pairs,tiles
  --ways lora,slices1,head,full,again,threads,ranks   --steps N   --rounds N (3)
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

from ranks import VOCAB, make_data

STEPS = {"mini": 8, "tiny1b-4l": 4, "cog": 6}
LORA = ["--method", "lora", "--lora-rank", "16", "--lora-targets", "all-linear"]
WAYS = {  # flags, threads, ranks
    "lora": (LORA, 1, 1),
    "slices1": (LORA + ["--slices", "1"], 1, 1),
    "head": (["--method", "head"], 1, 1),
    "full": (["--method", "full"], 1, 1),
    "again": (LORA + ["--checkpointing"], 1, 1),
    "threads": (LORA, 2, 1),
    "ranks": (LORA, 2, 2),
}
DTYPES = {"float32": ["--dtype", "float32"], "pairs": ["--dtype", "bfloat16", "--bf16-sums", "pairs"],
          "tiles": ["--dtype", "bfloat16", "--bf16-sums", "tiles"]}


def prepare(args, model, dtype):
    """Flags that name the model and its data; of CogVLM what bench/cog_bench.py has made."""
    stored = "float32" if dtype == "float32" else "bfloat16"
    if model == "cog":
        folder, data = f"{args.work}/middle-{stored}", f"{args.work}/middle-data-{stored}.safetensors"
        if not os.path.exists(data):
            sys.exit("no %s: ./run bench vision --only steps makes it" % data)
        return ["--model", folder], ["--data", data], ["--micro-batch", "1"]
    folder, data = f"{args.work}/plan-{model}-{stored}", f"{args.work}/plan-{model}.safetensors"
    if not os.path.isdir(folder):
        subprocess.run([args.sheaf, "init", model, folder, "--dtype", stored, "--seed", "1"], check=True, capture_output=True)
    if not os.path.exists(data):
        make_data(data, 64, 512, VOCAB[model])
    return ["--model", folder], ["--data", data], ["--micro-batch", "2", "--seq", "512"]


def processor(pid):
    """Seconds of it that the threads of a process have had."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return 1e-9 * total


def predict(args, flags):
    done = subprocess.run([args.sheaf, "plan", *flags, "--time", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("%s\n%s" % (" ".join(flags), done.stderr))
    return json.loads(done.stdout)["time"]


def run(args, flags, steps):
    """Seconds of each step but the first: of the clock, of the processor."""
    out = os.path.join(args.work, "plan-out")
    shutil.rmtree(out, ignore_errors=True)
    child = subprocess.Popen([args.sheaf, "train", *flags, "--out", out, "--steps", str(steps), "--lr", "1e-5"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics, size, used = os.path.join(out, "metrics.jsonl"), 0, []
    while child.poll() is None:
        try:
            now = os.path.getsize(metrics)
            if now > size:
                used.append(processor(child.pid))
            size = now
        except OSError:
            pass
        time.sleep(0.002)
    if child.returncode != 0:
        sys.exit("%s\n%s" % (" ".join(flags), child.stderr.read()))
    with open(metrics) as file:
        lines = [json.loads(line) for line in file][1:]
    clock = [line["tokens"] / line["tokens_per_s"] for line in lines]
    return clock, [b - a for a, b in zip(used, used[1:])] or clock


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--work", default="build/bench")
    parser.add_argument("--models", default="mini,tiny1b-4l")
    parser.add_argument("--dtypes", default="float32,pairs,tiles")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| model | type | way | predicted ms | measured ms | predicted to measured | in a round |\n|---|---|---|---|---|---|---|")
    worst = 0
    for model in args.models.split(","):
        for dtype in args.dtypes.split(","):
            model_flags, data, size = prepare(args, model, dtype)
            for way in args.ways.split(","):
                flags, threads, ranks = WAYS[way]
                flags = model_flags + size + DTYPES[dtype] + flags + ["--threads", str(threads), "--tp", str(ranks)]
                planned, measured, ratios = [], [], []
                for _ in range(args.rounds):
                    planned.append(predict(args, flags + (data if model == "cog" else []))["step"])
                    clock, used = run(args, flags + data, args.steps or STEPS[model])
                    measured.append(min(used if threads == 1 else clock))
                    ratios.append(planned[-1] / measured[-1] - 1)
                off = 100 * (min(planned) / min(measured) - 1)
                worst = max(worst, abs(off))
                print(f"| {model} | {dtype} | {way} | {1e3 * min(planned):.1f} | {1e3 * min(measured):.1f} | {off:+.1f} % | "
                      f"{100 * min(ratios):+.0f} to {100 * max(ratios):+.0f} % |", flush=True)
    print(f"farthest off: {worst:.1f} % (asked for: 15 %)")


if __name__ == "__main__":
    main()
