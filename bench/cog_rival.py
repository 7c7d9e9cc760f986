"""cog_rival.py - LoRA steps of CogVLM with PyTorch (cog_torch.py); prints one JSON object.

Model, data, rank, targets, AdamW and clipping are those of `sheaf train` in cog_bench.py. --adapters float32 keeps the
factors in float32 beside a bfloat16 base, base in the base's dtype; --head labels sees rows with a label alone, all
computes every logit as SAT and the port to transformers do. cog_bench.py takes whatever is fastest.
"""
import json
import resource
import sys
import time

process_start = time.time()
import torch
from safetensors.torch import load_file

import cog_torch
import rival_args

imported = time.time()


def main():
    args = rival_args.read(adapters=["base", "float32"], head=["labels", "all"])
    dtype = getattr(torch, args.dtype)
    model = cog_torch.load(args.model, dtype, args.rank, 2 * args.rank, dtype if args.adapters == "base" else torch.float32)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, fused=True)
    data = load_file(args.data)
    count, length = data["input_ids"].shape
    loaded = time.time()

    seconds, processor, losses = [], [], []
    begin, busy = time.perf_counter(), time.process_time()
    for step in range(args.steps):
        first = step * args.micro_batch % count
        batch = {name: value[first:first + args.micro_batch] for name, value in data.items()}
        loss = model.loss(batch, args.head == "all")
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
        "tokens_per_step": args.micro_batch * length,
        "start_to_first_step_seconds": loaded - process_start + seconds[0],
        "import_seconds": imported - process_start,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "versions": {"torch": torch.__version__},
    }, sys.stdout)
    print()


main()
