"""rival_lora.py - the same LoRA steps with PyTorch and PEFT; prints one JSON object.

Model, data, batch, rank, targets, AdamW and clipping are those of `sheaf train`
in compare.py. Base weights have --dtype. With --adapters float32 PEFT keeps A
and B in float32 beside a bfloat16 base (its default), with --adapters base they
have the base's dtype; compare.py takes whichever is faster.
"""
import json
import sys
import time

process_start = time.time()
import torch
import transformers
import peft
from safetensors.torch import load_file

import rival_args

imported = time.time()


def peak_rss_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main():
    args = rival_args.read(adapters=["float32", "base"], attention=["sdpa", "eager"])
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype), attn_implementation=args.attention)
    lora = peft.LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, lora, autocast_adapter_dtype=args.adapters == "float32")
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
    data = load_file(args.data)
    ids, labels = data["input_ids"].long(), data["labels"].long()
    loaded = time.time()

    seconds, losses = [], []
    rows = args.micro_batch
    begin = time.perf_counter()
    for step in range(args.steps):
        first = step * rows % ids.shape[0]
        loss = model(input_ids=ids[first:first + rows], labels=labels[first:first + rows]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        now = time.perf_counter()
        seconds.append(now - begin)
        begin = now
    json.dump({
        "step_seconds": seconds,
        "losses": losses,
        "tokens_per_step": rows * ids.shape[1],
        "import_seconds": imported - process_start,
        "load_seconds": loaded - imported,
        "first_step_seconds": seconds[0],
        "start_to_first_step_seconds": loaded - process_start + seconds[0],
        "peak_rss_bytes": peak_rss_bytes(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__},
    }, sys.stdout)
    print()


if __name__ == "__main__":
    main()
