#!/usr/bin/env python3
"""plan_time.py - `./run bench plan`: what `sheaf plan --time` predicts beside what steps take.

By turns for each setting: a prediction from the config alone, then a run; of both the fastest counts, over all
rounds. Of one thread seconds are the processor's, which others on the machine disturb less: the kernel's count of the
process whenever a step's line appears in metrics.jsonl; of several threads they are the clock's. Needs python3 alone.

  --models mini,tiny1b-4l,cog,omnilmm,minicpmv   --dtypes float32,pairs,tiles
  --ways lora,slices1,head,full,again,threads,ranks   --steps N   --rounds N (3)
  --answers 1,8   batches of which prompts and tokens of `sheaf generate` are compared too, of text models; empty: none
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import time
import zlib

from ranks import VOCAB, make_data

STEPS = {"mini": 8, "tiny1b-4l": 4, "cog": 6, "omnilmm": 6, "minicpmv": 6}
LORA = ["--method", "lora", "--lora-rank", "16", "--lora-targets", "all-linear"]
WAYS = {  # flags, threads, ranks
    "lora": (LORA, 1, 1),
    "slices1": (LORA + ["--slices", "1"], 1, 1),
    "head": (["--method", "head"], 1, 1),
    "full": (["--method", "full"], 1, 1),
    "again": (LORA + ["--checkpointing"], 1, 1),
    "threads": (LORA, 2, 1),
    "ranks": (LORA, 2, 2),
}
DTYPES = {"float32": ["--dtype", "float32"], "pairs": ["--dtype", "bfloat16", "--sums", "pairs"],
          "tiles": ["--dtype", "bfloat16", "--sums", "tiles"]}


# CogVLM of middle size, as bench/cog_model.py has it.
VIT = {"model_class": "EVA2CLIPModel", "vocab_size": 1, "layernorm_order": "post", "model_parallel_size": 1,
       "use_final_layernorm": False, "layernorm_epsilon": 1e-6, "row_parallel_linear_final_bias": False, "pre_len": 1,
       "post_len": 0, "in_channels": 3, "patch_size": 14, "num_layers": 4, "hidden_size": 512, "num_attention_heads": 8,
       "inner_hidden_size": 2048, "max_sequence_length": 257, "image_size": [224, 224]}
COG = {"model_class": "CogVLMModel", "layernorm_order": "pre", "model_parallel_size": 1, "max_sequence_length": 2048,
       "use_bias": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "num_layers": 4, "hidden_size": 1024,
       "num_attention_heads": 8, "inner_hidden_size": 2752, "vocab_size": 32000, "image_length": 256, "eva_args": VIT}


# OmniLMM and MiniCPM-V of middle size: the tiny ones of `sheaf init` with these sizes.
TEXT = {"hidden_size": 1024, "intermediate_size": 2752, "num_attention_heads": 8, "num_key_value_heads": 2}
MIDDLE = {"omnilmm": {**TEXT, "num_query": 64, "image_size": 448, "vision_config": {
              "depth": 4, "embed_dim": 512, "img_size": 224, "mlp_ratio": 4, "num_heads": 8, "patch_size": 14}},
          "minicpmv": {**TEXT, "query_num": 64, "resampler_num_heads": 8,
                       "slice_config": {"max_slice_nums": 9, "patch_size": 14, "scale_resolution": 448}, "vision_config": {
              "model_type": "siglip_vision_model", "hidden_size": 512, "image_size": 980, "intermediate_size": 2048,
              "num_attention_heads": 8, "num_hidden_layers": 4, "patch_size": 14}}}
PROMPT, SHORT, LONG, MORE = 128, 8, 72, 16  # tokens of a prompt, of answers; prompts more, in whole batches


def make_middle(args, model):
    """A config.json of middle size."""
    tiny, spec = f"{args.work}/plan-{model}-tiny", f"{args.work}/plan-{model}.json"
    if not os.path.isdir(tiny):
        subprocess.run([args.sheaf, "init", model + "-tiny", tiny], check=True, capture_output=True)
    with open(tiny + "/config.json") as file:
        config = json.load(file)
    with open(spec, "w") as file:
        json.dump({**config, **MIDDLE[model]}, file)
    return spec


def make_records(path, rows, side):
    """Records of one square picture and text, all alike."""
    def chunk(name, blob):
        return struct.pack(">I", len(blob)) + name + blob + struct.pack(">I", zlib.crc32(name + blob))
    pixels = b"".join(b"\0" + bytes(3 * side * [(7 * y) % 256]) for y in range(side))
    with open(os.path.splitext(path)[0] + ".png", "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
                   + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b""))
    with open(path, "w") as file:
        for _ in range(rows):
            file.write(json.dumps({"image": os.path.basename(os.path.splitext(path)[0]) + ".png", "prompt": "What is it? " * 6,
                                   "completion": "Grey, from dark to light. " * 6}) + "\n")


def make_pictures(path, rows, length, vocab):
    """Rows of one image and text, of which two thirds are learned."""
    patches, begin = COG["image_length"], COG["image_length"] + 3
    ids = [1 + (7 * i) % (vocab - 1) for i in range(rows * length)]
    labels = [ids[i] if i % length >= begin + (length - begin) // 3 else -100 for i in range(rows * length)]
    embed = [int(1 <= i % length < begin) for i in range(rows * length)]
    expert = [int(1 <= i % length < begin - 1) for i in range(rows * length)]
    parts, head, at = [], {}, 0
    for name, dtype, shape, blob in [
            (name, "I32", [rows, length], struct.pack("<%di" % len(values), *values))
            for name, values in (("input_ids", ids), ("labels", labels), ("image_embed_mask", embed), ("vision_expert_mask", expert))
    ] + [("vision_image", "F32", [rows, 3, 224, 224], b"\0\0\x80\x3e" * (rows * 3 * 224 * 224))]:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        parts.append(blob)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def prepare(args, model, dtype):
    """Flags that name the model, its data and how they are used."""
    stored = "float32" if dtype == "float32" else "bfloat16"
    folder, data, spec = f"{args.work}/plan-{model}-{stored}", f"{args.work}/plan-{model}.safetensors", model
    if model in MIDDLE:
        spec, data = make_middle(args, model), f"{args.work}/plan-{model}.jsonl"
    if model == "cog":
        spec = f"{args.work}/plan-cog.json"
        with open(spec, "w") as file:
            json.dump(COG, file)
    if not os.path.isdir(folder):
        subprocess.run([args.sheaf, "init", spec, folder, "--dtype", stored, "--seed", "1"], check=True, capture_output=True)
    if not os.path.exists(data) and model == "cog":
        make_pictures(data, 8, 320, COG["vocab_size"])
    if not os.path.exists(data) and model in MIDDLE:
        make_records(data, 8, 448)
    if not os.path.exists(data):
        make_data(data, 64, 512, VOCAB[model])
    return ["--model", folder], ["--data", data], ["--micro-batch", "2" if model in VOCAB else "1", "--no-shuffle"]


def processor(pid):
    """Seconds of it that the threads of a process have had."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return 1e-9 * total


