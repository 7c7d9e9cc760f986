"""rival_real.py - LoRA steps of a published model with transformers and PEFT, for real.py; prints one JSON object.

Records are JSON Lines of conversations, tokenised by transformers with the model's chat template; labels are the answers
and their end marks. --start is the adapter to begin with, made if it is not there, --out gets the trained one. --variant
says where numbers are rounded: see VARIANTS.
"""
import json
import os
import time

started = time.time()
import peft
import torch
import transformers

import rival_args
import rival_steps

imported = rival_steps.loaded_now(started)
VARIANTS = {
    "default": "PEFT's own: factors in float32 beside the base's dtype",
    "factors": "factors in the base's dtype, as its autocast_adapter_dtype=False has them",
    "autocast": "the default under torch.autocast",
    "autocast-float32": "a base in float32 under torch.autocast",
    "once": "the default, but a layer adds base and adapter in float32, then rounds",
}


def row_of(tokenizer, record):
    ids, labels, messages = [], [], record["messages"]
    text = lambda n, more=False: tokenizer.apply_chat_template(messages[:n], add_generation_prompt=more, return_dict=False)
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            begin, ids = len(text(i, True)), text(i + 1)
            labels += [-100] * (begin - len(labels)) + ids[begin:-1] + [-100]  # the template ends a turn by a line feed
    return ids, labels


def rows_of(model, path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    with open(path, encoding="utf-8") as file:
        return [row_of(tokenizer, json.loads(line)) for line in file]


def batch_of(rows):
    """Padded on the right to the longest."""
    longest = max(len(ids) for ids, _ in rows)
    fill = lambda values, pad: torch.tensor([v + [pad] * (longest - len(v)) for v in values])
    return {"input_ids": fill([ids for ids, _ in rows], 0), "labels": fill([labels for _, labels in rows], -100),
            "attention_mask": fill([[1] * len(ids) for ids, _ in rows], 0)}


def parts_of(layer, x):
    """Outputs of base and adapter, in float32."""
    name, x = layer.active_adapters[0], x.float()
    return torch.nn.functional.linear(x, layer.base_layer.weight.float()), layer.lora_B[name](layer.lora_A[name](x)) * layer.scaling[name]


def summed_once(layer, x):
    """The forward pass of PEFT's linear layer with one rounding."""
    base, delta = parts_of(layer, x)
    return (base + delta).to(layer.base_layer.weight.dtype)


def main():
    args = rival_args.read("start", "out", variant=list(VARIANTS))
    transformers.logging.set_verbosity_error()
    dtype = torch.float32 if "float32" in args.variant else getattr(torch, args.dtype)
    base = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype, attn_implementation="sdpa")
    if not os.path.exists(args.start):
        lora = peft.LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear", task_type="CAUSAL_LM")
        new = peft.get_peft_model(base, lora)
        new.save_pretrained(args.start)
        base = new.unload()
    model = peft.PeftModel.from_pretrained(base, args.start, is_trainable=True, autocast_adapter_dtype=args.variant != "factors")
    if args.variant == "once":
        peft.tuners.lora.Linear.forward = summed_once
    model.train()
    rows = rows_of(args.model, args.data)

    def loss_of(step):
        batch = batch_of([rows[(step * args.micro_batch + i) % len(rows)] for i in range(args.micro_batch)])
        with torch.autocast("cpu", torch.bfloat16, enabled=args.variant.startswith("autocast")):
            return model(**batch).loss

    rival_steps.take(args, started, imported, [p for p in model.parameters() if p.requires_grad], loss_of, 0,
                     {"versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}})
    if args.out:
        model.save_pretrained(args.out)


if __name__ == "__main__":
    main()
