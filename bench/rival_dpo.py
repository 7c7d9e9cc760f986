"""rival_dpo.py - the same DPO steps with TRL's trainer; prints one JSON object.

Pairs of token ids, adapter, rate and clipping are those of `sheaf train` in preference.py. TRL computes the
reference's log-probabilities in each step, with the adapter off.
"""
import json
import os
import sys
import time

process_start = time.time()
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import torch
import transformers
import peft
import trl
from datasets import Dataset
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from rival_lora import peak_rss_bytes

import rival_args


class Clock(transformers.TrainerCallback):
    def __init__(self):
        self.at, self.busy, self.losses = [], [], []

    def on_train_begin(self, args, state, control, **_):
        self.at, self.busy = [time.perf_counter()], [time.process_time()]

    def on_step_end(self, args, state, control, **_):
        self.at.append(time.perf_counter())
        self.busy.append(time.process_time())

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in (logs or {}):
            self.losses.append(logs["loss"])


def pairs_of(path):
    data = load_file(path)
    rows = []
    for ids, labels, other in zip(data["chosen.input_ids"], data["chosen.labels"], data["rejected.input_ids"]):
        prompt = int((labels < 0).sum())
        rows.append({"prompt_ids": ids[:prompt].tolist(), "chosen_ids": ids[prompt:].tolist(), "rejected_ids": other[prompt:].tolist()})
    return Dataset.from_list(rows)


def words():
    """The trainer wants a tokenizer, for pads and for texts that are replaced by ids before the first step."""
    return transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "a": 2}, unk_token="<pad>")),
                                                pad_token="<pad>", eos_token="<eos>")


def model_and_lora(args):
    """What both of TRL's trainers train."""
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype), attn_implementation=args.attention)
    return model, peft.LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear", task_type="CAUSAL_LM")


def train(trainer, clock, result):
    """Trains, and prints what the clock saw and what `result` says once it is over."""
    stdout, sys.stdout = sys.stdout, sys.stderr  # its own lines
    trainer.train()
    sys.stdout = stdout
    print(json.dumps({
        "step_seconds": [b - a for a, b in zip(clock.at, clock.at[1:])],
        "processor_seconds": clock.busy[-1] - clock.busy[0],
        "losses": clock.losses,
        "peak_rss_bytes": peak_rss_bytes(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__, "trl": trl.__version__},
        **result(),
    }))


def main():
    args = rival_args.read(adapters=["float32", "base"], attention=["sdpa", "eager"])
    model, lora = model_and_lora(args)
    clock = Clock()
    config = trl.DPOConfig(
        output_dir="build/bench/trl", per_device_train_batch_size=args.micro_batch, max_steps=args.steps, learning_rate=args.lr,
        lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1.0, max_length=None, gradient_checkpointing=False, bf16=False,
        use_cpu=True, report_to="none", save_strategy="no", logging_steps=1, disable_tqdm=True, train_sampling_strategy="sequential")
    text = Dataset.from_list([{"prompt": "a", "chosen": "a", "rejected": "a"}] * 4)
    trainer = trl.DPOTrainer(model=model, args=config, train_dataset=text, processing_class=words(), peft_config=lora, callbacks=[clock])
    trainer.train_dataset = pairs_of(args.data)
    train(trainer, clock, lambda: {"start_to_first_step_seconds": 0})


if __name__ == "__main__":
    main()
