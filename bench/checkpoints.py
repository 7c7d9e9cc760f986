"""checkpoints.py - merge and reshard beside `cp` of the same bytes and beside PEFT: time and memory.

  bench/checkpoints.py --sheaf build/sheaf --work DIR [--only NAME] [--rounds N]

Rounds are interleaved: cp, sheaf, PEFT, and again. Every time ends when the output is on
disk (sync). Memory is sampled from /proc while the command runs: "resident" with the pages
of files, "own" without them.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# name: config, what is done with it
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
         "tie_word_embeddings": False, "max_position_embeddings": 2048}
MODELS = {
    # 1.9 GB: the size at which PEFT was measured before
    "middle": dict(LLAMA, vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=20,
                   num_attention_heads=32, num_key_value_heads=4),
    "4gb": dict(LLAMA, vocab_size=32000, hidden_size=3072, intermediate_size=8192, num_hidden_layers=18,
                num_attention_heads=24, num_key_value_heads=8),
    # one tensor alone has 2 GB
    "wide": dict(LLAMA, vocab_size=524288, hidden_size=2048, intermediate_size=5632, num_hidden_layers=1,
                 num_attention_heads=32, num_key_value_heads=4),
}
LIMIT_RESIDENT, LIMIT_OWN = 256 << 20, 64 << 20


def run(command, quiet=True):
    """Seconds until the output is on disk, and the largest memory seen: (resident, own)."""
    os.sync()
    peak = [0, 0]
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stop = threading.Event()

    def sample():
        while not stop.is_set():
            try:
                with open("/proc/%d/status" % child.pid) as status:
                    kb = {line.split(":")[0]: int(line.split()[1]) for line in status if line.startswith(("VmRSS", "RssAnon"))}
                peak[0] = max(peak[0], kb.get("VmRSS", 0) * 1024)
                peak[1] = max(peak[1], kb.get("RssAnon", 0) * 1024)
            except (OSError, ValueError):
                return
            time.sleep(0.002)

    watcher = threading.Thread(target=sample)
    watcher.start()
    out, err = child.communicate()
    os.sync()
    seconds = time.perf_counter() - begin
    stop.set()
    watcher.join()
    if child.returncode != 0:
        sys.exit("checkpoints: %s\n%s" % (" ".join(command), err.decode()[-2000:]))
    return {"seconds": seconds, "resident": peak[0], "own": peak[1], "out": out.decode()}


def size_of(path):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files)


def make_model(args, name):
    base = os.path.join(args.work, name)
    if not os.path.exists(os.path.join(base, "config.json")):
        config = os.path.join(args.work, name + ".json")
        with open(config, "w") as f:
            json.dump(MODELS[name], f)
        subprocess.run([args.sheaf, "init", config, base, "--seed", "1", "--dtype", "bfloat16"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return base


def make_adapter(args, name):
    """A random adapter of rank 16 on all linears, in PEFT's form."""
    adapter = os.path.join(args.work, name + "-adapter")
    if not os.path.exists(os.path.join(adapter, "adapter_config.json")):
        subprocess.run([sys.executable, os.path.join(HERE, "make_adapter.py"), os.path.join(args.work, name), adapter], check=True)
    return adapter


def judge(what, value, limit, unit, scale=1.0):
    verdict = "reached" if value <= limit else "NOT reached"
    print("  %-44s %8.2f %-3s %s (<= %.2f)" % (what, value / scale, unit, verdict, limit / scale))


def measure(args, name, title, command, source, rival=None):
    copy, out = os.path.join(args.work, "copy"), os.path.join(args.work, "out")
    times = {"cp": [], "sheaf": [], "rival": []}
    peaks = {"resident": 0, "own": 0, "rival": 0}
    for _ in range(args.rounds):
        for path in (copy, out):
            shutil.rmtree(path, ignore_errors=True)
        subprocess.run(["cat"] + [os.path.join(source, f) for f in os.listdir(source) if os.path.isfile(os.path.join(source, f))],
                       stdout=subprocess.DEVNULL)  # both begin with the source in the page cache
        times["cp"].append(run(["cp", "-r", "--reflink=never", source, copy])["seconds"])
        shutil.rmtree(copy)
        got = run(command + [out])
        times["sheaf"].append(got["seconds"])
        peaks["resident"] = max(peaks["resident"], got["resident"])
        peaks["own"] = max(peaks["own"], got["own"])
        if rival:
            shutil.rmtree(out)
            got = run(rival + [out])
            told = json.loads(got["out"].splitlines()[-1])
            times["rival"].append(got["seconds"] - told["import_seconds"])
            peaks["rival"] = max(peaks["rival"], told["peak"])
    cp, ours = statistics.median(times["cp"]), statistics.median(times["sheaf"])
    print("%s, %s: %.2f GB, median of %d" % (name, title, size_of(source) / 1e9, args.rounds))
    print("  cp + sync %.2f s (%.2f GB/s), sheaf + sync %.2f s" % (cp, size_of(source) / cp / 1e9, ours))
    judge("time, of cp", ours / cp, 1.3, "x")
    judge("resident", peaks["resident"], LIMIT_RESIDENT, "MiB", 1 << 20)
    judge("resident without file pages", peaks["own"], LIMIT_OWN, "MiB", 1 << 20)
    if rival:
        theirs = statistics.median(times["rival"])
        print("  PEFT + sync %.2f s (without imports), peak %.0f MiB: sheaf is %.1f times as fast  %s (>= 8)"
              % (theirs, peaks["rival"] / (1 << 20), theirs / ours, "reached" if theirs / ours >= 8 else "NOT reached"))
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(copy, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--work", default="build/bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(MODELS), action="append")
    parser.add_argument("--no-rival", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    for name in args.only or MODELS:
        base = make_model(args, name)
        adapter = make_adapter(args, name)
        rival = [sys.executable, os.path.join(HERE, "rival_merge.py"), base, adapter]
        measure(args, name, "merge", [args.sheaf, "merge", base, adapter], base,
                None if args.no_rival or name != "middle" else rival)
        parts = os.path.join(args.work, name + "-parts")
        if not os.path.exists(parts):
            run([args.sheaf, "convert", base, parts, "--to", "sheaf", "--slices", "4"])
        measure(args, name, "reshard 4 -> 8 slices", [args.sheaf, "convert", "--to", "sheaf", "--slices", "8", parts], parts)
        measure(args, name, "4 slices -> Hugging Face", [args.sheaf, "convert", "--to", "hf", parts], parts)
        shutil.rmtree(parts)


if __name__ == "__main__":
    main()
