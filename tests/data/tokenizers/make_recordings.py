"""Trains small tokenizers of every form with `tokenizers` and records what it makes of generated texts.
usage: make_recordings.py DIR [LINES]     writes DIR/NAME.json and DIR/recorded.json (500 lines)
       make_recordings.py DIR --texts N   writes N bytes of the texts, one a line as JSON, to stdout
src/inputs/tokenizer/recorded_test.c makes the same texts and holds sheaf to the record."""
import json, os, sys
from tokenizers import (AddedToken, Regex, Tokenizer, __version__, decoders as D, models as M, normalizers as N,
                        pre_tokenizers as P, processors as O, trainers as T)

SCRIPTS = [(0x61, 0x7A), (0x41, 0x5A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x58F), (0x591, 0x5F4),
           (0x600, 0x6FF), (0x700, 0x74F), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xE00, 0xE7F),
           (0xF00, 0xFFF), (0x10A0, 0x11FF), (0x1200, 0x137F), (0x1780, 0x17FF), (0x3041, 0x30FF), (0x4E00, 0x4FFF),
           (0xAC00, 0xAD00), (0x1E00, 0x1FFF), (0x300, 0x36F), (0x10400, 0x104FF), (0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF),
           (0xFF01, 0xFFEF), (0x2000, 0x206F), (0x2100, 0x24FF), (0x30, 0x39), (0x21, 0x2F), (0xE000, 0xE010),
           (0x16A40, 0x16B8F), (0x1E900, 0x1E95F), (0xFDD0, 0xFDFF)]
ODD = ["\r\n", "\0", "\t", "  ", "   ", "\n\n", "\u00a0", "\u200d", "\U0001f468\u200d\U0001f469\u200d\U0001f466", "e\u0301", "\u1112\u1161\u11ab",
       "\uac00\u11a8", "\u0958", "\ufb01", "\u0130", "\u1e9e", "\ufeff", "\ufffd", "\U0010ffff", "\U000e0101", "\u0378", "\u2028", "\u3000", "'s", "'LL",
       "don't", "1234567", "a\u0323\u0307b", "\u0b47\u0b56", "\u0f73", "\U00011938", "\u2581", " \u2581 ", "<s>", "</s>", "[SEP]", "<mask> x", "  <pad>  ",
       "``q''", "<0x41>", ". , ! ' n't", "a#b-c", "\u0600a", "\u00a9\u200d\u00a9", "\u01c4", "\u03a3", "##a", "_x1"]
MASK = (1 << 64) - 1


class Random:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 33) % n


def line(number):
    r, out = Random(number), []
    for _ in range(10):
        r.below(2)
    script = SCRIPTS[r.below(len(SCRIPTS))]
    for _ in range(1 + r.below(9)):
        if r.below(6) == 0:
            script = SCRIPTS[r.below(len(SCRIPTS))]
        if r.below(4) == 0:
            out.append(ODD[r.below(len(ODD))])
        few = r.below(3) == 0
        for _ in range(1 + r.below(7)):
            span = script[1] - script[0] + 1
            out.append(chr(script[0] + r.below(min(span, 8) if few else span)))
        out.append(" " if r.below(5) else ["", "\n", "-", "."][r.below(4)])
    return "".join(out)


SP = ["<unk>", "<s>", "</s>"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def template(before, behind, ids):
    return O.TemplateProcessing(single=" ".join(before + ["$A"] + behind), pair=" ".join(before + ["$A", "$B:1"]),
                                special_tokens=[(t, ids(t)) for t in sorted(set(before + behind))])


def special(*names, **how):
    return [AddedToken(n, special=True, normalized=False, **how) for n in names]


def byte_fallback(texts, vocab_size, setup):
    """Llama 2's form: trained with a byte-level-free BPE whose alphabet is limited, then the byte tokens put in."""
    t = Tokenizer(M.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    setup(t)
    t.train_from_iterator(texts, T.BpeTrainer(vocab_size=vocab_size, limit_alphabet=150, show_progress=False,
                                              special_tokens=SP + [f"<0x{i:02X}>" for i in range(256)]))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] in SP]
    t = Tokenizer.from_str(json.dumps(j))
    t.decoder = D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    t.post_processor = template(["<s>"], [], t.token_to_id)
    return t


