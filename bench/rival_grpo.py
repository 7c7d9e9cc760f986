"""rival_grpo.py - the same GRPO steps with TRL's trainer, whose completions are those of transformers' generate; prints one JSON object.

Prompts, tokenizer, reward, adapter, rate, clipping and the number of tokens are those of `sheaf train` in preference.py.
"""
import json
import os

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import transformers
import trl
from datasets import Dataset

import rival_args
from reward_letters import reward
from rival_dpo import Clock, model_and_lora, train


def main():
    args = rival_args.read("tokenizer", "generations", "max-new", attention=["sdpa", "eager"])
    model, lora = model_and_lora(args)
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=args.tokenizer, pad_token="<pad>", eos_token="</s>")
    clock, lengths = Clock(), []
    config = trl.GRPOConfig(
        output_dir="build/bench/trl", per_device_train_batch_size=args.micro_batch, max_steps=args.steps, learning_rate=args.lr,
        num_generations=int(args.generations), max_completion_length=int(args.max_new), lr_scheduler_type="constant", weight_decay=0.0,
        max_grad_norm=1.0, gradient_checkpointing=False, bf16=False, use_cpu=True, report_to="none", save_strategy="no", logging_steps=1,
        disable_tqdm=True, shuffle_dataset=False)

    def judge(completions, completion_ids, **_):
        lengths.extend(len(ids) for ids in completion_ids)
        return [reward(text) for text in completions]

    data = Dataset.from_list([{"prompt": json.loads(line)["prompt"]} for line in open(args.data)])
    trainer = trl.GRPOTrainer(model=model, reward_funcs=judge, args=config, train_dataset=data, processing_class=words, peft_config=lora, callbacks=[clock])
    train(trainer, clock, lambda: {"tokens": sum(lengths)})


main()
