"""Structs of the public headers, member by member. python/tests compares them with tests/abi."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import Any

from .errors import ArgumentError

STEP = CFUNCTYPE(c_bool, c_void_p, c_void_p)
EMIT = CFUNCTYPE(None, c_void_p, c_void_p)
ON_TOKEN = CFUNCTYPE(None, c_void_p, c_int32)
ON_TEXT = CFUNCTYPE(None, c_void_p, c_int64, c_char_p)


class Sized(Structure):
    """Begins with its size, so that a library of another version knows its fields (options.h)."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **fields)
        for name, given in fields.items():  # ctypes leaves out bits without a word
            held = getattr(self, name)
            if isinstance(given, int) and not isinstance(held, bool) and held != given:
                raise ArgumentError(name, "a number that its type in C can hold", str(given))


class sheaf_events(Structure):
    _fields_ = [("emit", EMIT), ("context", c_void_p)]


class sheaf_event_step(Structure):
    _fields_ = [
        ("step", c_int64),
        ("steps", c_int64),
        ("loss", c_double),
        ("grad_norm", c_double),
        ("lr", c_double),
        ("tokens", c_int64),
        ("seconds", c_double),
        ("memory", c_uint64),
        ("skipped", c_bool),
        ("loss_scale", c_double),
    ]


class sheaf_event_evaluation(Structure):
    _fields_ = [
        ("step", c_int64),
        ("steps", c_int64),
        ("loss", c_double),
        ("accuracy", c_double),
        ("tokens", c_int64),
        ("seconds", c_double),
        ("best", c_bool),
    ]


class sheaf_event(Structure):
    _fields_ = [
        ("kind", c_int),
        ("text", c_char_p),
        ("done", c_int64),
        ("total", c_int64),
        ("step", sheaf_event_step),
        ("evaluation", sheaf_event_evaluation),
        ("rank", c_void_p),
        ("ranks", c_int),
        ("spent", c_void_p),
        ("offload", c_void_p),
    ]


class sheaf_source_entry(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("ndim", c_int), ("shape", c_int64 * 8)]


class sheaf_weights_options(Sized):
    _fields_ = [("size", c_size_t), ("dialect", c_char_p), ("config", c_char_p)]


class sheaf_weights_facts(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("dialect", c_char_p),
        ("config", c_char_p),
        ("tied", c_bool),
        ("tensors", c_int64),
        ("elements", c_int64),
        ("bytes", c_int64),
    ]


class sheaf_weights_verify_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("quick", c_bool),
        ("dialect", c_char_p),
        ("config", c_char_p),
        ("also", POINTER(c_char_p)),
        ("base", c_char_p),
        ("threads", c_int),
        ("events", POINTER(sheaf_events)),
        ("control", c_void_p),
    ]


class sheaf_verification_facts(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("path", c_char_p),
        ("dialect", c_char_p),
        ("model", c_char_p),
        ("config", c_char_p),
        ("tp", c_int),
        ("pp", c_int),
        ("dp", c_int),
        ("step", c_int64),
        ("vocab", c_int64),
        ("padded_vocab", c_int64),
        ("tensors", c_int64),
        ("elements", c_int64),
        ("bytes", c_int64),
        ("lora", c_int64),
        ("moments", c_int64),
        ("read", c_int64),
        ("sound", c_bool),
        ("full", c_bool),
        ("partial", c_bool),
        ("adapter", c_bool),
        ("title", c_char_p),
        ("dtypes", POINTER(c_int64)),
        ("quantization", c_char_p),
    ]


class sheaf_finding(Structure):
    _fields_ = [
        ("severity", c_int),
        ("code", c_char_p),
        ("path", c_char_p),
        ("tensor", c_char_p),
        ("expected", c_char_p),
        ("found", c_char_p),
        ("cure", c_char_p),
    ]


class sheaf_weights_convert_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("src", c_char_p),
        ("also", POINTER(c_char_p)),
        ("dst", c_char_p),
        ("to", c_char_p),
        ("from", c_char_p),
        ("config", c_char_p),
        ("model_class", c_char_p),
        ("adapter", c_char_p),
        ("base", c_char_p),
        ("lora_alpha", c_double),
        ("own_lora", c_bool),
        ("dtype", c_int),
        ("tp", c_int),
        ("slices", c_int),
        ("step", c_int64),
        ("shard_bytes", c_int64),
        ("optimizer", c_bool),
        ("drop_unread", c_bool),
        ("threads", c_int),
        ("events", POINTER(sheaf_events)),
        ("control", c_void_p),
        ("quantize", c_int),
        ("dequantize", c_bool),
        ("modelfile", c_bool),
    ]


class sheaf_weights_convert_report(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("tensors", c_int64),
        ("bytes", c_int64),
        ("moments", c_int64),
        ("merged", c_int64),
        ("adapted", c_int64),
        ("step", c_int64),
        ("from", c_char_p),
        ("parts", c_int),
        ("quantised", c_int64),
    ]


class sheaf_weights_merge_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("base", c_char_p),
        ("adapters", POINTER(c_char_p)),
        ("nadapters", c_int),
        ("dst", c_char_p),
        ("config", c_char_p),
        ("combine", c_char_p),
        ("weights", POINTER(c_double)),
        ("adapter_only", c_bool),
        ("mode", c_int),
        ("to", c_char_p),
        ("tp", c_int),
        ("peft_cpu", c_int),
        ("dtype", c_int),
        ("threads", c_int),
        ("events", POINTER(sheaf_events)),
        ("control", c_void_p),
        ("quantize", c_int),
        ("plain_base", c_bool),
        ("requantize", c_bool),
    ]


