"""vision_common.py - what the benchmarks of models with pictures share; without PyTorch, as a child's peak memory would
begin with ours."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from compare import quiet_environment, row

HERE = os.path.dirname(os.path.abspath(__file__))


def run(args, command, threads=None):
    """Standard output, seconds (of the processor where that is asked for) and peak memory."""
    env = quiet_environment()
    if threads:
        env["OMP_NUM_THREADS"] = str(threads)
    with open(os.path.join(args.work, "vision.err"), "w+") as errors:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=env)
        out = child.stdout.read().decode()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = usage.ru_utime + usage.ru_stime if args.clock == "processor" else time.perf_counter() - begin
        if status != 0:
            errors.seek(0)
            sys.exit("bench: %s\n%s" % (" ".join(command), errors.read()[-2000:]))
    return out, seconds, usage.ru_maxrss * 1024


def make(args, program, target, what, name, *words):
    """What `program` makes, unless it is there; an attempt that was stopped leaves nothing under the name."""
    if not os.path.exists(target):
        shutil.rmtree(target + ".part", ignore_errors=True)
        run(args, [sys.executable, os.path.join(HERE, program), what, name, target + ".part", *words])
        os.rename(target + ".part", target)


def once(args, out, command):
    shutil.rmtree(out, ignore_errors=True)
    return run(args, command)


def run_sheaf(args, model, data, dtype, batch, slices, *words):
    """Steps of LoRA of rank 16 by the command."""
    out = os.path.join(args.work, "out-vision")
    train = lambda steps: once(args, out, [
        args.sheaf, "train", "--model", model, "--data", data, "--out", out, "--method", "lora", "--lora-rank", "16", "--lora-alpha", "32",
        "--micro-batch", str(batch), "--accumulate", "1", "--steps", str(steps), "--dtype", dtype, "--threads", str(args.threads),
        "--tp", "1", "--slices", str(slices), "--no-shuffle", "--lr", "1e-4", "--schedule", "constant", "--clip", "1", "--weight-decay", "0",
        *words])
    _, seconds, peak = train(args.steps)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    speed, best = statistics.median(line["tokens_per_s"] for line in lines[1:]), max(line["tokens_per_s"] for line in lines)
    if args.clock == "processor":  # less a run of one step, which loads and writes as much
        speed = best = lines[0]["tokens"] * (args.steps - 1) / (seconds - train(1)[1])
    return {"speed": speed, "peak": peak, "loss": lines[0]["loss"], "norm": lines[0]["grad_norm"], "best": best, "first_step": lines[0]["tokens"] / lines[0]["tokens_per_s"]}


def run_rival(args, program, model, data, dtype, batch, variant, steps=None):
    """The same steps by PyTorch; variant: which rows the head sees, the dtype of the factors."""
    head, adapters = variant
    return run_steps(args, program, model, data, dtype, batch, steps, "--head", head, "--adapters", adapters)


def run_steps(args, program, model, data, dtype, batch, steps, *words):
    """What a program that takes steps tells, `words` being flags of its own."""
    out, _, peak = run(args, [
        sys.executable, os.path.join(HERE, program), "--model", model, "--data", data, "--dtype", dtype, *words,
        "--micro-batch", str(batch), "--steps", str(steps or args.steps), "--threads", str(args.threads)], args.threads)
    told = json.loads(out.splitlines()[-1])
    if args.clock == "processor":
        told["step_seconds"] = told["step_processor_seconds"]
    return {"speed": told["tokens_per_step"] / statistics.median(told["step_seconds"][1:]), "peak": peak, "loss": told["first_loss"],
            "norm": told["gradient_norms"][0],
            "best": told["tokens_per_step"] / min(told["step_seconds"]), "first_step": told["step_seconds"][0], "versions": told["versions"],
            "imports": told.get("import_rss_bytes", 0)}


def rounds(args, kinds, dtype):
    """Runs of every kind in turn, the speeds and memory of each printed; the first losses have to agree."""
    runs = {kind: [] for kind in kinds}
    for _ in range(args.rounds):
        for kind, measure in kinds.items():
            runs[kind].append(measure())
    ours, rival = runs["sheaf"], runs["PyTorch"]
    if abs(ours[0]["loss"] - rival[0]["loss"]) > (1e-4 if dtype == "float32" else 2e-2):
        sys.exit("bench: not the same work: first loss %g, rival %g" % (ours[0]["loss"], rival[0]["loss"]))
    for kind, got in runs.items():
        print("  %-24s %6.0f tokens/s (%s; best step %.0f), peak %5.0f MB, first step %.2f s"
              % (kind, statistics.median(r["speed"] for r in got), " ".join("%.0f" % r["speed"] for r in got), max(r["best"] for r in got),
                 max(r["peak"] for r in got) / 1e6, min(r["first_step"] for r in got)))
    return runs


def judge(middle, peaks, wanted, wanted_memory=0.6):
    """What is asked for is asked beside the program that computes every logit, as the originals do; a loss needs fewer."""
    ratio = middle["sheaf"] / middle["PyTorch, all logits"]
    row("speed ratio, PyTorch with all logits", "%.2f" % ratio, ">= %.1f" % wanted, ratio >= wanted)
    row("speed ratio, PyTorch with labelled ones alone", "%.2f" % (middle["sheaf"] / middle["PyTorch"]), None, True)
    peak, rival = peaks["sheaf"], peaks["PyTorch"]
    row("peak memory", "%.0f MB / %.0f MB = %.2f" % (peak / 1e6, rival / 1e6, peak / rival), "<= %.2f" % wanted_memory,
        peak / rival <= wanted_memory)
