"""vlm_bench.py - `./run bench vision --family omnilmm` (or minicpmv): LoRA steps of an OmniLMM or a MiniCPM-V 2.6 of middle
size beside PyTorch, transformers and PEFT (vlm_torch.py, which vlm_parity.py holds to the recordings).

Hidden 1024, 4 layers, tower 512 wide with 4 blocks, 64 queries a picture; LoRA of rank 16 on the attention of the text
model and a full copy of the resampler, as upstream's scripts do. Rows of 320 tokens: with two pictures of 336 x 336
(OmniLMM), or three of 24 x 24, 18 x 32 and 28 x 20 patches (MiniCPM-V). Runs are interleaved, and the table gives the
median of the rounds and the best step; speed of a run: the median of its steps without the first. Beside upstream the best
of the rounds counts, as in compare.py.

--upstream DIR: upstream's own classes take part (vlm_upstream.py), whose code DIR is a checkout of; speed and memory are then
asked for beside them. The tower is frozen and runs without gradients, as with `--tune_vision false` of upstream's finetune.py;
by finetune_lora.sh it would be trained, and the embedding, with a dropout of 0.05 before LoRA. "upstream, checkpoints"
recomputes layers in the backward pass, as finetune_lora.sh and finetune_ds.sh do.
"""
import os
import statistics
import sys

from compare import best_and_median, row
from vision_common import judge, make, rounds, run_rival, run_sheaf, run_steps

WANTED_SPEED, WANTED_MEMORY = 1.5, 0.6
# Of a mean over 81 or 125 labels of about 10.5: in float32 programs differ by 1e-7 (the mask of padded patches left out is
# 2e-4, a zero bias of q 3e-5), in bfloat16 by 1e-4, as they round at other places. The norm is of the first step, when factors B
# are zero: what differs with the factors A, which each program draws itself, is small beside the resampler's gradients (programs
# differ by 1e-3, in bfloat16 by 3e-3), and a module that gets no gradients shows.
SAME_LOSS, SAME_NORM = {"float32": 2e-6, "bfloat16": 1e-3}, 1e-2
LENGTH, ROWS = 320, 4
ATTENTION = r".*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)"
TARGETS = {"omnilmm": ATTENTION, "minicpmv": r"llm\." + ATTENTION}  # its tower has "layers" too


def upstream_kinds(args, model, data, dtype, batch, adapters):
    """Upstream's class as it is quickest here, and so again with layers recomputed; named by what was quickest."""
    def steps(how, checkpoint="no", count=None):
        attention, factors = how
        return run_steps(args, "vlm_upstream.py", model, data, dtype, batch, count, "--code", args.upstream, *(["--site", args.site] if args.site else []),
                         "--attention", attention, "--adapters", factors, "--checkpoint", checkpoint)
    ways = [(attention, factors) for attention in ("sdpa", "eager") for factors in adapters]
    quick = max(ways, key=lambda how: steps(how, count=3)["best"])
    print("  upstream's class is quickest with %s attention in the text model, factors in %s" % (quick[0], dtype if quick[1] == "base" else quick[1]))
    return quick, {"upstream": lambda: steps(quick), "upstream, checkpoints": lambda: steps(quick, "yes")}


def same_work(runs, dtype):
    """The first loss of every program beside sheaf's, and the norm of its gradients, beyond which they are not the same work."""
    loss, norm = (runs["sheaf"][0][what] for what in ("loss", "norm"))
    for kind, got in runs.items():
        loss_off, norm_off = abs(got[0]["loss"] / loss - 1), abs(got[0]["norm"] / norm - 1)
        print("  first loss of %-24s %.6f, %.1e off sheaf's (at most %.0e); norm of the gradients %.5g, %.1e off (at most %.0e)"
              % (kind, got[0]["loss"], loss_off, SAME_LOSS[dtype], got[0]["norm"], norm_off, SAME_NORM))
        if not (loss_off <= SAME_LOSS[dtype] and norm_off <= SAME_NORM):
            sys.exit("bench: %s: not the same work" % kind)


def judge_upstream(runs, peaks):
    """Speed and memory are asked for beside upstream's class without checkpoints, its quickest form."""
    for kind, asked in (("upstream", True), ("upstream, checkpoints", False)):
        ratios = lambda what: [ours / theirs for ours, theirs in zip(*(best_and_median(runs[name], what) for name in ("sheaf", kind)))]
        (best, median), (step, _), peak = ratios("speed"), ratios("best"), peaks["sheaf"] / peaks[kind]
        row("speed ratio, %s (best, median, steps)" % kind, "%.2f, %.2f, %.2f" % (best, median, step),
            ">= %.1f" % WANTED_SPEED if asked else None, not asked or best >= WANTED_SPEED)
        row("peak memory, " + kind, "%.0f MB / %.0f MB = %.2f" % (peaks["sheaf"] / 1e6, peaks[kind] / 1e6, peak),
            "<= %.2f" % WANTED_MEMORY if asked else None, not asked or peak <= WANTED_MEMORY)


def compare_steps(args, dtype, batch):
    name = args.family
    model, data = (os.path.join(args.work, name + end) for end in ("-" + dtype, "-data.safetensors"))
    make(args, "vlm_model.py", model, "model", name, dtype)
    make(args, "vlm_model.py", data, "data", name, str(ROWS), str(LENGTH))
    rival = lambda head, adapters, steps=None: run_rival(args, "vlm_rival.py", model, data, dtype, batch, (head, adapters), steps)
    sheaf = lambda slices: run_sheaf(args, model, data, dtype, batch, slices, "--lora-targets", TARGETS[name], "--modules-to-save", "resampler")
    print("\n%s, LoRA step, %s: batch %d x %d, rank 16, resampler in full, %d threads" % (name, dtype, batch, LENGTH, args.threads), flush=True)
    adapters = ["base", "float32"] if dtype == "bfloat16" else ["base"]
    quick = max(adapters, key=lambda a: rival("labels", a, 3)["speed"]) if len(adapters) > 1 else adapters[0]
    way, more = upstream_kinds(args, model, data, dtype, batch, adapters) if args.upstream else (None, {})
    runs = rounds(args, dict({"sheaf": lambda: sheaf(8), "sheaf --slices 1": lambda: sheaf(1), "PyTorch": lambda: rival("labels", quick),
                              "PyTorch, all logits": lambda: rival("all", quick)}, **more), dtype)
    middle, peaks = ({kind: of(r[what] for r in got) for kind, got in runs.items()} for of, what in ((statistics.median, "speed"), (max, "peak")))
    judge(middle, peaks, WANTED_SPEED)
    if args.upstream:
        same_work(runs, dtype)
        judge_upstream(runs, peaks)
    return {"what": "step", "family": name, "dtype": dtype, "batch": batch, "adapters": quick, "upstream": way, "runs": runs}
