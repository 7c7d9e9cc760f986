"""libsheaf.so: loaded once; its functions with their types, its status as an exception."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from ctypes import POINTER, c_char_p
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from . import _structs as c
from .errors import BY_CODE, Error, spelled

StrPath = Union[str, "os.PathLike[str]"]

NAME = "libsheaf.so.0"


def _load() -> ctypes.CDLL:
    """The library that was installed with this module, else the system's."""
    mine = Path(__file__).parent / "native" / NAME
    return ctypes.CDLL(str(mine) if mine.exists() else NAME)


lib: Any = _load()
# A c_void_p that is returned is a status to check(), a pointer that is borrowed, or NULL. CDLL lets other Python threads
# run while a function is at work.
for _name, (_result, _parameters) in c.functions.items():
    _function = getattr(lib, _name, None)
    if _function is not None:  # a library of another version
        _function.restype = _result
        _function.argtypes = _parameters


def decoded(value: Optional[bytes]) -> str:
    """A text of the library; names of files may be bytes that are no UTF-8."""
    return "" if value is None else value.decode("utf-8", "surrogateescape")


def encoded(value: Optional[StrPath]) -> Optional[bytes]:
    """A text or a path for the library; None stays none. A NUL would end it early."""
    if value is None:
        return None
    it = os.fspath(value).encode("utf-8", "surrogateescape")
    if b"\0" in it:
        raise ValueError("a text with a NUL character")
    return it


def texts(what: str, values: Optional[Sequence[StrPath]]) -> Any:
    """An array of texts that ends with NULL; None for none."""
    if isinstance(values, (str, bytes)):  # of which each character is a text
        raise TypeError(f"{what}: a list of texts, not one")
    if not values:
        return None
    return (c_char_p * (len(values) + 1))(*[encoded(v) for v in values], None)


def chosen(what: str, name: Optional[str], choices: Sequence[str]) -> int:
    """The number of a choice: 0 for None, else 1 for the first name."""
    if name is None:
        return 0
    if name not in choices:
        raise ValueError(f"{what}={name!r}: one of {', '.join(choices)}")
    return choices.index(name) + 1


def dtype_number(name: Optional[str]) -> int:
    """Of a type of numbers by torch's name; 0, the default, for None."""
    if name is None:
        return 0
    number = lib.sheaf_dtype_from_torch_name(encoded(name))
    if number < 0:
        raise ValueError(f"dtype={name!r}: float32, bfloat16 or float16")
    return int(number)


CHOICES: Dict[str, Sequence[str]] = {
    "mode": ("like-peft", "like-peft-safe"),
    "quantize": ("nf4", "nf4-double", "int8"),
    "sums": ("pairs", "tiles", "mma8", "mma16"),
    "table": ("ranks", "methods"),
}


def options(struct: Any, given: Mapping[str, Any], call: Any = None, **others: Any) -> Any:
    """A struct of options: of `given`, a function's arguments by their names, those that are its fields; the events and
    the control are those of the call."""
    fields = dict(others)
    for name, kind in struct._fields_:
        if name in others:
            continue
        if call is not None and name in ("events", "control"):
            fields[name] = getattr(call, name)
        elif name in given:
            value = given[name]
            if name == "dtype":
                value = dtype_number(value)
            elif name in CHOICES:
                value = chosen(name, value, CHOICES[name])
            elif kind is c_char_p:
                value = encoded(value)
            elif kind is POINTER(c_char_p):
                value = texts(name, value)
            fields[name] = value
    return struct(**fields)


def error_of(status: Optional[int]) -> Optional[Error]:
    """The exception that a status is, which is freed; None for success."""
    if status is None:
        return None
    try:
        kind = BY_CODE.get(lib.sheaf_status_code(status), Error)
        return kind(
            spelled(decoded(lib.sheaf_status_where(status))),
            spelled(decoded(lib.sheaf_status_expected(status))),
            spelled(decoded(lib.sheaf_status_found(status))),
            spelled(decoded(lib.sheaf_status_try(status))),
            lib.sheaf_status_errno(status),
        )
    finally:
        lib.sheaf_status_free(status)


def check(status: Optional[int]) -> None:
    """Raises what a status says."""
    error = error_of(status)
    if error is not None:
        raise error


class Held:
    """What the library keeps at `at` until close(): freed once no call uses it any more.

    Another thread may close it during a call, as may what the call itself calls.
    """

    def __init__(self, owner: object, name: str, at: Any, free: Any) -> None:
        self._name, self._at = name, at
        self._free = weakref.finalize(owner, free, at)
        self._lock = threading.Lock()
        self._users = 0
        self._open = True

    def __enter__(self) -> Any:
        with self._lock:
            if not self._open:
                raise ValueError(f"{self._name} closed")
            self._users += 1
        return self._at

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._users -= 1
            over = self._users == 0 and not self._open
        if over:
            self._free()

    def close(self) -> None:
        with self._lock:
            self._open = False
            over = self._users == 0
        if over:
            self._free()


def facts(struct: Any) -> Dict[str, Any]:
    """The members of a struct but its size; texts as str, None where they are NULL."""
    out: Dict[str, Any] = {}
    for name, kind, *_ in struct._fields_:
        value = getattr(struct, name)
        if name != "size":
            out[name] = decoded(value) if isinstance(value, bytes) else value
    return out


__all__ = ["CHOICES", "Held", "NAME", "StrPath", "check", "chosen", "decoded", "encoded", "error_of", "facts", "lib", "options", "texts"]
