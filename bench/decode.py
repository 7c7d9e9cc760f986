"""decode.py - tokens a second of sheaf beside transformers and llama.cpp, and beside this machine's memory.

A step at batch 1 has to read every weight but the embedding's, and the cache: tokens a second times
these bytes is the bandwidth that decoding reaches, and memory_bench measures what the machine has. They are counted with 16
bits an element for all programs; sheaf holds weights in 12 up to batch 4, so it may have more than 100 % of memory's.
Programs take turns, round by round, as what memory gives changes by half within
minutes on a shared machine: a share of it is of what it gave just before and after, of the middle
round. The least run of --short new tokens is taken from the least of --long. All times are given
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


def sheaf(args, model, prompts):
    """One round: [[wall, processor]] of a short and of a long run, tokens, resident bytes."""
    short = sheaf_run(args, model, prompts, args.short)
    long = sheaf_run(args, model, prompts, args.long)
    return {"short": [short[:2]], "long": [long[:2]], "tokens": tokens_of(long[3]), "resident": long[2]}


def rival(args, model, prompts, program, *more):
    """The same of another program, or None if it could not run."""
    env = quiet_environment()
    env["OMP_NUM_THREADS"] = str(args.threads)
    command = [sys.executable, os.path.join(HERE, program), "--model", model, "--prompts", prompts, "--short", str(args.short), "--long",
               str(args.long), "--rounds", "1", "--threads", str(args.threads), *more]
    done = subprocess.run(command, capture_output=True, env=env)
    if done.returncode != 0:
        print("  %s could not run: %s" % (program, done.stderr.decode().strip().splitlines()[-1][:200]), flush=True)
        return None
    return json.loads(done.stdout.decode().splitlines()[-1])


def seconds_a_step(args, rounds, clock):
    """Of the least short and the least long run there were."""
    least = [min(run[clock] for r in rounds for run in r[which]) for which in ("short", "long")]
    return (least[1] - least[0]) / (args.long - args.short)


def share_of_memory(args, rounds, need, clock):
    """Percent of what memory gave just before and after: the middle round."""
    start = min(run[clock] for r in rounds for run in r["short"])
    divide = args.threads if clock else 1
    shares = sorted(need * (args.long - args.short) / (r["long"][0][clock] - start) * divide * 1e-7 / r["memory"][clock] for r in rounds)
    return shares[len(shares) // 2]


def show(args, name, batch, rounds, need, tokens):
    wall, processor = seconds_a_step(args, rounds, 0), seconds_a_step(args, rounds, 1) / args.threads
    if min(wall, processor) <= 0:
        print("  %-26s the new tokens are lost in the noise of the prompts: more --rounds, or a larger --long" % name, flush=True)
        return
    same = 0
    while same < len(tokens) and tokens[same] == rounds[0]["tokens"][same]:
        same += 1
    print("  %-26s %8.1f tokens/s %8.1f by processor time   %5.1f GB/s = %3.0f %% of memory's (%.0f %%)   tokens as sheaf's: %d of %d"
          % (name, batch / wall, batch / processor, need / wall * 1e-9, share_of_memory(args, rounds, need, 0),
             share_of_memory(args, rounds, need, 1), same, len(tokens)), flush=True)


def compare_batch(args, model, batch):
    prompts = os.path.join(args.work, "decode-%d.jsonl" % batch)
    write_prompts(prompts, batch, args.prompt, config(model)["vocab_size"])
    need = bytes_read(model, batch, args.prompt + (args.short + args.long) // 2)
    print("\nbatch %d, %d new tokens after %d: %.0f MB to read a step" % (batch, args.long, args.prompt, need * 1e-6), flush=True)
    programs = {"sheaf": lambda: sheaf(args, model, prompts),
                "transformers, bfloat16": lambda: rival(args, model, prompts, "rival_decode.py")}
    for t in () if args.no_llamacpp else ("bfloat16", "float16"):
        programs["llama.cpp, " + t] = lambda t=t: rival(args, model, prompts, "rival_llamacpp.py", "--dtype", t, "--gguf",
                                                        os.path.join(args.work, "decode-%s.gguf" % t))
    found, read = {}, [memory(args)]
    for _ in range(args.rounds):
        for name, run in programs.items():
            result = run()
            read.append(memory(args))
            if result is not None:
                result["memory"] = [(a + b) / 2 for a, b in zip(*read[-2:])]
                found.setdefault(name, []).append(result)
    print("  memory read by %d threads: %.1f to %.1f GB/s" % (args.threads, min(r[0] for r in read), max(r[0] for r in read)))
    ours = found["sheaf"]
    for name, rounds in found.items():
        show(args, name, batch, rounds, need, ours[0]["tokens"])
    two = tokens_of(sheaf_run(args, model, prompts, args.long, "--tp", "2")[3])
    print("  at 2 ranks the same tokens: %s; resident %.0f MB" % (two == ours[0]["tokens"], max(r["resident"] for r in ours) * 1e-6))
    return two == ours[0]["tokens"]


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
        equal = compare_batch(args, model, batch) and equal
    prompt_rate(args, model)
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
