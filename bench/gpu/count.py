#!/usr/bin/env python3
"""count.py STATS [LIMITS KIND] - what the kernels of tensor cores spend on an mma, of the counts that ptxrun leaves in
STATS (PTXRUN_STATS): warp instructions in all, integer ones, passes of shared memory beside those without bank conflicts,
sectors of global memory beside those of dense accesses.

With LIMITS, whose lines are "KIND KERNEL ALL INTEGER", it fails where a kernel of KIND spends over 1 % more, or is not
there.
"""
import json
import sys


def rows(stats):
    for line in open(stats):
        k = json.loads(line)
        mma = k.get("mma", 0) + k.get("wgmma", 0)
        if mma == 0 or k["kernel"].startswith("probe"):
            continue
        yield (k["kernel"], mma, k["warp_instructions"] / mma, k.get("alu", 0) / mma,
               k["shared_passes"] / max(1, k["shared_passes_without_conflicts"]), k["sectors"] / max(1, k["sectors_if_dense"]))


def main():
    now = {}
    print("| kernel | mma | all | integer | passes | sectors |\n|---|---|---|---|---|---|")
    for name, mma, every, integer, passes, sectors in sorted(rows(sys.argv[1])):
        now[name] = (every, integer)
        print(f"| {name} | {mma} | {every:.1f} | {integer:.1f} | {passes:.2f} | {sectors:.2f} |")
    bad = 0
    if len(sys.argv) > 2:
        for line in open(sys.argv[2]):
            words = line.split()
            if not words or words[0] != sys.argv[3]:
                continue
            kind, name, *limits = words
            got = now.get(name)
            if got is None or any(is_ > float(limit) * 1.01 for is_, limit in zip(got, limits)):
                print(f"{name} of {kind}: {'not run' if got is None else '%.2f and %.2f' % got} instructions an mma, in all and of integers; expected at most {' and '.join(limits)}")
                bad = 1
    sys.exit(bad)


if __name__ == "__main__":
    main()
