"""rival_rounding.py - how much bfloat16 leaves of an adapter, in PEFT and where base and adapter are summed before one rounding.

  rival_rounding.py MODEL RECORDS ADAPTER...

For each adapter an object of JSON: the loss of all records in float32, in bfloat16 as PEFT has it, and with one rounding;
of the adapter's outputs, delta, the share that is left after either, sum(delta * change) / sum(delta^2), as the mean of all
layers; and the share of sums that PEFT leaves as they were.
"""
import json
import os
import sys

import peft
import torch
import transformers

from rival_real import batch_of, parts_of, rows_of, summed_once


def loss_of(base, adapter, batch, watch=None):
    model = peft.PeftModel.from_pretrained(base, adapter)
    layers = [m for m in model.modules() if isinstance(m, peft.tuners.lora.Linear)]
    hooks = [layer.register_forward_hook(watch) for layer in layers if watch]
    with torch.no_grad():
        loss = model(**batch).loss.item()
    for hook in hooks:
        hook.remove()
    model.unload()
    return loss


def main():
    path, records, adapters = sys.argv[1], sys.argv[2], sys.argv[3:]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    transformers.logging.set_verbosity_error()
    batch = batch_of(rows_of(path, records))
    bases = [transformers.AutoModelForCausalLM.from_pretrained(path, dtype=d).eval() for d in (torch.float32, torch.bfloat16)]
    own = peft.tuners.lora.Linear.forward
    round_ = lambda x: x.bfloat16().float()
    for adapter in adapters:
        left = []

        def watch(layer, inputs, _):
            base, delta = parts_of(layer, inputs[0])
            twice, once = round_(round_(base) + delta) - round_(base), round_(base + delta) - round_(base)
            left.append([((delta * change).sum() / (delta * delta).sum()).item() for change in (twice, once)] + [(twice == 0).float().mean().item()])

        losses = [loss_of(bases[0], adapter, batch), loss_of(bases[1], adapter, batch, watch)]
        peft.tuners.lora.Linear.forward = summed_once
        losses.append(loss_of(bases[1], adapter, batch))
        peft.tuners.lora.Linear.forward = own
        print(json.dumps({"losses": losses, "left": torch.tensor(left).mean(0).tolist()}), flush=True)


main()
