"""minicpmv_rival.py - steps of MiniCPM-V 2.6 with PyTorch (minicpmv_torch.py); prints one JSON object.

Model, data, rank, targets, AdamW and clipping are those of `sheaf train` in minicpmv_bench.py. --saved trains embeddings,
resampler and tower in full, as the published script does by default, in place and not in copies as PEFT keeps them.
--adapters float32 keeps factors in float32 beside a bfloat16 base; --head labels sees rows with a label alone.
"""
import argparse
import json
import resource
import sys
import time

import torch

import minicpmv_torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], required=True)
    parser.add_argument("--adapters", choices=["float32", "base"], default="base")
    parser.add_argument("--head", choices=["labels", "all"], default="labels")
    parser.add_argument("--saved", action="store_true")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    dtype = getattr(torch, args.dtype)
    model = minicpmv_torch.load(args.model, dtype, args.rank, 2 * args.rank, dtype if args.adapters == "base" else torch.float32)
    if args.saved:
        for module in (model.llm.model.embed_tokens, model.resampler, model.vpm):
            module.requires_grad_(True)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, fused=True)
    rows = minicpmv_torch.read_data(args.data)

    seconds, losses = [], []
    begin = time.perf_counter()
    for step in range(args.steps):
        first = step * args.micro_batch % len(rows)
        loss = model.loss(minicpmv_torch.batch_of(rows[first:first + args.micro_batch]), args.head == "all")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        now = time.perf_counter()
        seconds.append(now - begin)
        begin = now
    json.dump({"step_seconds": seconds, "losses": losses, "tokens_per_step": args.micro_batch * len(rows[0]["ids"]),
               "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "versions": {"torch": torch.__version__}},
              sys.stdout)
    print()


main()
