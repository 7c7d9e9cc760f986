#!/usr/bin/env python3
"""Records what torch computes in float16 on the CPU: python3 make_float16.py GOLDEN [MODEL] > torch.json

GOLDEN is a folder with llama/MODEL, by default tiny_llama. A step is what mixed precision with a GradScaler is: float32
masters, a float16 copy that computes, the loss multiplied by the scale, gradients divided by it, the norm
clipped at 1, AdamW on the masters; a step whose gradients are not finite is left out.
Recorded with torch 2.15 and transformers 5.23, one thread."""
import json
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
folder = sys.argv[1] + "/llama/" + (sys.argv[2] if len(sys.argv) > 2 else "tiny_llama")
data = load_file(folder + "/fwd_inputs.safetensors")
STEPS, LR = 10, 1e-3


def model(dtype):
    return AutoModelForCausalLM.from_pretrained(folder + "/hf", dtype=dtype, attn_implementation="eager")


def loss_of(m):
    logits = m(input_ids=data["input_ids"], attention_mask=data["attention_mask"]).logits.float()
    return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), data["labels"][:, 1:].reshape(-1).long(),
                                             ignore_index=-100)


def train(init, window):
    masters, half = model(torch.float32), model(torch.float16)
    pairs = list(zip(masters.parameters(), half.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=init, growth_interval=window)
    trained = list(masters.parameters())
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=0.0)
    steps = []
    for _ in range(STEPS):
        for p, h in pairs:
            h.data.copy_(p.data)
            h.grad = None
        scale = scaler.get_scale()
        loss = loss_of(half)
        scaler.scale(loss).backward()
        for p, h in pairs:
            p.grad = h.grad.float()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0).item()
        scaler.step(optimizer)
        scaler.update()
        steps.append({"loss": loss.item(), "scale": scale, "skipped": scaler.get_scale() < scale,
                      "grad_norm": norm if norm < float("inf") else None})
    return steps


def scales(steps, window):
    """The scale before each step and after the last; 'x': gradients overflow (src/train/scaler_test.c)."""
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=window)
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=0.0)
    found = []
    for c in steps:
        found.append(scaler.get_scale())
        scaler.scale((p * (float("inf") if c == "x" else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return found + [scaler.get_scale()]


with torch.no_grad():
    first = {name: loss_of(model(getattr(torch, name))).item() for name in ("float32", "float16", "bfloat16")}
for pattern, window in (("x.....x..xx....", 3), ("....x..........", 5), ("xxxx", 1), ("...", 1)):
    print(pattern, window, scales(pattern, window), file=sys.stderr)
json.dump({"loss": first, "steps": train(65536.0, 2000), "overflows": train(2.0**22, 3)}, sys.stdout, indent=1)
print()
