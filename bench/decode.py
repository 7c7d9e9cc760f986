"""decode.py - tokens a second of sheaf beside transformers and llama.cpp, and beside this machine's memory.

A step at batch 1 has to read every weight but the embedding's, and the cache: tokens a second times
these bytes is the bandwidth that decoding reaches, and memory_bench measures what the machine has.
Runs are interleaved; a run of --short new tokens is taken from one of --long. All times are given
by the clock on the wall and by processor time, which is of use on a busy machine (there take
--threads 1). Greedy tokens of the rivals are compared with sheaf's: a random model's largest
logits lie close together, so bfloat16 sums in another order may part after some tokens.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time

from compare import HERE, machine, quiet_environment


def config(model):
    with open(os.path.join(model, "config.json")) as file:
        return json.load(file)


def bytes_read(model, batch, length):
    """Of one step in bfloat16: weights without the embedding table, and keys and values of `length` positions."""
    c = config(model)
    width, heads, kv, layers = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["num_hidden_layers"]
    head = c.get("head_dim") or width // heads
    layer = width * head * (2 * heads + 2 * kv) + 3 * width * c["intermediate_size"] + 2 * width
    return 2 * (layers * layer + width * (c["vocab_size"] + 1) + batch * length * layers * 2 * kv * head)


def memory(args):
    """What the machine reads, in GB/s: on the wall and by processor time."""
    line = subprocess.run([args.memory, str(args.threads)], check=True, capture_output=True).stdout.decode()
    return [float(x) for x in re.findall(r"[0-9.]+", line)[:2]]


def write_prompts(path, batch, length, vocab):
    with open(path, "w") as file:
        for row in range(batch):
            ids = [3 + (row * 3701 + i * 1117) % (vocab - 3) for i in range(length)]
            file.write(json.dumps({"tokens": ids}) + "\n")


def sheaf_run(args, model, prompts, count, *more):
    """(wall, processor seconds, resident bytes, answers) of `sheaf generate`, start and loading included."""
    command = [args.sheaf, "generate", "--model", model, "--prompts", prompts, "--max-new", str(count), "--greedy", "--batch", "64",
               "--dtype", "bfloat16", "--threads", str(args.threads), "--json", *more]
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=quiet_environment())
    out = child.stdout.read()
    error = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit("decode: %s\n%s" % (" ".join(command), error.decode()[-2000:]))
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, [json.loads(line) for line in out.splitlines()]


def tokens_of(answers):
    first = answers[0]
    while "tokens" not in first:
        first = (first.get("answers") or first.get("results"))[0]
    return first["tokens"]


def sheaf(args, model, prompts, *more):
    short, long = [], []
    for _ in range(args.rounds):
        short.append(sheaf_run(args, model, prompts, args.short, *more))
        long.append(sheaf_run(args, model, prompts, args.long, *more))
    steps = args.long - args.short
    return {"wall": (min(r[0] for r in long) - min(r[0] for r in short)) / steps,
            "processor": (min(r[1] for r in long) - min(r[1] for r in short)) / steps,
            "tokens": tokens_of(long[0][3]), "resident": max(r[2] for r in long)}


def rival(args, program, model, prompts, *more):
    env = quiet_environment()
    env["OMP_NUM_THREADS"] = str(args.threads)
    command = [sys.executable, os.path.join(HERE, program), "--model", model, "--prompts", prompts, "--short", str(args.short), "--long",
               str(args.long), "--rounds", str(args.rounds), "--threads", str(args.threads), *more]
    done = subprocess.run(command, capture_output=True, env=env)
    if done.returncode != 0:
        print("  %s could not run: %s" % (program, done.stderr.decode().strip().splitlines()[-1][:200]), flush=True)
        return None
    return json.loads(done.stdout.decode().splitlines()[-1])


def show(args, name, batch, r, need, bandwidth, tokens):
    if min(r["wall"], r["processor"]) <= 0:
        print("  %-26s the new tokens are lost in the noise of the prompts: more --rounds, or a larger --long" % name, flush=True)
        return
    same, processor = 0, r["processor"] / args.threads
    while same < len(tokens) and tokens[same] == r["tokens"][same]:
        same += 1
    print("  %-26s %8.1f tokens/s %8.1f by processor time   %5.1f GB/s = %3.0f %% of memory's (%.0f %%)   tokens as sheaf's: %d of %d"
          % (name, batch / r["wall"], batch / processor, need / r["wall"] * 1e-9, need / r["wall"] * 1e-7 / bandwidth[0],
             need / processor * 1e-7 / bandwidth[1], same, len(tokens)), flush=True)


def compare_batch(args, model, batch, bandwidth):
    prompts = os.path.join(args.work, "decode-%d.jsonl" % batch)
    write_prompts(prompts, batch, args.prompt, config(model)["vocab_size"])
    need = bytes_read(model, batch, args.prompt + (args.short + args.long) // 2)
    print("batch %d, %d new tokens after %d: %.0f MB to read a step" % (batch, args.long, args.prompt, need * 1e-6), flush=True)
    ours = sheaf(args, model, prompts)
    show(args, "sheaf", batch, ours, need, bandwidth, ours["tokens"])
    two = tokens_of(sheaf_run(args, model, prompts, args.long, "--tp", "2")[3])
    print("  at 2 ranks the same tokens: %s; resident %.0f MB" % (two == ours["tokens"], ours["resident"] * 1e-6))
    rivals = [("transformers, bfloat16", "rival_decode.py", [])]
    if not args.no_llamacpp:
        rivals += [("llama.cpp, " + t, "rival_llamacpp.py", ["--dtype", t, "--gguf", os.path.join(args.work, "decode-%s.gguf" % t)])
                   for t in ("bfloat16", "float16")]
    for name, program, more in rivals:
        r = rival(args, program, model, prompts, *more)
        if r:
            show(args, name, batch, r, need, bandwidth, ours["tokens"])
    return two == ours["tokens"]


def eval_seconds(args, model, rows):
    """Processor time of `sheaf eval` on rows of 512 tokens."""
    data = os.path.join(args.work, "decode-rows-%d.safetensors" % rows)
    subprocess.run([sys.executable, os.path.join(HERE, "make_data.py"), data, str(rows), "512", str(config(model)["vocab_size"])], check=True)
    child = subprocess.Popen([args.sheaf, "eval", "--model", model, "--data", data, "--dtype", "bfloat16", "--threads", str(args.threads),
                              "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=quiet_environment())
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit("decode: sheaf eval failed")
    return usage.ru_utime + usage.ru_stime


def prompt_rate(args, model):
    """Prompts are read without logits, but for their last position; an evaluation computes them all."""
    prompts = [os.path.join(args.work, "decode-prompts-%d.jsonl" % rows) for rows in (2, 8)]
    took = []
    for path, rows in zip(prompts, (2, 8)):
        write_prompts(path, rows, 512, config(model)["vocab_size"])
        took.append((min(sheaf_run(args, model, path, 1)[1] for _ in range(args.rounds)),
                     min(eval_seconds(args, model, rows) for _ in range(args.rounds))))
    rates = [6 * 512 * args.threads / (took[1][i] - took[0][i]) for i in (0, 1)]
    print("\nby processor time: prompts of 512 tokens are read at %.0f tokens/s, forward passes with every logit run at %.0f" % tuple(rates))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", default="build/bench")
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--memory", default="build/bench/memory_bench")
    parser.add_argument("--model", default="tiny1b-4l")
    parser.add_argument("--batches", default="1,8,32", help="empty: only how fast prompts are read")
    parser.add_argument("--prompt", type=int, default=8)
    parser.add_argument("--short", type=int, default=1)
    parser.add_argument("--long", type=int, default=33)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-llamacpp", action="store_true")
    args = parser.parse_args()

    print("machine: " + machine())
    model = os.path.join(args.work, args.model + "-bfloat16")
    equal = True
    for batch in (int(b) for b in args.batches.split(",") if b):
        bandwidth = memory(args)
        print("\nmemory read by %d threads: %.1f GB/s, %.1f by processor time" % (args.threads, *bandwidth))
        equal = compare_batch(args, model, batch, bandwidth) and equal
    prompt_rate(args, model)
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
