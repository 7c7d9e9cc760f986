"""rival_decode.py - the decoding of decode.py with transformers; prints one JSON object.

Tokens are taken greedily after prompts of the same ids. A run of --short new tokens is taken
from one of --long, so that reading the prompt does not count.
"""
import argparse
import json
import sys
import time

import torch
import transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--short", type=int, required=True)
    parser.add_argument("--long", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.eval()
    prompts = torch.tensor([json.loads(line)["tokens"] for line in open(args.prompts)])

    def seconds(count):
        clocks = (time.perf_counter(), time.process_time())
        with torch.no_grad():
            ids = model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=False, max_new_tokens=count,
                                 min_new_tokens=count, pad_token_id=0)
        return time.perf_counter() - clocks[0], time.process_time() - clocks[1], ids

    seconds(2)
    short, long = [], []
    for _ in range(args.rounds):
        short.append(seconds(args.short))
        long.append(seconds(args.long))
    json.dump({"short": [r[:2] for r in short], "long": [r[:2] for r in long],
               "tokens": long[0][2][0, prompts.shape[1]:].tolist(),
               "version": "transformers %s, torch %s" % (transformers.__version__, torch.__version__)}, sys.stdout)
    print()


main()
