"""rival_args.py - the arguments of the programs that take LoRA steps with PyTorch, and the threads and the seed they begin with."""
import argparse

import torch


def read(*paths, **choices):
    """The arguments; each of `paths` is a flag that names a place, of `choices` one with its values, the first by default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], required=True)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=2)
    for name in paths:
        parser.add_argument("--" + name)
    for name, values in choices.items():
        parser.add_argument("--" + name, choices=values, default=values[0])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    return args
