"""reward_letters.py - a reward by rule: as a program of `sheaf train --reward`, and for rival_grpo.py."""
import json
import sys


def reward(text):
    return text.count("e") / 4 - len(text) / 400


if __name__ == "__main__":
    for line in sys.stdin:
        print(reward(json.loads(line)["completion"]))
