"""minicpmv_bench.py - `./run bench vision minicpmv`: steps of a MiniCPM-V 2.6 of middle size beside PyTorch
(minicpmv_torch.py, which it holds to the recordings of the original program first, where $SHEAF_GOLDEN has them).

Hidden 1024, 4 layers, tower 512 wide with 4 blocks, 64 queries; rows of 320 tokens with two images of 660 and 324 patches. LoRA of
rank 16 on the text model's attention, alone and, as the published script has it, with embeddings, resampler and tower in
full. Runs are interleaved, and the table gives the median; speed of a run: the median of its steps without the first.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
from compare import machine, quiet_environment, row  # without PyTorch: a child's peak memory would begin with ours

HERE = os.path.dirname(os.path.abspath(__file__))
WANTED_SPEED, WANTED_MEMORY = 1.5, 0.6
LENGTH, ROWS = 320, 8


def run(args, command, threads=None):
    """Standard output and peak memory."""
    env = quiet_environment()
    if threads:
        env["OMP_NUM_THREADS"] = str(threads)
    with open(os.path.join(args.work, "minicpmv.err"), "w+") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=env)
        out = child.stdout.read().decode()
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            errors.seek(0)
            sys.exit("minicpmv_bench: %s\n%s" % (" ".join(command), errors.read()[-2000:]))
    return out, usage.ru_maxrss * 1024


def make(args, name, *words):
    """What minicpmv_model.py makes, unless it is there; an attempt that was stopped leaves nothing under the name."""
    target = os.path.join(args.work, "minicpmv-" + name)
    if not os.path.exists(target):
        shutil.rmtree(target + ".part", ignore_errors=True)
        run(args, [sys.executable, os.path.join(HERE, "minicpmv_model.py"), words[0], target + ".part", *words[1:]])
        os.rename(target + ".part", target)
    return target


def run_sheaf(args, model, data, dtype, batch, saved):
    out = os.path.join(args.work, "out-minicpmv")
    shutil.rmtree(out, ignore_errors=True)
    more = ["--modules-to-save", "embed_tokens,resampler,vpm"] if saved else []
    _, peak = run(args, [
        args.sheaf, "train", "--model", model, "--data", data, "--out", out, "--method", "lora", "--lora-targets",
        r"llm\..*\.(q_proj|k_proj|v_proj|o_proj)", "--lora-rank", "16", "--lora-alpha", "32", *more, "--micro-batch", str(batch),
        "--accumulate", "1", "--steps", str(args.steps), "--dtype", dtype, "--threads", str(args.threads), "--tp", "1",
        "--no-shuffle", "--lr", "1e-4", "--schedule", "constant", "--clip", "1", "--weight-decay", "0"])
    with open(os.path.join(out, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return {"speed": statistics.median(line["tokens_per_s"] for line in lines[1:]), "peak": peak, "losses": [line["loss"] for line in lines]}


def run_rival(args, model, data, dtype, batch, saved, head, adapters, steps=None):
    out, peak = run(args, [
        sys.executable, os.path.join(HERE, "minicpmv_rival.py"), "--model", model, "--data", data, "--dtype", dtype, "--head", head,
        "--adapters", adapters, "--micro-batch", str(batch), "--steps", str(steps or args.steps), "--threads", str(args.threads),
        *(["--saved"] if saved else [])], args.threads)
    told = json.loads(out.splitlines()[-1])
    return {"speed": told["tokens_per_step"] / statistics.median(told["step_seconds"][1:]), "peak": peak, "losses": told["losses"],
            "versions": told["versions"]}


def compare_steps(args, dtype, batch, saved):
    model, data = make(args, dtype, "model", dtype), make(args, "data.safetensors", "data", str(ROWS), str(LENGTH))
    print("\n%s, %s: batch %d x %d, two images each, %d threads"
          % ("LoRA, embeddings, resampler and tower" if saved else "LoRA alone", dtype, batch, LENGTH, args.threads), flush=True)
    adapters = ["base", "float32"] if dtype == "bfloat16" else ["base"]
    quick = max(adapters, key=lambda a: run_rival(args, model, data, dtype, batch, saved, "labels", a, steps=3)["speed"])
    kinds = {
        "sheaf": lambda: run_sheaf(args, model, data, dtype, batch, saved),
        "PyTorch, all logits": lambda: run_rival(args, model, data, dtype, batch, saved, "all", quick),
        "PyTorch": lambda: run_rival(args, model, data, dtype, batch, saved, "labels", quick),
    }
    runs = {kind: [] for kind in kinds}
    for _ in range(args.rounds):
        for kind, measure in kinds.items():
            runs[kind].append(measure())
    ours, rival = runs["sheaf"], runs["PyTorch, all logits"]
    if abs(ours[0]["losses"][0] - rival[0]["losses"][0]) > (1e-4 if dtype == "float32" else 2e-2):
        sys.exit("minicpmv_bench: not the same work: first loss %g, rival %g" % (ours[0]["losses"][0], rival[0]["losses"][0]))
    middle = {kind: statistics.median(r["speed"] for r in got) for kind, got in runs.items()}
    for kind, got in runs.items():
        print("  %-24s %6.0f tokens/s (%s), peak %5.0f MB"
              % (kind, middle[kind], " ".join("%.0f" % r["speed"] for r in got), max(r["peak"] for r in got) / 1e6))
    # The original computes all logits; a loss needs fewer of them.
    ratio = middle["sheaf"] / middle["PyTorch, all logits"]
    row("speed ratio, PyTorch with all logits", "%.2f" % ratio, ">= %.1f" % WANTED_SPEED, ratio >= WANTED_SPEED)
    row("speed ratio, PyTorch with labelled ones alone", "%.2f" % (middle["sheaf"] / middle["PyTorch"]), None, True)
    peak, rival_peak = (max(r["peak"] for r in got) for got in (ours, rival))
    row("peak memory", "%.0f MB / %.0f MB = %.2f" % (peak / 1e6, rival_peak / 1e6, peak / rival_peak), "<= %.2f" % WANTED_MEMORY,
        peak / rival_peak <= WANTED_MEMORY)
    return {"what": "step", "dtype": dtype, "batch": batch, "saved": saved, "adapters": quick, "runs": runs}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", default="build/bench")
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--batches", default="1,2")
    parser.add_argument("--trains", default="lora,saved", help="lora alone, or with modules saved in full")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    print("machine: " + machine())
    recorded = os.path.join(os.environ.get("SHEAF_GOLDEN", ""), "minicpmv", "v2_6")
    if os.path.isdir(recorded):
        print(run(args, [sys.executable, os.path.join(HERE, "minicpmv_torch.py"), recorded])[0].strip())
    results = [compare_steps(args, dtype, int(batch), trains == "saved")
               for trains in args.trains.split(",") for dtype in args.dtypes.split(",") for batch in args.batches.split(",")]
    told = os.path.join(args.work, "minicpmv.json")
    with open(told, "w") as out:
        json.dump({"machine": machine(), "results": results}, out, indent=1)
    print("\nevery run: " + told)


main()
