"""Numbers of the library as arrays: NumPy's where it is installed, else memoryviews."""

from __future__ import annotations

import ctypes
from importlib import import_module
from math import prod
from typing import Any, Dict, Sequence, Tuple, Type

# By safetensors' name: what ctypes and memoryviews call it, and NumPy. Types that have no counterpart are their bits:
# `torch.from_numpy(a).view(torch.bfloat16)` is a BF16.
_TYPES: Dict[str, Tuple[Type[Any], str, str]] = {
    "BOOL": (ctypes.c_uint8, "B", "bool"),
    "U8": (ctypes.c_uint8, "B", "uint8"),
    "I8": (ctypes.c_int8, "b", "int8"),
    "F8_E5M2": (ctypes.c_uint8, "B", "uint8"),
    "F8_E4M3": (ctypes.c_uint8, "B", "uint8"),
    "F8_E8M0": (ctypes.c_uint8, "B", "uint8"),
    "F8_E4M3FNUZ": (ctypes.c_uint8, "B", "uint8"),
    "F8_E5M2FNUZ": (ctypes.c_uint8, "B", "uint8"),
    "I16": (ctypes.c_int16, "h", "int16"),
    "U16": (ctypes.c_uint16, "H", "uint16"),
    "F16": (ctypes.c_uint16, "H", "float16"),
    "BF16": (ctypes.c_uint16, "H", "uint16"),
    "I32": (ctypes.c_int32, "i", "int32"),
    "U32": (ctypes.c_uint32, "I", "uint32"),
    "F32": (ctypes.c_float, "f", "float32"),
    "F64": (ctypes.c_double, "d", "float64"),
    "I64": (ctypes.c_int64, "q", "int64"),
    "U64": (ctypes.c_uint64, "Q", "uint64"),
}


def _shown(memory: Any, dtype: str, shape: Sequence[int], writable: bool) -> Any:
    """The numbers that `memory`, an array of ctypes, holds; it lives as long as what is returned."""
    _, letter, name = _TYPES[dtype]
    try:
        numpy: Any = import_module("numpy")
    except ImportError:
        view = memoryview(memory).cast("B").cast(letter)
        if len(shape) != 1 and prod(shape) > 0:
            view = view.cast("B").cast(letter, shape=list(shape))
        return view if writable else view.toreadonly()
    array = numpy.frombuffer(memory, dtype=name).reshape(shape)
    array.flags.writeable = writable
    return array


def known(dtype: str) -> bool:
    return dtype in _TYPES


def room(dtype: str, shape: Sequence[int]) -> Tuple[Any, Any]:
    """New memory, and the array that shows it."""
    memory = (_TYPES[dtype][0] * prod(shape))()
    return memory, _shown(memory, dtype, shape, True)


def lent(address: int, dtype: str, count: int, owner: object) -> Any:
    """An array of memory that `owner` lends, read only and without a copy."""
    memory = (_TYPES[dtype][0] * count).from_address(address) if count > 0 else (_TYPES[dtype][0] * 0)()
    memory.owner = owner
    return _shown(memory, dtype, (count,), False)
