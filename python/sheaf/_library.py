"""libsheaf.so: loaded once; its functions with their types, its status as an exception."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _structs as c
from .errors import BY_CODE, Error

StrPath = Union[str, "os.PathLike[str]"]

NAME = "libsheaf.so.0"


def _load() -> ctypes.CDLL:
    """The library that was installed with this module, else the system's."""
    mine = Path(__file__).parent / "native" / NAME
    return ctypes.CDLL(str(mine) if mine.exists() else NAME)


def _ref(struct: Any) -> Any:
    return POINTER(struct)


# Function: (what it returns, its parameters). A c_void_p that is returned is a status to check(), a pointer that is
# borrowed, or NULL. CDLL lets other Python threads run while a function is at work.
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "sheaf_version": (c_char_p, []),
    "sheaf_status_code": (c_int, [c_void_p]),
    "sheaf_status_errno": (c_int, [c_void_p]),
    "sheaf_status_where": (c_char_p, [c_void_p]),
    "sheaf_status_expected": (c_char_p, [c_void_p]),
    "sheaf_status_found": (c_char_p, [c_void_p]),
    "sheaf_status_try": (c_char_p, [c_void_p]),
    "sheaf_status_free": (None, [c_void_p]),
    "sheaf_dtype_name": (c_char_p, [c_int]),
    "sheaf_dtype_bytes": (c_size_t, [c_int]),
    "sheaf_dtype_from_torch_name": (c_int, [c_char_p]),
    "sheaf_control_new": (c_void_p, [POINTER(c_void_p)]),
    "sheaf_control_free": (None, [c_void_p]),
    "sheaf_control_stop": (None, [c_void_p]),
    "sheaf_weights_open": (c_void_p, [POINTER(c_void_p), c_char_p, _ref(c.sheaf_weights_options)]),
    "sheaf_weights_close": (None, [c_void_p]),
    "sheaf_weights_info": (c_void_p, [_ref(c.sheaf_weights_facts), c_void_p]),
    "sheaf_weights_count": (c_int64, [c_void_p]),
    "sheaf_weights_entry": (_ref(c.sheaf_source_entry), [c_void_p, c_int64]),
    "sheaf_weights_find": (_ref(c.sheaf_source_entry), [c_void_p, c_char_p]),
    "sheaf_weights_read": (c_void_p, [c_void_p, c_size_t, c_void_p, c_char_p, c_int64, c_int64]),
    "sheaf_weights_verify": (c_void_p, [POINTER(c_void_p), c_char_p, _ref(c.sheaf_weights_verify_options)]),
    "sheaf_verification_info": (c_void_p, [_ref(c.sheaf_verification_facts), c_void_p]),
    "sheaf_verification_count": (c_int64, [c_void_p]),
    "sheaf_verification_finding": (_ref(c.sheaf_finding), [c_void_p, c_int64]),
    "sheaf_verification_free": (None, [c_void_p]),
    "sheaf_weights_convert": (c_void_p, [_ref(c.sheaf_weights_convert_report), _ref(c.sheaf_weights_convert_options)]),
    "sheaf_weights_merge": (c_void_p, [_ref(c.sheaf_weights_merge_report), _ref(c.sheaf_weights_merge_options)]),
    "sheaf_run_train": (c_void_p, [_ref(c.sheaf_run_train_report), _ref(c.sheaf_run_train_options)]),
    "sheaf_run_train_report_release": (None, [_ref(c.sheaf_run_train_report)]),
    "sheaf_run_plan": (c_void_p, [POINTER(c_void_p), _ref(c.sheaf_run_train_options), _ref(c.sheaf_plan_options)]),
    "sheaf_foreign_program_of": (_ref(c.sheaf_foreign_program), [c_char_p]),
    "sheaf_foreign_rule_of": (_ref(c.sheaf_foreign_rule), [_ref(c.sheaf_foreign_program), c_char_p]),
    "sheaf_run_setting_check": (c_void_p, [c_char_p, c_char_p]),
    "sheaf_needs_json": (c_char_p, [c_void_p]),
    "sheaf_needs_free": (None, [c_void_p]),
    "sheaf_model_open": (c_void_p, [POINTER(c_void_p), _ref(c.sheaf_model_open_options)]),
    "sheaf_model_info": (c_void_p, [_ref(c.sheaf_model_facts), c_void_p]),
    "sheaf_model_close": (None, [c_void_p]),
    "sheaf_model_generate_all": (
        c_void_p,
        [POINTER(c_void_p), c_void_p, _ref(c.sheaf_model_prompt), c_int64, _ref(c.sheaf_model_generate_options)],
    ),
    "sheaf_answer_tokens": (c_void_p, [c_void_p, POINTER(c_int64)]),
    "sheaf_answer_text": (c_char_p, [c_void_p]),
    "sheaf_answer_ending": (c_int, [c_void_p]),
    "sheaf_answer_logprobs": (c_void_p, [c_void_p]),
    "sheaf_answer_top": (POINTER(c_int32), [c_void_p, c_int64, POINTER(c_int64), POINTER(POINTER(ctypes.c_float))]),
    "sheaf_answer_free": (None, [c_void_p]),
}

lib: Any = _load()
for _name, (_result, _parameters) in _FUNCTIONS.items():
    _function = getattr(lib, _name)
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


def error_of(status: Optional[int]) -> Optional[Error]:
    """The exception that a status is, which is freed; None for success."""
    if status is None:
        return None
    try:
        kind = BY_CODE.get(lib.sheaf_status_code(status), Error)
        return kind(
            decoded(lib.sheaf_status_where(status)),
            decoded(lib.sheaf_status_expected(status)),
            decoded(lib.sheaf_status_found(status)),
            decoded(lib.sheaf_status_try(status)),
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


__all__ = ["Held", "NAME", "StrPath", "c_bool", "check", "chosen", "decoded", "dtype_number", "encoded", "error_of", "facts", "lib", "texts"]
