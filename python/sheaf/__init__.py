"""sheaf: fine-tunes, stores, merges and runs language models, with the same bytes on any number of devices.

A thin module over the C library libsheaf: see docs/python.md.
"""

from ._call import Evaluation, Event, Step
from ._library import decoded as _decoded
from ._library import lib as _lib
from .errors import (
    ArgumentError,
    Changed,
    DataError,
    Error,
    FormatError,
    LayoutError,
    NumberError,
    OutOfMemory,
    PeerFailed,
    Stopped,
    SystemRefused,
    Unsafe,
    Unsupported,
)
from .model import Answer, Model
from .runs import Trained, plan, train
from .weights import Converted, Finding, Merged, Tensor, Verification, Weights, convert, merge, open, verify

__version__: str = _decoded(_lib.sheaf_version())

__all__ = [
    "Answer",
    "ArgumentError",
    "Changed",
    "Converted",
    "DataError",
    "Error",
    "Evaluation",
    "Event",
    "Finding",
    "FormatError",
    "LayoutError",
    "Merged",
    "Model",
    "NumberError",
    "OutOfMemory",
    "PeerFailed",
    "Step",
    "Stopped",
    "SystemRefused",
    "Tensor",
    "Trained",
    "Unsafe",
    "Unsupported",
    "Verification",
    "Weights",
    "convert",
    "merge",
    "open",
    "plan",
    "train",
    "verify",
]
