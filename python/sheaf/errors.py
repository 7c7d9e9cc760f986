"""What the library refuses, as exceptions."""

from __future__ import annotations

import re
from typing import Dict, Type

# As base/spell.h has them: "`tp 4`"; what stands in double quotes is a record's or a file's.
FIELD = re.compile(r'"[^"]*"|`([a-z][a-z0-9-]*)(?: ([^`\n]+))?`')


def _keyword(found: "re.Match[str]") -> str:
    if found[1] is None:
        return found[0]
    return f"{found[1].replace('-', '_')}={found[2] or ''}"


def spelled(text: str) -> str:
    """A text of the library, with the fields that it names as keywords: "`lora-rank 8`" is lora_rank=8."""
    return FIELD.sub(_keyword, text)


class Error(Exception):
    """A call of the library failed. It says where, what was expected, what was found, what to try.

    Texts are empty where there is nothing to say; `errno` is the operating system's error, or 0.
    """

    where: str
    expected: str
    found: str
    try_: str
    errno: int

    def __init__(
        self, where: str, expected: str = "", found: str = "", try_: str = "", errno: int = 0
    ) -> None:
        super().__init__(where, expected, found, try_, errno)
        self.where, self.expected, self.found, self.try_ = where, expected, found, try_
        self.errno = errno

    def __str__(self) -> str:
        lines = [self.where]
        for name, text in (("expected", self.expected), ("found", self.found), ("try", self.try_)):
            if text:
                lines.append(f"  {name + ':':<9} {text}")
        return "\n".join(lines)


class ArgumentError(Error, ValueError):
    """An argument or a setting cannot be."""


class OutOfMemory(Error, MemoryError):
    """Memory does not suffice, by the planner or in fact."""


class SystemRefused(Error):
    """The system refused to open, read, write, sync or rename."""


class FormatError(Error):
    """Bytes do not follow their file format."""


class LayoutError(Error):
    """Shapes, names or parts contradict the model or each other."""


class Unsupported(Error):
    """Understood, and refused."""


class DataError(Error):
    """Training data or a prompt is bad."""


class NumberError(Error):
    """A loss or a weight is not finite."""


class PeerFailed(Error):
    """Another rank failed."""


class Stopped(Error):
    """It was asked to stop: what trains has saved its state, what writes left nothing behind."""


class Unsafe(Error):
    """A pickle wants to call something, which was not called."""


class Changed(Error):
    """A file was written to while it was read."""


# By sheaf_code (include/sheaf/status.h).
BY_CODE: Dict[int, Type[Error]] = {
    1: ArgumentError,
    2: OutOfMemory,
    3: SystemRefused,
    4: FormatError,
    5: LayoutError,
    6: Unsupported,
    7: DataError,
    8: NumberError,
    9: PeerFailed,
    10: Stopped,
    11: Unsafe,
    12: Changed,
}
