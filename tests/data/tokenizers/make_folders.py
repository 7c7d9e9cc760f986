"""Records what AutoTokenizer of transformers makes of folders: which file counts, which class builds the steps, what the files
beside it add.   usage: make_folders.py DIR   (with the files of make_recordings.py in DIR, and bpe.model, a small one of
sentencepiece; needs transformers, sentencepiece and protobuf; writes DIR/folders.json)"""
import json, os, shutil, sys, tempfile
from transformers import AutoTokenizer, __version__

TEXTS = ["Hello [INST] the<s>x  of<|endoftext|>a", "  two", "<bos> a</s> b <eos>", "", "<s> x", "the<img>of <img> \u00e9\u4e00", "the<mask>of"]
LLAMA = {"tokenizer_class": "LlamaTokenizer"}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
PLAIN = dict(lstrip=False, rstrip=False, normalized=False, single_word=False, special=True)
LISTED = {"0": {"content": "<unk>", **PLAIN}, "1": {"content": "<s>", **PLAIN}, "2": {"content": "</s>", **PLAIN},
          "9000": {"content": "<img>", **PLAIN, "lstrip": True}}
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<|pad|>"}
TYPE = {model: {"config.json": {"model_type": model}} for model in ("llama", "mistral", "qwen2", "qwen3", "gemma2")}


def config(**keys):
    return {"tokenizer_config.json": keys}


CASES = [
    ("llama2.json", {}), ("llama2.json", config(**LLAMA)), ("llama2.json", config(**LLAMA, legacy=True, add_eos_token=True)),
    ("llama2.json", config(**LLAMA, add_prefix_space=False)), ("llama2.json", {**config(**LLAMA, **NAMES), **TYPE["mistral"]}),
    ("llama2.json", config(**LLAMA, **NAMES, added_tokens_decoder=LISTED)), ("llama2.json", config(**FAST, eos_token="the")),
    ("llama2.json", {**config(**FAST, additional_special_tokens=["of"], image_token="<img>"), **TYPE["llama"]}),
    ("llama2.json", {"special_tokens_map.json": {"bos_token": {**PLAIN, "content": "<s>", "normalized": True}, "pad_token": "<|p|>"}}),
    ("llama2.json", {"added_tokens.json": {"<img>": 9000, "<|x|>": 8999}}), ("gemma.json", TYPE["gemma2"]),
    ("gpt2.json", config(**LLAMA)), ("gpt2.json", TYPE["qwen2"]), ("gpt2.json", {**config(**FAST), **TYPE["qwen3"]}),
    ("qwen2.json", config(tokenizer_class="GPT2Tokenizer", bos_token=None)),
    ("bpe.model", {}), ("bpe.model", config(**LLAMA)), ("bpe.model", config(**LLAMA, legacy=True, add_bos_token=True, add_eos_token=True)),
    ("bpe.model", config(tokenizer_class="GemmaTokenizer", add_bos_token=True)), ("bpe.model", config(**FAST, extra_special_tokens=["of"])),
]

folder, cases = sys.argv[1], []
for file, beside in CASES:
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(os.path.join(folder, file), os.path.join(d, "tokenizer." + file.split(".")[1]))
        for name, value in beside.items():
            json.dump(value, open(os.path.join(d, name), "w"))
        t = AutoTokenizer.from_pretrained(d)
        cases.append({"file": file, "beside": beside, "class": type(t).__name__, "ids": [t(text)["input_ids"] for text in TEXTS],
                      "named": [-1 if i is None else i for i in (t.bos_token_id, t.eos_token_id, t.unk_token_id, t.pad_token_id)]})
json.dump({"transformers": __version__, "texts": TEXTS, "cases": cases}, open(os.path.join(folder, "folders.json"), "w"))
