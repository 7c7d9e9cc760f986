"""attention.py - attention of long sequences beside PyTorch's scaled_dot_product_attention.

Forward and backward, causal, one sequence, heads as --heads KEY,GROUP,WIDTH; runs are interleaved and
the best of each counts. With --threads 1 both are measured by processor time, which is of use on a
busy machine, else on the wall. Results differ by the rounding of sums only.
"""
import argparse
import os
import subprocess
import time

import torch

from compare import machine


def clock(threads):
    return time.process_time() if threads == 1 else time.perf_counter()


def torch_seconds(args, length, dtype):
    key, group, width = args.heads
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    q = torch.randn(1, key * group, length, width, dtype=kind, requires_grad=True)
    k, v = (torch.randn(1, key, length, width, dtype=kind, requires_grad=True) for _ in range(2))
    begin = clock(args.threads)
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    middle = clock(args.threads)
    o.backward(torch.ones_like(o))
    return middle - begin, clock(args.threads) - middle


def sheaf_line(args, length, dtype):
    command = [args.bench, "--threads", str(args.threads), "--dtype", dtype, "--sums", args.sums, "--heads", "%d,%d,%d" % tuple(args.heads),
               "--rounds", "2", str(length)]  # torch too is warm after its first
    words = subprocess.run(command, check=True, capture_output=True).stdout.decode().splitlines()[-1].split()
    return float(words[1]) / 1e3, float(words[7]) / 1e3, float(words[13]), float(words[14])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", default=os.path.join("build", "bench", "attention_bench"))
    parser.add_argument("--lengths", default="2048,8192")
    parser.add_argument("--heads", type=lambda s: [int(x) for x in s.split(",")], default=[1, 8, 64])
    parser.add_argument("--sums", choices=["pairs", "tiles"], help="by default what the processor has instructions for")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    args.sums = args.sums or ("tiles" if "amx_bf16" in machine() else "pairs")
    torch.set_num_threads(args.threads)
    print("machine: %s; torch %s; bfloat16 by %s; %d thread(s), seconds %s" % (machine(), torch.__version__, args.sums, args.threads,
                                                                             "of processor time" if args.threads == 1 else "on the wall"))
    for dtype in args.dtypes.split(","):
        for length in (int(n) for n in args.lengths.split(",")):
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(sheaf_line(args, length, dtype))
                theirs.append(torch_seconds(args, length, dtype))
            forward, backward = (min(r[i] for r in ours) for i in (0, 1))
            pairs = length * (length + 1) / 2 * args.heads[0] * args.heads[1] * args.heads[2]
            product = max(r[2] for r in ours)
            print("%s %6d: forward %.3f s, sdpa %.3f s = %.2f; backward %.3f s, sdpa %.3f s = %.2f; %.0f and %.0f %% of a product's "
                  "%.0f GFLOP/s; %.0f MB" % (dtype, length, forward, min(r[0] for r in theirs), min(r[0] for r in theirs) / forward, backward,
                                              min(r[1] for r in theirs), min(r[1] for r in theirs) / backward,
                                              4e-7 * pairs / forward / product, 1e-6 * pairs / backward / product, product, ours[0][3]), flush=True)


if __name__ == "__main__":
    main()
