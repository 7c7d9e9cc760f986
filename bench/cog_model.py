"""cog_model.py - CogVLM and CogAgent with random weights as SAT writes them, and random data.

  cog_model.py model NAME FOLDER DTYPE      NAME: middle, 4gb, or one of the odd sizes of cog_parity.py
  cog_model.py data NAME FILE ROWS LENGTH   images, masks and positions as SAT's text processor makes them
  cog_model.py ids NAME FILE                one row of four tokens, no image
"""
import collections
import json
import os
import sys

import torch
from safetensors.torch import save_file

import cog_torch

VIT = {"model_class": "EVA2CLIPModel", "vocab_size": 1, "layernorm_order": "post", "model_parallel_size": 1, "use_final_layernorm": False,
       "layernorm_epsilon": 1e-6, "row_parallel_linear_final_bias": False, "pre_len": 1, "post_len": 0, "in_channels": 3, "patch_size": 14}
TEXT = {"layernorm_order": "pre", "model_parallel_size": 1, "max_sequence_length": 2048, "use_bias": False, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 0}


def vlm(hidden, layers, heads, inner, vocab, image, vit):
    patches = (image // 14) ** 2
    width, vit_layers, vit_heads, vit_inner = vit
    eva = dict(VIT, num_layers=vit_layers, hidden_size=width, num_attention_heads=vit_heads, inner_hidden_size=vit_inner,
               max_sequence_length=patches + 1, image_size=[image, image])
    return dict(TEXT, model_class="CogVLMModel", num_layers=layers, hidden_size=hidden, num_attention_heads=heads,
                inner_hidden_size=inner, vocab_size=vocab, image_length=patches, eva_args=eva)


def agent(base, cross_image, cross_head, decoder, width, head_width, inner, blocks):
    tower = {"layers": blocks, "width": width, "head_width": head_width, "inner": inner, "embed_dim": 12}
    return dict(base, model_class="CogAgentModel", cross_image_pix=cross_image, cross_hidden_size_per_attention_head=cross_head,
                cross_attn_hidden_size=width, is_decoder=decoder, tower=tower)


CONFIGS = {
    "middle": vlm(1024, 4, 8, 2752, 32000, 224, (512, 4, 8, 2048)),
    "4gb": vlm(2048, 18, 16, 5504, 32000, 224, (512, 4, 8, 2048)),
    # sizes that nothing divides
    "odd-vlm": vlm(60, 3, 5, 77, 1003, 42, (36, 2, 3, 50)),
    "wide-vlm": vlm(136, 2, 17, 301, 1200, 70, (88, 3, 11, 130)),
    "odd-agent": agent(vlm(56, 3, 7, 91, 1001, 42, (30, 2, 5, 45)), 70, 6, [True, False, True], 24, 8, 67, 3),
    "wide-agent": agent(vlm(72, 2, 3, 130, 1100, 56, (40, 2, 4, 66)), 126, 20, [True, True], 60, 12, 160, 4),
}


def angles(grid, wide):
    """Cosines and sines of the tower: half the columns turn with the row, half with the column, on a grid of 16."""
    place = torch.arange(grid) / grid * 16
    rate = 10000.0 ** (-torch.arange(0, wide // 2, 2).float() / (wide // 2))
    theta = (place.unsqueeze(1) * rate).repeat_interleave(2, -1)
    both = torch.cat([theta.unsqueeze(1).expand(grid, grid, -1), theta.unsqueeze(0).expand(grid, grid, -1)], -1).reshape(grid * grid, wide)
    return both.cos(), both.sin()


def values(config, name, shape, generator):
    if name.endswith("inv_freq"):
        return 10000.0 ** (-torch.arange(0, 2 * shape[0], 2).float() / (2 * shape[0]))
    if ".rope." in name:
        return angles(config["cross_image_pix"] // 14, shape[1])["sin" in name]
    x = torch.randn(*shape, generator=generator)
    norm = "norm" in name or name.endswith("_ln.weight")
    return 1 + 0.1 * x if norm and name.endswith("weight") else x * (0.02 if config["hidden_size"] > 500 else 0.1)


def write_folder(folder, config, state):
    os.makedirs(os.path.join(folder, "1"), exist_ok=True)
    torch.save({"module": state}, os.path.join(folder, "1", "mp_rank_00_model_states.pt"))
    with open(os.path.join(folder, "latest"), "w") as f:
        f.write("1")
    with open(os.path.join(folder, "model_config.json"), "w") as f:
        json.dump({key: value for key, value in config.items() if key != "tower"}, f, indent=1)


def make_model(name, dtype, folder, seed=1):
    config, generator = CONFIGS[name], torch.Generator().manual_seed(seed)
    state = collections.OrderedDict()
    for tensor, like in cog_torch.build(config).state_dict().items():
        state[tensor] = values(config, tensor, like.shape, generator).to(dtype)
    write_folder(folder, config, state)


def make_data(name, path, rows, length, seed=2):
    """Every row: one image, then text; its last two thirds carry labels. Small models get rows of several lengths."""
    config, generator = CONFIGS[name], torch.Generator().manual_seed(seed)
    patches, vocab, size = config["image_length"], config["vocab_size"], config["eva_args"]["image_size"][0]
    ids = torch.randint(3, vocab, (rows, length), generator=generator)
    ids[:, 0] = 1
    ids[:, 1:patches + 3] = 0
    embed, expert, rope = (torch.zeros(rows, length, dtype=torch.int64) for _ in range(3))
    embed[:, 1:patches + 3] = expert[:, 1:patches + 2] = rope[:, 2:patches + 2] = 1
    position = torch.arange(length).repeat(rows, 1)
    position[:, 2:] -= torch.cumsum(rope * rope.roll(1, 1), 1)[:, 2:]
    labels = ids.clone()
    labels[:, :patches + 3 + (length - patches - 3) // 3] = -100
    if config["hidden_size"] < 500:
        for r in range(rows):
            end = length - 3 * (r % 3)
            ids[r, end:], labels[r, end:] = 0, -100
    data = {"input_ids": ids, "labels": labels, "position_ids": position, "image_embed_mask": embed, "vision_expert_mask": expert,
            "image_rope_mask": rope, "vision_image": torch.randn(rows, 3, size, size, generator=generator)}
    if "cross_image_pix" in config:
        data["cross_image"] = torch.randn(rows, 3, config["cross_image_pix"], config["cross_image_pix"], generator=generator)
    save_file(data, path)


def make_ids(name, path):
    ids = torch.randint(3, CONFIGS[name]["vocab_size"], (1, 4), generator=torch.Generator().manual_seed(3))
    save_file({"input_ids": ids, "labels": ids.clone()}, path)


if __name__ == "__main__":
    what, name, path = sys.argv[1:4]
    if what == "model":
        make_model(name, getattr(torch, sys.argv[4]), path)
    elif what == "data":
        make_data(name, path, int(sys.argv[4]), int(sys.argv[5]))
    else:
        make_ids(name, path)
