"""A model that answers: loaded once, asked as often as wanted (include/sheaf/generate.h)."""

from __future__ import annotations

import ctypes
import json
import weakref
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _structs as c
from . import arrays
from ._call import Call
from ._library import Held, StrPath, check, decoded, encoded, lib, options, texts
from .errors import ArgumentError
from .keywords import strict
from .weights import OnEvent

ENDINGS = ("length", "token", "text", "stopped")

# A text to continue or to ask; ids of tokens; the messages of a conversation.
Prompt = Union[str, Sequence[int], Sequence[Mapping[str, Any]]]


class Answer:
    """What a model answered."""

    def __init__(self, at: int) -> None:
        self._at = ctypes.c_void_p(at)
        weakref.finalize(self, lib.sheaf_answer_free, self._at)

    @property
    def text(self) -> Optional[str]:
        """None for a model without text."""
        text = lib.sheaf_answer_text(self._at)
        return None if text is None else decoded(text)

    @property
    def tokens(self) -> List[int]:
        """The ids of the new tokens."""
        n = ctypes.c_int64()
        at = lib.sheaf_answer_tokens(self._at, ctypes.byref(n))
        return at[: n.value] if n.value > 0 else []

    @property
    def logprobs(self) -> Any:
        """The natural logarithm of each token's probability, not copied; None where it was not asked for."""
        at = ctypes.cast(lib.sheaf_answer_logprobs(self._at), ctypes.c_void_p).value
        return None if at is None else arrays.lent(at, "F32", len(self.tokens), self)

    def top(self, i: int) -> List[Tuple[int, float]]:
        """The most probable tokens in place of token `i` with their logarithms; empty where they were not asked for."""
        n, logs = ctypes.c_int64(), ctypes.POINTER(ctypes.c_float)()
        ids = lib.sheaf_answer_top(self._at, i, ctypes.byref(n), ctypes.byref(logs))
        return [(ids[k], logs[k]) for k in range(n.value)] if ids else []

    @property
    def ending(self) -> str:
        """Why it is over: "length", "token", "text" (one of `stop`) or "stopped"."""
        return ENDINGS[lib.sheaf_answer_ending(self._at)]


