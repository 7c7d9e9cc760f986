"""Keywords of functions: one that is none is refused with the one that was meant."""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import Any, Callable, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

# What other programs call them.
PEERS = {
    "adapters": "adapter",
    "chat_template": "template",
    "device_map": "device",
    "do_sample": "greedy",
    "load_in_4bit": "quantize",
    "max_length": "positions",
    "max_model_len": "positions",
    "max_new_tokens": "max_new",
    "max_tokens": "max_new",
    "num_threads": "threads",
    "output": "dst",
    "output_dir": "out",
    "prompt_template": "template",
    "stop_strings": "stop",
    "streamer": "on_text",
    "system_prompt": "system",
    "tensor_parallel_size": "tp",
    "torch_dtype": "dtype",
}


def strict(function: Function, of: Any = None) -> Function:
    """The function, with a TypeError that names the keyword that was meant; `of` has the keywords of its **."""
    known = list(inspect.signature(function if of is None else of).parameters)
    known += [] if of is None else list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name in known:
                continue
            meant = PEERS.get(name)
            if meant not in known:
                meant = next(iter(difflib.get_close_matches(name, known, 1)), None)
            rest = f"; {meant} is" if meant else f": {', '.join(known)}"
            raise TypeError(f"{function.__name__}(): {name} is none of its keywords{rest}")
        return function(*arguments, **keywords)

    return cast(Function, checked)
