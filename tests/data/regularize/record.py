#!/usr/bin/env python3
"""What transformers' LabelSmoother and neftune_post_forward_hook give for the first step of method full on a small
Llama: the loss and the norm of all gradients, in float32. Prints one line a case, as tests/data/regularize/steps has
them: name, loss, norm.

    record.py MODEL_FOLDER INPUTS.safetensors >steps

Noise: the hook is transformers' own; only uniform_ draws sheaf's counter-based numbers (docs/contract.md, section 5)
in place of torch's stream. Rows go alone, without padding, so that the hook's length is the row's.
"""
import sys

import numpy
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM
from transformers.integrations.neftune import neftune_post_forward_hook
from transformers.trainer_pt_utils import LabelSmoother

SEED, STEP = 42, 0
MASK = (1 << 64) - 1


def philox(low, high, key):
    c = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def name_key(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


def two(words):
    return words[1] << 32 | words[0]


def units(sample, positions, width):
    """t of every element of a row, strictly between -1 and 1."""
    out = numpy.empty((positions, width), numpy.float64)
    for position in range(positions):
        key = two(philox(sample, position, two(philox(name_key("neftune"), STEP, SEED))))
        for c in range(width):
            k = philox(c // 64 * 16 + c % 16, 0, key)[c // 16 % 4] >> 9
            out[position, c] = (2 * k + 1) / 2.0**23 - 1
    return torch.tensor(out, dtype=torch.float32)


def step(model, inputs, smoothing, alpha):
    model.zero_grad()
    model.train()
    rows, total = len(inputs["input_ids"]), 0.0
    labels = inputs["labels"].long()
    count = int((labels[:, 1:] != -100).sum())
    for row in range(rows):
        n = int(inputs["attention_mask"][row].sum())
        hook, uniform = None, torch.Tensor.uniform_
        if alpha > 0:
            t = units(row, n, model.config.hidden_size)
            model.model.embed_tokens.neftune_noise_alpha = alpha
            hook = model.model.embed_tokens.register_forward_hook(neftune_post_forward_hook)
            torch.Tensor.uniform_ = lambda self, low, high: self.copy_(t.view_as(self) * high)
        out = model(input_ids=inputs["input_ids"][row : row + 1, :n].long())
        torch.Tensor.uniform_ = uniform
        if hook is not None:
            hook.remove()
        smoother = LabelSmoother(epsilon=smoothing)
        loss = smoother(out, labels[row : row + 1, :n], shift_labels=True, num_items_in_batch=count)
        loss.backward()
        total += loss.item()
    norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters())).item()
    return total, norm


def main():
    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, attn_implementation="eager")
    inputs = load_file(sys.argv[2])
    for name, smoothing, alpha in [("plain", 0, 0), ("smoothed", 0.1, 0), ("noisy", 0, 5), ("both", 0.3, 15)]:
        loss, norm = step(model, inputs, smoothing, alpha)
        print(f"{name} {loss:.7f} {norm:.7f}")


main()
