#!/usr/bin/env python3
"""quant_live.py - sheaf's quantized folders in transformers and bitsandbytes, and theirs in sheaf.

Each form is written by both from one model: the same bytes of every tensor. transformers loads sheaf's folder, and its
dequantised weights are those of sheaf convert --dequantize. PEFT merges an adapter onto the quantized model and onto the
dequantised one; sheaf merge gives the same bytes.
"""
import argparse
import gc
import json
import os
import shutil

import bitsandbytes as bnb
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

from live import Live

MODELS = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 320,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
              "tie_word_embeddings": False, "dtype": "bfloat16"},
    "qwen2, tied": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 192,
                    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
                    "vocab_size": 301, "tie_word_embeddings": True, "dtype": "bfloat16"},
    "phi3": {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "hidden_size": 128, "intermediate_size": 192,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 300, "pad_token_id": 0,
             "tie_word_embeddings": False, "dtype": "bfloat16"},
    "gemma2": {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_size": 128, "intermediate_size": 256,
               "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 300,
               "dtype": "bfloat16"},
}
TARGETS = {"phi3": ["qkv_proj", "down_proj"]}
FORMS = {
    "nf4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16),
    "nf4-double": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                     bnb_4bit_compute_dtype=torch.bfloat16),
    "int8": BitsAndBytesConfig(load_in_8bit=True),
}


def tensors(folder):
    """Of all files of a folder."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            found.update(load_file(os.path.join(folder, name)))
    return found


def first_difference(a, b):
    """A name that differs, or ""."""
    if set(a) != set(b):
        return "names: %s" % sorted(set(a) ^ set(b))[:3]
    for name in sorted(a):
        x, y = a[name].contiguous(), b[name].contiguous()
        if x.dtype != y.dtype or x.shape != y.shape:
            return "%s: %s %s, %s %s" % (name, x.dtype, tuple(x.shape), y.dtype, tuple(y.shape))
        if not torch.equal(x.reshape(-1).view(torch.uint8), y.reshape(-1).view(torch.uint8)):
            return name
    return ""


def load(folder, **how):
    return AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", **how)


def dequantised(model):
    """The weights of a quantized model by bitsandbytes' own functions, in the dtype of its state."""
    found = {}
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, bnb.nn.Linear4bit):
            found[name + ".weight"] = bnb.functional.dequantize_4bit(weight.data, weight.quant_state)
        elif isinstance(module, bnb.nn.Linear8bitLt):
            scale = weight.SCB if weight.SCB is not None else module.state.SCB
            found[name + ".weight"] = bnb.functional.int8_vectorwise_dequant(weight.data, scale)
    return found


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    return path


def check_form(live, name, plain, form):
    ours, theirs = live.at("ours"), live.at("theirs")
    live.sheaf("convert", plain, fresh(ours), "--to", "hf", "--quantize", form)
    load(plain, dtype=torch.bfloat16, quantization_config=FORMS[form]).save_pretrained(fresh(theirs))
    different = first_difference(tensors(ours), tensors(theirs))
    live.case("%s, %s: the bytes of save_pretrained()" % (name, form), not different, different)
    said = [json.load(open(os.path.join(f, "config.json")))["quantization_config"] for f in (ours, theirs)]
    live.case("%s, %s: its quantization_config" % (name, form), said[0] == said[1], str(said))
    live.sheaf("convert", ours, fresh(live.at("plain")), "--to", "hf", "--dequantize")
    plain_again, loaded = tensors(live.at("plain")), dequantised(load(ours))
    bad = [n for n, w in loaded.items() if not torch.equal(w.to(plain_again[n].dtype), plain_again[n])]
    live.case("%s, %s: %d weights as transformers loads them" % (name, form, len(loaded)), loaded and not bad, str(bad[:3]))


def write_fp4(live, name, plain, form):
    """sheaf reads it, and quantises it again, but makes none of plain weights."""
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_compute_dtype=torch.bfloat16)
    load(plain, dtype=torch.bfloat16, quantization_config=how).save_pretrained(fresh(live.at("ours")))


def make_adapter(live, plain, targets):
    torch.manual_seed(3)
    model = get_peft_model(load(plain, dtype=torch.bfloat16), LoraConfig(r=8, lora_alpha=16, target_modules=targets))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn_like(parameter.data, dtype=torch.float32) * 0.05
    model.save_pretrained(fresh(live.at("adapter")))


def check_merge(live, name, form):
    ours, adapter = live.at("ours"), live.at("adapter")
    live.sheaf("merge", ours, adapter, fresh(live.at("again")), "--requantize")
    model = PeftModel.from_pretrained(load(ours), adapter).merge_and_unload()
    theirs = {n: t for n, t in model.state_dict().items() if "_proj" in n}
    different = first_difference({n: t for n, t in tensors(live.at("again")).items() if "_proj" in n}, theirs)
    live.case("%s, %s: merged and quantized again as PEFT does" % (name, form), not different, different)
    live.sheaf("convert", live.at("again"), fresh(live.at("plain")), "--to", "hf", "--dequantize")
    plain_again, loaded = tensors(live.at("plain")), dequantised(load(live.at("again")))
    bad = [n for n, w in loaded.items() if not torch.equal(w.to(plain_again[n].dtype), plain_again[n])]
    live.case("%s, %s: which transformers loads alike" % (name, form), loaded and not bad, str(bad[:3]))
    live.sheaf("merge", ours, adapter, fresh(live.at("merged")), "--as-peft")
    model = PeftModel.from_pretrained(load(ours).dequantize(), adapter).merge_and_unload()
    theirs = {n: t for n, t in model.state_dict().items() if "_proj" in n}
    different = first_difference({n: t for n, t in tensors(live.at("merged")).items() if "_proj" in n}, theirs)
    live.case("%s, %s: merged onto what dequantize() gives" % (name, form), not different, different)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sheaf", required=True)
    arguments.add_argument("--work", required=True)
    chosen = arguments.parse_args()
    live = Live(chosen.sheaf, chosen.work)
    compared = 0
    for name, config in MODELS.items():
        spec, plain = live.at("spec.json"), live.at("base")
        settings = dict(config)
        whole = AutoConfig.for_model(settings.pop("model_type"), **settings).to_dict()
        whole.update(config, bos_token_id=1, eos_token_id=2, pad_token_id=0)
        json.dump(whole, open(spec, "w"))
        live.sheaf("init", spec, fresh(plain), "--seed", "3")
        make_adapter(live, plain, TARGETS.get(name.split(",")[0], ["q_proj", "down_proj"]))
        for form in [*FORMS, "fp4"]:
            make = check_form if form in FORMS else write_fp4
            for check in (lambda: make(live, name, plain, form), lambda: check_merge(live, name, form)):
                try:
                    check()
                    compared += 1
                except Exception as error:  # one failure must not hide the rest
                    live.case("%s, %s" % (name, form), False, "%s: %s" % (type(error).__name__, str(error)[-400:]))
                gc.collect()
    print("# %d quantized models compared, %d failures" % (compared, live.failures))
    return 1 if live.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
