"""cog_rival.py - LoRA steps of CogVLM with PyTorch (cog_torch.py); prints one JSON object.

Model, data, rank, targets, AdamW and clipping are those of `sheaf train` in cog_bench.py. --adapters float32 keeps the
factors in float32 beside a bfloat16 base, base in the base's dtype; --head labels sees rows with a label alone, all
computes every logit as SAT and the port to transformers do. cog_bench.py takes whatever is fastest.
"""
import time

started = time.time()
import torch
from safetensors.torch import load_file

import cog_torch
import rival_args
import rival_steps

imported = rival_steps.loaded_now(started)


def main():
    args = rival_args.read(adapters=["base", "float32"], head=["labels", "all"])
    dtype = getattr(torch, args.dtype)
    model = cog_torch.load(args.model, dtype, args.rank, 2 * args.rank, dtype if args.adapters == "base" else torch.float32)
    trained = [p for p in model.parameters() if p.requires_grad]
    data = load_file(args.data)
    count, length = data["input_ids"].shape

    def loss_of(step):
        first = step * args.micro_batch % count
        return model.loss({name: value[first:first + args.micro_batch] for name, value in data.items()}, args.head == "all")

    rival_steps.take(args, started, imported, trained, loss_of, args.micro_batch * length)


main()
