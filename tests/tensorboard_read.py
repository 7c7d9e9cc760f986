"""What TensorBoard's own reader finds in a run's event files is what metrics.jsonl says.

    tensorboard_read.py FOLDER METRICS

Each step once, in order, also where the run was stopped and went on from an earlier step.
"""

import json
import math
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder, metrics = sys.argv[1:]
board = EventAccumulator(folder, size_guidance={"scalars": 0})
board.Reload()
lines = [json.loads(line) for line in open(metrics)]
failed = 0


def as_float(value):
    return math.nan if value is None else struct.unpack("<f", struct.pack("<f", value))[0]


def check(tag, key, digits=None):
    """digits: metrics.jsonl rounds to so many after the point."""
    global failed
    wanted = [(line["step"], line[key]) for line in lines if key in line]
    found = {}
    for event in board.Scalars(tag):
        found.setdefault(event.step, []).append(event.value)
    same = list(found) == [step for step, _ in wanted]
    for step, value in wanted:
        values = found.get(step, [])
        # an evaluation of a stopped run that comes again gives the same value
        good = len(values) == 1 or tag.startswith("eval/") and len(set(values)) == 1
        if digits is not None:
            good = good and abs(values[0] - value) <= 10**-digits + 1e-6 * abs(value)
        else:
            good = good and (values[0] == as_float(value) or value is None and not math.isfinite(values[0]))
        same = same and good
    failed += not same
    print(f"{'ok' if same else 'not ok'} - {tag}: {len(wanted)} values of {key}")
    if not same:
        print(f"# wanted {wanted}\n# found {found}")


check("train/loss", "loss")
check("train/grad_norm", "grad_norm")
check("train/learning_rate", "lr")
check("train/tokens_per_s", "tokens_per_s", 1)
check("eval/loss", "eval_loss")
check("eval/accuracy", "eval_accuracy")
memory = [event.value for event in board.Scalars("train/memory")]
wanted = [as_float(max(rank["memory"] for rank in line["ranks"])) for line in lines if "ranks" in line]
same = memory == wanted
failed += not same
print(f"{'ok' if same else 'not ok'} - train/memory: {len(wanted)} values of the fullest rank")
print(f"tags of TensorBoard's reader: {len(board.Tags()['scalars'])}")
sys.exit(failed > 0)
