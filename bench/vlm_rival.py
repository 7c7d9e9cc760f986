"""vlm_rival.py - LoRA steps of OmniLMM or MiniCPM-V 2.6 with PyTorch (vlm_torch.py); prints one JSON object.

Model, data, rank, targets, modules saved, AdamW and clipping are those of `sheaf train` in vlm_bench.py. --adapters float32
keeps the factors in float32 beside a bfloat16 base, base in the base's dtype; --head labels sees rows with a label alone,
all computes every logit as the originals do. vlm_bench.py takes whatever is fastest.
"""
import json
import resource
import sys
import time

process_start = time.time()
import torch
from safetensors.torch import load_file

import rival_args
import vlm_torch

imported, imported_rss = time.time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    args = rival_args.read(adapters=["base", "float32"], head=["labels", "all"])
    model = vlm_torch.load(args.model, getattr(torch, args.dtype), args.rank, 2 * args.rank, args.adapters == "float32")
    trained = [p for p in model.module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.999), weight_decay=0.0, fused=True)
    rows = vlm_torch.batches(load_file(args.data), model.config, args.micro_batch)
    loaded = time.time()

    seconds, processor, losses = [], [], []
    begin, busy = time.perf_counter(), time.process_time()
    for step in range(args.steps):
        loss = model.loss(rows[step % len(rows)], args.head == "all")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        now = time.perf_counter()
        seconds.append(now - begin)
        begin = now
        now = time.process_time()
        processor.append(now - busy)
        busy = now
    json.dump({
        "step_seconds": seconds,
        "step_processor_seconds": processor,
        "losses": losses,
        "tokens_per_step": rows[0]["input_ids"].numel(),
        "start_to_first_step_seconds": loaded - process_start + seconds[0],
        "import_seconds": imported - process_start,
        "import_rss_bytes": imported_rss,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "versions": {"torch": torch.__version__},
    }, sys.stdout)
    print()


main()