def predict(args, flags):
    done = subprocess.run([args.sheaf, "plan", *flags, "--time", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("%s\n%s" % (" ".join(flags), done.stderr))
    return json.loads(done.stdout)["time"]


def run(args, flags, steps):
    """Seconds of each step but the first: of the clock, of the processor."""
    out = os.path.join(args.work, "plan-out")
    shutil.rmtree(out, ignore_errors=True)
    child = subprocess.Popen([args.sheaf, "train", *flags, "--out", out, "--steps", str(steps), "--lr", "1e-5"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics, size, used = os.path.join(out, "metrics.jsonl"), 0, []
    while child.poll() is None:
        try:
            now = os.path.getsize(metrics)
            if now > size:
                used.append(processor(child.pid))
            size = now
        except OSError:
            pass
        time.sleep(0.002)
    if child.returncode != 0:
        sys.exit("%s\n%s" % (" ".join(flags), child.stderr.read()))
    with open(metrics) as file:
        lines = [json.loads(line) for line in file][1:]
    clock = [line["tokens"] / line["tokens_per_s"] for line in lines]
    return clock, [b - a for a, b in zip(used, used[1:])] or clock


def answer(args, flags, batch, prompts, new):
    """Seconds of the processor and of the clock that `sheaf generate` takes, loading included."""
    path = os.path.join(args.work, "plan-prompts.jsonl")
    with open(path, "w") as file:
        for row in range(prompts):
            file.write(json.dumps({"tokens": [3 + (row * 3701 + i * 1117) % 8000 for i in range(PROMPT)]}) + "\n")
    begin = time.perf_counter()
    child = subprocess.Popen([args.sheaf, "generate", *flags, "--prompts", path, "--batch", str(batch), "--max-new", str(new), "--greedy",
                              "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit("generate %s\n%s" % (" ".join(flags), error.decode()))
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - begin


def compare_answers(args, model, dtype, model_flags, batch, threads):
    """A token of each of `batch` sequences, and reading their prompts; returns how far each is off, in percent."""
    flags = model_flags + DTYPES[dtype] + ["--threads", str(threads)]
    told, short, long, few, many = [], [], [], [], []
    clock, off, passes = int(threads > 1), [], -(-MORE // batch)
    for _ in range(args.rounds):
        told.append(predict(args, flags + ["--place", "1", "--micro-batch", str(batch), "--seq", str(PROMPT + SHORT + LONG),
                                           "--max-new", str(SHORT + LONG)]))
        few.append(answer(args, flags, batch, batch, 1))
        many.append(answer(args, flags, batch, batch + passes * batch, 1))
        short.append(answer(args, flags, batch, batch, SHORT))
        long.append(answer(args, flags, batch, batch, LONG))
    for what, key, less, more, n in (("prompts", "prompt", few, many, passes), ("a token", "token", short, long, LONG - SHORT)):
        planned = min(one[key] for one in told)
        took = (min(one[clock] for one in more) - min(one[clock] for one in less)) / n
        off.append(abs(100 * (planned / took - 1)))
        print(f"| {model} | {dtype} | {what}, batch {batch}{', two threads' if threads > 1 else ''} | {1e3 * planned:.2f} | {1e3 * took:.2f} | "
              f"{100 * (planned / took - 1):+.1f} % | |", flush=True)
    return max(off)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--work", default="build/bench")
    parser.add_argument("--models", default="mini,tiny1b-4l")
    parser.add_argument("--dtypes", default="float32,pairs,tiles")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--answers", default="1,8")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| model | type | way | predicted ms | measured ms | | in a round |\n|---|---|---|---|---|---|---|")
    worst = 0
    for model in args.models.split(","):
        for dtype in args.dtypes.split(","):
            model_flags, data, how = prepare(args, model, dtype)
            for batch in (int(b) for b in args.answers.split(",") if b and model in VOCAB):
                worst = max(worst, compare_answers(args, model, dtype, model_flags, batch, 1))
            for way in (w for w in args.ways.split(",") if w):
                flags, threads, ranks = WAYS[way]
                flags = model_flags + how + DTYPES[dtype] + flags + ["--threads", str(threads), "--tp", str(ranks)]
                planned, measured, ratios = [], [], []
                for _ in range(args.rounds):
                    told = predict(args, flags + (["--seq", "512"] if model in VOCAB else data))
                    clock, used = run(args, flags + data, args.steps or STEPS[model])
                    planned.append(told["step"])
                    measured.append(min(used if threads == 1 else clock))
                    ratios.append(100 * (planned[-1] / measured[-1] - 1))
                a, c = min(planned), min(measured)
                worst = max(worst, abs(100 * (a / c - 1)))
                print(f"| {model} | {dtype} | {way} | {1e3 * a:.0f} | {1e3 * c:.0f} | {100 * (a / c - 1):+.1f} % | "
                      f"{min(ratios):+.0f} to {max(ratios):+.0f} % |", flush=True)
    print(f"farthest off: {worst:.1f} % (asked for: 15 %)")


if __name__ == "__main__":
    main()
