#!/usr/bin/env python3
"""keep.py - `./run bench keep`: what --keep-activations costs and gives, on the models of the demos of text and of pictures.

For each form: the peak of activations and of all memory in a step; processor seconds of a step by one thread, the
least of some rounds, of which a run of two steps is taken off; the error of the gradient of one step against float32 that keeps all, relative in norm, from AdamW's
first moments after that step; and the loss of the last tenth of a run. A table in Markdown. Needs python3 alone.

  --sheaf build/sheaf   --captcha build/examples/captcha   --work DIR   --steps N (500)   --timed N (6)   --rounds N (3)
  --models text,picture   --dtypes float32,bfloat16   --forms all,int8,...   --quick: no runs of many steps
"""
import argparse
import glob
import json
import math
import os
import resource
import shutil
import struct
import subprocess

FORMS = "all,int8,attention,none"
DTYPES = {"float32": ["--dtype", "float32"], "bfloat16": ["--dtype", "bfloat16", "--sums", "tiles"]}
EXACT = ("none", "attention")  # the same bytes as all


def say(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(" ".join(command) + "\n" + done.stderr[-2000:])
    return done.stdout


def train(args, name, flags):
    """Its folder, the lines of its steps, and processor seconds."""
    out = f"{args.work}/{name}"
    shutil.rmtree(out, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    say([args.sheaf, "train", "--out", out, "--threads", "1", *flags])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(out + "/metrics.jsonl") as file:
        lines = [json.loads(line) for line in file if '"loss"' in line and '"ranks"' in line]
    return out, lines, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def text(args):
    """The words of ./run demo: a base that repeats words, data that asks for Pig Latin, an adapter on its way."""
    work = args.work + "/text"
    os.makedirs(work, exist_ok=True)
    if not os.path.isdir(work + "/full/model"):
        say(["awk", "-v", "out=" + work, "-v", "train=20000", "-v", "held=600", "-f", "demo/make_words.awk"])
        say([args.sheaf, "init", "demo/model.json", work + "/new", "--seed", "1"])
        train(args, "text/full", ["--model", work + "/new", "--data", work + "/say-train.jsonl", "--method", "full", "--steps",
                                  "300", "--micro-batch", "32", "--lr", "2e-3", "--warmup", "30", "--schedule", "linear"])
    return ["--model", work + "/full/model", "--data", work + "/pig-train.jsonl", "--lora-rank", "8", "--lora-alpha", "16",
            "--lora-targets", "all-linear", "--micro-batch", "32", "--lr", "5e-3", "--warmup", "10"]


def picture(args):
    """The pictures of ./run demo-vlm: CogVLM with LoRA on both towers' attention and the ViT's MLPs trained beside it."""
    work = args.work + "/picture"
    os.makedirs(work, exist_ok=True)
    if not os.path.isdir(work + "/full/model"):
        for style in "night", "day":
            say([args.captcha, style, f"{work}/{style}", "6000", "300"])
        say([args.sheaf, "init", "demo/cogvlm.json", work + "/new", "--seed", "1"])
        train(args, "picture/full", ["--model", work + "/new", "--data", work + "/night/train", "--method", "full", "--steps",
                                     str(args.base_steps), "--micro-batch", "32", "--lr", "1e-3", "--warmup", "100"])
    return ["--model", work + "/full/model", "--data", work + "/day/train", "--recipe", "demo/captcha.recipe"]


def moments(folder):
    """First moments of everything that is trained, by name."""
    found = {}
    for path in sorted(glob.glob(folder + "/checkpoints/*/*.safetensors")):
        with open(path, "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            for name, at in json.loads(file.read(size)).items():
                if name.startswith("exp_avg/"):
                    file.seek(8 + size + at["data_offsets"][0])
                    count = (at["data_offsets"][1] - at["data_offsets"][0]) // 4
                    found[os.path.basename(path) + name] = struct.unpack(f"<{count}f", file.read(4 * count))
    return found


def error(of, exact):
    far = sum((x - y) ** 2 for name in exact for x, y in zip(of[name], exact[name]))
    return math.sqrt(far / sum(y * y for name in exact for y in exact[name]))


def one_step(flags, adapter):
    """From an adapter, which is not to change."""
    pairs = [(flags[i], flags[i + 1]) for i in range(0, len(flags), 2)]
    kept = [word for pair in pairs if not pair[0].startswith(("--lora-", "--lr", "--warmup")) for word in pair]
    return kept + ["--adapter", adapter, "--steps", "1", "--lr", "1e-30", "--warmup", "0", "--clip", "0"]


def measure(args, model, dtype, form, flags, start, exact):
    flags = flags + DTYPES[dtype] + ["--keep-activations", form]
    name = f"{model}/{dtype}-{form}"
    gradient = moments(train(args, name, one_step(flags, start))[0])
    few, many = 2, 2 + args.timed
    seconds = [min(train(args, name, flags + ["--steps", str(steps)])[2] for _ in range(args.rounds)) for steps in (few, many)]
    ranks = [line["ranks"][0] for line in train(args, name, flags + ["--steps", str(few)])[1]]
    row = {"model": model, "dtype": dtype, "form": form, "activations": max(r["kinds"]["activations"] for r in ranks),
           "memory": max(r["memory"] for r in ranks), "seconds": (seconds[1] - seconds[0]) / args.timed,
           "error": error(gradient, exact or gradient)}
    if not args.quick and form not in EXACT:
        lines = train(args, name, flags + ["--steps", str(args.steps)])[1]
        last = lines[-(args.steps // 10):]
        row["loss"] = sum(line["loss"] for line in last) / len(last)
    return row, gradient


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--captcha", default="build/examples/captcha")
    parser.add_argument("--work", default="build/bench-keep")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--base-steps", type=int, default=500)
    parser.add_argument("--timed", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default="text,picture")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--forms", default=FORMS)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    print("| model | type | kept | activations MiB | all MiB | s a step | error of the gradient | loss |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for model in args.models.split(","):
        flags = {"text": text, "picture": picture}[model](args)
        start = train(args, model + "/start", flags + DTYPES["float32"] + ["--steps", "50"])[0] + "/adapter"
        exact = None
        for dtype in args.dtypes.split(","):
            for form in args.forms.split(","):
                row, gradient = measure(args, model, dtype, form, flags, start, exact)
                exact = exact or gradient
                print(f"| {model} | {dtype} | {form} | {row['activations'] / 2**20:.1f} | {row['memory'] / 2**20:.1f} |"
                      f" {row['seconds']:.3f} | {row['error']:.1e} | {row.get('loss', 0):.4f} |", flush=True)


if __name__ == "__main__":
    main()
