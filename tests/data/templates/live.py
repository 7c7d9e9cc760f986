"""live.py - published chat templates on random conversations: `sheaf render` against transformers.

    python3 tests/data/templates/live.py --sheaf build/src/cli/sheaf --work DIR

Each named program is stored with a tokenizer, and, by its name, asked for without being stored, those that write a date on days that are given. Prints "ok - NAME" or "not ok - NAME".
"""
import argparse, glob, json, os, random, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from record import Today, programs, render

parser = argparse.ArgumentParser()
parser.add_argument("--sheaf", required=True)
parser.add_argument("--work", required=True)
parser.add_argument("--count", type=int, default=300)
parser.add_argument("--programs", default=programs, help="folder of other programs with the names of these")
args = parser.parse_args()
os.makedirs(args.work, exist_ok=True)
rng = random.Random(7)
words = ["a", "Hi there", "\n", " ", "\t", "\u00a0", "\u3000", "é", "你好", "\u200b", "👩\u200d👩", "<|im_end|>", "</s>", "[/INST]",
         "<think>", "</think>", "<tool_response>", "</tool_response>", "{{ x }}", "{% if %}", "\x00", "\x1c", "\x85", "'", '"', "\\n", "<<SYS>>", "<|eot_id|>",
         "/think", "/no_think", "/system_override", "/system_over"]
dates = ["2024-07-26", "2026-05-01", "2023-12-31", "1999-02-09"]


def conversation():
    roles = ["system"] * (rng.random() < 0.4)
    if rng.random() < 0.8:
        roles += [("user", "assistant")[i % 2] for i in range(rng.randint(1, 6))]
    else:
        roles += [rng.choice(["system", "user", "assistant"]) for _ in range(rng.randint(1, 4))]
    return [{"role": r, "content": "".join(rng.choice(words) for _ in range(rng.choice([0, 1, 2, 5, 9])))} for r in roles]


def by_sheaf(folder, name, records, prompt, date):
    path = os.path.join(args.work, "records.json")
    out = []
    with open(path, "w") as f:
        f.write("".join(json.dumps({"messages": c}) + "\n" for c in records))
    command = [args.sheaf, "render", "--tokenizer", folder, path] + (["--template", name] if name else []) + (["--date", date] if date else [])
    run = subprocess.run(command + (["--generation-prompt"] if prompt else []), capture_output=True, text=True)
    return [json.loads(line) for line in run.stdout.split("\n") if line], run.stderr


def check(name, stored):
    path = f"{args.programs}/{name}.jinja"
    program = open(path if os.path.exists(path) else f"{own}/{name}.jinja", encoding="utf-8", newline="").read()
    folder = os.path.join(args.work, "tokenizer")
    os.makedirs(folder, exist_ok=True)
    config = {"bos_token": "<s>", "eos_token": "</s>"} | ({"chat_template": program} if stored else {})
    json.dump(config, open(folder + "/tokenizer_config.json", "w"))
    for prompt in (False, True):
        records = [c for c in (conversation() for _ in range(args.count)) if (c[-1]["role"] != "assistant") == prompt]
        date, variables = None, {}
        if "strftime_now" in program or "date_string" in program:
            date = rng.choice(dates + ["01 Januar 2042"] * ("date_string" in program))
            if date in dates:
                Today.day = tuple(int(part) for part in date.split("-"))
            if date not in dates or "strftime_now" not in program:
                variables = {"date_string": Today.now().strftime("%d %b %Y") if date in dates else date}
        want = [render(program, c, "<s>", "</s>", **variables) for c in records]
        got, errors = by_sheaf(folder, None if stored else name, records, prompt, date)
        texts = [w for w in want if w is not None]
        if [g["text"] for g in got] != texts:
            differ = next((i for i, (g, w) in enumerate(zip(got, texts)) if g["text"] != w), min(len(got), len(texts)))
            print(f"not ok - {name}{' stored' * stored}: {len(got)} texts, {len(texts)} of transformers, first other {differ}: "
                  f"{texts[differ : differ + 1]!r} {[g['text'] for g in got[differ : differ + 1]]!r} {errors[:300]!r}")
            return
    print(f"ok - {name}{' stored' * stored}: {args.count} conversations")


own = programs + "/../../../src/inputs/chat/templates"  # some of which nobody published
for path in sorted(glob.glob(own + "/*.jinja")):
    for stored in (True, False):
        check(os.path.basename(path)[:-6], stored)
