#!/usr/bin/env python3
"""What PEFT answers greedily with an adapter whose config does not name its whole tables; recorded
with transformers 5.23 and PEFT 0.21 for tests/cli/tables.sh: record_tables.py BASE ADAPTER"""
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
model = PeftModel.from_pretrained(base, sys.argv[2]).eval()
x = torch.tensor([[5, 7, 9, 11, 3]])
with torch.no_grad():
    for _ in range(12):
        x = torch.cat([x, model(x).logits[:, -1].argmax(-1, keepdim=True)], 1)
print(",".join(str(t) for t in x[0, 5:].tolist()))
