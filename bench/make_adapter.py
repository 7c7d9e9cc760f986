"""make_adapter.py - a random LoRA adapter (rank 16, all linears) for a Llama folder, in PEFT's form.

  make_adapter.py BASE OUT
"""
import json
import os
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

base, out = sys.argv[1:3]
RANK = 16
torch.manual_seed(3)
tensors = {}
targets = set()
for file in sorted(os.listdir(base)):
    if not file.endswith(".safetensors"):
        continue
    with safe_open(os.path.join(base, file), "pt") as shard:
        for name in shard.keys():
            module = name[: -len(".weight")]
            if module.split(".")[-1].endswith("_proj"):
                rows, cols = shard.get_slice(name).get_shape()
                targets.add(module.split(".")[-1])
                tensors["base_model.model.%s.lora_A.weight" % module] = torch.randn(RANK, cols) / cols**0.5
                tensors["base_model.model.%s.lora_B.weight" % module] = torch.randn(rows, RANK) * 0.01
os.makedirs(out, exist_ok=True)
save_file(tensors, os.path.join(out, "adapter_model.safetensors"), {"format": "pt"})
with open(os.path.join(out, "adapter_config.json"), "w") as f:
    json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 32, "target_modules": sorted(targets), "task_type": "CAUSAL_LM",
               "base_model_name_or_path": base, "bias": "none", "lora_dropout": 0.0}, f)