def tokenizers():
    texts = [line(i) for i in range(10**6, 10**6 + 4000)] + ["the quick brown fox don't jump over 12 lazy dogs"] * 200
    made = {}

    def bpe(name, normalizer, split, post=None, size=420, prefix=None, model=None, added=()):
        t = Tokenizer(model or M.BPE())
        if normalizer:
            t.normalizer = normalizer
        t.pre_tokenizer = split
        t.decoder = D.ByteLevel()
        t.train_from_iterator(texts, T.BpeTrainer(vocab_size=size, initial_alphabet=P.ByteLevel.alphabet(),
                                                  show_progress=False, special_tokens=special("<s>", "</s>")))
        t.add_tokens(list(added))
        t.post_processor = post(t) if post else O.ByteLevel(trim_offsets=False)
        made[name] = t

    bpe("gpt2", None, P.ByteLevel(add_prefix_space=False), added=[AddedToken("<mask>", lstrip=True, special=True), AddedToken("a#b", single_word=True)])
    bpe("llama3", None, P.Sequence([P.Split(Regex(LLAMA3), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]),
        lambda t: O.Sequence([O.ByteLevel(trim_offsets=False), template(["<s>"], [], t.token_to_id)]), model=M.BPE(ignore_merges=True))
    bpe("qwen2", N.NFC(), P.Sequence([P.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]))

    def llama2(t):
        t.normalizer = N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")])

    def mistral(t):
        t.pre_tokenizer = P.Metaspace(prepend_scheme="first", split=False)

    def gemma(t):
        t.normalizer = N.Replace(" ", "\u2581")
        t.pre_tokenizer = P.Split(" ", "merged_with_previous")

    for setup in (llama2, mistral, gemma):
        made[setup.__name__] = byte_fallback(texts, 640, setup)
    made["gemma"].add_tokens([AddedToken("1234", normalized=True), AddedToken("  ", normalized=False)])

    return made


def fold(hash, numbers):
    for n in numbers:
        hash = ((hash ^ n) * 0x100000001B3) & MASK
    return hash


def record(t, lines):
    """Hashes over blocks of 250 lines: ids with the post-processor's, ids without, and what the former decode to."""
    blocks = []
    for begin in range(0, lines, 250):
        hashes = [0xCBF29CE484222325] * 3
        for i in range(begin, min(begin + 250, lines)):
            with_special, plain = t.encode(line(i)).ids, t.encode(line(i), add_special_tokens=False).ids
            hashes[0] = fold(hashes[0], with_special + [len(with_special)])
            hashes[1] = fold(hashes[1], plain + [len(plain)])
            hashes[2] = fold(hashes[2], t.decode(with_special, skip_special_tokens=i % 2 == 0).encode())
        blocks.append([f"{h:016x}" for h in hashes])
    return blocks


if __name__ == "__main__":
    folder = sys.argv[1]
    if len(sys.argv) > 3:
        size, i = 0, 0
        while size < int(sys.argv[3]):
            text = line(2 * 10**6 + i)
            i, size = i + 1, size + len(text.encode())
            print(json.dumps(text))
        sys.exit()
    lines = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    recorded = {"tokenizers": __version__, "lines": lines, "odd": [o.encode().hex() for o in ODD],
                "texts": {}, "tokenizer": {}}
    for i in (0, 7, 42, 55):
        recorded["texts"][str(i)] = line(i).encode().hex()
    for name, t in tokenizers().items():
        t.save(os.path.join(folder, name + ".json"), pretty=False)
        recorded["tokenizer"][name] = {"blocks": record(t, lines), "ids of text 7": t.encode(line(7)).ids}
    json.dump(recorded, open(os.path.join(folder, "recorded.json"), "w"), indent=0)
