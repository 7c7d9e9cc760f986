"""real.py - `./run bench real`: a published model, SmolLM2-135M-Instruct, beside transformers, PEFT and llama.cpp.

The GGUF file of `./run demo-real`, converted to Hugging Face's form. Training: two sets of records, two rates, the same
rows, order, start and AdamW; losses step by step, and of held-out records, by sheaf in float32 of both adapters. Answers:
greedy ones to the questions of questions.jsonl. Speed: a few steps by turns, so that a busy machine troubles both.
"""
import argparse
import json
import os
import shutil
import statistics
import sys

sys.dont_write_bytecode = True
from compare import HERE, machine
from vision_common import run

SETS = {"pirate": ("demo/pirate/train.jsonl", "demo/pirate/heldout.jsonl"),
        "numbers": ("adapter-train.jsonl", "adapter-heldout.jsonl")}  # demo/numbers makes these
QUESTIONS = os.path.join(HERE, "questions.jsonl")
RANK, BATCH = 8, 2


def at(args, *names):
    return os.path.join(args.work, *names)


def records(args, name):
    return [path if path.startswith("demo/") else at(args, path) for path in SETS[name]]


# ---- training ----

def by_sheaf(args, name, rate, dtype, steps, *words):
    out = at(args, "out")
    shutil.rmtree(out, ignore_errors=True)
    _, took, peak = run(args, [
        args.sheaf, "train", at(args, "bfloat16"), records(args, name)[0], "--out", out, "--adapter", at(args, "start"), "--micro-batch",
        str(BATCH), "--steps", str(steps), "--dtype", dtype, "--threads", str(args.threads), "--no-shuffle", "--lr", str(rate),
        "--schedule", "constant", *words])
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return {"losses": [line["loss"] for line in lines], "seconds": [line["tokens"] / line["tokens_per_s"] for line in lines],
            "tokens": [line["tokens"] for line in lines], "took": took, "peak": peak, "adapter": os.path.join(out, "adapter")}


def by_peft(args, name, rate, dtype, steps, variant="default"):
    out = at(args, "out-peft")
    text, _, peak = run(args, [
        sys.executable, os.path.join(HERE, "rival_real.py"), "--model", at(args, "bfloat16"), "--data", records(args, name)[0], "--start",
        at(args, "start"), "--out", out, "--rank", str(RANK), "--micro-batch", str(BATCH), "--steps", str(steps), "--dtype", dtype, "--lr",
        str(rate), "--threads", str(args.threads), "--variant", variant], args.threads)
    told = json.loads(text.splitlines()[-1])
    seconds = told["step_processor_seconds" if args.clock == "processor" else "step_seconds"]
    return {"losses": told["losses"], "seconds": seconds, "peak": peak, "adapter": out, "versions": told["versions"]}


def held_out(args, name, adapter):
    return json.loads(run(args, [args.sheaf, "eval", at(args, "bfloat16"), records(args, name)[1], "--adapter", adapter, "--dtype", "float32",
                                 "--threads", str(args.threads), "--json"])[0])


def apart(ours, theirs):
    return max(abs(a - b) for a, b in zip(ours["losses"], theirs["losses"]))


def show(name, got, exact, steps):
    off = [a / b - 1 for a, b in zip(got["losses"], exact["losses"])]
    print("  %-24s %s   held out %.4f, %4.1f %%   from float32 %+.2f %% (mean), %.2f %% (size)"
          % (name, " ".join("%7.4f" % got["losses"][i - 1] for i in steps), got["held_out"]["loss"], 100 * got["held_out"]["accuracy"],
             100 * statistics.mean(off), 100 * statistics.mean(map(abs, off))), flush=True)


