"""cog_bench.py - `./run bench vision`: LoRA steps of a CogVLM of middle size, and loading an SAT checkpoint of 4 GB,
beside PyTorch (cog_torch.py, which cog_parity.py holds to SAT's recordings).

Steps: hidden 1024, 4 layers, ViT 512 wide with 4 layers, images of 224 x 224; LoRA of rank 16 on SAT's targets; rows of
320 tokens with one image each. Loading: bfloat16 files of MP 1 into one rank, of MP 4 into four, all in the page cache.
sheaf's time is the whole command, from its start to its end, with the loss of one row of four tokens; PyTorch's is
torch.load() and load_state_dict() alone, without imports.
Runs are interleaved, and the table gives the median; speed of a run: the median of its steps without the first.
--family omnilmm or minicpmv: steps of those instead (vlm_bench.py), with --upstream beside upstream's own classes too.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
import vision_common
import vlm_bench
from compare import machine, row
from vision_common import HERE, judge, rounds, run

WANTED_SPEED = {"float32": 2.0, "bfloat16": 1.5}
LENGTH, ROWS = 320, 8


def path(args, name):
    return os.path.join(args.work, "cogvlm-" + name)


def make(args, target, what, name, *words):
    vision_common.make(args, "cog_model.py", target, what, name, *words)


# ---- steps ----

def make_middle(args, dtype):
    model, data = path(args, dtype), path(args, "data.safetensors")
    make(args, model, "model", "middle", dtype)
    make(args, data, "data", "middle", str(ROWS), str(LENGTH))
    return model, data


def run_sheaf(args, model, data, dtype, batch, slices):
    return vision_common.run_sheaf(args, model, data, dtype, batch, slices, "--lora-targets", "sat-vit")


def run_rival(*words, **more):
    return vision_common.run_rival(words[0], "cog_rival.py", *words[1:], **more)


def compare_steps(args, dtype, batch):
    model, data = make_middle(args, dtype)
    print("\nLoRA step, %s: batch %d x %d, one image each, rank 16, %d threads" % (dtype, batch, LENGTH, args.threads), flush=True)
    adapters = ["base", "float32"] if dtype == "bfloat16" else ["base"]
    quick = max(adapters, key=lambda a: run_rival(args, model, data, dtype, batch, ("labels", a), steps=3)["speed"])
    kinds = {
        "sheaf": lambda: run_sheaf(args, model, data, dtype, batch, 8),
        "sheaf --slices 1": lambda: run_sheaf(args, model, data, dtype, batch, 1),
        "PyTorch": lambda: run_rival(args, model, data, dtype, batch, ("labels", quick)),
        "PyTorch, all logits": lambda: run_rival(args, model, data, dtype, batch, ("all", quick)),
    }
    runs = rounds(args, kinds, dtype)
    judge({kind: statistics.median(r["speed"] for r in got) for kind, got in runs.items()},
          {kind: max(r["peak"] for r in got) for kind, got in runs.items()}, WANTED_SPEED[dtype])
    return {"what": "step", "dtype": dtype, "batch": batch, "adapters": quick, "runs": runs}


# ---- loading ----

def make_large(args):
    one, four, data = path(args, "4gb"), path(args, "4gb-mp4"), path(args, "4gb-data.safetensors")
    make(args, one, "model", "4gb", "bfloat16")
    if not os.path.exists(four):
        run(args, [args.sheaf, "convert", "--to", "sat", "--tp", "4", one, four])
    make(args, data, "ids", "4gb")
    return {1: one, 4: four}, data


def compare_loading(args):
    folders, data = make_large(args)
    results = []
    for ranks, folder in folders.items():
        files = [os.path.join(d, f) for d, _, names in os.walk(folder) for f in names if f.endswith(".pt")]
        print("\nloading %.2f GB, %d part%s into %d rank%s" % (sum(map(os.path.getsize, files)) / 1e9, len(files), "s"[:ranks > 1],
                                                                ranks, "s"[:ranks > 1]), flush=True)
        ours, theirs = [], []
        for _ in range(args.rounds):
            subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
            _, seconds, peak = run(args, [args.sheaf, "eval", "--model", folder, "--data", data, "--tp", str(ranks), "--dtype", "bfloat16",
                                          "--threads", str(args.threads)])
            ours.append({"seconds": seconds, "peak": peak})
            theirs.append(json.loads(run(args, [sys.executable, os.path.join(HERE, "cog_load.py"), folder, str(ranks)])[0].splitlines()[-1]))
        mine, load, whole = (statistics.median(r[key] for r in got) for got, key in ((ours, "seconds"), (theirs, "torch_load"), (theirs, "seconds")))
        print("  sheaf eval %.2f s, peak %.0f MB; torch.load %.2f s, with load_state_dict %.2f s, peak %.0f MB"
              % (mine, max(r["peak"] for r in ours) / 1e6, load, whole, max(r["peak"] for r in theirs) / 1e6))
        row("time, of torch.load + load_state_dict", "%.2f" % (mine / whole), None, True)
        row("time, of torch.load alone", "%.2f" % (mine / load), None, True)
        results.append({"what": "load", "ranks": ranks, "sheaf": ours, "torch": theirs})
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", default="build/bench")
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--family", choices=["cogvlm", "omnilmm", "minicpmv"], default="cogvlm")
    parser.add_argument("--upstream", metavar="DIR", help="of omnilmm and minicpmv: upstream's code, whose own classes take part: the folder that "
                        "holds omnilmm/ (github.com/OpenBMB/MiniCPM-V), or modeling_minicpmv.py of a published MiniCPM-V 2.6")
    parser.add_argument("--site", metavar="DIR", help="where timm, torchvision and Pillow are, which upstream's code imports, if not beside torch")
    parser.add_argument("--only", choices=["steps", "loading"])
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--batches", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall",
                        help="processor: tokens by seconds of processor time, for busy machines; with --threads 1")
    args = parser.parse_args()
    if args.upstream and args.family == "cogvlm":
        parser.error("--upstream: of CogVLM none is run; give --family omnilmm or minicpmv")
    os.makedirs(args.work, exist_ok=True)
    print("machine: " + machine())
    results = []
    if args.only != "loading":
        for dtype in args.dtypes.split(","):
            for batch in args.batches.split(","):
                compare = compare_steps if args.family == "cogvlm" else vlm_bench.compare_steps
                results.append(compare(args, dtype, int(batch)))
    if args.only != "steps" and args.family == "cogvlm":
        results += compare_loading(args)
    told = os.path.join(args.work, "vision.json")
    with open(told, "w") as out:
        json.dump({"machine": machine(), "results": results}, out, indent=1)
    print("\nevery run: " + told)


main()
