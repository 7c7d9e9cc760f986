"""Training, and what it would need (include/sheaf/train.h, plan.h)."""

from __future__ import annotations

import ctypes
import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Union

from . import _structs as c
from ._call import Call, Step, copied
from ._library import StrPath, decoded, encoded, lib, options
from .weights import OnEvent

Setting = Union[None, str, bool, int, float, Sequence[Union[str, int, float]], "StrPath"]


def line_of(setting: str, value: str) -> str:
    """The line of a recipe, quoted where it would be read otherwise; as the library writes it."""
    if re.fullmatch(r"(?![ \t-])[^#'\"\[\]{}|>&*!%@`?\\]+(?<![ \t:])", value) and ": " not in value:
        return f"{setting}: {value}\n"
    quoted = value.replace("'", "''")
    return f"{setting}: '{quoted}'\n"


def recipe(settings: Mapping[str, Setting]) -> str:
    """Settings as the lines of a recipe: lora_rank=8 is "lora-rank: 8". None is left out, a list joined by commas."""
    lines = []
    for name, value in settings.items():
        if value is None:
            continue
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, (list, tuple)):
            text = ",".join(str(v) for v in value)
        else:
            text = str(value)
        if "\n" in text or "\r" in text:
            raise ValueError(f"{name}: one line")
        lines.append(line_of(name.replace("_", "-"), text))
    return "".join(lines)


@dataclass(frozen=True)
class Trained:
    """What train() did; `figures` is what `sheaf train --json` prints."""

    step: int  # steps done in all
    first: int  # steps that were done when this began
    loss: float
    seconds: float
    tokens: int
    padding: float
    parameters: int
    trained: int
    adapter: bool  # the result is OUT/adapter; else OUT/model
    evaluated: bool
    early: bool
    eval_loss: float
    best_step: int  # 0: none
    best_loss: float
    text: str
    figures: Dict[str, Any]


def _options(
    on_step: Optional[Callable[[Step], Optional[bool]]],
    on_event: OnEvent,
    settings: Mapping[str, Setting],
    given: Mapping[str, Any],
) -> Tuple[Call, Any]:
    call = Call(on_event)
    heard = on_step or (lambda _step: True)

    def step_done(_context: Any, step: Any) -> bool:
        said = copied(Step, c.sheaf_event_step.from_address(step))
        return call.guarded(False, lambda: heard(said) is not False)

    kind = c.sheaf_run_train_options
    return call, options(kind, given, call, settings=encoded(recipe(settings)), step=c.callback(kind, "step")(step_done))


def train(
    model: Optional[StrPath] = None,
    data: Optional[StrPath] = None,
    out: Optional[StrPath] = None,
    *,
    steps: int = 0,
    resume: bool = False,
    tp: int = 0,
    threads: int = 0,
    force: bool = False,
    on_step: Optional[Callable[[Step], Optional[bool]]] = None,
    on_event: OnEvent = None,
    **settings: Setting,
) -> Trained:
    """Begins a run in the folder `out`, or with `resume` goes on with the one there, to its end.

    model: folder of the base model; of a run that goes on the run's
    data: file or folder of records; of a run that goes on the run's
    out: the run's folder
    steps: optimizer steps in all; 0: as epochs=N says, or the run that goes on
    resume: go on with the run in `out`
    tp: ranks that share the model; 0: one, or as in the run
    threads: compute threads in all; 0: every core
    force: start also where memory does not suffice
    on_step: called with each Step; where it returns False, as on Ctrl-C and when it raises, the run saves its state and
        ends: Stopped, KeyboardInterrupt, or what was raised
    on_event: called with each Event; default: notes and warnings go to the logger "sheaf"
    settings: the flags of `sheaf train`, with their defaults: method="lora", lora_rank=8, lr=1e-4 (docs/cli.md)
    """
    report = c.sheaf_run_train_report()
    call, how = _options(on_step, on_event, settings, locals())

    def release() -> None:
        lib.sheaf_run_train_report_release(ctypes.byref(report))

    call.run(lambda: lib.sheaf_run_train(ctypes.byref(report), ctypes.byref(how)), release)
    try:
        known = {n: getattr(report, n) for n in Trained.__dataclass_fields__ if n not in ("text", "figures")}
        return Trained(text=decoded(report.text), figures=json.loads(decoded(report.json)), **known)
    finally:
        release()


def plan(
    model: Optional[StrPath] = None,
    data: Optional[StrPath] = None,
    *,
    memory: int = 0,
    tp: int = 0,
    threads: int = 0,
    place: Optional[str] = None,
    max_new: int = 0,
    images: Optional[str] = None,
    time: bool = False,
    trial: bool = False,
    first_step: bool = False,
    table: Optional[str] = None,
    on_event: OnEvent = None,
    **settings: Setting,
) -> Dict[str, Any]:
    """What a run would need, from the model's config alone: the object of `sheaf plan --json` (docs/plan.md).

    model: folder of the model; config=PATH names its config.json instead
    data: file or folder of records; without it rows of `seq` tokens are assumed
    memory: bytes: the answer is the setting nearest to the one asked for that fits; 0: no limit
    tp: ranks that share the model; 0: one
    threads: compute threads in all; 0: every core
    place: of generation: layers over stages (docs/generate.md); default: of training
    max_new: of generation: tokens of an answer
    images: pictures of a row: "2", or "2:1344x896" with their size
    time: how long a step, or a token, takes
    trial: with data: the model itself takes steps for a minute
    first_step: with data: what the first step exchanges, byte for byte
    table: "ranks" or "methods": one row for each
    on_event: called with each Event; default: notes and warnings go to the logger "sheaf"
    settings: the flags of `sheaf train`, with their defaults: method="lora", lora_rank=8 (docs/cli.md)
    """
    how = options(c.sheaf_plan_options, locals())
    call, run = _options(None, on_event, settings, locals())
    out = ctypes.c_void_p()
    call.run(
        lambda: lib.sheaf_run_plan(ctypes.byref(out), ctypes.byref(run), ctypes.byref(how)),
        lambda: lib.sheaf_needs_free(out),
    )
    try:
        needs: Dict[str, Any] = json.loads(decoded(lib.sheaf_needs_json(out)))
        return needs
    finally:
        lib.sheaf_needs_free(out)
