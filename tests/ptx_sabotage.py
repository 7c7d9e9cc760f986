#!/usr/bin/env python3
"""ptx_sabotage.py - what orders the threads of a kernel is needed, and its loss is noticed.

    ptx_sabotage.py KIND FOLDER [--sample N] [--seed S] [--only REGEX] -- COMMAND...

Each barrier, wait, fence and commit of KIND (sm_80, sm_90a) in the kernels of FOLDER (PTX beside cubins) that COMMAND runs is
dropped, one at a time, and COMMAND runs again, on ptxrun: it has to fail, or ptxrun to complain. Not those of
ptx_equivalent.txt beside this, lines "REGEX of KERNEL INSTRUCTION NUMBER # why it is not noticed". --only: of "KERNEL
INSTRUCTION" that match. Prints "ok - " or "not ok - " for each.
"""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

ORDERS = re.compile(r"^\s*(?:@!?%p\d+\s+)?((?:bar|barrier|cp\.async\.(?:wait|commit)|mbarrier\.(?:init|arrive)|fence|membar|wgmma\.(?:fence|commit|wait))[.\w:]*)")
ENTRY = re.compile(r"\.entry (\w+)\(")


def instructions(ptx):
    """(kernel, line number, instruction, how many of it in the kernel before) of all that order."""
    kernel, found, count = "", [], {}
    for number, line in enumerate(ptx):
        entry = ENTRY.search(line)
        if entry:
            kernel, count = entry.group(1), {}
        order = ORDERS.match(line)
        if order:
            what = order.group(1)
            found.append((kernel, number, what, count.get(what, 0)))
            count[what] = count.get(what, 0) + 1
    return found


def run(command, ptx, **more):
    """What is wrong, or an empty text."""
    env = dict(os.environ, PTXRUN_PTX=ptx, **more)
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
    except subprocess.TimeoutExpired:
        return "it does not end"
    complaint = re.search(rb"^ptxrun: .*", done.stdout, re.M)
    if complaint:
        return complaint.group(0).decode(errors="replace")[:160]
    return f"code {done.returncode}" if done.returncode else ""


def main():
    a = argparse.ArgumentParser()
    a.add_argument("kind")
    a.add_argument("ptx")
    a.add_argument("--sample", type=int, default=0)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--only", default=".")
    a.add_argument("command", nargs="+")
    o = a.parse_args()
    failed = 0
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ptx_equivalent.txt")
    equivalent = [re.compile(line.split("#")[0].strip()) for line in open(beside) if line.split("#")[0].strip()]
    with tempfile.TemporaryDirectory() as work:
        files = sorted(f for f in os.listdir(o.ptx) if f.endswith((".ptx", ".cubin")))
        for f in files:
            shutil.copy(os.path.join(o.ptx, f), work)
        stats = os.path.join(work, "stats")
        bad = run(o.command, work, PTXRUN_STATS=stats)
        if bad:
            sys.exit(f"not ok - without a mistake: {bad}")
        ran = set(re.findall(r'"kernel": "(\w+)"', open(stats).read()))
        cases = []
        for f in files:
            if f.endswith(f".{o.kind}.ptx"):
                lines = open(os.path.join(work, f)).read().split("\n")
                cases += [(f,) + i for i in instructions(lines) if i[0] in ran and re.search(o.only, f"{i[0]} {i[2]}") and not any(e.fullmatch(f"{i[0]} {i[2]} {i[3]}") for e in equivalent)]
        if o.sample and o.sample < len(cases):
            random.seed(o.seed)
            cases = sorted(random.sample(cases, o.sample))
        lines_of = {}
        for f, kernel, number, what, nth in cases:
            path = os.path.join(work, f)
            if kernel not in lines_of:
                profile = os.path.join(work, "profile")
                run(o.command, work, PTXRUN_PROFILE=f"{kernel}:{profile}")
                lines_of[kernel] = {int(line.split()[1]) for line in open(profile) if line.split()[0] != "0"}
                os.remove(profile)
            if number + 1 not in lines_of[kernel]:
                continue
            whole = open(path).read()
            lines = whole.split("\n")
            lines[number] = "//" + lines[number]
            open(path, "w").write("\n".join(lines))
            noticed = run(o.command, work)
            open(path, "w").write(whole)
            failed += not noticed
            print(f"{'ok' if noticed else 'not ok'} - {kernel}: {what} number {nth}, {f} line {number + 1}: {noticed or 'nothing notices that it is missing'}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
