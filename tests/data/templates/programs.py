"""programs.py - further chat templates, in the style of models of 2025 and 2026, for chat_test.c.

    python3 tests/data/templates/programs.py        # rewrites programs.json

Each program is ours, written after what such models do: thoughts that are kept, cut or opened by the prompt, calls of
tools, names, pictures as parts, generation blocks, macros. programs.json has for each program and conversation
what transformers writes, null where it raises, and the spans (message, begin, end in characters) of what is learnt: the
generation blocks' where there are some, as for return_assistant_tokens_mask; else from the end of the prompt for an
answer to the end of the text up to it, blanks apart; null where one of these is no beginning of the whole text, or
where the text up to an answer says more of it than the whole one. Written with transformers 5.23 and jinja2 3.1.
"""
import json, os

from transformers.utils.chat_template_utils import render_jinja_template

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": "zwei"}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds <|im_end|>.", "parameters": {"type": "object"}}}
u, a = lambda c, **k: {"role": "user", "content": c, **k}, lambda c, **k: {"role": "assistant", "content": c, **k}
conversations = [
    {"messages": [u("Hi"), a("Hello.")]},
    {"messages": [{"role": "system", "content": " Be brief. "}, u("2+2? "), a("4"), u("3+3?"), a(" 6")]},
    {"messages": [u("Q"), a("A", reasoning_content="Why?")]},
    {"messages": [u("Q"), a("<think>\nT\n</think>\n\nA"), u("R"), a("<think>\nS\n</think>\n\nB")]},
    {"messages": [u("1+2?"), a("", tool_calls=[CALL]), {"role": "tool", "name": "add", "content": "3"}, a("It is 3.")], "tools": [TOOL]},
    {"messages": [u([{"type": "image"}, {"type": "text", "text": "What?"}]), a("A cat.")]},
    {"messages": [u("I am Ann.", name="Ann"), a("Hi Ann.", name="Bot"), u("And <|im_end|>?", name="Bob"), a("Hi.")]},
]
IM = "{{ '<|im_start|>' + m.role + '\\n' }}"
STRIP = "{% macro said(c) %}{{ c.split('</think>')[-1].lstrip('\\n') }}{% endmacro %}"
programs = {
    "trivial": "{% for m in messages %}### {{ m.role|capitalize }}: {{ m.content }}\n\n{% endfor %}{% if add_generation_prompt %}### Assistant:{% endif %}",
    "thoughts-kept": "{% for m in messages %}" + IM + "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}",
    "thoughts-cut": STRIP + "{% for m in messages %}" + IM + "{{ said(m.content) if m.role == 'assistant' and not loop.last else m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}",
    "thoughts-opened": "{% for m in messages %}" + IM + "{% if m.role == 'assistant' %}{% if '<think>' not in m.content %}<think>\n\n</think>\n\n{% endif %}{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{{ '' }}{% endif %}",
    "thoughts-closed": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<User>{{ m.content }}{% elif m.role == 'assistant' %}<Assistant></think>{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<Assistant></think>{% endif %}",
    "channels": "{% for m in messages %}{% if m.role == 'assistant' %}{% if m.reasoning_content and loop.last %}<|start|>assistant<|channel|>analysis<|message|>{{ m.reasoning_content }}<|end|>{% endif %}{% if m.tool_calls %}<|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}<|channel|>commentary json<|message|>{{ m.tool_calls[0].function.arguments|tojson }}<|call|>{% else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}{% endif %}{% elif m.role == 'tool' %}<|start|>functions.{{ m.name }} to=assistant<|message|>{{ m.content|tojson }}<|end|>{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
    "names": "{% for m in messages %}<|im_{{ m.role }}|>{{ m.name or m.role }}<|im_middle|>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_assistant|>{% endif %}",
    "prefixed": "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<|begin_of_image|><|image|><|end_of_image|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{{ '' }}{% endif %}",
    "pictures": "{% set image_count = namespace(value=0) %}{% for m in messages %}" + IM + "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}{% set image_count.value = image_count.value + 1 %}Picture {{ image_count.value }}: <|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in p %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}",
    "turns": "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}{% set loop_messages = messages[1:] %}{% else %}{% set first = '' %}{% set loop_messages = messages %}{% endif %}{% for m in loop_messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ first if loop.first else '' }}{% if m.content is string %}{{ m.content|trim }}{% elif m.content is iterable %}{% for p in m.content %}{{ '<image_soft_token>' if p.type == 'image' else p.text|trim }}{% endfor %}{% endif %}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{{ '' }}{% endif %}",
    "headers": "{{ bos_token }}{% for m in messages %}<|header_start|>{{ m.role }}<|header_end|>\n\n{% if m.tool_calls %}<|python_start|>{{ m.content }}<|python_end|>{% for c in m.tool_calls %}{{ {'name': c.function.name, 'parameters': c.function.arguments}|tojson }}{% endfor %}{% else %}{{ m.content|trim }}{% endif %}<|eot|>{% endfor %}{% if add_generation_prompt %}<|header_start|>assistant<|header_end|>\n\n{{ '' }}{% endif %}",
    "brackets": "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]{% elif m.role == 'user' %}[INST]{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text if p.type == 'text' else '[IMG]' }}{% endfor %}{% endif %}[/INST]{% elif m.role == 'assistant' %}{{ m.content + eos_token }}{% else %}{{ raise_exception('Only user, system and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "tool-lines": "{% if tools %}<|im_start|>system\n# Tools\n<tools>{% for t in tools %}\n{{ t|tojson }}{% endfor %}\n</tools><|im_end|>\n{% endif %}{% for m in messages %}{% if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n{% else %}" + IM + "{{ m.content }}{% for c in m.tool_calls or [] %}\n<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments|tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}",
    "roles": "{% macro turn(role, text) %}<|start_of_role|>{{ role }}<|end_of_role|>{{ text }}<|end_of_text|>\n{% endmacro %}{% if tools %}{{ turn('tools', tools|tojson(indent=4)) }}{% endif %}{% for m in messages %}{% if m.tool_calls %}{{ turn('assistant', '<|tool_call|>' ~ m.tool_calls|map(attribute='function')|list|tojson) }}{% else %}{{ turn(m.role, m.content) }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}",
    "responses": "{{ bos_token }}{% for m in messages %}<|START_OF_TURN_TOKEN|>{% if m.role|lower == 'assistant' %}<|CHATBOT_TOKEN|>{% if m.tool_calls %}<|START_ACTION|>{{ m.tool_calls|tojson }}<|END_ACTION|>{% else %}<|START_RESPONSE|>{{ m.content }}<|END_RESPONSE|>{% endif %}{% else %}<|{{ m.role|upper }}_TOKEN|>{{ m.content }}{% endif %}<|END_OF_TURN_TOKEN|>{% endfor %}{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
    "marked": "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n{% generation %}{{ m.content.lstrip('\n') + '<|im_end|>\n' }}{% endgeneration %}{% else %}" + IM + "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}",
    "marked-parts": "{% for m in messages %}{% if m.role == 'assistant' %}A:{% if m.reasoning_content %}{% generation %}({{ m.reasoning_content }}){% endgeneration %} {% endif %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}\n{% else %}{{ m.role }}:{{ m.content }}\n{% endif %}{% endfor %}",
    "rules": "]~!b[{% for m in messages %}]~b]{{ 'ai' if m.role == 'assistant' else m.role }}{% if m.name and m.role != 'tool' %} name={{ m.name }}{% endif %}\n{{ m.content|string }}[e~[\n{% endfor %}{% if add_generation_prompt %}]~b]ai\n{{ '' }}{% endif %}",
    "words": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}User: {{ m.content }}\n{% elif m.role == 'assistant' %}Assistant: {{ m.content }}{{ eos_token }}{% elif m.role == 'system' %}{{ m.content|trim ~ '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant: {% endif %}",
    "budget": "{% set think = '</think>' %}{% for m in messages %}<seed:bos>{{ m.role }}\n{% if m.role == 'assistant' and think in m.content %}<seed:think>{{ m.content.split(think)[0].split('<think>')[-1]|trim }}</seed:think>{{ m.content.split(think)[-1]|trim }}{% else %}{{ m.content|trim }}{% endif %}<seed:eos>{% endfor %}{% if add_generation_prompt %}<seed:bos>assistant\n{{ '' }}{% endif %}",
    "together": "{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = ns.text ~ '<' ~ m.role ~ '>' ~ m.content ~ eos_token %}{% endfor %}{{ ns.text }}{% if add_generation_prompt %}<assistant>{% endif %}",
}


def render(program, c, n, prompt, mask=False):
    out, where = render_jinja_template([c["messages"][:n]], tools=c.get("tools"), chat_template=program, add_generation_prompt=prompt,
                                       return_assistant_tokens_mask=mask, bos_token="<s>", eos_token="</s>")
    return out[0], where[0] if where else []


def said(text, message):
    return text.count(message["reasoning_content"]) if message.get("reasoning_content") else text.count("<think>") + text.count("<seed:think>")


def spans(program, c):
    n, out = len(c["messages"]), []
    whole, where = render(program, c, n, False, "generation" in program.replace("add_generation", ""))
    answers = [i for i in range(n) if c["messages"][i]["role"] == "assistant"]
    if "{% generation" in program:
        parts = len(where) // len(answers)
        return whole, [[answers[k // parts], b, e] for k, (b, e) in enumerate(where)]
    for i in answers:
        before, upto = render(program, c, i, True)[0], render(program, c, i + 1, False)[0]
        stem = os.path.commonprefix([upto, whole])
        end = len(upto.rstrip()) if len(stem) == len(upto) else None
        if end is None and upto.endswith("<|return|>"):
            end = len(stem) + len("end|>")
        if end is None or not whole.startswith(before):
            return whole, None
        out.append([i, len(before), end])
    return whole, out


if __name__ == "__main__":
    cases = []
    for name, program in programs.items():
        for k, c in enumerate(conversations):
            try:
                text, where = spans(program, c)
            except Exception as error:
                text, where = None, None
            cases.append([name, k, text, where])
    with open(os.path.dirname(os.path.abspath(__file__)) + "/programs.json", "w", encoding="utf-8") as f:
        f.write('{"conversations": ' + json.dumps(conversations) + ',\n"programs": ' + json.dumps(programs) + ',\n"cases": [\n')
        f.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]}\n")
    print(len(programs), "programs,", len(cases), "cases,", sum(c[2] is None for c in cases), "raise")
