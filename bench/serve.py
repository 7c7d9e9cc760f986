"""serve.py - `sheaf serve` under load beside llama.cpp's server, on one GGUF file.

Clients ask one question after the other, streamed, with prompts of 50 to 2,000 tokens, of which no two
begin alike. Programs take turns, round by round. Given are, of all rounds together: tokens of answers in
a second, the time to the first token (median, and the worst of a hundred), tokens of answers and prompts in a
processor second (of use on a busy machine), and the largest resident memory of the server. Keys and values have 16
bits in both: in llama.cpp's server they are float16 by default, here they are in `--dtype`.
"""
import argparse
import http.client
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time

from compare import HERE, machine, quiet_environment

LEAST, NEW = 50, 64  # tokens of the shortest prompt, and of an answer


def texts(count, most):
    """Prompts of up to `most` tokens, even by logarithm: the docs from `count` places."""
    folder = os.path.join(HERE, "..", "docs")
    words = " ".join(open(os.path.join(folder, name)).read() for name in sorted(os.listdir(folder)) if name.endswith(".md")).split()
    for i in range(count):
        size = LEAST * (most / LEAST) ** ((i * 0.618034) % 1)
        at = i * 7919 % (len(words) - most)
        yield "%d. " % i + " ".join(words[at:at + int(size * 0.45)])


def ask(address, model, prompt, out):
    """Appends (seconds to the first token, tokens of the prompt, tokens of the answer)."""
    begin, first, usage = time.perf_counter(), None, None
    connection = http.client.HTTPConnection(address, timeout=3600)
    connection.request("POST", "/v1/completions", json.dumps({
        "model": model, "prompt": prompt, "max_tokens": NEW, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}),
        {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise RuntimeError("serve: %s" % chunk)
            first = first or time.perf_counter() - begin
            usage = chunk.get("usage") or usage
    out.append((first, usage["prompt_tokens"], usage["completion_tokens"]))
    connection.close()


def of_process(pid):
    """Processor seconds and peak resident bytes."""
    fields = open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()
    peak = re.search(r"VmHWM:\s*(\d+)", open("/proc/%d/status" % pid).read())
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(peak[1]) * 1024


def load(args, command, clients):
    """One round: a server, and `clients` that ask it."""
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=quiet_environment())
    line = server.stdout.readline().decode()
    address = re.search(r"http://([^\"/\s]*)", line)[1]
    model = json.loads(line)["models"][0] if line.startswith("{") else "model"
    ask(address, model, "warm", [])
    prompts, answers, failed, lock = list(texts(clients * args.requests, args.most)), [], [], threading.Lock()

    def client():
        while True:
            with lock:
                if not prompts:
                    return
                prompt = prompts.pop()
            try:
                ask(address, model, prompt, answers)
            except Exception as error:
                failed.append(error)
                return

    before, begin = of_process(server.pid)[0], time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall, (processor, peak) = time.perf_counter() - begin, of_process(server.pid)
    server.send_signal(signal.SIGINT)
    server.wait()
    if failed:
        sys.exit("%d of %d clients failed, first: %s" % (len(failed), clients, failed[0]))
    return {"wall": wall, "processor": processor - before, "peak": peak, "answers": answers}


def show(name, clients, rounds):
    answers = [one for r in rounds for one in r["answers"]]
    first = sorted(one[0] for one in answers)
    new, all_tokens = sum(one[2] for one in answers), sum(one[1] + one[2] for one in answers)
    wall, processor = sum(r["wall"] for r in rounds), sum(r["processor"] for r in rounds)
    print("| %s | %d | %.1f | %.2f | %.2f | %.1f | %.0f |" % (
        name, clients, new / wall, first[len(first) // 2], first[math.ceil(len(first) * 0.99) - 1], all_tokens / processor,
        max(r["peak"] for r in rounds) / 1e6), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sheaf", default="build/sheaf")
    parser.add_argument("--gguf", default="build/demo-real/smollm2.gguf")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--requests", type=int, default=2, help="of each client, in each round")
    parser.add_argument("--most", type=int, default=2000, help="tokens of the longest prompt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--places", type=int, default=8, help="answers side by side")
    parser.add_argument("--dtype", default="bfloat16", help="sheaf's activations, keys and values")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    length = args.most + 304
    programs = {
        "sheaf": [args.sheaf, "serve", args.gguf, "--port", "0", "--json", "--batch", str(args.places), "--threads", str(args.threads),
                  "--max-length", str(length), "--dtype", args.dtype],
        "llama.cpp": [sys.executable, os.path.join(HERE, "rival_server.py"), "--gguf", args.gguf, "--places", str(args.places),
                      "--length", str(length), "--threads", str(args.threads)]}
    print(machine())
    print("| server | clients | tokens/s | first p50, s | first p99, s | tokens per processor s | MB |")
    print("|---|---|---|---|---|---|---|")
    for clients in map(int, args.clients.split(",")):
        rounds = {name: [] for name in programs}
        for _ in range(args.rounds):
            for name, command in programs.items():
                rounds[name].append(load(args, command, clients))
                r = rounds[name][-1]
                print("%s, %d clients: %.1f s, %.1f processor s" % (name, clients, r["wall"], r["processor"]), file=sys.stderr, flush=True)
        for name in programs:
            show(name, clients, rounds[name])


if __name__ == "__main__":
    main()
