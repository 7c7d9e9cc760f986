"""make_tokenizer.py - the tokenizer of the chat demo: byte-level BPE with Qwen2's pattern and marks.

    awk -v out=DIR -v train=8000 -v held=300 -f make_numbers.awk
    python3 make_tokenizer.py DIR OUT      (pip install tokenizers)

OUT then holds tokenizer.json and tokenizer_config.json. They lie beside this script: the demo needs
no Python.
"""
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
            "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
            "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

source, out = sys.argv[1:]
texts = []
for line in open(os.path.join(source, "base-train.jsonl"), encoding="utf-8"):
    texts += [m["content"] for m in json.loads(line)["messages"]]
tokenizer = Tokenizer(models.BPE())
tokenizer.normalizer = normalizers.NFC()
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(PATTERN), "isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
tokenizer.decoder = decoders.ByteLevel()
tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
tokenizer.train_from_iterator(texts + ["system user assistant\nYou are a helpful assistant."] * 50, trainers.BpeTrainer(
    vocab_size=360, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
os.makedirs(out, exist_ok=True)
tokenizer.save(os.path.join(out, "tokenizer.json"))
json.dump({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
           "bos_token": None, "chat_template": TEMPLATE}, open(os.path.join(out, "tokenizer_config.json"), "w"), indent=1)
print(tokenizer.get_vocab_size(), "tokens;", tokenizer.encode("Write 4711 in words.").tokens)
