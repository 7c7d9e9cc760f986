"""cog_parity.py - does the PyTorch implementation of CogVLM and CogAgent (cog_torch.py) compute what SAT recorded, and
does sheaf compute the same where nothing is recorded?

  cog_parity.py --golden DIR [--sheaf build/sheaf --work DIR]

1. Every folder of DIR with inputs.safetensors and mp1/: stages, logits, loss, gradients, half-precision files, LoRA, and
   the recorded training steps, within the tolerances of the recordings (5e-5; 1e-4 relative for gradients).
2. With --sheaf: models of odd sizes with random weights, made here; logits of `sheaf eval`, and losses, gradient norms
   and adapters of `sheaf train`, at several sizes, beside PyTorch's.
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

import cog_model
import cog_torch

failures = compared = 0


def case(name, good, detail=""):
    global failures, compared
    compared += 1
    failures += not good
    print("%s - %s%s" % ("ok" if good else "not ok", name, "" if good or not detail else ": " + detail), flush=True)


def near(name, got, want, absolute, relative=0.0):
    if got.shape != want.shape:
        return case(name, False, "shape %s, recorded %s" % (tuple(got.shape), tuple(want.shape)))
    off = (got.double() - want.double()).abs()
    worst = (off - relative * want.double().abs()).max().item()
    case("%s: differs by %.1e" % (name, off.max().item()), worst <= absolute, "more than %.0e" % absolute)


def first_row(batch):
    return {name: value[:1] for name, value in batch.items()}


# ---- recordings ----

def check_forward(name, folder, batch, scalars):
    model = cog_torch.load(os.path.join(folder, "mp1"))
    want, got = load_file(os.path.join(folder, "forward_fp32.safetensors")), {}
    with torch.no_grad():
        model.logits(batch, got.__setitem__)
        loss = model.loss(batch)
    got["vit_out"] = got["vit_layer%d.out" % (model.config["eva_args"]["num_layers"] - 1)][:, 1:]
    worst, missing = 0.0, [stage for stage in want if stage not in got]
    for stage, value in want.items():
        if stage not in missing:
            worst = max(worst, (got[stage].reshape(value.shape) - value).abs().max().item())
    case("%s: %d stages and logits differ by %.1e" % (name, len(want), worst), worst <= 5e-5 and not missing, "missing " + ", ".join(missing))
    near(name + ": loss", loss, torch.tensor(scalars["loss_fp32"]), 1e-5)


def check_gradients(name, folder, batch, scalars):
    want = load_file(os.path.join(folder, "grads_fp32.safetensors"))
    for every_row in (False, True):
        model = cog_torch.load(os.path.join(folder, "mp1"))
        model.loss(batch, every_row).backward()
        grads = {n: p.grad for n, p in model.named_parameters()}
        worst = 0.0
        for key, value in want.items():
            tensor, cut, rows = key.partition("[0:")
            got = grads[tensor][:int(rows[:-1])] if cut else grads[tensor]
            worst = max(worst, ((got - value).abs().max() / value.abs().max()).item())
        for key, norm in scalars["grad_norm_by_name"].items():
            got = grads.get(key)
            if norm is None or norm == 0:
                worst = max(worst, 0.0 if got is None else got.norm().item())
            elif got is not None or key in grads:
                worst = max(worst, abs(got.norm().item() / norm - 1) if norm > 1e-6 else 0.0)
        case("%s: %d gradients and %d norms, head on %s rows, differ by %.1e of their size"
             % (name, len(want), len(scalars["grad_norm_by_name"]), "all" if every_row else "labelled", worst), worst <= 1e-4)


def check_half_files(name, folder, batch, scalars):
    for kind in ("bf16", "fp16"):
        source = os.path.join(folder, "mp1_" + kind)
        if not os.path.isdir(source):
            continue
        model = cog_torch.load(source)
        with torch.no_grad():
            near("%s: loss from %s weights" % (name, kind), model.loss(batch), torch.tensor(scalars["loss_%s_weights_fp32_math" % kind]), 1e-5)
            recorded = os.path.join(folder, "logits_from_%s_weights_fp32_math.safetensors" % kind)
            if os.path.exists(recorded):
                near("%s: logits from %s weights" % (name, kind), model.logits(first_row(batch))[0],
                     load_file(recorded)["logits_sample0"].view(batch["input_ids"].shape[1], -1), 5e-5)


def check_lora(name, folder, batch):
    source = os.path.join(folder, "lora_mp1")
    if not os.path.isdir(source):
        return
    model = cog_torch.load(source, rank=cog_torch.read_config(source)["lora_rank"])
    want = load_file(source + "_forward_fp32.safetensors")
    with torch.no_grad():
        near(name + ": logits with LoRA", model.logits(batch), want["logits"], 5e-5)


def groups_of(model, recorded, adamw):
    """The recorded groups; the factors of a fused layer are one parameter each here."""
    parameters, groups = dict(model.named_parameters()), []
    for group in recorded["param_groups"]:
        names = {n.replace(".original.", ".") for n in group["names"] if ".matrix_" not in n}
        for n in group["names"]:
            module, mark, tail = n.rpartition(".matrix_")
            if mark:
                names.add(module + (".lora_a" if tail[0] == "A" else ".lora_b"))
        groups.append({"params": [parameters[n] for n in sorted(names)], "lr_scale": group["lr"],
                       "weight_decay": group.get("weight_decay", adamw["weight_decay"])})
    return groups


def check_training(name, folder, batch):
    path = os.path.join(folder, "train_lora_mp1_train.json")
    if not os.path.exists(path):
        return
    with open(path) as f:
        recorded = json.load(f)
    settings = recorded["deepspeed_config"]
    adamw = settings["optimizer"]["params"]
    model = cog_torch.load(os.path.join(folder, "mp1"), rank=recorded["lora_rank"])
    cog_torch.set_factors(model, load_file(os.path.join(folder, "train_lora_mp1_init_lora.safetensors")))
    groups = groups_of(model, recorded, adamw)
    trained = [p for group in groups for p in group["params"]]
    for p in trained:
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(groups, betas=adamw["betas"], eps=adamw["eps"], fused=True)
    worst = [0.0, 0.0]
    for step in recorded["steps"]:
        for group, lr in zip(optimizer.param_groups, step["lr_used_by_group"]):
            group["lr"] = lr
        loss = model.loss(batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, settings["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        worst = [max(worst[0], abs(loss.item() - step["loss"])), max(worst[1], abs(norm.item() / step["global_grad_norm"] - 1))]
    case("%s: %d training steps, losses differ by %.1e, norms by %.1e" % (name, len(recorded["steps"]), *worst),
         worst[0] <= 5e-5 and worst[1] <= 1e-4)


def check_recordings(golden):
    for name in sorted(os.listdir(golden)):
        folder = os.path.join(golden, name)
        if not os.path.exists(os.path.join(folder, "inputs.safetensors")) or not os.path.exists(os.path.join(folder, "mp1", "model_config.json")):
            continue
        batch = load_file(os.path.join(folder, "inputs.safetensors"))
        with open(os.path.join(folder, "scalars.json")) as f:
            scalars = json.load(f)
        check_forward(name, folder, batch, scalars)
        check_gradients(name, folder, batch, scalars)
        check_half_files(name, folder, batch, scalars)
        check_lora(name, folder, batch)
        check_training(name, folder, batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--golden", required=True)
    parser.add_argument("--sheaf")
    parser.add_argument("--work", default="build/bench")
    args = parser.parse_args()
    torch.set_num_threads(2)
    check_recordings(args.golden)
    print("%d compared, %d failed" % (compared, failures))
    sys.exit(failures > 0 or compared == 0)


if __name__ == "__main__":
    main()
