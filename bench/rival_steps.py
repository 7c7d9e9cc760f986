"""rival_steps.py - LoRA steps with PyTorch, timed, for the programs that tell of them as one JSON object."""
import json
import resource
import sys
import time

import torch


def loaded_now(started):
    """What a program notes between its imports and its model: seconds of imports, memory that they hold."""
    return {"import_seconds": time.time() - started, "import_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def take(args, started, imported, trained, loss_of, tokens, more={}):
    """AdamW and clipping as `sheaf train` has them in the benchmarks; loss_of(step) gives a step's loss. Prints what came out, and `more` in its place."""
    optimizer = torch.optim.AdamW(trained, lr=args.lr, betas=(0.9, 0.999), weight_decay=0.0, fused=True)
    loaded = time.time()
    seconds, processor, losses, norms = [], [], [], []
    begin, busy = time.perf_counter(), time.process_time()
    for step in range(args.steps):
        loss = loss_of(step)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        norms.append(norm.item())
        now = time.perf_counter()
        seconds.append(now - begin)
        begin = now
        now = time.process_time()
        processor.append(now - busy)
        busy = now
    json.dump({
        **imported,
        "step_seconds": seconds,
        "step_processor_seconds": processor,
        "losses": losses,
        "first_loss": losses[0],
        "gradient_norms": norms,
        "trained": sum(p.numel() for p in trained),
        "tokens_per_step": tokens,
        "start_to_first_step_seconds": loaded - started + seconds[0],
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "versions": {"torch": torch.__version__},
        **more,
    }, sys.stdout)
    print()
