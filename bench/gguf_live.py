#!/usr/bin/env python3
"""gguf_live.py - files of `sheaf convert --to gguf` in llama.cpp (xllamacpp): the same greedy tokens as sheaf.

A small random model of each family is written in each type, with an adapter where PEFT names its layers alike. llama.cpp
runs with a float32 cache and without flash attention, on one thread. Its other types round activations too, so there the
answer is sheaf's only as long as the two best tokens lie apart: the first token must agree in three types of four. Tokens
are words, as llama.cpp's server reports no token that is a part of a character.

Of MiniCPM-V the tower too: a picture between the same tokens, in the size to which llama.cpp stretches a small one.
llama.cpp convolves patches in float16, so logits may differ by 0.02 even so. It has the patches of a picture in rows and
columns, which 2.5 has in one row; there its answer is sheaf's for the same weights as 4.0.
"""
import argparse
import base64
import json
import math
import os
import random
import shutil
import struct
import subprocess
import urllib.request
import zlib

import xllamacpp

COMMON = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 276, "max_position_embeddings": 256, "initializer_range": 0.06,
          "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "rms_norm_eps": 1e-5, "torch_dtype": "float32"}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
GEMMA = {"architectures": None, "head_dim": 64, "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"}
MODELS = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "llama with rope of Llama 3": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rope_scaling": LLAMA3},
    "llama, wide heads": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "head_dim": 96},
    "mistral": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None},
    "qwen2, tied": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 64},
    "qwen3_moe": {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 256, "norm_topk_prob": True, "head_dim": 64},
    "mixtral": {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4,
                "num_experts_per_tok": 2, "sliding_window": None},
    "smollm3": {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "tie_word_embeddings": True,
                "no_rope_layer_interval": 4, "num_hidden_layers": 8},
    "olmo2": {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"]},
    "phi3": {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "sliding_window": None,
             "original_max_position_embeddings": 256},
    "phi3, long": {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "sliding_window": None,
                   "max_position_embeddings": 1024, "original_max_position_embeddings": 256,
                   "rope_scaling": {"type": "longrope", "short_factor": [1 + 0.02 * i for i in range(32)],
                                    "long_factor": [2 + 0.1 * i for i in range(32)]}},
    "llama, yarn": {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    "llama, linear": {"model_type": "llama", "architectures": ["LlamaForCausalLM"],
                      "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "gemma": dict(GEMMA, model_type="gemma", architectures=["GemmaForCausalLM"]),
    "gemma2": dict(GEMMA, model_type="gemma2", architectures=["Gemma2ForCausalLM"], query_pre_attn_scalar=64,
                   sliding_window=16, attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
    "gemma3": dict(GEMMA, model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], query_pre_attn_scalar=64,
                   sliding_window=16, rope_theta=1e6, rope_local_base_freq=1e4, num_hidden_layers=6),
    "glm": {"model_type": "glm", "architectures": ["GlmForCausalLM"], "head_dim": 64, "attention_bias": True,
            "partial_rotary_factor": 0.5},
    "glm4": {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"], "head_dim": 64, "attention_bias": True,
             "partial_rotary_factor": 0.5},
}
MINICPMV = {"MiniCPM-V 2.0": "minicpmv-2.0-tiny", "MiniCPM-V 2.5": "minicpmv-2.5-tiny", "MiniCPM-V 2.6": "minicpmv-tiny",
            "MiniCPM-V 4.5": "minicpmv-4.5-tiny"}  # their text models
TYPES = ["float32", "bfloat16", "float16", "q8_0", "q4_k_m"]
PROMPT, TOKENS = [1, 20, 74, 150, 116, 20, 104, 26, 137, 227, 190, 231, 40, 99, 201, 17, 64, 33, 12, 250], 12
failed = passed = 0


def say(good, name, more=""):
    global failed, passed
    passed += good
    failed += not good
    print("%s - %s%s" % ("ok" if good else "not ok", name, ": " + more if more and not good else ""), flush=True)


def sheaf(*words):
    done = subprocess.run([args.sheaf, *words, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout.splitlines()[0])


def greedy(model, adapter=None):
    words = ["generate", model, "--tokens", ",".join(map(str, PROMPT)), "--greedy", "--max-new", str(TOKENS), "--threads",
             "1", "--dtype", "float32"]
    return sheaf(*words, *(["--adapter", adapter] if adapter else []))["tokens"]


def params_of(path, tower=None):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 256
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.warmup = False
    params.verbosity = -1
    if tower:
        params.mmproj.path = tower
        params.mmproj_use_gpu = False
    return params


def llama_cpp(path, adapter=None):
    params = params_of(path)
    if adapter:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, 1.0)]
    server = xllamacpp.Server(params)
    answer = server.handle_completions({"prompt": PROMPT, "n_predict": TOKENS, "max_tokens": TOKENS, "temperature": 0,
                                        "return_tokens": True, "n_probs": 1, "logprobs": 1, "cache_prompt": False})
    return answer


def tokens_of(answer):
    if "tokens" in answer:
        return answer["tokens"]
    choice = answer["choices"][0]
    if "tokens" in choice:
        return choice["tokens"]
    return [one["id"] for one in choice["logprobs"]["content"]]


def agreed(path, want, name, adapter=None):
    """How many tokens are sheaf's, from the first on; -1: the file did not load."""
    try:
        got = tokens_of(llama_cpp(path, adapter))
    except Exception as wrong:  # of any kind
        say(False, name, repr(wrong))
        return -1
    return next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))


