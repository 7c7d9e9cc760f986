#!/usr/bin/env python3
"""Training in float16 against torch, now: float16_live.py SHEAF GOLDEN WORK, for `./run soak`.

Each model is trained in full for ten steps by torch's float16 with a GradScaler (data/float16/make_float16.py)
and by sheaf, once from the usual scale and once from one that overflows. Torch rounds gradients of weights to
float16 where sheaf keeps float32, so it may leave out a step that sheaf does not; from there on they differ."""
import json
import os
import shutil
import subprocess
import sys

sheaf, golden, work = sys.argv[1:]
record = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "float16", "make_float16.py")
# Units of float16's last place (2^-11) in logits, and what ten steps of AdamW make of them.
TOLERANCE = {"loss": 0.004, "grad_norm": 0.05}


def ours(model, *flags):
    out = os.path.join(work, "float16")
    shutil.rmtree(out, ignore_errors=True)
    folder = os.path.join(golden, "llama", model)
    subprocess.run([sheaf, "train", "--model", folder + "/hf", "--data", folder + "/fwd_inputs.safetensors", "--out", out, "--steps", "10",
                    "--micro-batch", "2", "--method", "full", "--lr", "1e-3", "--no-shuffle", "--schedule", "constant", "--dtype", "float16",
                    *flags], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(out + "/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


for model in ("tiny_llama", "tiny_mistral", "tiny_qwen2", "tiny_llama3rope"):
    theirs = json.loads(subprocess.run([sys.executable, record, golden, model], check=True, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL).stdout)
    for name, flags in (("steps", ("--tp", "1")), ("overflows", ("--tp", "2", "--loss-scale-init", "4194304", "--loss-scale-window", "3"))):
        bad, worst, compared = [], 0, 0
        for mine, torch in zip(ours(model, *flags), theirs[name]):
            if torch["skipped"] and "skipped" not in mine:
                break
            if mine["loss_scale"] != torch["scale"] or mine.get("skipped", False) != torch["skipped"]:
                bad.append("step %d: scale %g, torch has %g" % (mine["step"], mine["loss_scale"], torch["scale"]))
            for key, by in TOLERANCE.items():
                if (mine[key] is None) != (torch[key] is None) or (mine[key] is not None and abs(mine[key] - torch[key]) > by):
                    bad.append("step %d: %s %s, torch has %s" % (mine["step"], key, mine[key], torch[key]))
            compared += 1
            worst = max(worst, abs(mine["loss"] - torch["loss"]))
        if compared < 4:
            bad.append("only %d steps compared" % compared)
        print("%s - %s in float16, %s: %d losses within %.2g of torch's" % ("not ok" if bad else "ok", model, name, compared, worst))
        for line in bad:
            print("# " + line)
