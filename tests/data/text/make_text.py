"""Records what transformers makes of text records: ids and labels, with a tokenizer trained here.

    python3 make_text.py [SEED N]   (into the folder it is run in; needs transformers and tokenizers;
                                     with SEED also N random records for each row of cases)

tokenizer.json, tokenizer_config.json  a small byte-level BPE
cases.json   {"record": ..., "template": NAME or null, "loss_on": ..., "ids": [...], "labels": [...]}

Labels of conversations are apply_chat_template()'s assistant mask, with the published template in
which {% generation %} encloses what follows the generation prompt, up to the end of the turn. Those
of prompt and completion are the tokens with a character of the completion, and eos; where the
prompt's own tokens begin the whole, that is what TRL's completion mask says (asserted).
"""
import json
import random
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
CORPUS = ["The quick brown fox jumps over the lazy dog.\n\nWhy?\n\nBecause it can.", "user\nassistant\nsystem\n",
          "one two three four five six seven\n\n\n", "Grüße aus Köln, schöne Straße.", "答えは四です。質問は何ですか。",
          "USER: hello ASSISTANT: hello", "[INST] yes [/INST] no <<SYS>>"] * 4

GEN, END = "{% generation %}", "{% endgeneration %}"
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}" + GEN +
              "{{ m['content'] + '<|im_end|>' }}" + END + "{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}",
    "zephyr": "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' }}{% if m['role'] == 'assistant' %}" + GEN +
              "{{ m['content'] + eos_token }}" + END + "{% else %}{{ m['content'] + eos_token }}{% endif %}{{ '\n' }}{% endfor %}",
    "llama2": "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'].strip() + ' [/INST]' }}"
              "{% else %}" + GEN + "{{ ' ' + m['content'].strip() + ' ' + eos_token }}" + END + "{% endif %}{% endfor %}",
}

U, A, S = "user", "assistant", "system"


def talk(*turns):
    return [{"role": r, "content": c} for r, c in turns]


CONVERSATIONS = [
    ("chatml", talk((U, "Why?"), (A, "Because it can."))),
    ("chatml", talk((S, "Grüße"), (U, "one"), (A, "two"), (U, "three"), (A, "four five"))),
    ("chatml", talk((U, ""), (A, "\n\nThe fox 答え"))),  # a token across the boundary
    ("chatml", talk((U, "\n"), (A, "\nx\n"), (U, "y"), (A, "schöne Straße\U0001f98a"))),
    ("zephyr", talk((U, "hello"), (A, "\nhello"), (U, "hello"), (A, " hello "))),
    ("zephyr", talk((S, "質問"), (U, "何"), (A, "四です。"))),
    ("llama2", talk((U, " yes "), (A, "no"), (U, "yes"), (A, " no "))),
]
PAIRS = [("kolibu -> ", "olibukay"), ("The quick", " brown fox"), ("The qui", "ck brown"), ("", "one two"),
         ("Köl", "n, schöne"), ("答え", "は四です。"), ("three\n", "\nfour"), ("a </s> b", " <|im_end|> c")]
TEXTS = ["The lazy dog.", "答えは四です。", "hello </s> hello", "x"]


def train():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])])
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", pad_token="<|endoftext|>")
    fast.chat_template = TEMPLATES["chatml"].replace(GEN, "").replace(END, "") + (
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
    return fast


def last_only(mask):
    last = max(i for i, m in enumerate(mask) if m)
    first = last
    while first > 0 and mask[first - 1]:
        first -= 1
    return [m if i >= first else 0 for i, m in enumerate(mask)]


def conversation(t, template, messages, loss_on):
    out = t.apply_chat_template(messages, chat_template=TEMPLATES[template], tokenize=True, return_dict=True,
                                return_assistant_tokens_mask=True)
    ids, mask = out["input_ids"], out["assistant_masks"]
    mask = {"answers": mask, "last": last_only(mask), "all": [1] * len(ids)}[loss_on]
    return ids, [i if m else -100 for i, m in zip(ids, mask)]


def plain(t):
    """Without the special tokens: in a text they are text."""
    bare = json.loads(t.backend_tokenizer.to_str())
    bare["added_tokens"] = []
    bare["post_processor"] = None
    return Tokenizer.from_str(json.dumps(bare))


def pair(t, bare, prompt, completion, loss_on):
    both = bare.encode(prompt + completion)
    ids = [t.bos_token_id] + both.ids + [t.eos_token_id]
    first = both.char_to_token(len(prompt)) + 1 if loss_on != "all" else 0
    alone = bare.encode(prompt).ids
    if loss_on != "all" and both.ids[:len(alone)] == alone:
        assert first == len(alone) + 1, (prompt, completion)
    return ids, [-100] * first + ids[first:]


def random_text(rng):
    parts = ["\n", "\n\n", " ", "  ", "\t", "the", " fox", "Straße", "質問", "は", "\U0001f98a", "e\u0301", "\u200d", "</s>", "[INST]", "'s", "42", "."]
    return "".join(rng.choice(parts) for _ in range(rng.randint(0, 9)))


def more(rng, n):
    """Answers are never blank: sheaf refuses them. Texts of conversations have no special tokens: transformers would read them as such."""
    def content(role):
        text = random_text(rng).replace("</s>", "").replace("[INST]", "")
        return text if role == U or text.strip() else text + "x"
    for _ in range(n):
        turns = [(r, content(r)) for _ in range(rng.randint(1, 4)) for r in (U, A)]
        template = rng.choice(["chatml", "zephyr", "llama2"])
        CONVERSATIONS.append((template, talk(*([] if template == "llama2" or rng.random() < 0.5 else [(S, content(U))]), *turns)))
        PAIRS.append((random_text(rng), random_text(rng) + "x"))
        TEXTS.append(random_text(rng) + "x")


def main():
    if len(sys.argv) > 1:
        more(random.Random(int(sys.argv[1])), int(sys.argv[2]))
    t = train()
    t.backend_tokenizer.save("tokenizer.json", pretty=False)
    config = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast",
              "chat_template": t.chat_template}
    with open("tokenizer_config.json", "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    bare, cases = plain(t), []
    for loss_on in "answers", "last", "all":
        for template, messages in CONVERSATIONS:
            ids, labels = conversation(t, template, messages, loss_on)
            cases.append(dict(record={"messages": messages}, template=template, loss_on=loss_on, ids=ids, labels=labels))
        for p, c in PAIRS:
            ids, labels = pair(t, bare, p, c, loss_on)
            cases.append(dict(record={"prompt": p, "completion": c}, template=None, loss_on=loss_on, ids=ids, labels=labels))
    for text in TEXTS:
        ids = [t.bos_token_id] + bare.encode(text).ids + [t.eos_token_id]
        cases.append(dict(record={"text": text}, template=None, loss_on="answers", ids=ids, labels=ids))
    with open("cases.json", "w") as f:
        f.write("{\"cases\": [\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]}\n")


main()
