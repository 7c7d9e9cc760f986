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


def largest(a, b):
    """A number that is none counts as the largest."""
    return b if b != b or b > a else a


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
            worst = largest(worst, (got[stage].reshape(value.shape) - value).abs().max().item())
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
            worst = largest(worst, ((got - value).abs().max() / value.abs().max()).item())
        for key, norm in scalars["grad_norm_by_name"].items():
            got = grads.get(key)
            if norm is None or norm == 0:
                worst = largest(worst, 0.0 if got is None else got.norm().item())
            elif norm > 1e-6:
                worst = largest(worst, abs(grads[key].norm().item() / norm - 1))
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
        worst = [largest(worst[0], abs(loss.item() - step["loss"])), largest(worst[1], abs(norm.item() / step["global_grad_norm"] - 1))]
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


# ---- models of odd sizes ----

def sheaf(args, *words):
    done = subprocess.run([args.sheaf, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError("sheaf %s: %s" % (words[0], done.stderr[-500:]))


def set_adapter(model, folder, alpha):
    """A PEFT adapter, in which a fused layer is one module of rank parts * r with B on the diagonal."""
    state = load_file(os.path.join(folder, "adapter_model.safetensors"))
    found = cog_torch.linears(model)
    with torch.no_grad():
        for name in cog_torch.sat_targets(model):
            linear, key = found[name], "base_model.model." + name
            parts, rows, rank = linear.lora_b.shape
            wide = state.pop(key + ".lora_B.weight")
            linear.lora_a.copy_(state.pop(key + ".lora_A.weight"))
            for p in range(parts):
                linear.lora_b[p] = wide[p * rows:(p + 1) * rows, p * rank:(p + 1) * rank]
            linear.scale = alpha / rank
    if state:
        raise RuntimeError("%s: %s is no target of SAT's" % (folder, sorted(state)[0]))


def adapters_differ(model, other):
    mine, theirs, worst = cog_torch.linears(model), cog_torch.linears(other), 0.0
    for name in cog_torch.sat_targets(model):
        for a, b in ((mine[name].lora_a, theirs[name].lora_a), (mine[name].lora_b, theirs[name].lora_b)):
            worst = largest(worst, (a - b).abs().max().item())
    return worst


def train_beside(args, name, model, data, batch):
    """From an adapter that two steps of sheaf made, three more by both."""
    rank, alpha, steps, lr = 5, 10, 3, 1e-3
    begin, out = os.path.join(args.work, "begin"), os.path.join(args.work, "out")
    common = ["--model", model, "--data", data, "--method", "lora", "--micro-batch", str(batch["input_ids"].shape[0]), "--no-shuffle",
              "--lora-rank", str(rank), "--lora-alpha", str(alpha), "--lora-targets", "sat-vit", "--schedule", "constant",
              "--beta2", "0.95", "--weight-decay", "0.05", "--clip", "0.5"]
    for folder in (begin, out):
        shutil.rmtree(folder, ignore_errors=True)
    sheaf(args, "train", *common, "--out", begin, "--lr", "2e-2", "--steps", "2")
    begin = os.path.join(begin, "adapter")
    sheaf(args, "train", *common, "--out", out, "--adapter", begin, "--lr", str(lr), "--steps", str(steps), "--tp", "3")
    with open(os.path.join(out, "metrics.jsonl")) as f:
        told = [json.loads(line) for line in f]
    mine, theirs = (cog_torch.load(model, rank=rank, alpha=alpha) for _ in range(2))
    set_adapter(theirs, begin, alpha)
    trained = [p for p in theirs.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, betas=(0.9, 0.95), weight_decay=0.05)
    loss_off = norm_off = 0.0
    for step in told:
        loss = theirs.loss(batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 0.5)
        optimizer.step()
        optimizer.zero_grad()
        loss_off = largest(loss_off, abs(loss.item() - step["loss"]))
        norm_off = largest(norm_off, abs(norm.item() / step["grad_norm"] - 1))
    case("%s: %d steps at 3 ranks, losses differ by %.1e, norms by %.1e" % (name, steps, loss_off, norm_off),
         len(told) == steps and loss_off <= 5e-5 and norm_off <= 1e-4)
    set_adapter(mine, os.path.join(out, "adapter"), alpha)
    # AdamW divides by the size of the gradient: where that is next to nothing, its sign is chance, and a step is lr long.
    off = adapters_differ(mine, theirs)
    case("%s: adapters differ by %.1e, %.3f steps" % (name, off, off / lr), off <= 0.05 * lr)


def check_odd(args, name):
    model, data = os.path.join(args.work, name), os.path.join(args.work, name + ".safetensors")
    shutil.rmtree(model, ignore_errors=True)
    cog_model.make_model(name, torch.float32, model)
    cog_model.make_data(name, data, 3, cog_model.CONFIGS[name]["image_length"] + 27)
    batch = load_file(data)
    with torch.no_grad():
        want = cog_torch.load(model).logits(batch)
    for ranks in (1, 2, 3, 8):
        path = os.path.join(args.work, "logits.safetensors")
        if os.path.exists(path):
            os.remove(path)
        sheaf(args, "eval", "--model", model, "--data", data, "--save-logits", path, "--tp", str(ranks))
        # beside the recordings' 5e-5: these logits are several times as large
        near("%s: logits of sheaf at %d ranks" % (name, ranks), load_file(path)["logits"], want, 5e-5, 2e-5)
    train_beside(args, name, model, data, batch)


def check_sheaf(args):
    os.makedirs(args.work, exist_ok=True)
    for name in ("odd-vlm", "wide-vlm", "odd-agent", "wide-agent"):
        try:
            check_odd(args, name)
        except Exception as error:
            case(name, False, str(error))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--golden", required=True)
    parser.add_argument("--sheaf")
    parser.add_argument("--work", default="build/bench")
    args = parser.parse_args()
    torch.set_num_threads(2)
    check_recordings(args.golden)
    if args.sheaf:
        check_sheaf(args)
    print("%d compared, %d failed" % (compared, failures))
    sys.exit(failures > 0 or compared == 0)


if __name__ == "__main__":
    main()
