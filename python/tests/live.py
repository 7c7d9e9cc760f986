"""Trains with the module `sheaf`; PEFT loads the adapter, transformers the merged model: all give the same tokens.

    live.py MODEL WORK

Beside `sheaf` it needs torch, transformers and peft, which ./run soak has.
"""

import json
import sys
from pathlib import Path

import numpy
import sheaf
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

PROMPT, NEW = [5, 6, 7, 9], 12
failed = 0


def check(name, good):
    global failed
    failed += not good
    print(f"{'ok' if good else 'not ok'} - {name}", flush=True)


def told(model):
    """Greedy tokens and the logits behind the prompt."""
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        logits = model(ids).logits[0, -1]
        tokens = model.generate(ids, max_new_tokens=NEW, do_sample=False, pad_token_id=0)[0, len(PROMPT) :]
    return tokens.tolist(), logits


def main():
    model, work = Path(sys.argv[1]), Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    rows = torch.randint(3, 500, (6, 24), generator=torch.Generator().manual_seed(1)).int()
    from safetensors.torch import save_file

    save_file({"input_ids": rows, "labels": rows.clone()}, str(work / "rows.safetensors"))
    steps = []
    sheaf.train(
        model, work / "rows.safetensors", work / "run", steps=20, method="lora", lora_rank=5, lora_alpha=10,
        lora_targets="all-linear", micro_batch=2, lr=2e-2, seed=3, on_step=steps.append,
    )  # fmt: skip
    check("it learns", steps[-1].loss < steps[0].loss)
    sheaf.merge(model, [work / "run"], work / "merged")

    with sheaf.Model(work / "run") as it:
        answer = it.generate(PROMPT, max_new=NEW, logprobs=True)
        check("logprobs are NumPy's, without a copy", isinstance(answer.logprobs, numpy.ndarray) and not answer.logprobs.flags.owndata)
        mine = answer.tokens
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    plain, _ = told(base)
    adapted, logits = told(PeftModel.from_pretrained(base, work / "run/adapter"))
    merged_model = AutoModelForCausalLM.from_pretrained(work / "merged", dtype=torch.float32)
    merged, merged_logits = told(merged_model)
    check("training changed what is said", plain != mine)
    check("PEFT loads the adapter and says the same", adapted == mine)
    check("transformers loads the merged model and says the same", merged == mine)
    # Sums of some hundred float32 products in two orders; values are of order 10.
    check("with the same logits", torch.allclose(logits, merged_logits, rtol=0, atol=1e-3))
    first = float(torch.log_softmax(merged_logits, -1)[mine[0]])
    check("and the same probability", abs(first - float(answer.logprobs[0])) < 1e-4)

    with sheaf.open(work / "merged") as weights:
        state = merged_model.state_dict()
        same = [torch.equal(torch.from_numpy(weights.read(name).copy()), state[name]) for name in weights]
        check(f"{len(same)} tensors read as arrays are those of transformers", len(same) > 10 and all(same))
    half = work / "half"
    sheaf.convert(work / "merged", half, to="hf", dtype="bfloat16")
    with sheaf.open(half) as weights:
        name = "model.norm.weight"
        bits = torch.from_numpy(weights.read(name).copy()).view(torch.bfloat16)
        check("bits of bfloat16 are torch's", torch.equal(bits, state[name].bfloat16()))
    print(json.dumps({"first": steps[0].loss, "last": steps[-1].loss, "tokens": mine}))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
