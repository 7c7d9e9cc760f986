"""vlm_model.py - OmniLMM and MiniCPM-V 2.6 with random weights as their folders have them, and random data.

  vlm_model.py model NAME FOLDER DTYPE     NAME: omnilmm, minicpmv, or odd-omnilmm, odd-minicpmv, odd-equal of vlm_parity.py
  vlm_model.py data NAME FILE ROWS LENGTH  rows with several pictures; labels on the text behind them
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file

import vlm_torch


def decoder(hidden, inner, layers, heads, kv, vocab):
    return {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 2048, "tie_word_embeddings": False,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0}


def omnilmm(text, queries, heads, image, native, tower):
    width, blocks, count, ratio = tower
    vocab = text["vocab_size"]
    vision = {"img_size": native, "patch_size": 14, "embed_dim": width, "depth": blocks + 1, "blocks_present": blocks, "num_heads": count,
              "mlp_ratio": ratio, "layer_norm_eps": 1e-6}
    return dict(text, model_type="omnilmm", architectures=["OmniLMMForCausalLM"], num_query=queries, image_size=image, hidden_act="silu",
                mm_vision_tower="eva02_enormous_patch14_clip_224.laion2b_plus", mm_use_im_start_end=True, im_patch_token=vocab - 3,
                im_start_token=vocab - 2, im_end_token=vocab - 1, resampler_num_heads=heads, resampler_ln_eps=1e-6, vision_config=vision)


def minicpmv(text, queries, heads, image, tower):
    width, layers, count, inner = tower
    vision = {"hidden_size": width, "image_size": image, "intermediate_size": inner, "num_attention_heads": count,
              "num_hidden_layers": layers, "patch_size": 14, "layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh"}
    return {"model": "MiniCPM-V 2.6 layout", "text": dict(text, model_type="qwen2", qkv_bias=True), "vision": vision, "query_num": queries,
            "resampler_num_heads": heads, "resampler_ln_eps": 1e-6, "resampler_max_size": [70, 70]}


CONFIGS = {
    "omnilmm": omnilmm(decoder(1024, 2752, 4, 8, 4, 32009), 64, 8, 336, 224, (512, 4, 8, 4.0)),
    "minicpmv": minicpmv(decoder(1024, 2752, 4, 8, 4, 32000), 64, 8, 980, (512, 4, 8, 2048)),
    # sizes that nothing divides
    "odd-omnilmm": omnilmm(decoder(60, 77, 3, 5, 5, 1003), 9, 3, 70, 56, (36, 2, 3, 1.5)),
    "odd-minicpmv": minicpmv(decoder(60, 77, 3, 5, 5, 1003), 9, 3, 112, (36, 2, 3, 50)),
    "odd-equal": minicpmv(decoder(60, 77, 3, 5, 5, 1003), 9, 3, 112, (60, 2, 5, 50)),  # without kv_proj
}
# Rows and columns of patches of a row's pictures.
GRIDS = {"minicpmv": [(24, 24), (18, 32), (28, 20)], "odd-minicpmv": [(3, 5), (4, 2)], "odd-equal": [(3, 5), (4, 2)]}


def make_model(name, dtype, folder, seed=1):
    config, generator, state = CONFIGS[name], torch.Generator().manual_seed(seed), {}
    hidden = config.get("text", config)["hidden_size"]
    for tensor, like in vlm_torch.build(config).state_dict().items():
        x = torch.randn(*like.shape, generator=generator)
        norm = ("norm" in tensor or ".ln_" in tensor) and tensor.endswith("weight")
        x = 1 + 0.1 * x if norm else x * (0.02 if hidden > 500 else 0.1)
        if tensor.endswith("resampler.pos_embed"):
            side = int(len(x) ** 0.5)
            x = vlm_torch.sincos(side, side, hidden)
        state[tensor] = x.to(dtype).contiguous()
    os.makedirs(folder, exist_ok=True)
    save_file(state, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(config, torch_dtype=str(dtype)[6:]), f, indent=1)


def make_data(name, path, rows, length, seed=2):
    """Every row: a token, its pictures, then text; the last two thirds of the text carry labels."""
    config, generator = CONFIGS[name], torch.Generator().manual_seed(seed)
    omni, vocab = "text" not in config, config.get("text", config)["vocab_size"]
    queries, grids = config.get("num_query", config.get("query_num")), GRIDS.get(name, [None, None])
    ids = torch.randint(3, vocab - 3, (rows, length), generator=generator)
    starts = [1 + i * (queries + 2) for i in range(len(grids))]
    for p in starts:
        ids[:, p + 1:p + 1 + queries] = config["im_patch_token"] if omni else 0
        if omni:
            ids[:, p], ids[:, p + queries + 1] = config["im_start_token"], config["im_end_token"]
    begin = starts[-1] + queries + 2
    begin += (length - begin) // 3
    data = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    labels = ids.clone()
    labels[:, :begin] = -100
    if omni:
        data["labels"] = labels
        data["images"] = torch.randn(rows * len(grids), 3, config["image_size"], config["image_size"], generator=generator)
    else:
        data["labels_shifted"] = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
        data["images_per_row"] = torch.full((rows,), len(grids))
        data["image_bound"] = torch.tensor([[p + 1, p + 1 + queries] for p in starts] * rows)
        for r in range(rows):
            for j, (h, w) in enumerate(grids):
                data["image_%d_%d_chw" % (r, j)] = torch.randn(3, 14 * h, 14 * w, generator=generator)
    save_file(data, path)


if __name__ == "__main__":
    what, name, path = sys.argv[1:4]
    if what == "model":
        make_model(name, getattr(torch, sys.argv[4]), path)
    else:
        make_data(name, path, int(sys.argv[4]), int(sys.argv[5]))
