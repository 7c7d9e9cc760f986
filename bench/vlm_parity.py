"""vlm_parity.py - does the PyTorch implementation of OmniLMM and MiniCPM-V 2.6 (vlm_torch.py) compute what the original
programs recorded, and sheaf the same where nothing is recorded?

  vlm_parity.py --golden DIR [--sheaf build/sheaf --work DIR]

1. DIR/omnilmm (single, batch) and DIR/minicpmv/v2_6 (one_row, two_rows): stages, logits, loss, gradients, within the
   tolerances of the recordings (rtol 1e-4, atol 1e-5; gradients 1e-3), and the steps of DIR/omnilmm/lora_*.
2. With --sheaf: logits of `sheaf eval` and losses of `sheaf train` on models of odd sizes, beside PyTorch's.
Prints "ok - ..." or "not ok - ..." per case; exit code 1 if any failed or nothing was compared.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

import torch
from safetensors.torch import load_file

import vlm_model
import vlm_torch

failures = compared = 0


def case(name, good, detail=""):
    global failures, compared
    compared += 1
    failures += not good
    print("%s - %s%s" % ("ok" if good else "not ok", name, "" if good or not detail else ": " + detail), flush=True)


def beyond(got, want, relative, absolute):
    """How many times the tolerance the worst element is off; a number that is none counts as the worst."""
    worst = ((got.double() - want.double()).abs() / (absolute + relative * want.double().abs())).max().item()
    return float("inf") if worst != worst else worst


def check_forward(name, folder, recorded):
    model = vlm_torch.load(folder)
    model.module.eval()
    got = {}

    def seen(stage, value, rows=None):
        got[stage] = value if rows is None else torch.cat([value.new_zeros(0, value.shape[-1]), value])
        if rows is not None:
            got[stage + ".rows"] = rows

    batch = vlm_torch.batches(recorded, model.config, len(recorded["input_ids"]))[0]
    with torch.no_grad():
        got["logits"], loss = model.logits(batch, seen), model.loss(batch)
    if "resampler_out" in recorded:
        got["resampler_out"] = got.pop("image_features")
    worst, count = 0.0, 0
    for stage, value in recorded.items():
        if stage not in got:
            continue
        if stage + ".rows" in got:  # recorded padded to the longest picture
            value = torch.cat([v[:n] for v, n in zip(value, got[stage + ".rows"])])
        worst, count = max(worst, beyond(got[stage].reshape(value.shape), value, 1e-4, 1e-5)), count + 1
    case("%s: %d stages and logits at %.2f of the tolerance" % (name, count, worst), worst <= 1 and count >= 4)
    case("%s: loss differs by %.1e" % (name, abs(loss.item() - recorded["loss"].item())), abs(loss.item() - recorded["loss"].item()) <= 1e-5)


def check_gradients(name, folder, recorded):
    want = load_file(os.path.join(folder, name + "_grads.safetensors")) if os.path.exists(os.path.join(folder, name + "_grads.safetensors")) else {}
    norms_at = os.path.join(folder, name + "_grad_norms.json")
    if not os.path.exists(norms_at):
        return
    with open(norms_at) as f:
        norms = json.load(f)
    for every_row in (False, True):
        model = vlm_torch.load(folder)
        model.loss(vlm_torch.batches(recorded, model.config, len(recorded["input_ids"]))[0], every_row).backward()
        grads = {n: p.grad for n, p in model.module.named_parameters()}
        worst = max([((grads[n[5:]] - value).abs().max() / value.abs().max().clamp(min=1e-5)).item() for n, value in want.items()], default=0.0)
        for n, norm in norms.items():  # those of the keys' biases are nothing but rounding
            got = 0.0 if grads.get(n) is None else grads[n].norm().item()
            worst = max(worst, got if not norm else abs(got / norm - 1) if norm > 1e-6 else 0.0)
        case("%s: %d gradients and %d norms, head on %s rows, differ by %.1e of their size"
             % (name, len(want), len(norms), "all" if every_row else "labelled", worst), worst <= 1e-3 and len(norms) > 0)


def set_adapter(model, folder):
    """A PEFT adapter into the model that PEFT wrapped; everything in it has a place."""
    state = load_file(os.path.join(folder, "adapter_model.safetensors"))
    with torch.no_grad():
        for n, p in model.module.named_parameters():
            key = n.replace(".modules_to_save.default.", ".").replace(".default.", ".")
            if key in state and (".default." in n):
                p.copy_(state.pop(key))
    state = {n: x for n, x in state.items() if not n.endswith("pos_embed")}
    if state:
        raise SystemExit("%s: no place for %s" % (folder, sorted(state)[0]))


def check_training(folder, name, recorded):
    at = os.path.join(folder, name)
    with open(os.path.join(at, "training.json")) as f:
        told = json.load(f)
    with open(os.path.join(at, "adapter_start", "adapter_config.json")) as f:
        settings = json.load(f)
    saved = settings["modules_to_save"] or []
    model = vlm_torch.load(folder, rank=settings["r"], alpha=settings["lora_alpha"], saved=saved, targets=settings["target_modules"])
    set_adapter(model, os.path.join(at, "adapter_start"))
    o = told["optimizer"]
    trained = [p for p in model.module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=o["lr"], betas=o["betas"], eps=o["eps"], weight_decay=o["weight_decay"], fused=True)
    batch, worst = vlm_torch.batches(recorded, model.config, 1)[0], 0.0
    for loss_then in told["losses"]:
        loss = model.loss(batch)
        worst = max(worst, abs(loss.item() - loss_then))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    case("%s: %d losses differ by %.1e" % (name, len(told["losses"]), worst), worst <= 1e-3)


def check_recordings(golden):
    for folder, names in (("omnilmm", ("single", "batch")), ("minicpmv/v2_6", ("one_row", "two_rows"))):
        folder = os.path.join(golden, folder)
        for name in names:
            recorded = load_file(os.path.join(folder, name + ".safetensors"))
            check_forward(name, folder, recorded)
            check_gradients(name, folder, recorded)
    folder = os.path.join(golden, "omnilmm")
    for name in ("lora_qkvo", "lora_all"):
        check_training(folder, name, load_file(os.path.join(folder, "single.safetensors")))


# ---- models of odd sizes ----

def sheaf(args, *words):
    done = subprocess.run([args.sheaf, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError("sheaf %s: %s" % (words[0], done.stderr[-500:]))


def check_odd(args, name):
    model, data, out = (os.path.join(args.work, name + end) for end in ("", ".safetensors", "-out"))
    shutil.rmtree(model, ignore_errors=True)
    vlm_model.make_model(name, torch.float32, model)
    vlm_model.make_data(name, data, 3, 64)
    rival = vlm_torch.load(model)
    batch = vlm_torch.batches(load_file(data), rival.config, 3)[0]
    with torch.no_grad():
        want, loss = rival.logits(batch), rival.loss(batch)
    for ranks in (1, 3):
        path = os.path.join(args.work, "logits.safetensors")
        if os.path.exists(path):
            os.remove(path)
        sheaf(args, "eval", "--dtype", "float32", "--model", model, "--data", data, "--save-logits", path, "--tp", str(ranks))
        worst = beyond(load_file(path)["logits"], want, 1e-4, 1e-4)
        case("%s: logits of sheaf at %d ranks at %.2f of the tolerance" % (name, ranks, worst), worst <= 1)
    shutil.rmtree(out, ignore_errors=True)
    sheaf(args, "train", "--dtype", "float32", "--model", model, "--data", data, "--out", out, "--method", "lora", "--lora-targets", vlm_torch.TARGETS["omnilmm" if rival.omni else "minicpmv"],
          "--modules-to-save", "resampler", "--micro-batch", "3", "--steps", "2", "--no-shuffle", "--schedule", "constant")
    with open(os.path.join(out, "metrics.jsonl")) as f:
        first = json.loads(f.readline())["loss"]
    case("%s: first losses %.6f and %.6f" % (name, first, loss), abs(first - loss.item()) <= 1e-4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--golden", required=True)
    parser.add_argument("--sheaf")
    parser.add_argument("--work", default="build/bench")
    args = parser.parse_args()
    torch.set_num_threads(2)
    check_recordings(args.golden)
    if args.sheaf:
        os.makedirs(args.work, exist_ok=True)
        for name in ("odd-omnilmm", "odd-minicpmv", "odd-equal"):
            check_odd(args, name)
    print("%d compared, %d failed" % (compared, failures))
    sys.exit(failures > 0 or compared == 0)


if __name__ == "__main__":
    main()
