"""make_tokenizers.py - trains the small tokenizers of this folder and records what `tokenizers` makes of texts.

    python3 make_tokenizers.py [FOLDER]

recorded.json: {"texts": [...], "tokenizers": {NAME: {"specials": [ids of each text], "plain": [the same with
encode_special_tokens, or null where all are equal], "where": [for the first texts: bytes of each id, flat],
"decoded": [of each text's ids, null where it is the text]}}}. tokenizers 0.23.3.
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PROSE = """A tokenizer makes numbers of a text. The numbers stand for words, parts of words, single letters and, where
nothing else is left, for bytes. It's the first thing that happens to what you've written, and the last that happens
to what a model says: they're the same numbers both ways. Il était une fois un café à Zürich; dort saß ein Mädchen.
Москва была столицей. 日本語の文章も数になる。 किसी भाषा में। 123 apples, 4567 pears and 89.5 plums cost $12,345.67!
def encode(self, text): return [self.id[w] for w in text.split()]  # the simplest of all
"""


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def byte_level(prefix=False, regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def train(model, steps, size, decoder=decoders.ByteLevel(), specials=(), alphabet=True, **options):
    t = Tokenizer(model)
    t.pre_tokenizer = steps
    t.decoder = decoder
    if alphabet:
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), show_progress=False, **options)
    t.train_from_iterator([PROSE], trainer)
    return t


def tokenizers():
    yield "gpt2", train(models.BPE(), byte_level(regex=True), 400, specials=["<|endoftext|>"])
    yield "prefix", train(models.BPE(), byte_level(prefix=True, regex=True), 330)
    yield "llama3", train(models.BPE(ignore_merges=True), sequence(
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level()), 400, specials=["<|begin|>", "<|eot|>"])
    yield "gpt4o", train(models.BPE(), sequence(
        pre_tokenizers.Split(Regex(GPT4O), "removed", invert=True), byte_level()), 330)
    t = train(models.BPE(), sequence(pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"),
                                     byte_level()), 350, specials=["<|endoftext|>"])
    t.add_tokens([AddedToken("lone", single_word=True), AddedToken("left", lstrip=True),
                  AddedToken("right", rstrip=True), AddedToken("both", lstrip=True, rstrip=True, normalized=False),
                  AddedToken("bothm", normalized=False), AddedToken("é", normalized=False, single_word=True)])
    t.add_special_tokens(["<|im_start|>", "<|im_end|>", AddedToken("<s>", normalized=True),
                          AddedToken("<|im_end|>x", rstrip=True), AddedToken("  ", normalized=False)])
    yield "added", t
    bytes_ = ["<0x%02X>" % i for i in range(256)]
    yield "bytes", train(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), None, 420, None,
                         ["<unk>"] + bytes_, False, max_token_length=6)
    yield "unknown", train(models.BPE(unk_token="<unk>"), None, 120, None, ["<unk>"], False, max_token_length=6)
    yield "merged", train(models.BPE(), sequence(pre_tokenizers.Split("e", "merged_with_next"),
                                                 pre_tokenizers.Split(Regex(r"\p{N}"), "contiguous"), byte_level()), 290)


def texts():
    chance = random.Random(1)
    words = ("the of and it's don't I'll WE'VE they'RE 'ſ lone left right both bothm lonely <s> <|im_start|> <|im_end|> "
             "<|im_end|>x <|eot|> <|endoftext|> 12345 3.14 foo_bar café é naïve words").split()
    spaces = [" ", " ", "  ", "   ", "\t", "\r\n", "\n", "\n\n", " \n ", "\u00a0", "\u3000", "\u2028", "\x85", "\0", "\u200d"]
    scripts = [0xA0, 0x370, 0x400, 0x590, 0x600, 0x900, 0xE00, 0x1100, 0x2000, 0x3040, 0x4E00, 0xAC00, 0x1F300, 0xE000,
               0x300, 0x1E4D0, 0x10000, 0x31350, 0x378, 0x10FFF0]
    found = ["", " ", "a", "  two  blanks ", PROSE[:250], "\u1171e\u180e\u180e x\U0001E4D0y\U00031350z"]
    for _ in range(26):
        text = ""
        for _ in range(chance.randint(3, 14)):
            kind = chance.random()
            if kind < 0.45:
                text += chance.choice(words)
            elif kind < 0.75:
                text += chance.choice(spaces)
            else:
                first = chance.choice(scripts)
                text += "".join(chr(first + chance.randint(0, 15)) for _ in range(chance.randint(1, 3)))
        found.append(text)
    return found


def compact(t, strings):
    """The file without indentation; merges as strings, as files before 0.20 have them, or as pairs."""
    parts = json.loads(t.to_str())
    if strings:
        parts["model"]["merges"] = [" ".join(pair) for pair in parts["model"]["merges"]]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def ranges(text, encoding):
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return [at[i] for pair in encoding.offsets for i in pair]


record = {"texts": texts(), "tokenizers": {}}
for name, t in tokenizers():
    (OUT / (name + ".json")).write_text(compact(t, name in ("gpt2", "added")), "utf-8")
    t = Tokenizer.from_file(str(OUT / (name + ".json")))
    specials = [t.encode(x, add_special_tokens=False) for x in record["texts"]]
    t.encode_special_tokens = True
    plain = [t.encode(x, add_special_tokens=False).ids for x in record["texts"]]
    decoded = [t.decode(e.ids, skip_special_tokens=False) for e in specials]
    record["tokenizers"][name] = {
        "specials": [e.ids for e in specials],
        "plain": None if plain == [e.ids for e in specials] else plain,
        "where": [ranges(x, e) for x, e in list(zip(record["texts"], specials))[:10]],
        "decoded": [None if d == x else d for d, x in zip(decoded, record["texts"])],
    }
(OUT / "recorded.json").write_text(json.dumps(record, ensure_ascii=True, separators=(",", ":")) + "\n", "utf-8")
