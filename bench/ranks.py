#!/usr/bin/env python3
"""ranks.py - `./run bench ranks`: what it costs to divide a model over ranks on one machine.

One rank with N threads, N ranks of one thread each and, where an MPI is there, N ranks as processes take
the same steps by turns; of each the round with the shortest mean step counts. The result has the same bytes,
which is checked. Where the time goes is what sheaf's own counters say (docs/monitoring.md). "Processor" is the
processor's time of a step, of all ranks together, also what they burn while they wait: a run less one of a single
step, the least of the rounds. On a machine with other work it says more than the clock. Needs python3 alone.

  --models mini,tiny1b-4l   --dtypes float32,bfloat16   --threads N (2)   --steps N   --rounds N (3)
  --transports threads,mpi
"""
import argparse
import hashlib
import json
import os
import resource
import shutil
import struct
import subprocess
import sys

VOCAB = {"mini": 8192, "tiny1b-4l": 32000}
STEPS = {"mini": 8, "tiny1b-4l": 4}
AIMS = {"threads": 5, "mpi": 10}  # percent slower than one rank


def make_data(path, rows, length, vocab):
    """Token ids as a safetensors file: every position is learned."""
    state, ids = 1, []
    for _ in range(rows * length):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append(3 + (state >> 33) % (vocab - 3))
    blob = struct.pack("<%di" % len(ids), *ids)
    shape, size = [rows, length], len(blob)
    head = {name: {"dtype": "I32", "shape": shape, "data_offsets": [i * size, (i + 1) * size]}
            for i, name in enumerate(["input_ids", "labels"])}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + blob + blob)


def processor():
    """Seconds of it that this program's children have taken so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(sheaf, work, model, dtype, way, args, steps):
    """Mean seconds of the steps after the first, the answer, a hash of the adapter, and seconds of the processor."""
    transport, ranks = way
    out = os.path.join(work, "ranks-out")
    shutil.rmtree(out, ignore_errors=True)
    command = [sheaf, "train", "--model", f"{work}/ranks-{model}-{dtype}", "--data",
               f"{work}/ranks-{model}.safetensors", "--out", out, "--tp", str(ranks), "--threads",
               str(args.threads), "--transport", transport, "--dtype", dtype, "--method", "lora",
               "--lora-rank", "8", "--lora-targets", "all-linear", "--steps", str(steps), "--micro-batch", "2",
               "--accumulate", "2", "--seq", "256", "--no-shuffle", "--json"]
    env = dict(os.environ)
    if os.getuid() == 0:  # in a container
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    before = processor()
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(done.stderr)
    used = processor() - before
    if steps == 1:
        return 0, [], "", used
    with open(os.path.join(out, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file][1:]
    seconds = [line["tokens"] / line["tokens_per_s"] for line in lines]
    with open(os.path.join(out, "adapter", "adapter_model.safetensors"), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return sum(seconds) / len(seconds), lines, digest, used


def parts(lines):
    """Milliseconds of a step: the mean over ranks and steps."""
    every = [rank for line in lines for rank in line["ranks"]]
    return {key: 1e3 * sum(rank[key] for rank in every) / len(every)
            for key in ("compute", "wait", "exchange", "read")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--work", default="build/bench")
    parser.add_argument("--models", default="mini,tiny1b-4l")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--transports", default="threads,mpi")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    if "mpi" in args.transports and shutil.which("mpirun") is None:
        print("no mpirun: threads alone")
        args.transports = "threads"
    print(f"{args.threads} threads; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| model | ranks | ms a step | to one rank | aim | computing | waiting | exchanging | processor | to one rank |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    for model in args.models.split(","):
        data = f"{args.work}/ranks-{model}.safetensors"
        if not os.path.exists(data):
            make_data(data, 64, 256, VOCAB[model])
        for dtype in args.dtypes.split(","):
            folder = f"{args.work}/ranks-{model}-{dtype}"
            if not os.path.isdir(folder):
                subprocess.run([args.sheaf, "init", model, folder, "--dtype", dtype, "--seed", "1"],
                               check=True, capture_output=True)
            ways = [("threads", 1)] + [(name, args.threads) for name in args.transports.split(",")]
            best, digests, burnt, begun = {}, set(), {}, {}
            steps = args.steps or STEPS[model]
            for _ in range(args.rounds):
                for way in ways:
                    begun[way] = min(begun.get(way, 1e9), run(args.sheaf, args.work, model, dtype, way, args, 1)[3])
                    seconds, lines, digest, used = run(args.sheaf, args.work, model, dtype, way, args, steps)
                    burnt[way] = min(burnt.get(way, 1e9), used)
                    digests.add(digest)
                    if way not in best or seconds < best[way][0]:
                        best[way] = (seconds, lines)
            if len(digests) != 1:
                sys.exit(f"{model}, {dtype}: the adapters differ")
            for way in ways:
                seconds, lines = best[way]
                spent = parts(lines)
                name = f"1 x {args.threads} threads" if way[1] == 1 else f"{way[1]}, {way[0]}"
                more = "" if way[1] == 1 else f"{100 * (seconds / best[ways[0]][0] - 1):+.1f} %"
                aim = "" if way[1] == 1 else f"{AIMS[way[0]]} %"
                used = (burnt[way] - begun[way]) / (steps - 1)
                alone = (burnt[ways[0]] - begun[ways[0]]) / (steps - 1)
                other = "" if way[1] == 1 else f"{100 * (used / alone - 1):+.1f} %"
                print(f"| {model}, {dtype} | {name} | {1e3 * seconds:.1f} | {more} | {aim} | "
                      f"{spent['compute']:.1f} | {spent['wait']:.1f} | {spent['exchange']:.1f} | "
                      f"{1e3 * used:.0f} | {other} |", flush=True)


if __name__ == "__main__":
    main()
