"""Models, adapters and checkpoints: opened, verified, converted, merged (include/sheaf/checkpoint.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from . import _structs as c
from . import arrays
from ._call import Call, Event, copied
from ._library import CHOICES, Held, StrPath, check, chosen, decoded, encoded, facts, lib, options
from .errors import Unsupported, spelled
from .keywords import strict

OnEvent = Optional[Callable[[Event], None]]
PACKED = ("gptq", "gptq-8", "awq")  # of files in hf alone
BLOCKS = ("q8_0", "q4_k_m", "q5_k_m", "q6_k")  # of files in GGUF alone
KINDS = ("model", "adapter", "checkpoint", "run", "file")
SEVERITIES = ("note", "warning", "defect")


@dataclass(frozen=True)
class Tensor:
    """What is known of a tensor without reading it."""

    name: str
    dtype: str  # safetensors' word: "F32", "BF16", ...
    shape: Tuple[int, ...]


def _tensor(entry: Any) -> Tensor:
    e = entry.contents
    return Tensor(decoded(e.name), decoded(lib.sheaf_dtype_name(e.dtype)), tuple(e.shape[: e.ndim]))


class Weights(Mapping[str, Tensor]):
    """The tensors at a path, by name, undivided whatever parts they lie in; use open()."""

    def __init__(self, path: StrPath, dialect: Optional[str] = None, config: Optional[StrPath] = None) -> None:
        at = ctypes.c_void_p()
        how = options(c.sheaf_weights_options, locals())
        check(lib.sheaf_weights_open(ctypes.byref(at), encoded(path), ctypes.byref(how)))
        self._held = Held(self, "these weights are", at, lib.sheaf_weights_close)
        it = c.sheaf_weights_facts()
        check(lib.sheaf_weights_info(ctypes.byref(it), at))
        self.kind: str = KINDS[it.kind]
        self.dialect: str = decoded(it.dialect)
        self.config: Optional[str] = None if it.config is None else decoded(it.config)
        self.tied: bool = it.tied
        self.elements: int = it.elements
        self.bytes: int = it.bytes

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> "Weights":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __len__(self) -> int:
        with self._held as at:
            return int(lib.sheaf_weights_count(at))

    def __iter__(self) -> Iterator[str]:
        for i in range(len(self)):
            with self._held as at:
                name = decoded(lib.sheaf_weights_entry(at, i).contents.name)
            yield name

    def __getitem__(self, name: str) -> Tensor:
        with self._held as at:
            entry = lib.sheaf_weights_find(at, encoded(name))
            if not entry:
                raise KeyError(name)
            return _tensor(entry)

    def read(self, name: str, first: int = 0, rows: Optional[int] = None) -> Any:
        """The values of a tensor, or some of its rows from `first` on: a NumPy array, or a memoryview without NumPy.

        A row is what one index of all axes but the last selects; of a vector, one element. All rows have the tensor's
        shape, some [rows, columns] or [rows]. Types that NumPy lacks are their bits: BF16 is uint16.
        """
        it = self[name]
        if not arrays.known(it.dtype):
            raise Unsupported(f"'{name}'", "a type of one number in whole bytes", it.dtype)
        columns = it.shape[-1:] if len(it.shape) > 1 else ()
        all_rows = 1
        for n in it.shape[:-1] if columns else it.shape:
            all_rows *= n
        count = all_rows - first if rows is None else rows
        shape = it.shape if first == 0 and rows is None else (max(count, 0), *columns)
        memory, array = arrays.room(it.dtype, shape)
        with self._held as at:
            check(
                lib.sheaf_weights_read(ctypes.byref(memory), ctypes.sizeof(memory), at, encoded(name), first, count)
            )
        return array


@strict
def open(path: StrPath, *, dialect: Optional[str] = None, config: Optional[StrPath] = None) -> Weights:
    """Opens any folder or file with tensors: headers alone are read, and no part of a tensor is missing.

    path: the folder or file
    dialect: its form (docs/dialects.md), where it is not recognised
    config: the model's config.json, where its folder has none
    """
    return Weights(path, dialect, config)


@dataclass(frozen=True)
class Finding:
    """One thing that is worth knowing about a checkpoint, or wrong with it (docs/verify.md)."""

    severity: str  # "note", "warning" or "defect"
    code: str  # "missing", "damaged", ...
    path: str
    tensor: str
    expected: str
    found: str
    cure: str


@dataclass(frozen=True)
class Verification:
    """What verify() found. Numbers are -1, parallel sizes 0 and texts "" where they are not known."""

    sound: bool  # no finding is a defect, and all parts lie in one place
    full: bool  # every byte was looked at
    partial: bool
    adapter: bool
    dialect: str
    title: str
    model: str
    config: str
    quantization: str
    tp: int
    pp: int
    dp: int
    step: int
    vocab: int
    padded_vocab: int
    tensors: int
    elements: int
    bytes: int
    lora: int
    moments: int
    read: int
    findings: Tuple[Finding, ...]

    def __bool__(self) -> bool:
        return self.sound


@strict
def verify(
    path: StrPath,
    *,
    quick: bool = False,
    dialect: Optional[str] = None,
    config: Optional[StrPath] = None,
    also: Sequence[StrPath] = (),
    base: Optional[StrPath] = None,
    threads: int = 0,
    on_event: OnEvent = None,
) -> Verification:
    """Is a checkpoint complete, consistent and undamaged? What is wrong with it is a finding, not an exception.

    path: its folder or file
    quick: structure only: no tensor data is read
    dialect: its form (docs/dialects.md), where it is not recognised
    config: the model's config.json, where its folder has none
    also: folders or files with other parts of it
    base: the model that an adapter is checked against; default that of its config, where it is here
    threads: threads; 0: every core
    on_event: called with each Event; default: notes and warnings go to the logger "sheaf"
    """
    out = ctypes.c_void_p()
    call = Call(on_event)
    how = options(c.sheaf_weights_verify_options, locals(), call)
    where = encoded(path)
    call.run(
        lambda: lib.sheaf_weights_verify(ctypes.byref(out), where, ctypes.byref(how)),
        lambda: lib.sheaf_verification_free(out),
    )
    try:
        it = c.sheaf_verification_facts()
        check(lib.sheaf_verification_info(ctypes.byref(it), out))
        found: List[Finding] = []
        for i in range(lib.sheaf_verification_count(out)):
            f = lib.sheaf_verification_finding(out, i).contents
            words = [spelled(decoded(getattr(f, n))) for n in ("code", "path", "tensor", "expected", "found", "cure")]
            found.append(Finding(SEVERITIES[f.severity], *words))
        known = {name: "" if value is None else value for name, value in facts(it).items()}
    finally:
        lib.sheaf_verification_free(out)
    return Verification(
        findings=tuple(found),
        **{name: known[name] for name in Verification.__dataclass_fields__ if name != "findings"},
    )


@dataclass(frozen=True)
class Converted:
    """What convert() wrote."""

    tensors: int
    bytes: int
    moments: int
    merged: int
    adapted: int
    step: int  # -1: not known or not kept
    parts: int
    quantised: int


@strict
def convert(
    src: StrPath,
    dst: StrPath,
    *,
    to: str,
    dialect: Optional[str] = None,
    also: Sequence[StrPath] = (),
    config: Optional[StrPath] = None,
    model_class: Optional[str] = None,
    adapter: Optional[StrPath] = None,
    base: Optional[StrPath] = None,
    lora_alpha: float = 0,
    own_lora: bool = False,
    dtype: Optional[str] = None,
    tp: int = 0,
    slices: int = 0,
    step: int = 0,
    shard_bytes: int = 0,
    optimizer: bool = False,
    drop_unread: bool = False,
    quantize: Optional[str] = None,
    dequantize: bool = False,
    modelfile: bool = False,
    group_size: int = 0,
    threads: int = 0,
    on_event: OnEvent = None,
) -> Converted:
    """Joins, divides, changes form and dtype: `dst` appears complete or not at all (docs/convert.md).

    src: the checkpoint, a folder or file
    dst: the folder to write, which must not exist or be empty; to "gguf" and its like a file
    to: the form to write: "hf", "sat", "peft", "sheaf", "gguf", "gguf-lora" or "gguf-mmproj"
    dialect: the form of src (docs/dialects.md), where it is not recognised
    also: folders or files with other parts of it
    config: the model's config.json, where its folder has none
    model_class: to "sat": "CogAgentModel", where the config names the wrong one
    adapter: to "sat": a PEFT adapter of src, to be written as SAT's LoRA
    base: of a run, its base model, where it lies elsewhere now; to "gguf-lora" the adapter's
    lora_alpha: to "peft": of LoRA inside src, where its config does not lie there
    own_lora: to "sat": LoRA of src's own is merged, into as many parts as src has
    dtype: of what is written: "float32", "bfloat16" or "float16"; default as in src
    tp: to "sat": parts to write; 0: one
    slices: to "sheaf": parts that every tensor falls into; 0: 8
    step: to note in dst; 0: as in src
    shard_bytes: to "hf": of a file at most; 0: 50 GB
    optimizer: to "hf" and "sheaf": the optimizer's moments too
    drop_unread: leave out tensors of a kind that is not read
    quantize: "nf4", "nf4-double", "int8", "gptq", "gptq-8" or "awq"; to "gguf" "q8_0", "q6_k", "q5_k_m" or "q4_k_m"
    dequantize: write plain weights
    modelfile: write Ollama's Modelfile beside a GGUF file
    group_size: of "gptq", "gptq-8" and "awq": columns that share a scale, 32, 64 or 128; 0: 128
    threads: threads; 0: every core
    on_event: called with each Event; default: notes and warnings go to the logger "sheaf"
    """
    report = c.sheaf_weights_convert_report()
    call = Call(on_event)
    how = options(
        c.sheaf_weights_convert_options,
        {**locals(), "from": dialect},
        call,
        quantize=chosen("quantize", quantize, (*CHOICES["quantize"], *PACKED, *BLOCKS)),
    )
    call.run(lambda: lib.sheaf_weights_convert(ctypes.byref(report), ctypes.byref(how)))
    converted: Converted = copied(Converted, report)
    return converted


@dataclass(frozen=True)
class Merged:
    """What merge() wrote: fields of sheaf_weights_merge_report."""

    tensors: int
    bytes: int
    adapted: int
    replaced: int
    changed: int
    elements_changed: int
    change_norm: float
    base_norm: float
    rows_checked: int
    untied: bool
    elements_adapted: int
    elements_kept: int
    products_checked: int
    worst_product: float
    whole: bool
    parts: int
    base_quantised: int
    requantised: int


@strict
def merge(
    base: Optional[StrPath],
    adapters: Sequence[StrPath],
    dst: StrPath,
    *,
    config: Optional[StrPath] = None,
    combine: Optional[str] = None,
    weights: Optional[Sequence[float]] = None,
    adapter_only: bool = False,
    mode: Optional[str] = None,
    to: Optional[str] = None,
    tp: int = 0,
    dtype: Optional[str] = None,
    quantize: Optional[str] = None,
    plain_base: bool = False,
    requantize: bool = False,
    threads: int = 0,
    on_event: OnEvent = None,
) -> Merged:
    """W + s B A, for every variant of PEFT's, read back and checked (docs/merge.md).

    base: the model; None where one of the adapters is a run that names it
    adapters: PEFT folders, or runs, merged in this order
    dst: the folder to write, which must not exist or be empty
    config: the model's config.json, where its folder has none
    combine: make one adapter of several first: "linear" or "cat"
    weights: of each adapter; default 1
    adapter_only: write the combined adapter alone
    mode: "like-peft" or "like-peft-safe" for PEFT's bits; default: added in float32 and rounded once
    to: form to write, "hf" or "sat"; default "hf"
    tp: parts to write, of "sat"; 0: one
    dtype: of what is written: "float32", "bfloat16" or "float16"; default as in base
    quantize: how a plain base was quantised for training: "nf4", "nf4-double" or "int8"; default as the run says
    plain_base: merge into base as it is, though the adapter learned on one that was quantised
    requantize: quantise again what is changed of a base in 4 or 8 bits; default: plain weights
    threads: threads; 0: every core
    on_event: called with each Event; default: notes and warnings go to the logger "sheaf"
    """
    if isinstance(adapters, (str, bytes)) or not isinstance(adapters, Sequence):
        adapters = [adapters]
    if weights is not None and len(weights) != len(adapters):
        raise ValueError(f"weights: {len(adapters)} numbers, one for each adapter, not {len(weights)}")
    report = c.sheaf_weights_merge_report()
    call = Call(on_event)
    how = options(
        c.sheaf_weights_merge_options,
        locals(),
        call,
        nadapters=len(adapters),
        weights=None if weights is None else (ctypes.c_double * len(weights))(*weights),
    )
    call.run(lambda: lib.sheaf_weights_merge(ctypes.byref(report), ctypes.byref(how)))
    merged: Merged = copied(Merged, report)
    return merged
