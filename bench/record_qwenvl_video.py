"""record_qwenvl_video.py - videos by transformers' own classes of Qwen2.5-VL and Qwen3-VL.

  record_qwenvl_video.py SUCCESSORS [--older MODELING]

SUCCESSORS is tests/data/successors: into its qwen2_5_vl and qwen3_vl go `videos.safetensors`, a row of token ids with a
video of three frames and a picture, and `videos_outputs.safetensors`: logits, loss and a gradient of the small model
beside them. `qwenvl_videos.json` has what the processors make of frames of several sizes, numbers and rates: the grid,
the text in the prompt, positions on the axis of time, the hash of the pixels of frames that need no resizing. With
modeling_qwen2_5_vl.py of transformers 4.49 (--older) positions are that one's too, where what follows a video goes on
behind all of its positions, as Qwen trained; 5.24 goes on behind the longer side of a frame.
"""
import argparse
import ast
import itertools
import json
import os
import types

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen2VLVideoProcessor, Qwen3VLForConditionalGeneration, Qwen3VLVideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

FAMILIES = {"qwen2_5_vl": (Qwen2_5_VLForConditionalGeneration, Qwen2VLVideoProcessor),
            "qwen3_vl": (Qwen3VLForConditionalGeneration, Qwen3VLVideoProcessor)}
# frames, height, width, frames in a second, least and most pixels (0: the class's)
CASES = [(4, 56, 84, 2, 0, 0), (5, 100, 61, 3, 3136, 50176), (3, 90, 160, 0.5, 0, 0), (8, 100, 200, 24, 784, 60000), (7, 30, 200, 1, 100000, 400000),
         (2, 20, 50, 5, 3136, 12544), (24, 64, 64, 12, 0, 0), (2, 60, 350, 2, 784, 10000), (4, 128, 64, 2, 4096, 1048576), (9, 28, 56, 0.5, 784, 1568), (4, 10, 50, 2, 784, 100000)]
# the same, and how many of a second are taken
TAKEN = [(24, 64, 64, 12, 0, 0, 1.5), (30, 56, 84, 10, 0, 0, 3), (7, 56, 84, 2, 0, 0, 2), (13, 28, 28, 3, 784, 1568, 0.7)]


def video_row(config, third):
    """Token ids and kinds (text 0, picture 1, video 2) of a row with a video of 2 x 6 x 2 patches, and a picture of 2 x 4."""
    random = np.random.default_rng(7)
    text = lambda n: list(random.integers(3, 43, n))
    begin, end, image, video = config.vision_start_token_id, config.vision_end_token_id, config.image_token_id, config.video_token_id
    frames = [text(2) + [begin] + [video] * 3 + [end] for _ in range(2)] if third else [text(2) + [begin] + [video] * 6 + [end]]
    ids = sum(frames, []) + text(3) + [begin] + [image] * 2 + [end] + text(4)
    return torch.tensor([ids]), torch.tensor([[2 if t == video else 1 if t == image else 0 for t in ids]])


def record_row(folder, model_class):
    third = "qwen3" in folder
    model = model_class.from_pretrained(os.path.join(folder, "hf"), dtype=torch.float32, attn_implementation="eager")
    ids, kinds = video_row(model.config, third)
    cols = model.config.vision_config
    cols = cols.in_channels * cols.temporal_patch_size * cols.patch_size ** 2
    random = np.random.default_rng(11)
    pixels = lambda n: torch.from_numpy(random.integers(-16, 17, (n, cols)).astype(np.float32) / 8)
    labels = ids.clone()
    labels[kinds > 0] = -100
    labels[:, : ids.shape[1] - 8] = -100
    still = pixels(8).reshape(8, 3, 2, -1)
    still[:, :, 1] = still[:, :, 0]
    given = {"input_ids": ids, "mm_token_type_ids": kinds, "pixel_values_videos": pixels(24), "video_grid_thw": torch.tensor([[2, 6, 2]]),
             "pixel_values": still.reshape(8, -1), "image_grid_thw": torch.tensor([[1, 2, 4]])}
    more = {} if third else {"second_per_grid_ts": torch.tensor([0.5])}
    positions, _ = model.model.get_rope_index(ids, kinds, given["image_grid_thw"], given["video_grid_thw"], **more)
    out = model(**given, **more, labels=labels, position_ids=positions)
    out.loss.backward()
    grad = {f"grad.{n}": p.grad for n, p in model.named_parameters() if "patch_embed.proj.weight" in n}
    narrow = {k: v.to(torch.float16) if v.is_floating_point() else v.to(torch.int32) for k, v in {**given, "labels": labels, "position_ids": positions}.items()}
    save_file({**narrow, **more}, os.path.join(folder, "videos.safetensors"))
    save_file({"logits": out.logits.detach(), "loss": out.loss.detach().reshape(1), **grad}, os.path.join(folder, "videos_outputs.safetensors"))
    return model


