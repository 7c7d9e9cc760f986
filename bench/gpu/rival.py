"""Products by cuBLAS and a LoRA step of Llama-3-8B's shapes with PyTorch + PEFT on a GPU, the figures to be beaten: lines of JSON.

    rival.py FOLDER TOKENS BATCH [--checkpointing]

FOLDER holds the config (and weights, which are not read: random ones take the same time). Rank 16 on all linears, sdpa,
AdamW fused, the loss over all positions."""
import json
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

folder, tokens, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
checkpointing = "--checkpointing" in sys.argv
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
for name, m, n, k in (("q", 4096, 4096, 4096), ("gate", 4096, 14336, 4096), ("down", 4096, 4096, 14336), ("head", 512, 128256, 4096)):
    x, w = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
    for _ in range(13):
        if _ == 3:
            torch.cuda.synchronize()
            began = time.time()
        x @ w.t()
    torch.cuda.synchronize()
    print(json.dumps({"cublas": name, "m": m, "n": n, "k": k, "tflops": round(2e-11 * m * n * k / (time.time() - began), 1)}))
    del x, w
config = AutoConfig.from_pretrained(folder)
config.use_cache = False
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
if checkpointing:
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
x = torch.randint(0, config.vocab_size, (batch, tokens), device="cuda")
torch.cuda.reset_peak_memory_stats()
seconds = []
for _ in range(8):
    torch.cuda.synchronize()
    began = time.time()
    model(input_ids=x, labels=x).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    seconds.append(time.time() - began)
step = sorted(seconds[2:])[len(seconds[2:]) // 2]
print(json.dumps({"rival": "PyTorch + PEFT", "card": torch.cuda.get_device_name(), "torch": torch.__version__,
                  "layers": config.num_hidden_layers, "tokens": tokens, "batch": batch, "checkpointing": checkpointing,
                  "step_s": round(step, 4), "tokens_per_s": round(batch * tokens / step),
                  "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}))