class sheaf_weights_merge_report(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("tensors", c_int64),
        ("bytes", c_int64),
        ("adapted", c_int64),
        ("replaced", c_int64),
        ("changed", c_int64),
        ("elements_changed", c_int64),
        ("change_norm", c_double),
        ("base_norm", c_double),
        ("rows_checked", c_int64),
        ("untied", c_bool),
        ("elements_adapted", c_int64),
        ("elements_kept", c_int64),
        ("products_checked", c_int64),
        ("worst_product", c_double),
        ("worst_tensor", c_char * 256),
        ("whole", c_bool),
        ("parts", c_int),
        ("base_quantised", c_int64),
        ("requantised", c_int64),
        ("requantise_worst", c_double),
        ("requantise_mean", c_double),
        ("requantise_tensor", c_char * 256),
    ]


class sheaf_run_train_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("out", c_char_p),
        ("model", c_char_p),
        ("data", c_char_p),
        ("steps", c_int64),
        ("settings", c_char_p),
        ("resume", c_bool),
        ("tp", c_int),
        ("threads", c_int),
        ("force", c_bool),
        ("step", STEP),
        ("context", c_void_p),
        ("events", POINTER(sheaf_events)),
        ("control", c_void_p),
    ]


class sheaf_run_train_report(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_int64),
        ("first", c_int64),
        ("loss", c_double),
        ("seconds", c_double),
        ("tokens", c_int64),
        ("padding", c_double),
        ("parameters", c_int64),
        ("trained", c_int64),
        ("adapter", c_bool),
        ("evaluated", c_bool),
        ("early", c_bool),
        ("eval_loss", c_double),
        ("best_step", c_int64),
        ("best_loss", c_double),
        ("json", c_char_p),
        ("text", c_char_p),
    ]


class sheaf_plan_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("memory", c_uint64),
        ("slots", POINTER(c_int)),
        ("place", c_char_p),
        ("max_new", c_int64),
        ("images", c_char_p),
        ("time", c_bool),
        ("trial", c_bool),
        ("first_step", c_bool),
        ("table", c_int),
        ("batch", c_int64),
    ]


class sheaf_foreign_rule(Structure):
    _fields_ = [("keys", c_char_p), ("kind", c_int), ("setting", c_char_p), ("words", c_char_p), ("note", c_char_p)]


class sheaf_foreign_default(Structure):
    _fields_ = [("setting", c_char_p), ("value", c_char_p), ("unless", c_char_p)]


class sheaf_foreign_program(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("signs", c_char_p),
        ("rule", POINTER(sheaf_foreign_rule)),
        ("always", POINTER(sheaf_foreign_default)),
    ]


class sheaf_model_open_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("model", c_char_p),
        ("adapter", c_char_p),
        ("config", c_char_p),
        ("tokenizer", c_char_p),
        ("prompt_template", c_char_p),
        ("dtype", c_int),
        ("tp", c_int),
        ("threads", c_int),
        ("place", c_char_p),
        ("positions", c_int64),
        ("force", c_bool),
        ("events", POINTER(sheaf_events)),
        ("late", c_bool),
        ("slices", c_int),
        ("sums", c_int),
        ("isa", c_char_p),
        ("dp", c_int),
        ("date", c_char_p),
        ("specials", c_int),
        ("positions_fit", c_bool),
        ("processes", c_void_p),
        ("evaluates", c_char_p),
        ("device", c_char_p),
        ("quantize", c_int),
    ]


class sheaf_model_facts(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("family", c_char_p),
        ("sums", c_char_p),
        ("positions", c_int64),
        ("max_new", c_int64),
        ("pictures", c_int64),
    ]


class sheaf_model_generate_options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("text", c_char_p),
        ("tokens", POINTER(c_int32)),
        ("ntokens", c_int64),
        ("max_new", c_int64),
        ("temperature", c_double),
        ("top_k", c_int64),
        ("top_p", c_double),
        ("repetition_penalty", c_double),
        ("seed", c_uint64),
        ("on_token", ON_TOKEN),
        ("context", c_void_p),
        ("control", c_void_p),
        ("stop", POINTER(c_char_p)),
        ("nstop", c_int64),
        ("logprobs", c_bool),
        ("top_logprobs", c_int64),
        ("system", c_char_p),
        ("on_text", ON_TEXT),
        ("model_defaults", c_bool),
        ("as_long_as_fits", c_bool),
        ("partial", c_bool),
        ("batch", c_int64),
        ("images", POINTER(c_char_p)),
        ("nimages", c_int64),
        ("max_length", c_int64),
        ("sampled", c_int),
        ("program_defaults", c_bool),
        ("sat_order", c_bool),
        ("events", POINTER(sheaf_events)),
    ]


class sheaf_model_prompt(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("text", c_char_p),
        ("messages", c_char_p),
        ("tokens", POINTER(c_int32)),
        ("ntokens", c_int64),
        ("images", POINTER(c_char_p)),
        ("nimages", c_int64),
    ]
