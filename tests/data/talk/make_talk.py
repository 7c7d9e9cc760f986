"""Makes what lies beside it: a small tokenizer with a chat template, and what transformers says with a model that
`sheaf init` makes of config.json.

    python make_talk.py SHEAF        (the command; transformers 5.23.0, tokenizers 0.23.3, torch 2.15.0)

prompts.jsonl holds the prompts; recorded.txt a line for each: the new tokens and the text of transformers' greedy
generate(), as `sheaf generate --json` writes them."""
import json, subprocess, sys, tempfile, pathlib, re

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer

here = pathlib.Path(__file__).parent
CHATML = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
          "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
          "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")  # Qwen2's
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
text = ["the cat and the dog sat on the mat", "what is the answer to the question", "a user and an assistant",
        "system message", "one two three four five", "hello world, how are you today"] * 3

t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
t.decoder = decoders.ByteLevel()
t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=317, special_tokens=[], show_progress=False,
                                                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
t.add_special_tokens(special)
t.save(str(here / "tokenizer.json"), pretty=False)
(here / "tokenizer_config.json").write_text(json.dumps({
    "tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "bos_token": None,
    "chat_template": CHATML, "clean_up_tokenization_spaces": False}, indent=1) + "\n")
config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 324, "hidden_size": 32,
          "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 512, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "hidden_act": "silu",
          "tie_word_embeddings": False, "eos_token_id": t.token_to_id("<|endoftext|>"), "bos_token_id": None,
          "torch_dtype": "float32", "initializer_range": 0.6}
(here / "config.json").write_text(json.dumps(config, indent=1) + "\n")

prompts = [
    "hello world, how are you",
    "W\u00f6rter, \u4f60\u597d \U0001f642 und <|im_end|> als Text\n",
    {"messages": [{"role": "user", "content": "what is the answer?"}]},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"},
                  {"role": "assistant", "content": "two"}, {"role": "user", "content": "three <|im_end|> \u00e9"}]},
    "the",
]
(here / "prompts.jsonl").write_text("".join(json.dumps(p, ensure_ascii=False) + "\n" for p in prompts))
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder) / "model"
    subprocess.run([sys.argv[1], "init", here / "config.json", folder, "--seed", "7"], check=True, capture_output=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((here / name).read_bytes())
    tok, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).float()


raw = tok.backend_tokenizer
def plain(s):  # the marks of people are text: never found as tokens
    other = Tokenizer.from_str(raw.to_str())
    data = json.loads(other.to_str()); data["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(data)).encode(s, add_special_tokens=False).ids

recorded = []
for p in prompts:
    if isinstance(p, str):
        ids = plain(p)
    else:
        text = tok.apply_chat_template(p["messages"], tokenize=False, add_generation_prompt=True)
        ids = []
        # marks split words, so that contents without marks are encoded in one piece with what is around them
        marked = "<|im_end|>"
        shield = text
        for m in p["messages"]:
            shield = shield.replace(m["content"], m["content"].replace(marked, "\ue000"))
        for piece in re.split("(\ue000|<\\|im_start\\|>|<\\|im_end\\|>)", shield):
            if piece in ("<|im_start|>", "<|im_end|>"):
                ids.append(tok.convert_tokens_to_ids(piece))
            else:
                ids.append(piece)
        joined, run = [], ""
        for x in ids + [None]:
            if isinstance(x, str):
                run += x.replace("\ue000", marked)
            else:
                joined += plain(run)
                run = ""
                if x is not None:
                    joined.append(x)
        ids = joined
    stop = [config["eos_token_id"], tok.convert_tokens_to_ids("<|im_end|>")] if isinstance(p, dict) else config["eos_token_id"]
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
                             max_new_tokens=24, eos_token_id=stop, pad_token_id=config["eos_token_id"],
                             return_dict_in_generate=True, output_logits=True)
    new = out.sequences[0, len(ids):].tolist()
    gap = min((lambda v: (v[0] - v[1]).item())(l[0].topk(2).values) for l in out.logits)
    assert gap > 1e-3, gap  # or another implementation may choose otherwise
    said = tok.decode(new, skip_special_tokens=True)
    said = re.sub(r"\\u00([0-9a-f]{2})", lambda m: "\\u00" + m.group(1).upper(), json.dumps(said, ensure_ascii=False))
    recorded.append('"tokens":%s,"text":%s' % (json.dumps(new, separators=(",", ":")), said))
(here / "recorded.txt").write_text("\n".join(recorded) + "\n")
