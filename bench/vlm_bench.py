"""vlm_bench.py - `./run bench vision --family omnilmm` (or minicpmv): LoRA steps of an OmniLMM or a MiniCPM-V 2.6 of middle
size beside PyTorch, transformers and PEFT (vlm_torch.py, which vlm_parity.py holds to the recordings).

Hidden 1024, 4 layers, tower 512 wide with 4 blocks, 64 queries a picture; LoRA of rank 16 on the attention of the text
model and a full copy of the resampler, as upstream's scripts do. Rows of 320 tokens: with two pictures of 336 x 336
(OmniLMM), or three of 24 x 24, 18 x 32 and 28 x 20 patches (MiniCPM-V). Runs are interleaved, and the table gives the
median of the rounds and the best step; speed of a run: the median of its steps without the first.
"""
import os
import statistics

from vision_common import judge, make, rounds, run_rival, run_sheaf

WANTED_SPEED = 1.5
LENGTH, ROWS = 320, 4
ATTENTION = r".*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)"
TARGETS = {"omnilmm": ATTENTION, "minicpmv": r"llm\." + ATTENTION}  # its tower has "layers" too


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
    runs = rounds(args, {"sheaf": lambda: sheaf(8), "sheaf --slices 1": lambda: sheaf(1), "PyTorch": lambda: rival("labels", quick),
                         "PyTorch, all logits": lambda: rival("all", quick)}, dtype)
    judge({kind: statistics.median(r["speed"] for r in got) for kind, got in runs.items()},
          {kind: max(r["peak"] for r in got) for kind, got in runs.items()}, WANTED_SPEED)
    return {"what": "step", "family": name, "dtype": dtype, "batch": batch, "adapters": quick, "runs": runs}
