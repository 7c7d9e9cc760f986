"""cog_bench.py - `./run bench vision`: LoRA steps of a CogVLM of middle size, and loading an SAT checkpoint of 4 GB,
beside PyTorch (cog_torch.py, which cog_parity.py holds to SAT's recordings).

Steps: hidden 1024, 4 layers, ViT 512 wide with 4 layers, images of 224 x 224; LoRA of rank 16 on SAT's targets; rows of
320 tokens with one image each. Loading: bfloat16 files of MP 1 into one rank, of MP 4 into four, all in the page cache.
sheaf's time is the whole command, from its start to its end, with the loss of one row of four tokens; PyTorch's is
torch.load() and load_state_dict() alone, without imports.
Runs are interleaved, and the table gives the median; speed of a run: the median of its steps without the first.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from compare import machine, quiet_environment, row  # without PyTorch: a child's peak memory would begin with ours

HERE = os.path.dirname(os.path.abspath(__file__))
WANTED_SPEED = {"float32": 2.0, "bfloat16": 1.5}
LENGTH, ROWS = 320, 8


def run(args, command, threads=None):
    """Standard output, seconds and peak memory."""
    env = quiet_environment()
    if threads:
        env["OMP_NUM_THREADS"] = str(threads)
    with open(os.path.join(args.work, "vision.err"), "w+") as errors:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=env)
        out = child.stdout.read().decode()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        if status != 0:
            errors.seek(0)
            sys.exit("cog_bench: %s\n%s" % (" ".join(command), errors.read()[-2000:]))
    return out, seconds, usage.ru_maxrss * 1024


def path(args, name):
    return os.path.join(args.work, "cogvlm-" + name)


def make(args, target, what, name, *words):
    """What cog_model.py makes, unless it is there; an attempt that was stopped leaves nothing under the name."""
    if not os.path.exists(target):
        shutil.rmtree(target + ".part", ignore_errors=True)
        run(args, [sys.executable, os.path.join(HERE, "cog_model.py"), what, name, target + ".part", *words])
        os.rename(target + ".part", target)


# ---- steps ----

def make_middle(args, dtype):
    model, data = path(args, dtype), path(args, "data.safetensors")
    make(args, model, "model", "middle", dtype)
    make(args, data, "data", "middle", str(ROWS), str(LENGTH))
    return model, data


def run_sheaf(args, model, data, dtype, batch, slices):
    out = os.path.join(args.work, "out-vision")
    shutil.rmtree(out, ignore_errors=True)
    _, _, peak = run(args, [
        args.sheaf, "train", "--model", model, "--data", data, "--out", out, "--method", "lora", "--lora-targets", "sat-vit",
        "--lora-rank", "16", "--lora-alpha", "32", "--micro-batch", str(batch), "--accumulate", "1", "--steps", str(args.steps),
        "--dtype", dtype, "--threads", str(args.threads), "--tp", "1", "--slices", str(slices), "--no-shuffle", "--lr", "1e-4",
        "--schedule", "constant", "--clip", "1", "--weight-decay", "0"])
    with open(os.path.join(out, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return {"speed": statistics.median(line["tokens_per_s"] for line in lines[1:]), "peak": peak, "loss": lines[0]["loss"],
            "first_step": lines[0]["tokens"] / lines[0]["tokens_per_s"]}


def run_rival(args, model, data, dtype, batch, variant, steps=None):
    head, adapters = variant
    out, _, peak = run(args, [
        sys.executable, os.path.join(HERE, "cog_rival.py"), "--model", model, "--data", data, "--dtype", dtype, "--head", head,
        "--adapters", adapters, "--micro-batch", str(batch), "--steps", str(steps or args.steps), "--threads", str(args.threads)],
        args.threads)
    told = json.loads(out.splitlines()[-1])
    return {"speed": told["tokens_per_step"] / statistics.median(told["step_seconds"][1:]), "peak": peak, "loss": told["losses"][0],
            "first_step": told["step_seconds"][0], "versions": told["versions"]}


def compare_steps(args, dtype, batch):
    model, data = make_middle(args, dtype)
    print("\nLoRA step, %s: batch %d x %d, one image each, rank 16, %d threads" % (dtype, batch, LENGTH, args.threads), flush=True)
    adapters = ["base", "float32"] if dtype == "bfloat16" else ["base"]
    quick = max(adapters, key=lambda a: run_rival(args, model, data, dtype, batch, ("labels", a), steps=3)["speed"])
    kinds = {
        "sheaf": lambda: run_sheaf(args, model, data, dtype, batch, 8),
        "sheaf --slices 1": lambda: run_sheaf(args, model, data, dtype, batch, 1),
        "PyTorch": lambda: run_rival(args, model, data, dtype, batch, ("labels", quick)),
        "PyTorch, all logits": lambda: run_rival(args, model, data, dtype, batch, ("all", quick)),
    }
    runs = {kind: [] for kind in kinds}
    for _ in range(args.rounds):
        for kind, measure in kinds.items():
            runs[kind].append(measure())
    ours, rival = runs["sheaf"], runs["PyTorch"]
    if abs(ours[0]["loss"] - rival[0]["loss"]) > (1e-4 if dtype == "float32" else 2e-2):
        sys.exit("cog_bench: not the same work: first loss %g, rival %g" % (ours[0]["loss"], rival[0]["loss"]))
    middle = {kind: statistics.median(r["speed"] for r in got) for kind, got in runs.items()}
    for kind, got in runs.items():
        print("  %-24s %6.0f tokens/s (%s), peak %5.0f MB, first step %.2f s"
              % (kind, middle[kind], " ".join("%.0f" % r["speed"] for r in got), max(r["peak"] for r in got) / 1e6, min(r["first_step"] for r in got)))
    # What is asked for is asked beside the program that reproduces SAT's recordings, logits included; a loss needs fewer of them.
    wanted, ratio = WANTED_SPEED[dtype], middle["sheaf"] / middle["PyTorch, all logits"]
    row("speed ratio, PyTorch with all logits", "%.2f" % ratio, ">= %.1f" % wanted, ratio >= wanted)
    row("speed ratio, PyTorch with labelled ones alone", "%.2f" % (middle["sheaf"] / middle["PyTorch"]), None, True)
    peak, rival_peak = (max(r["peak"] for r in got) for got in (ours, rival))
    row("peak memory", "%.0f MB / %.0f MB = %.2f" % (peak / 1e6, rival_peak / 1e6, peak / rival_peak), "<= 0.60", peak / rival_peak <= 0.6)
    return {"what": "step", "dtype": dtype, "batch": batch, "adapters": quick, "runs": runs}


# ---- loading ----

def make_large(args):
    one, four, data = path(args, "4gb"), path(args, "4gb-mp4"), path(args, "4gb-data.safetensors")
    make(args, one, "model", "4gb", "bfloat16")
    if not os.path.exists(four):
        run(args, [args.sheaf, "convert", "--to", "sat", "--tp", "4", one, four])
    make(args, data, "ids", "4gb")
    return {1: one, 4: four}, data


def compare_loading(args):
    folders, data = make_large(args)
    results = []
    for ranks, folder in folders.items():
        files = [os.path.join(d, f) for d, _, names in os.walk(folder) for f in names if f.endswith(".pt")]
        print("\nloading %.2f GB, %d part%s into %d rank%s" % (sum(map(os.path.getsize, files)) / 1e9, len(files), "s"[:ranks > 1],
                                                                ranks, "s"[:ranks > 1]), flush=True)
        ours, theirs = [], []
        for _ in range(args.rounds):
            subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
            _, seconds, peak = run(args, [args.sheaf, "eval", "--model", folder, "--data", data, "--tp", str(ranks), "--dtype", "bfloat16",
                                          "--threads", str(args.threads)])
            ours.append({"seconds": seconds, "peak": peak})
            theirs.append(json.loads(run(args, [sys.executable, os.path.join(HERE, "cog_load.py"), folder, str(ranks)])[0].splitlines()[-1]))
        mine, load, whole = (statistics.median(r[key] for r in got) for got, key in ((ours, "seconds"), (theirs, "torch_load"), (theirs, "seconds")))
        print("  sheaf eval %.2f s, peak %.0f MB; torch.load %.2f s, with load_state_dict %.2f s, peak %.0f MB"
              % (mine, max(r["peak"] for r in ours) / 1e6, load, whole, max(r["peak"] for r in theirs) / 1e6))
        row("time, of torch.load + load_state_dict", "%.2f" % (mine / whole), None, True)
        row("time, of torch.load alone", "%.2f" % (mine / load), None, True)
        results.append({"what": "load", "ranks": ranks, "sheaf": ours, "torch": theirs})
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", default="build/bench")
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--only", choices=["steps", "loading"])
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--batches", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    print("machine: " + machine())
    results = []
    if args.only != "loading":
        for dtype in args.dtypes.split(","):
            for batch in args.batches.split(","):
                results.append(compare_steps(args, dtype, int(batch)))
    if args.only != "steps":
        results += compare_loading(args)
    told = os.path.join(args.work, "vision.json")
    with open(told, "w") as out:
        json.dump({"machine": machine(), "results": results}, out, indent=1)
    print("\nevery run: " + told)


main()
