"""vlm_rival.py - LoRA steps of OmniLMM or MiniCPM-V 2.6 with PyTorch (vlm_torch.py); prints one JSON object.

Model, data, rank, targets, modules saved, AdamW and clipping are those of `sheaf train` in vlm_bench.py. --adapters float32
keeps the factors in float32 beside a bfloat16 base, base in the base's dtype; --head labels sees rows with a label alone,
all computes every logit as the originals do. vlm_bench.py takes whatever is fastest.
"""
import time

started = time.time()
import torch
from safetensors.torch import load_file

import rival_args
import rival_steps
import vlm_torch

imported = rival_steps.loaded_now(started)


def main():
    args = rival_args.read(adapters=["base", "float32"], head=["labels", "all"])
    model = vlm_torch.load(args.model, getattr(torch, args.dtype), args.rank, 2 * args.rank, args.adapters == "float32")
    trained = [p for p in model.module.parameters() if p.requires_grad]
    rows = vlm_torch.batches(load_file(args.data), model.config, args.micro_batch)
    rival_steps.take(args, started, imported, trained, lambda step: model.loss(rows[step % len(rows)], args.head == "all"),
                     rows[0]["input_ids"].numel())


main()