def older_rope(path):
    """get_rope_index() of another version, without its module."""
    tree = ast.parse(open(path).read())
    found = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "get_rope_index")
    space = {"torch": torch, "Optional": __import__("typing").Optional, "Tuple": tuple}
    exec(compile(ast.Module([found], []), path, "exec"), space)
    return space["get_rope_index"]


def record_case(name, case, processor_class, model, older):
    n, height, width, fps, least, most, *target = case
    processor = processor_class(**({"size": {"shortest_edge": least or processor_class.size["shortest_edge"], "longest_edge": most or processor_class.size["longest_edge"]}}))
    frames = np.stack([(np.add.outer(np.arange(height) * 3, np.arange(width) * 5)[..., None] + np.arange(3) * 40 + i * 29) % 256 for i in range(n)]).astype(np.uint8)
    video = torch.from_numpy(frames).permute(0, 3, 1, 2)
    how = {"do_sample_frames": True, "fps": target[0]} if target else {}
    out = processor([video], **how, video_metadata=[{"total_num_frames": n, "fps": fps}], return_metadata=True, cap_pixels_per_frame=False, return_tensors="pt")
    meta, grid = out["video_metadata"][0], out["video_grid_thw"]
    told = meta.frames_indices if meta.frames_indices is not None else list(range(n))
    kept = [int(i) for i in told]
    made = {"family": name, "frames": n, "height": height, "width": width, "fps": fps, "least": least, "most": most, "target_fps": target[0] if target else None, "kept": kept, "grid": grid[0].tolist()}
    t, h, w = made["grid"]
    if name == "qwen3_vl":
        made["text"] = ["<%.1f seconds>" % s for s in Qwen3VLProcessor._calculate_timestamps(None, list(told), fps, 2)]
        return made
    step = processor.temporal_patch_size / meta.sampled_fps
    begin, end, video_id = model.config.vision_start_token_id, model.config.vision_end_token_id, model.config.video_token_id
    ids = torch.tensor([[5, begin] + [video_id] * (t * h * w // 4) + [end, 6]])
    places = {}
    kinds = (ids == video_id).int() * 2
    model.config.vision_config.tokens_per_second = 2
    places["5.24"], _ = model.model.get_rope_index(ids, kinds, None, grid, torch.tensor([step]))
    if older is not None:
        places["4.49"], _ = older(types.SimpleNamespace(config=types.SimpleNamespace(
            vision_config=model.config.vision_config, image_token_id=-1, video_token_id=video_id, vision_start_token_id=begin)), ids, None, grid, torch.tensor([step]))
    for version, p in places.items():
        made["positions " + version] = [k for k, _ in itertools.groupby(p[0, 0].tolist())]
    made["next"] = int(places.get("4.49", places["5.24"])[0, 0, -1])
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("successors")
    parser.add_argument("--older")
    a = parser.parse_args()
    older, cases = older_rope(a.older) if a.older else None, []
    torch.manual_seed(0)
    for name, (model_class, processor_class) in FAMILIES.items():
        model = record_row(os.path.join(a.successors, name), model_class)
        cases += [record_case(name, case, processor_class, model, older) for case in CASES + TAKEN]
    with open(os.path.join(a.successors, "qwenvl_videos.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