MARKS = ["<image>", "</image>", "<slice>", "</slice>", "<unk>", "<image_id>", "</image_id>"]


def put_tokenizer(folder, pad, marks=()):
    words = {pad: 0, "<s>": 1, "</s>": 2, "x": 3, "y": 4, "xy": 5}
    words.update((marks[i - 6] if i - 6 < len(marks) else "w%d" % i, i) for i in range(6, COMMON["vocab_size"]))
    special = [{"id": words[text], "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for text in (pad, "<s>", "</s>", *marks)]
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump({"version": "1.0", "added_tokens": special, "normalizer": None, "post_processor": None,
                   "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                   "decoder": {"type": "ByteLevel"},
                   "model": {"type": "BPE", "vocab": words, "merges": [["x", "y"]]}}, out)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                   "pad_token": pad}, out)


def adapter(name, model, base, folder):
    """One step of training makes it; a rate that changes the answer."""
    run, path = os.path.join(folder, "run"), os.path.join(folder, "lora.gguf")
    data = os.path.join(folder, "data.jsonl")
    with open(data, "w", encoding="utf-8") as out:
        out.write("".join(json.dumps({"text": "xyyx" * (4 + i)}) + "\n" for i in range(4)))
    try:
        sheaf("train", "--model", model, "--data", data, "--out", run, "--steps", "6", "--lr", "0.1", "--lora-targets",
              "q_proj,k_proj,v_proj,o_proj" if "experts" in str(MODELS[name]) else "all-linear", "--lora-rank", "4", "--dtype",
              "float32")
        sheaf("convert", run, path, "--to", "gguf-lora")
        want = greedy(model, os.path.join(run, "adapter"))
        n = agreed(base, want, name + ", adapter", path)
        say(n == TOKENS and want != greedy(model), name + ", adapter", "%d tokens of %d" % (n, TOKENS))
        merged = os.path.join(folder, "merged.gguf")
        sheaf("convert", run, merged, "--to", "gguf")
        n = agreed(merged, want, name + ", merged run")
        say(n == TOKENS, name + ", merged run", "%d tokens of %d" % (n, TOKENS))
    except RuntimeError as wrong:
        say(False, name + ", adapter", str(wrong))


