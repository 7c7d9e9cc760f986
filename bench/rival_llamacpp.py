"""rival_llamacpp.py - the decoding of decode.py with llama.cpp (xllamacpp); prints one JSON object.

The model is written as GGUF first (package gguf), in bfloat16 or float16, with a vocabulary of
made-up words, as only ids go in and out.
"""
import argparse
import importlib.metadata
import json
import os
import sys
import threading
import time

import gguf
import numpy
import torch
from safetensors.torch import load_file

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
            "lm_head.weight": "output.weight"}
    if name in ends:
        return ends[name]
    _, _, layer, rest = name.split(".", 3)
    return "blk.%s.%s.weight" % (layer, NAMES[rest.removesuffix(".weight")])


def interleaved(weight, heads):
    """llama.cpp rotates neighbours where Hugging Face's rows rotate halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(path, model, dtype):
    with open(os.path.join(model, "config.json")) as file:
        c = json.load(file)
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c.get("rope_parameters", {}).get("rope_theta", c.get("rope_theta", 10000.0)))
    w.add_rope_dimension_count(c["head_dim"])
    w.add_vocab_size(c["vocab_size"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if dtype == "bfloat16" else gguf.LlamaFileType.MOSTLY_F16)
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>"] + ["w%d" % i for i in range(3, c["vocab_size"])])
    w.add_token_scores([0.0] * c["vocab_size"])
    w.add_token_types([gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
                      + [gguf.TokenType.NORMAL] * (c["vocab_size"] - 3))
    for name, tensor in load_file(os.path.join(model, "model.safetensors")).items():
        if name.endswith("q_proj.weight"):
            tensor = interleaved(tensor, c["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            tensor = interleaved(tensor, c["num_key_value_heads"])
        if tensor.dim() == 1:
            w.add_tensor(gguf_name(name), tensor.float().numpy())
        elif dtype == "bfloat16":
            w.add_tensor(gguf_name(name), tensor.to(torch.bfloat16).contiguous().view(torch.int16).numpy().view(numpy.uint8),
                         raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(gguf_name(name), tensor.to(torch.float16).contiguous().numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--gguf", required=True, help="file to write, unless it is there")
    parser.add_argument("--dtype", choices=["bfloat16", "float16"], required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--short", type=int, required=True)
    parser.add_argument("--long", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    if not os.path.exists(args.gguf):
        write_gguf(args.gguf + ".new", args.model, args.dtype)
        os.rename(args.gguf + ".new", args.gguf)
    prompts = [json.loads(line)["tokens"] for line in open(args.prompts)]

    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = args.gguf
    room = max(len(prompt) for prompt in prompts) + args.long  # of a sequence; llama.cpp counts in 256
    p.n_ctx = -(-room // 256) * 256 * len(prompts)
    p.n_parallel = len(prompts)
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = args.threads
    p.n_gpu_layers = 0
    p.cache_prompt = False
    p.fit_params = False
    p.verbosity = 0
    server = xllamacpp.Server(p)

    def seconds(count):
        answers = [None] * len(prompts)

        def ask(i):
            answers[i] = server.handle_completions({"prompt": prompts[i], "n_predict": count, "temperature": 0, "top_k": 1,
                                                    "ignore_eos": True, "cache_prompt": False})

        clocks = (time.perf_counter(), time.process_time())
        asking = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        return time.perf_counter() - clocks[0], time.process_time() - clocks[1], answers

    seconds(2)
    short, long = [], []
    for _ in range(args.rounds):
        short.append(seconds(args.short))
        long.append(seconds(args.long))
    answer = long[0][2][0]
    if isinstance(answer, str):
        answer = json.loads(answer)
    tokens = [int(word) for word in answer["choices"][0]["text"].split("w")[1:]]
    if len(tokens) != args.long:
        sys.exit("rival_llamacpp: %d tokens instead of %d: %s" % (len(tokens), args.long, str(answer)[:300]))
    json.dump({"short": [r[:2] for r in short], "long": [r[:2] for r in long],
               "tokens": tokens, "version": "xllamacpp " + importlib.metadata.version("xllamacpp")}, sys.stdout)
    print()


main()