class Model:
    """A loaded model, or the result of a training run; close() or `with` frees it.

    A text is asked as a question where the model stores a chat template. Defaults are those of `sheaf generate`, but for
    batch.

    model: folder of a model, of a training run, or of a checkpoint in it
    adapter: PEFT adapter, or a training run, to use with it
    config: the model's config.json, where its folder has none
    tokenizer: file or folder; default the run's, else the model's own
    template: name of the chat template; default the run's, else the model's
    raw: texts are continued as they stand
    dtype: of activations and products, "float32", "bfloat16" or "float16"; default the run's, else the model's own
    tp: ranks that share the model; 0: one
    threads: compute threads in all; 0: every core
    place: layers over stages of `tp` ranks each (docs/generate.md)
    positions: most of prompt and answer; 0: what the model was made for, at most 4096
    force: load also what memory does not suffice for
    slices: parts that every tensor falls into; 0: the run's, else 8
    sums: order of bfloat16's sums, "pairs", "tiles", "mma8" or "mma16"
    dp: groups of `tp` ranks that share the prompts; 0: one
    date: that the chat template writes; default the run's, else the template's own, else today's
    device: where it computes (docs/devices.md); default the processor
    quantize: linear layers while they are loaded, "nf4", "nf4-double" or "int8"; default as in the run
    on_event: called with each Event; default: notes and warnings go to the logger "sheaf"
    """

    @strict
    def __init__(
        self,
        model: StrPath,
        *,
        adapter: Optional[StrPath] = None,
        config: Optional[StrPath] = None,
        tokenizer: Optional[StrPath] = None,
        template: Optional[str] = None,
        raw: bool = False,
        dtype: Optional[str] = None,
        tp: int = 0,
        threads: int = 0,
        place: Optional[str] = None,
        positions: int = 0,
        force: bool = False,
        slices: int = 0,
        sums: Optional[str] = None,
        dp: int = 0,
        date: Optional[str] = None,
        device: Optional[str] = None,
        quantize: Optional[str] = None,
        on_event: OnEvent = None,
    ) -> None:
        # The model sends events until it is closed, so it keeps the call that takes them.
        self._call = Call(on_event)
        how = options(
            c.sheaf_model_open_options,
            locals(),
            self._call,
            asks=-1 if raw else 1,
            prompt_template=encoded(template),
        )
        at = ctypes.c_void_p()
        self._call.run(
            lambda: lib.sheaf_model_open(ctypes.byref(at), ctypes.byref(how)), lambda: lib.sheaf_model_close(at)
        )
        self._held = Held(self, "the model is", at, lib.sheaf_model_close)
        it = c.sheaf_model_facts()
        check(lib.sheaf_model_info(ctypes.byref(it), at))
        self.family: str = decoded(it.family)
        self.positions: int = it.positions  # most of prompt and answer
        self.pictures: int = it.pictures  # that a conversation may show; 0: the model sees none

    def close(self) -> None:
        """Frees the model, once the answers that have begun are there; it does not wait for them."""
        self._held.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @strict
    def generate_all(
        self,
        prompts: Sequence[Prompt],
        *,
        images: Optional[Sequence[Sequence[StrPath]]] = None,
        max_new: int = 0,
        temperature: float = 0,
        top_k: int = 0,
        top_p: float = 0,
        repetition_penalty: float = 0,
        seed: int = 0,
        stop: Sequence[str] = (),
        logprobs: bool = False,
        top_logprobs: int = 0,
        system: Optional[str] = None,
        greedy: Optional[bool] = None,
        model_defaults: bool = True,
        as_long_as_fits: bool = False,
        batch: int = 0,
        max_length: int = 0,
        json_schema: Optional[str] = None,
        on_text: Optional[Callable[[int, str], None]] = None,
        on_event: OnEvent = None,
    ) -> List[Answer]:
        """Several prompts, in batches; each answer is what the prompt gets alone, but that sampling also depends on its
        number. Defaults are those of `sheaf generate`, but for batch: what is 0 is what the model's
        generation_config.json says.

        prompts: each a text, ids of tokens, or the messages of a conversation
        images: of each prompt the files of its pictures
        max_new: tokens of an answer; 0: the model's, else 64
        temperature: divides the logits; 0: the model's, else always the most probable token
        top_k: sample among the k most probable; 0: the model's, -1: all
        top_p: sample among the fewest with this much probability; 0: the model's, else all
        repetition_penalty: divides the logits of tokens that were there; 0: the model's, else none
        seed: of sampling: equal seeds give equal tokens
        stop: texts that end an answer
        logprobs: keep the logarithm of each token's probability
        top_logprobs: and so many of the most probable tokens with theirs
        system: system message, where the template has a place for it
        greedy: True: always the most probable token, False: drawn; default as the model says
        model_defaults: False: the model's generation_config.json does not count
        as_long_as_fits: an answer ends where the positions do, instead of being refused
        batch: prompts that run together; 0: 8
        max_length: most positions of prompt and answer; 0: no limit
        json_schema: JSON Schema as text, which the answer satisfies; "{}": any JSON
        on_text: called with the prompt's number and a text, as an answer's text comes
        on_event: called with each Event; default: notes and warnings go to the logger "sheaf"
        """
        if isinstance(prompts, str):
            raise TypeError("prompts: a list of prompts; generate() takes one")
        if images is not None and len(images) != len(prompts):
            raise ValueError(f"images: {len(prompts)} lists, one for each prompt, not {len(images)}")
        count = len(prompts)
        if count == 0:
            return []
        array = (c.sheaf_model_prompt * count)()
        for i, prompt in enumerate(prompts):
            _fill(array[i], prompt, [] if images is None else images[i])
        out = (ctypes.c_void_p * count)()

        def free() -> None:
            for answer in out:
                lib.sheaf_answer_free(answer)

        call = Call(on_event)
        hear = on_text or (lambda _prompt, _text: None)

        def said(_context: Any, prompt: int, text: bytes) -> None:
            call.guarded(None, lambda: hear(prompt, decoded(text)))

        kind = c.sheaf_model_generate_options
        how = options(
            kind,
            locals(),
            call,
            images=None,  # of the prompts, above
            nstop=len(stop),
            program_defaults=model_defaults,
            sampled=0 if greedy is None else -1 if greedy else 1,
            on_text=c.callback(kind, "on_text")(said if on_text is not None else 0),
        )
        with self._held as at:
            call.run(lambda: lib.sheaf_model_generate_all(out, at, array, count, ctypes.byref(how)), free, self._call)
        return [Answer(answer or 0) for answer in out]

    def generate(self, prompt: Prompt, *, images: Sequence[StrPath] = (), **how: Any) -> Answer:
        """The answer to one prompt.

        prompt: a text, ids of tokens, or the messages of a conversation
        images: files of its pictures
        how: the keywords of generate_all()
        """
        return self.generate_all([prompt], images=[images], **how)[0]

    generate = strict(generate, generate_all)


def _fill(it: Any, prompt: Prompt, images: Sequence[StrPath]) -> None:
    it.size = ctypes.sizeof(it)
    if isinstance(prompt, str):
        it.text = encoded(prompt)
    elif len(prompt) > 0 and isinstance(prompt[0], Mapping):
        it.messages = encoded(json.dumps(list(prompt)))
    else:
        ids = [int(t) for t in prompt]  # type: ignore[arg-type]
        it.tokens = tokens = (ctypes.c_int32 * len(ids))(*ids)
        if list(tokens) != ids:  # ctypes leaves out bits without a word
            raise ArgumentError("prompt", "ids of tokens", str(next(t for t in ids if t != ctypes.c_int32(t).value)))
        it.ntokens = len(prompt)
    it.images = texts("images", images)
    it.nimages = len(images)