def minicpmv_config(spec, folder):
    """Init's own, with more tokens and a tokenizer beside them."""
    sheaf("init", spec, os.path.join(folder, "plain"))
    with open(os.path.join(folder, "plain", "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    del config["sheaf_tokenizer"]
    return dict(config, vocab_size=COMMON["vocab_size"], bos_token_id=1, eos_token_id=2, pad_token_id=0,
                initializer_range=0.1)


def config_of(name, folder):
    return dict(COMMON, **MODELS[name]) if name in MODELS else minicpmv_config(MINICPMV[name], folder)


# ---- pictures ----

SEEN = {"MiniCPM-V 2.5": ("minicpmv-2.5-tiny", {}), "MiniCPM-V 2.6": ("minicpmv-tiny", {}),
        "MiniCPM-o 2.6": ("minicpmv-tiny", {"model_type": "minicpmo", "architectures": ["MiniCPMO"]}),
        "MiniCPM-V 4.0": ("minicpmv-2.5-tiny", {"version": 4.0}), "MiniCPM-V 4.5": ("minicpmv-4.5-tiny", {})}
SIDE, AHEAD, BEHIND = 40, [5, 4, 3], [4, 4, 3]  # xyyx, yyx


def tensors_of(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    size = struct.unpack("<Q", data[:8])[0] + 8
    return data, {name: [size + at for at in t["data_offsets"]] for name, t in json.loads(data[8:size]).items()
                  if name != "__metadata__"}


def put_tensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + body)


def shake_vectors(model, chance):
    """A new model's biases are 0 and its norms 1: numbers that differ, so that none can take another's place."""
    path = os.path.join(model, "model.safetensors")
    data, tensors = tensors_of(path)
    for name, (begin, end) in tensors.items():
        if name.startswith(("vpm.", "resampler.")) and name.endswith(("bias", "norm1.weight", "norm2.weight", "layernorm.weight",
                                                                      "q.weight", "kv.weight", "post.weight")):
            numbers = [chance.uniform(-0.3, 0.3) + name.endswith("weight") for _ in range((end - begin) // 4)]
            data[begin:end] = struct.pack("<%df" % len(numbers), *numbers)
    with open(path, "wb") as out:
        out.write(data)


def put_row(path, rgb, queries):
    """The picture, in the place of `queries` rows between its marks."""
    ids = [*AHEAD, 6] + [10] * queries + [7, *BEHIND]
    pixels = [rgb[i * 3 + c] / 127.5 - 1 for c in range(3) for i in range(SIDE * SIDE)]
    longs = lambda numbers: struct.pack("<%dq" % len(numbers), *numbers)
    put_tensors(path, {"input_ids": ("I64", [1, len(ids)], longs(ids)),
                       "labels_shifted": ("I64", [1, len(ids)], longs([-100] * (len(ids) - 1) + [3])),
                       "image_bound": ("I64", [1, 2], longs([len(AHEAD) + 1, len(AHEAD) + 1 + queries])),
                       "image_0_0_chw": ("F32", [3, SIDE, SIDE], struct.pack("<%df" % len(pixels), *pixels))})


def png(rgb):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + rgb[y * SIDE * 3:(y + 1) * SIDE * 3] for y in range(SIDE))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def last_logits(model, row, out):
    sheaf("eval", "--model", model, "--data", row, "--dtype", "float32", "--save-logits", out, "--threads", "1")
    data, tensors = tensors_of(out)
    begin, end = tensors["logits"]
    return struct.unpack("<%df" % ((end - begin) // 4), data[begin:end])[-COMMON["vocab_size"]:]


def llama_cpp_sees(text, tower, rgb):
    """Greedy tokens, and what probabilities the first was drawn from: logarithms by token."""
    server = xllamacpp.Server(params_of(text, tower))
    with urllib.request.urlopen(server.listening_address + "/props") as answer:
        marker = json.load(answer)["media_marker"]
    body = {"prompt": {"prompt_string": "xyyx" + marker + "yyx", "multimodal_data": [base64.b64encode(png(rgb)).decode()]},
            "n_predict": TOKENS, "temperature": 0, "n_probs": COMMON["vocab_size"], "cache_prompt": False}
    ask = urllib.request.Request(server.listening_address + "/completion", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
    with urllib.request.urlopen(ask) as answer:
        drawn = json.load(answer)["completion_probabilities"]
    return [one["id"] for one in drawn], {one["id"]: one["logprob"] for one in drawn[0]["top_logprobs"]}


def seen_config(spec, changes, folder):
    """Sizes of which none divides another, and what llama.cpp has in its code: 70 x 70 positions, heads of 128."""
    config = minicpmv_config(spec, folder)
    config.update(im_start_token=6, im_end_token=7, slice_start_token=8, slice_end_token=9, unk_token=10,
                  im_id_start_token=11, im_id_end_token=12, hidden_size=256, resampler_num_heads=2, query_num=5,
                  num_hidden_layers=2, **changes)
    config["vision_config"].update(image_size=280, patch_size=4, hidden_size=48, num_attention_heads=3,
                                   intermediate_size=100)
    config["slice_config"].update(patch_size=4, scale_resolution=SIDE)
    return config


def picture(name, folder):
    chance = random.Random(5)
    config, model = seen_config(*SEEN[name], folder), os.path.join(folder, "model")
    path, row = os.path.join(folder, "config.json"), os.path.join(folder, "row.safetensors")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(config, out)
    sheaf("init", path, model, "--seed", "7")
    put_tokenizer(model, "<|endoftext|>", MARKS)
    shake_vectors(model, chance)
    rgb = bytes(chance.randrange(256) for _ in range(SIDE * SIDE * 3))
    put_row(row, rgb, config["query_num"])
    text, tower = (os.path.join(folder, file) for file in ("text.gguf", "mmproj.gguf"))
    sheaf("convert", model, text, "--to", "gguf", "--dtype", "float32")
    asked = model
    if name == "MiniCPM-V 2.5":
        asked = shutil.copytree(model, os.path.join(folder, "4.0"))
        with open(os.path.join(asked, "config.json"), "w", encoding="utf-8") as out:
            json.dump(dict(config, version=4.0), out)
    want = sheaf("generate", "--model", asked, "--data", row, "--greedy", "--max-new", str(TOKENS), "--dtype",
                 "float32")["results"][0]["tokens"]
    logits = last_logits(asked, row, os.path.join(folder, "logits.safetensors"))
    total = math.log(sum(math.exp(x) for x in logits))
    for kind, most in (("float32", 0.02), ("float16", 0.05)):
        if os.path.exists(tower):
            os.remove(tower)
        sheaf("convert", model, tower, "--to", "gguf-mmproj", "--dtype", kind)
        got, drawn = llama_cpp_sees(text, tower, rgb)
        far = max(abs(logits[i] - total - drawn[i]) for i in drawn)
        say(got == want and len(drawn) == len(logits) and far < most, "%s, a picture, %s" % (name, kind),
            "%s, not %s; %g apart" % (got, want, far))
    got, _ = llama_cpp_sees(text, tower, bytes(255 - x for x in rgb))
    say(got != want, name + ", another picture", "the same answer")


def main():
    for name in [*MODELS, *MINICPMV]:
        folder = os.path.join(args.work, name.replace(" ", "-").replace(",", ""))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        config = os.path.join(folder, "config.json")
        with open(config, "w", encoding="utf-8") as out:
            json.dump(config_of(name, folder), out)
        model = os.path.join(folder, "model")
        try:
            sheaf("init", config, model, "--seed", "7")
            put_tokenizer(model, "<|endoftext|>" if name.startswith(("qwen", "Mini")) else "<pad>",
                          () if name in MODELS else MARKS)
            alike = {}
            for kind in TYPES:
                path = os.path.join(folder, kind + ".gguf")
                sheaf("convert", model, path, "--to", "gguf", "--dtype", kind)
                if kind != "float32" and name == "MiniCPM-V 2.0":
                    continue  # sheaf does not read its architecture back
                alike[kind] = agreed(path, greedy(model if kind == "float32" else path), "%s, %s" % (name, kind))
            exact = alike.pop("float32")
            say(exact == TOKENS, name + ", float32", "%d tokens of %d" % (exact, TOKENS))
            say(sum(n > 0 for n in alike.values()) * 4 >= 3 * len(alike), name + ", other types", str(alike))
            if name in MODELS:
                adapter(name, model, os.path.join(folder, "float32.gguf"), folder)
        except RuntimeError as wrong:
            say(False, name, str(wrong))
    for name in SEEN:
        folder = os.path.join(args.work, "seen-" + name.replace(" ", "-"))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        try:
            picture(name, folder)
        except (RuntimeError, OSError) as wrong:
            say(False, name + ", a picture", str(wrong))


parser = argparse.ArgumentParser()
parser.add_argument("--sheaf", required=True)
parser.add_argument("--work", required=True)
args = parser.parse_args()
os.makedirs(args.work, exist_ok=True)
main()
print("%d comparisons, %d failed" % (passed + failed, failed))
