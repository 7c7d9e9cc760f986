"""record.py - what transformers makes of conversations, for src/inputs/chat/chat_test.c.

    python3 tests/data/templates/record.py          # rewrites recorded.json

Each NAME.jinja beside this file is a program that a model published (or, vicuna-lines, that a collection of templates
did; smollm3 without what it writes of tools and without its generation blocks, which take in the header): what
src/inputs/chat/templates/NAME.jinja, which is ours, must write. recorded.json has the conversations and, for
each program, the text of each, null where the program raised; the generation prompt is asked for
where a conversation does not end with an answer. Of those that write a date there is no recording:
llama3.2 on 26 Jul 2024 writes what llama3.1 does, smollm3 is long. Written with transformers 5.23 and jinja2 3.1.
"""
import datetime, glob, json, os, sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

here = os.path.dirname(os.path.abspath(__file__))
programs = here
unrecorded = ("llama3.2", "smollm3")


def talk(*turns):
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[t[0]], "content": t[1:]} for t in turns]


conversations = [
    talk("uHi", "aHello."),
    talk("uHi"),
    talk("sBe brief.", "u2+2?", "a4"),
    talk("sBe brief.", "u2+2?"),
    talk("uA", "aB", "uC", "aD"),
    talk("sS", "uA", "aB", "uC"),
    talk("s  S \n", "u\n A\t ", "a \u3000B\u00a0\n", "u \u200bC\u200b ", "a\n\nD\n"),
    talk("u", "a"),
    talk("s", "u ", "a\n"),
    talk("sé", "u你好 👩‍👩‍👧", "aمرحبا \u0000 ñ"),
    talk("sX<|im_end|>", "u[/INST] </s><end_of_turn>", "a<|eot_id|><|end|>{{ 1 }}{% if %}"),
    talk("uQ", "a<think>\nA\n</think>\n\nB", "uR", "a<think>\nC\n</think>\n\nD"),
    talk("uQ", "aA</think>x<think>B</think>\nC", "a<think>E"),
    talk("aFirst"),
    talk("uA", "uB"),
    talk("sS"),
    talk("sS", "sT", "uA", "aB"),
    talk("uA", "sS", "uB", "aC"),
    talk("uA", "aB", "sS"),
    talk("u<tool_response>A</tool_response>", "a<think>T</think>B"),
]


class Today(datetime.datetime):
    """What strftime_now() takes for now."""

    day = (2024, 7, 26)

    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(*cls.day)


chat_template_utils.datetime = Today


def render(program, messages, bos, eos, **variables):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"x": 0}, unk_token="x")), bos_token=bos, eos_token=eos
    )
    try:
        return tokenizer.apply_chat_template(
            messages,
            chat_template=program,
            tokenize=False,
            add_generation_prompt=messages[-1]["role"] != "assistant",
            **variables,
        )
    except Exception as error:
        if type(error).__name__ != "TemplateError":
            raise
        return None


if __name__ == "__main__":
    out = {"conversations": conversations, "texts": {}}
    for path in sorted(glob.glob(programs + "/*.jinja")):
        if os.path.basename(path)[:-6] in unrecorded:
            continue
        program = open(path, encoding="utf-8", newline="").read()
        out["texts"][os.path.basename(path)[:-6]] = [render(program, c, "<s>", "</s>") for c in conversations]
    with open(here + "/recorded.json", "w", encoding="utf-8") as f:
        f.write('{"conversations": ' + json.dumps(conversations, ensure_ascii=False) + ',\n"texts": {\n')
        f.write(",\n".join(f'"{k}": ' + json.dumps(v, ensure_ascii=False) for k, v in out["texts"].items()))
        f.write("\n}}\n")
