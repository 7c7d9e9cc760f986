"""Structs and functions of the public headers, read from them: of include/sheaf, which the wheel has beside this file."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

from .errors import ArgumentError

_TYPES: Dict[str, Any] = {
    "void": None,
    "bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
_sizes: Dict[str, int] = {}  # of arrays, by the names of constants
functions: Dict[str, Tuple[Any, List[Any]]] = {}  # what each returns, its parameters


class Sized(ctypes.Structure):
    """Begins with its size, so that a library of another version knows its fields (options.h)."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **fields)
        for name, given in fields.items():  # ctypes leaves out bits without a word
            held = getattr(self, name)
            if isinstance(given, int) and not isinstance(held, bool) and held != given:
                raise ArgumentError(name, "a number that its type in C can hold", str(given))


def _declared(base: str, declarator: str) -> Tuple[str, Any]:
    """Name and type of "*name" or "name[8]" after the name of a type; what has no fields here is a void pointer."""
    found = re.search(r"(\w+)?(?:\[(\w+)\])?$", declarator.strip())
    assert found is not None
    kind, stars = _TYPES.get(base), declarator.count("*")
    if stars > 0 and base == "char":
        kind, stars = ctypes.c_char_p, stars - 1
    elif stars > 0 and kind is None:
        kind, stars = ctypes.c_void_p, stars - 1
    for _ in range(stars):
        kind = ctypes.POINTER(kind)
    if found[2] is not None:
        kind *= int(found[2]) if found[2].isdigit() else _sizes[found[2]]
    return found[1] or "", kind


def _split(declaration: str) -> Tuple[str, str]:
    """The name of the type, and the rest."""
    found = re.match(r"(?:const |struct )*(\w+)\s*(.*)", declaration.strip(), re.S)
    assert found is not None, declaration
    return found[1], found[2]


def _members(declaration: str) -> List[Tuple[str, Any]]:
    """What "int tp, dp" or "void (*emit)(void *context, const sheaf_event *event)" declares."""
    function = re.fullmatch(r"(.*)\(\*(\w+)\)\s*\((.*)\)", declaration.strip(), re.S)
    if function is None:
        base, names = _split(declaration)
        return [_declared(base, name) for name in names.split(",")]
    kinds = [_declared(*_split(part))[1] for part in (function[1], *function[3].split(","))]
    # pointers come as numbers: a callback must not keep what they point to
    plain = [ctypes.c_void_p if isinstance(k, type) and issubclass(k, ctypes._Pointer) else k for k in kinds]
    return [(function[2], ctypes.CFUNCTYPE(*plain))]


def _read(folder: Path, name: str, seen: List[str]) -> None:
    """The types of a header, after those of the headers that it includes."""
    if name in seen:
        return
    seen.append(name)
    text = re.sub(r"/\*.*?\*/", "", (folder / name).read_text(), flags=re.S)
    for other in re.findall(r'#include "sheaf/(\w+\.h)"', text):
        _read(folder, other, seen)
    for constant, value in re.findall(r"(SHEAF_\w+) = (\d+)", text):
        _sizes[constant] = int(value)
    for constant, value in re.findall(r"#define (SHEAF_\w+) (\d+)", text):
        _sizes[constant] = int(value)
    for kind, struct, body in re.findall(r"typedef (enum|struct) (\w+) \{(.*?)\n\} \2;", text, re.S):
        if kind == "enum":
            _TYPES[struct] = ctypes.c_int
            continue
        members = [m for declaration in body.split(";") if declaration.strip() for m in _members(declaration)]
        base = Sized if members[0][0] == "size" else ctypes.Structure
        _TYPES[struct] = globals()[struct] = type(struct, (base,), {"_fields_": members})
    for result, function, parameters in re.findall(r"^SHEAF_API ([^(]*?)(\w+)\(([^()]*)\);", text, re.M):
        kinds = [_declared(*_split(part))[1] for part in (result, *parameters.split(",")) if part != "void"]
        functions[function] = kinds[0], kinds[1:]


def __getattr__(name: str) -> Any:  # for what reads types: the structs are made below
    raise AttributeError(name)


_beside = Path(__file__).parent / "include"
_read(_beside if _beside.exists() else Path(__file__).parents[2] / "include/sheaf", "sheaf.h", [])


def callback(struct: Any, name: str) -> Any:
    """The type of a member that is a function."""
    return dict(struct._fields_)[name]
