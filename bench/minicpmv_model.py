"""minicpmv_model.py - a MiniCPM-V 2.6 of middle size with random weights, and random rows of two images each.

  minicpmv_model.py model FOLDER DTYPE
  minicpmv_model.py data FILE ROWS LENGTH
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file

import minicpmv_torch

CONFIG = {
    "architectures": ["MiniCPMV"], "model_type": "minicpmv", "version": 2.6, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 2752, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32000,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "query_num": 64, "drop_vision_last_layer": False, "use_image_id": True,
    "slice_config": {"max_slice_nums": 9, "patch_size": 14, "model_type": "minicpmv"}, "slice_mode": True,
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 512, "image_size": 980, "intermediate_size": 2048,
                      "num_attention_heads": 8, "num_hidden_layers": 4, "patch_size": 14},
}
IMAGES = [(308, 420), (252, 252)]  # two slices of their own sizes: 660 and 324 patches


def make_model(folder, dtype, seed=1):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(CONFIG, torch_dtype=str(dtype)[6:]), f, indent=1)
    generator, state = torch.Generator().manual_seed(seed), {}
    for name, like in minicpmv_torch.MiniCPMV(minicpmv_torch.sizes(folder)).state_dict().items():
        x = torch.randn(*like.shape, generator=generator)
        norm = name.endswith("weight") and ("norm" in name or ".ln_" in name)
        state[name] = (1 + 0.1 * x if norm else 0.02 * x).to(dtype).contiguous()
    save_file(state, os.path.join(folder, "model.safetensors"), {"format": "pt"})


def make_data(path, rows, length, seed=2):
    """Every row: two images behind its first token, then text; its last two thirds carry labels."""
    generator, queries = torch.Generator().manual_seed(seed), CONFIG["query_num"]
    ids = torch.randint(3, CONFIG["vocab_size"], (rows, length), generator=generator)
    bounds, begin = [], 2
    for _ in IMAGES:
        bounds.append([begin, begin + queries])
        ids[:, begin:begin + queries] = 0
        begin += queries + 2
    labels = ids.roll(-1, 1)
    labels[:, :begin + (length - begin) // 3] = -100
    labels[:, -1] = -100
    data = {"input_ids": ids, "labels_shifted": labels, "attention_mask": torch.ones(rows, length, dtype=torch.bool),
            "image_bound": torch.tensor(bounds * rows), "images_per_row": torch.full((rows,), len(IMAGES))}
    for r in range(rows):
        for j, (height, width) in enumerate(IMAGES):
            data["image_%d_%d_chw" % (r, j)] = torch.randn(3, height, width, generator=generator)
    save_file(data, path)


if __name__ == "__main__":
    if sys.argv[1] == "model":
        make_model(sys.argv[2], getattr(torch, sys.argv[3]))
    else:
        make_data(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
