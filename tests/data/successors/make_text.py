"""Small recordings of text families in the form of $SHEAF_RECORDINGS/successors, by transformers and PEFT themselves.

usage: make_text.py FAMILY...    (gemma, glm4, qwen3_moe; transformers 5.24.0, peft 0.21.2, CPU, one thread)
"""
import json, math, pathlib, shutil, sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GemmaConfig, Glm4Config, Qwen3MoeConfig

torch.set_num_threads(1)
COMMON = dict(vocab_size=71, hidden_size=28, intermediate_size=44, max_position_embeddings=64,
              num_key_value_heads=2, pad_token_id=0, bos_token_id=2, eos_token_id=1, attn_implementation="eager")
FAMILIES = {
    "gemma": (GemmaConfig, dict(num_hidden_layers=2, num_attention_heads=4, head_dim=10, tie_word_embeddings=True)),
    "glm4": (Glm4Config, dict(num_hidden_layers=2, num_attention_heads=4, head_dim=12, partial_rotary_factor=0.5,
                              attention_bias=True, tie_word_embeddings=False)),
    "qwen3_moe": (Qwen3MoeConfig, dict(num_hidden_layers=3, num_attention_heads=4, head_dim=8, num_experts=5,
                                       num_experts_per_tok=2, moe_intermediate_size=12, mlp_only_layers=[1],
                                       norm_topk_prob=False, tie_word_embeddings=False, experts_implementation="eager")),
}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "gate_up_proj"]
STEPS, ROWS, LENGTH = 3, 2, 9


def build(family, seed):
    kind, sizes = FAMILIES[family]
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(kind(**COMMON, **sizes)).float().eval()
    for name, p in model.named_parameters():
        with torch.no_grad():
            if "norm" in name:
                p.copy_(0.2 * torch.randn_like(p) + (0 if family == "gemma" else 1))
            elif name.endswith("bias"):
                p.copy_(0.1 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * (0.5 if "embed" in name and not model.config.tie_word_embeddings
                                               else 0.7 / math.sqrt(p.shape[-1]) if "embed" in name
                                               else 1 / math.sqrt(p.shape[-1])))
    return model


def batch(rows, length, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 71, (rows, length), generator=g)
    mask = torch.ones_like(ids)
    for r in range(1, rows):
        mask[r, length - r:] = 0
    labels = torch.where(mask == 1, ids, -100)
    labels[:, :2] = -100
    return {"input_ids": torch.where(mask == 1, ids, 0), "attention_mask": mask, "labels": labels}


def numbers(x):
    return x.detach().clone().contiguous()


def record(family, out, seed=11):
    shutil.rmtree(out, ignore_errors=True)
    (out / "lora").mkdir(parents=True)
    model = build(family, seed)
    model.save_pretrained(out / "hf")
    for extra in (out / "hf").glob("generation_config.json"):
        extra.unlink()
    inputs = batch(ROWS, LENGTH, seed)
    save_file(inputs, out / "inputs.safetensors")
    result = model(**inputs, output_hidden_states=True)
    result.loss.backward()
    save_file({"logits": numbers(result.logits), "loss": numbers(result.loss).reshape(1)} |
              {f"hidden_states.{i}": numbers(h) for i, h in enumerate(result.hidden_states)}, out / "outputs.safetensors")
    grads = {n: numbers(p.grad) for n, p in model.named_parameters() if p.grad is not None}
    kept = [n for n in grads if "layers.0." in n and ("norm" in n or "k_proj" in n or "down_proj" in n or "gate." in n)]
    save_file({n: grads[n] for n in kept}, out / "grads.safetensors")
    info = {"seed": seed, "loss": result.loss.item(), "grad_norms": {n: g.norm().item() for n, g in grads.items()}}
    if family == "qwen3_moe":
        model.zero_grad()
        aux = model(**inputs, output_router_logits=True)
        aux.loss.backward()
        info["router"] = {"aux_loss": aux.aux_loss.item(), "loss_with_output_router_logits": aux.loss.item()}
        save_file({n: numbers(p.grad) for n, p in model.named_parameters() if n.endswith("mlp.gate.weight")},
                  out / "grads_with_aux_loss.safetensors")
    (out / "info.json").write_text(json.dumps(info, indent=1))

    cases = []
    for n in (3, 7):
        prompt = batch(1, n, seed + n)["input_ids"]
        ids = prompt
        for _ in range(6):
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
        cases.append({"prompt": prompt[0].tolist(), "tokens": ids[0, n:].tolist()})
    (out / "generation.json").write_text(json.dumps(cases))

    model.zero_grad()
    peft = get_peft_model(model, LoraConfig(r=2, lora_alpha=4, target_modules="all-linear" if family == "qwen3_moe" else TARGETS,
                                            task_type="CAUSAL_LM")).train()
    g = torch.Generator().manual_seed(seed + 1)
    for name, p in peft.named_parameters():
        if "lora_B" in name:
            p.data = 0.1 * torch.randn(p.shape, generator=g)
    trained = [p for p in peft.parameters() if p.requires_grad]
    peft.save_pretrained(out / "lora/adapter_init")
    adam = torch.optim.AdamW(trained, lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    batches, steps = {}, []
    for s in range(STEPS):
        b = batch(ROWS, LENGTH + s, seed + 20 + s)
        batches |= {f"step{s}.{k}": v for k, v in b.items()}
        loss = peft(**b).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        adam.step()
        adam.zero_grad()
        steps.append({"step": s, "loss": loss.item(), "grad_norm_before_clip": norm.item(), "lr": 0.01})
    save_file(batches, out / "lora/batches.safetensors")
    peft.save_pretrained(out / "lora/adapter_final")
    for readme in out.glob("lora/*/README.md"):
        readme.unlink()
    first = {k.split(".", 1)[1]: v for k, v in batches.items() if k.startswith("step0.")}
    save_file({"logits": numbers(peft.eval()(**first).logits)}, out / "lora/logits_final.safetensors")
    (out / "lora/log.json").write_text(json.dumps({
        "optimizer": {"name": "AdamW", "lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
        "max_grad_norm": 1.0, "schedule": "constant", "dropout": 0.0, "steps": steps}, indent=1))


for family in sys.argv[1:]:
    record(family, pathlib.Path(__file__).resolve().parent / family)