def compare_rounding(args, name, steps):
    """How much bfloat16 leaves of the adapters that sheaf exported on its way in float32."""
    adapters = [at(args, "out", "exports", "step-%08d" % step) for step in steps]
    told, _, _ = run(args, [sys.executable, os.path.join(HERE, "rival_rounding.py"), at(args, "bfloat16"), records(args, name)[1], *adapters],
                     args.threads)
    results = [json.loads(line) for line in told.splitlines()]
    for step, got in zip(steps, results):
        print("  adapter of step %d: held-out loss %.4f in float32, by PEFT in bfloat16 %.4f, with one rounding %.4f; of its outputs "
              "%.0f %% are left, with one rounding %.0f %%; %.0f %% of sums stay as they were"
              % (step, *got["losses"], *(100 * share for share in got["left"])), flush=True)
    return results


def compare_training(args, name, rate):
    tenth = max(1, args.steps // 10)
    steps = [1, *range(2 * tenth, 10 * tenth + 1, 2 * tenth)]
    print("\n%s, rate %g: losses of steps %s, loss and accuracy of held-out records" % (name, rate, str(steps)[1:-1]), flush=True)
    runs = {}

    def take(label, program, dtype, *variant):
        got = program(args, name, rate, dtype, args.steps, *variant)
        got["held_out"] = held_out(args, name, got["adapter"])
        runs[label] = got
        show(label, got, runs["PEFT, float32"], steps)

    take("PEFT, float32", by_peft, "float32")
    take("sheaf, float32", by_sheaf, "float32", "--export-every", str(tenth))
    print("  float32: losses differ by at most %.1e" % apart(runs["sheaf, float32"], runs["PEFT, float32"]), flush=True)
    rounding = compare_rounding(args, name, [tenth, 3 * tenth, 10 * tenth])
    take("PEFT, bfloat16", by_peft, "bfloat16")
    take("sheaf, bfloat16", by_sheaf, "bfloat16")
    for variant in filter(None, args.variants.split(",")):
        take("PEFT, " + variant, by_peft, "bfloat16", variant)
    return {"set": name, "rate": rate, "runs": runs, "rounding": rounding}


# ---- answers ----

def answers_of_sheaf(args, model):
    told, _, _ = run(args, [args.sheaf, "generate", model, "--data", QUESTIONS, "--greedy", "--max-new", str(args.new), "--logprobs", "2",
                            "--dtype", "float32", "--threads", str(args.threads), "--json"])
    return [{"tokens": one["tokens"], "best": [[(b["token"], b["logprob"]) for b in p["best"]] for p in one["logprobs"]]}
            for one in json.loads(told)["results"]]


def answers_of_rival(args, model, questions):
    told, _, _ = run(args, [sys.executable, os.path.join(HERE, "rival_answers.py"), model, questions, str(args.new), str(args.threads)],
                     args.threads)
    return [json.loads(line) for line in told.splitlines() if line.startswith('{"prompt"')]


def compare_answers(name, ours, theirs):
    """Where two programs part, and how far the two tokens' logits lie apart there, in either."""
    parted, farthest = [], 0.0
    for number, (a, b) in enumerate(zip(ours, theirs), 1):
        at_token = next((i for i, (x, y) in enumerate(zip(a["tokens"], b["tokens"])) if x != y), None)
        for x, y in list(zip(a["best"], b["best"]))[:None if at_token is None else at_token + 1]:
            both = dict(y)
            farthest = max([farthest, *(abs(value - both[token]) for token, value in x if token in both)])
        if at_token is not None:
            margins = [one["best"][at_token][0][1] - one["best"][at_token][1][1] for one in (a, b)]
            parted.append((number, at_token + 1, *margins))
    print("  %-52s %d of %d the same; log-probabilities at most %.1e apart" % (name, len(ours) - len(parted), len(ours), farthest))
    for place in parted:
        print("    question %d parts at token %d, where the two best logits are %.4f apart, in the other program %.4f" % place)
    return {"what": name, "same": len(ours) - len(parted), "farthest": farthest, "parted": parted}


def all_answers(args):
    print("\ngreedy answers of at most %d tokens to the questions of bench/questions.jsonl, sheaf in float32" % args.new, flush=True)
    folder = at(args, "float32")
    by_transformers = answers_of_rival(args, folder, QUESTIONS)
    prompts = at(args, "prompts.jsonl")
    with open(prompts, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": one["prompt"]}) + "\n" for one in by_transformers)
    ours, converted = answers_of_sheaf(args, args.gguf), answers_of_sheaf(args, folder)
    rivals = {"the converted model, by transformers": by_transformers, "the converted model, by sheaf": converted,
              "converted to GGUF in float32, by llama.cpp": answers_of_rival(args, at(args, "float32.gguf"), prompts),
              "the GGUF file as it is, by llama.cpp": answers_of_rival(args, args.gguf, prompts)}
    return [compare_answers(name, ours, theirs) for name, theirs in rivals.items()]


# ---- speed ----

def compare_speed(args, dtype):
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(by_sheaf(args, "pirate", 1e-4, dtype, args.speed_steps))
        if args.clock == "processor":  # less a run of one step, which loads and writes as much
            others = args.speed_steps - 1
            ours[-1]["seconds"] = [(ours[-1]["took"] - by_sheaf(args, "pirate", 1e-4, dtype, 1)["took"]) / others] * args.speed_steps
        theirs.append(by_peft(args, "pirate", 1e-4, dtype, args.speed_steps))
    ratios = [b / a for x, y in zip(ours, theirs) for a, b in list(zip(x["seconds"], y["seconds"]))[1:]]
    tokens = sum(ours[0]["tokens"][1:])
    speeds = [tokens / min(sum(r["seconds"][1:]) for r in runs) for runs in (ours, theirs)]
    peaks = [max(r["peak"] for r in runs) / 1e6 for runs in (ours, theirs)]
    print("  %s: PEFT takes %.2f times as long for the same step (median); best rounds: sheaf %.0f, PEFT %.0f tokens/s; peak memory %.0f of %.0f "
          "MB = %.2f" % (dtype, statistics.median(ratios), *speeds, *peaks, peaks[0] / peaks[1]), flush=True)
    return {"dtype": dtype, "sheaf": ours, "PEFT": theirs}


def prepare(args):
    for folder in ("bfloat16", "float32"):
        if not os.path.exists(at(args, folder)):
            run(args, [args.sheaf, "convert", args.gguf, at(args, folder), "--to", "hf", "--dtype", folder])
    if not os.path.exists(at(args, "float32.gguf")):
        run(args, [args.sheaf, "convert", at(args, "float32"), at(args, "float32.gguf"), "--to", "gguf"])
    run(args, ["awk", "-v", "out=" + args.work, "-v", "train=200", "-v", "held=16", "-f", "demo/numbers/make_numbers.awk"])
    if not os.path.exists(at(args, "start")):
        by_peft(args, "pirate", 1e-4, "float32", 1)  # makes the adapter that all begin with


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", default="build/bench/real")
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--gguf", default="build/demo-real/smollm2.gguf")
    parser.add_argument("--only", choices=["training", "answers", "speed"])
    parser.add_argument("--sets", default="pirate,numbers")
    parser.add_argument("--rates", default="1e-4,1e-3")
    parser.add_argument("--variants", default="once", help="of PEFT's rounding, beside its own: rival_real.py lists them")
    parser.add_argument("--steps", type=int, default=50, help="a multiple of 10")
    parser.add_argument("--new", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=3, help="of speed")
    parser.add_argument("--speed-steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall",
                        help="of speed; processor: seconds of processor time, for busy machines; with --threads 1")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    print("machine: " + machine(), flush=True)
    prepare(args)
    results = {"machine": machine()}
    if args.only in (None, "training"):
        cells = [(name, float(rate)) for name in args.sets.split(",") for rate in args.rates.split(",")]
        results["training"] = [compare_training(args, *cell) for cell in cells]
    if args.only in (None, "answers"):
        results["answers"] = all_answers(args)
    if args.only in (None, "speed"):
        print("\nspeed: LoRA of rank %d on all linears, %d records a step, %d threads" % (RANK, BATCH, args.threads), flush=True)
        results["speed"] = [compare_speed(args, dtype) for dtype in ("float32", "bfloat16")]
    path = at(args, "results.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(results, out, indent=1)
    print("\nevery run: " + path)


if __name__ == "__main__":
    main()
