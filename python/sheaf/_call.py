"""Calls that take long: callbacks into Python, events, and Ctrl-C."""

from __future__ import annotations

import ctypes
import logging
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, TypeVar

from . import _structs as c
from ._library import check, decoded, error_of, lib
from .errors import Stopped, spelled

log = logging.getLogger("sheaf")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Step:
    """One step of the optimizer is done."""

    step: int  # from 1
    steps: int  # of the whole run
    loss: float  # NaN: no token of this step had a label
    grad_norm: float
    lr: float
    tokens: int
    seconds: float
    memory: int  # bytes of the fullest rank; 0: not known
    skipped: bool  # a float16 step whose gradients were not finite
    loss_scale: float
    values: Dict[str, float]  # of the objective, by TRL's names: "rewards/chosen"


@dataclass(frozen=True)
class Evaluation:
    """The model was judged between two steps."""

    step: int
    steps: int
    loss: float
    accuracy: float
    tokens: int
    seconds: float
    best: bool
    values: Dict[str, float]


@dataclass(frozen=True)
class Event:
    """What an operation reports while it runs."""

    kind: str  # "note", "warning", "step", "progress" or "evaluation"
    text: str  # of a note, a warning; units of progress
    done: int = 0  # of progress
    total: int = 0
    step: Optional[Step] = None
    evaluation: Optional[Evaluation] = None


KINDS = ("note", "warning", "step", "progress", "evaluation")


def copied(kind: Any, struct: Any) -> Any:
    fields = {name: getattr(struct, name) for name in kind.__dataclass_fields__}
    if "values" in kind.__dataclass_fields__:
        fields["values"] = {decoded(more.name): more.value for more in struct.value[: struct.values]}
    return kind(**fields)


def event_of(struct: Any) -> Event:
    kind = KINDS[struct.kind] if 0 <= struct.kind < len(KINDS) else "note"
    return Event(
        kind,
        spelled(decoded(struct.text)),
        struct.done,
        struct.total,
        copied(Step, struct.step) if kind == "step" else None,
        copied(Evaluation, struct.evaluation) if kind == "evaluation" else None,
    )


def logged(event: Event) -> None:
    """Where the caller takes no events: warnings and notes go to the logger "sheaf"."""
    if event.kind in ("note", "warning"):
        log.log(logging.WARNING if event.kind == "warning" else logging.INFO, "%s", event.text)


class Call:
    """One call of the library: what can stop it, and what its callbacks raised.

    In the main thread it runs in a thread of its own, as Python notices Ctrl-C only where Python runs: then it is asked
    to stop, and KeyboardInterrupt is raised once it has. What a callback raises stops it too.

    Nothing that C uses is freed before its thread is done: the thread holds the function that it calls, which holds the
    arguments, whose events hold this call.
    """

    def __init__(self, on_event: Optional[Callable[[Event], None]] = None) -> None:
        control = ctypes.c_void_p()
        check(lib.sheaf_control_new(ctypes.byref(control)))
        self.control = control
        weakref.finalize(self, lib.sheaf_control_free, control)
        self.raised: Optional[BaseException] = None
        take = logged if on_event is None else on_event

        def emit(_context: Any, event: Any) -> None:
            self.guarded(None, lambda: take(event_of(c.sheaf_event.from_address(event))))

        self._emit = c.callback(c.sheaf_events, "emit")(emit)  # lives as long as the call
        self.events = ctypes.pointer(c.sheaf_events(self._emit, None))

    def stop(self) -> None:
        lib.sheaf_control_stop(self.control)

    def guarded(self, otherwise: Result, function: Callable[[], Result]) -> Result:
        """What a callback returns; what it raises is kept, and the call stopped."""
        try:
            return function()
        except BaseException as raised:
            self._keep(raised)
            return otherwise

    def _keep(self, raised: BaseException) -> None:
        if self.raised is None:
            self.raised = raised
        self.stop()

    def _finish(self, function: Callable[[], Any]) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return function()
        status: List[Any] = []
        failed: List[BaseException] = []
        begun, done = threading.Lock(), threading.Event()

        def work() -> None:
            if not begun.acquire(blocking=False):
                return  # the caller was interrupted before
            try:
                status.append(function())
            except BaseException as error:
                failed.append(error)
            done.set()

        # KeyboardInterrupt, or what another signal's handler raises, may come in each of these lines.
        try:
            threading.Thread(target=work, name="sheaf").start()
        except BaseException as raised:
            if begun.acquire(blocking=False):
                raise  # and it never begins
            self._keep(raised)
        while not done.is_set():
            try:
                done.wait()
            except BaseException as raised:
                self._keep(raised)
        if failed:
            raise failed[0]
        return status[0]

    def run(
        self, function: Callable[[], Any], undo: Callable[[], Any] = lambda: None, within: Optional["Call"] = None
    ) -> None:
        """Calls what returns a status. `undo` frees the result of a call that succeeded when there is something to raise.

        Callbacks of `within` may run too; what they raised is raised here.
        """
        error = error_of(self._finish(function))
        if within is not None and within.raised is not None:
            self._keep(within.raised)
            within.raised = None
        if self.raised is not None:
            if error is None:
                undo()
            raise self.raised from (None if isinstance(error, Stopped) else error)
        if error is not None:
            raise error
