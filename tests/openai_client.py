"""The official openai client against `sheaf serve`, beside `sheaf generate`.

usage: openai_client.py SHEAF MODEL ADAPTER WORK   (a model of bytes, and an adapter of it)

Prints "ok - ..." or "not ok - ..." for each case, and at the end how many there were.
"""
import base64
import concurrent.futures
import json
import os
import signal
import subprocess
import sys

import openai

sheaf, model, adapter, work = sys.argv[1:5]
count = 0


def case(name, good, *detail):
    global count
    count += 1
    print(("ok - " if good else "not ok - ") + name)
    for line in () if good else detail:
        print("#", repr(line)[:300])


def generate(*flags):
    out = subprocess.run([sheaf, "generate", model, *flags, "--json"], capture_output=True, text=True, check=True).stdout
    said = json.loads(out)
    return said["results"][0] if "results" in said else said


def start(*flags):
    server = subprocess.Popen([sheaf, "serve", model, "--port", "0", "--json", *flags], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    return server, json.loads(server.stdout.readline())


def refused(name, kind, ask):
    try:
        case(name, False, ask())
    except kind as error:
        case(name, error.body is not None and "message" in error.body, error)


token = "0123456789abcdef-token"
with open(os.path.join(work, "token"), "w") as file:
    file.write(token + "\n")
server, serving = start("--adapter", adapter, "--batch", "4", "--token-file", os.path.join(work, "token"))
base, second = serving["models"]
client = openai.OpenAI(base_url=serving["url"] + "/v1", api_key=token, max_retries=0)

case("models", [m.id for m in client.models.list()] == [base, second])
case("a model by its name", client.models.retrieve(second).id == second)
talk = [{"role": "user", "content": "hello"}]
with open(os.path.join(work, "talk.jsonl"), "w") as file:
    file.write(json.dumps({"messages": talk}) + "\n")
data = ("--data", os.path.join(work, "talk.jsonl"), "--template", "chat")

want = generate(*data, "--max-new", "20", "--temperature", "0.8", "--seed", "5", "--logprobs", "2")
got = client.chat.completions.create(model=base, messages=talk, max_tokens=20, temperature=0.8, seed=5, logprobs=True, top_logprobs=2)
case("an answer is that of generate", got.choices[0].message.content == want["text"], got, want)
case("its probabilities too", all(abs(a.logprob - b["logprob"]) < 1e-5 for a, b in zip(got.choices[0].logprobs.content, want["logprobs"]))
     and len(got.choices[0].logprobs.content[0].top_logprobs) == 2)
case("usage adds up", got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens)
back = client.chat.completions.create(model=base, messages=[*talk, got.choices[0].message.model_dump(), *talk], max_tokens=1, tools=[],
                                      tool_choice="none", response_format={"type": "text"}, reasoning_effort=None)
case("a message goes back as it came", back.usage.prompt_tokens > got.usage.total_tokens, back)
pieces, reason, usage = "", None, None
for chunk in client.chat.completions.create(model=base, messages=talk, max_tokens=20, temperature=0.8, seed=5, stream=True,
                                            stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        pieces += choice.delta.content or ""
        reason = choice.finish_reason or reason
case("streamed it is the same", pieces == want["text"] and reason in ("length", "stop"), pieces, want["text"])
case("with its usage", usage is not None and usage.completion_tokens == got.usage.completion_tokens)
got = client.responses.create(model=base, input="hello", max_output_tokens=20, temperature=0.8, extra_body={"seed": 5})
case("a response is the same", got.output_text == want["text"] and got.usage.output_tokens == usage.completion_tokens, got, want)
events = list(client.responses.create(model=base, input=talk, max_output_tokens=20, temperature=0.8, stream=True, extra_body={"seed": 5}))
pieces, last = "".join(event.delta for event in events if event.type == "response.output_text.delta"), events[-1].response
case("streamed, too", pieces == last.output_text == want["text"] and last.status == got.status, pieces, last)
schema = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"], "additionalProperties": False}
got = client.responses.create(model=base, input="hello", max_output_tokens=200, extra_body={"seed": 5},
                              text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
case("of a schema", json.loads(got.output_text) == {"a": "b"}, got)
want = generate("--adapter", adapter, "--prompt", "some words", "--max-new", "12", "--greedy")
got = client.completions.create(model=second, prompt="some words", max_tokens=12, temperature=0, logprobs=2)
case("an adapter answers by its name", got.choices[0].text == want["text"], got, want)
case("logprobs of completions", len(got.choices[0].logprobs.tokens) == len(got.choices[0].logprobs.token_logprobs) > 0)


def one(seed):
    return client.completions.create(model=(base, second)[seed % 2], prompt="p" * (seed + 1), max_tokens=3 * seed + 1, temperature=0.9,
                                     seed=seed).choices[0].text


with concurrent.futures.ThreadPoolExecutor(16) as pool:
    said = list(pool.map(one, range(16)))
for seed in range(16):
    flags = ("--adapter", adapter) if seed % 2 else ()
    want = generate(*flags, "--prompt", "p" * (seed + 1), "--max-new", str(3 * seed + 1), "--temperature", "0.9", "--seed", str(seed))
    case(f"sixteen at once: {seed}", said[seed] == want["text"], said[seed], want["text"])

refused("an unknown model", openai.NotFoundError, lambda: client.completions.create(model="other", prompt="a"))
refused("one by name", openai.NotFoundError, lambda: client.models.retrieve("owner/other model"))
refused("calls where the template has no place for them", openai.BadRequestError, lambda: client.chat.completions.create(
    model=base, messages=[*talk, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, *talk]))
refused("a response before", openai.BadRequestError, lambda: client.responses.create(model=base, input="a", previous_response_id="b"))
refused("a bad number", openai.BadRequestError, lambda: client.completions.create(model=base, prompt="a", temperature=-1))
refused("another key", openai.AuthenticationError,
        lambda: openai.OpenAI(base_url=serving["url"] + "/v1", api_key="other", max_retries=0).models.list())
picture = "data:image/png;base64," + base64.b64encode(b"none").decode()
refused("a picture where none is seen", openai.BadRequestError, lambda: client.chat.completions.create(
    model=base, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]}]))
stream = client.chat.completions.create(model=base, messages=talk, max_tokens=500, stream=True)
next(iter(stream))
stream.close()
case("after a stream that was closed", client.completions.create(model=base, prompt="a", max_tokens=2).choices[0].finish_reason == "length")

server.send_signal(signal.SIGINT)
case("Ctrl-C ends it", server.wait(60) == 0)
print(f"{count} cases of the openai client {openai.__version__}")
