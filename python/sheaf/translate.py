"""Settings of LLaMA-Factory and Axolotl as a recipe: `python3 -m sheaf translate FILE.yaml > NAME.recipe`.

The rules are rows of the library (include/sheaf/foreign.h), which answers the flags of these programs by them, too.
"""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._library import check, decoded, encoded, lib
from .errors import FIELD, ArgumentError, DataError, Error, SystemRefused, Unsupported
from .runs import line_of

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

USAGE = """\
usage: sheaf translate FILE.yaml > NAME.recipe
Prints the settings of a LLaMA-Factory or Axolotl file as a recipe for sheaf train --recipe.
Keys that are unknown, or that would change the result but have no counterpart in sheaf, are
listed on standard error; the exit code is then 1.

  --json    results as one JSON object on standard output
  --help    this text

exit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 could not be done
"""


class Entry(NamedTuple):
    """A setting of a file."""

    key: str  # "learning_rate"; of nested maps and lists "datasets[0].path"
    value: str  # as it is written; a list of plain values joined by commas; "" for null
    line: int


# ---- the file -------------------------------------------------------------

MOST_BYTES, MOST_ENTRIES, DEEPEST = 1 << 20, 4096, 16


class Reader:
    """Reads a file of settings: one map, whose values are written out where they count."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.entries: Dict[str, Entry] = {}
        if yaml is None:
            raise Unsupported("sheaf translate", "the Python package PyYAML", "none", "pip install pyyaml")
        try:
            with open(path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise SystemRefused(f"{path}: cannot open for reading", "", os.strerror(error.errno or 0)) from None
        if len(data) > MOST_BYTES:
            raise DataError(f"{path}: file size", f"at most {MOST_BYTES} bytes", "more")
        self.events = self.parse(data)
        next(self.events)  # the stream's begin
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise self.fail(0, "settings", "an empty file")
        first = next(self.events)
        if not isinstance(first, yaml.MappingStartEvent):
            raise self.fail(first.start_mark.line, "a map of settings", "something else")
        self.read_map("", 0)
        next(self.events)  # the document's end
        last = next(self.events)
        if not isinstance(last, yaml.StreamEndEvent):
            raise self.fail(last.start_mark.line, "one document", "another one")

    def fail(self, line: int, expected: str, found: str) -> DataError:
        return DataError(f"{self.path}: line {line + 1}", expected, found)

    def parse(self, data: bytes) -> Iterator[Any]:
        try:
            for event in yaml.parse(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                if getattr(event, "anchor", None) is not None:
                    raise self.fail(event.start_mark.line, "values written out where they count", "an anchor or an alias")
                yield event
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "something else"
            raise self.fail(mark.line if mark else 0, "YAML", str(problem)) from None

    def add(self, key: str, value: str, line: int) -> None:
        if key in self.entries:
            raise self.fail(line, "each key once", key)
        if len(self.entries) >= MOST_ENTRIES:
            raise self.fail(line, f"at most {MOST_ENTRIES} settings", "more")
        self.entries[key] = Entry(key, value, line + 1)

    def scalar(self, event: Any, what: str) -> str:
        if "\0" in event.value:
            raise self.fail(event.start_mark.line, f"a {what} without NUL", "one with it")
        return "" if not event.style and event.value in ("null", "Null", "NULL", "~") else str(event.value)

    def read_value(self, event: Any, key: str, line: int, depth: int) -> None:
        if depth > DEEPEST:
            raise self.fail(line, f"settings at most {DEEPEST} levels deep", "more")
        if isinstance(event, yaml.ScalarEvent):
            self.add(key, self.scalar(event, "value"), line)
        elif isinstance(event, yaml.MappingStartEvent):
            self.read_map(key, depth)
        else:
            self.read_list(key, line, depth)

    def read_map(self, key: str, depth: int) -> None:
        for name in self.events:
            if isinstance(name, yaml.MappingEndEvent):
                return
            line = name.start_mark.line
            if not isinstance(name, yaml.ScalarEvent):
                raise self.fail(line, "a key that is a word", "a list or a map")
            inner = f"{key}.{name.value}" if key else name.value
            self.scalar(name, "key")
            self.read_value(next(self.events), inner, line, depth + 1)

    def read_list(self, key: str, line: int, depth: int) -> None:
        """Plain values are joined; maps and lists get entries of their own."""
        plain, count = [], 0
        for event in self.events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            if isinstance(event, yaml.ScalarEvent):
                plain.append(self.scalar(event, "value"))
            else:
                self.read_value(event, f"{key}[{count}]", event.start_mark.line, depth + 1)
            count += 1
        if plain or count == 0:
            self.add(key, ",".join(plain), line)


# ---- what they are in a recipe --------------------------------------------


def number(text: str) -> float:
    """What a text begins with, as strtod() has it; 0 for nothing."""
    found = re.match(r"\s*[-+]?(?:0x[0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf|nan)", text, re.I | re.A)
    if found is None:
        return 0.0
    return float.fromhex(found[0]) if "x" in found[0].lower() else float(found[0])


def word_for(words: Optional[str], value: str) -> Tuple[str, bool]:
    """The translation of a value by `words` (foreign.h), and whether it is listed."""
    off = value.lower() in ("", "false", "no", "off", "0", "0.0", "none")
    for row in [] if words is None else words.split("|"):
        theirs, equals, ours = row.partition("=")
        if theirs == "*" or (row.startswith("off=") and off) or theirs.lower() == value.lower():
            return ours if equals else value, True
    return value, False


class Rule(NamedTuple):
    """A sheaf_foreign_rule."""

    kind: int
    setting: str
    words: Optional[str]
    note: Optional[str]


COPY, ONLY = 0, 1  # sheaf_foreign_kind


def text_of(value: Optional[bytes]) -> Optional[str]:
    """With its fields as flags of sheaf train."""
    if value is None:
        return None
    return FIELD.sub(lambda m: m[0] if m[1] is None else f"--{m[1]} {m[2] or ''}".rstrip(), decoded(value))


class Translation:
    """The settings of a file as a recipe, and those that have no place in it."""

    program: str  # "LLaMA-Factory" or "Axolotl"
    recipe: str
    lost: List[str]  # "line 7: use_dora: true: DoRA is merged, not trained"

    def __init__(self, path: str) -> None:
        entries = list(Reader(path).entries.values())
        program = next(filter(None, (lib.sheaf_foreign_program_of(encoded(e.key)) for e in entries)), None)
        if program is None:
            known = "those of LLaMA-Factory (with model_name_or_path) or of Axolotl (with base_model)"
            raise DataError(f"{path}: settings", known, "neither's keys")
        self.program = decoded(program[0].name)
        name = re.sub("[\n\r]", "?", path)  # it ends no comment
        self.recipe, self.lost = f"# from {name}, a file of {self.program}\n", []
        self.given: Dict[str, str] = {}
        self.values = {e.key: e.value for e in entries}
        self.counts_steps = number(self.values.get("max_steps", "")) >= 1  # which overrides epochs
        schedule = self.values.get("lr_scheduler_type", self.values.get("lr_scheduler", ""))
        self.rises_never = schedule.lower() == "constant"  # it ignores warm-up settings
        for e in entries:
            found = lib.sheaf_foreign_rule_of(program, encoded(e.key))
            if not found:
                self.lose(e, "unknown")
                continue
            rule = Rule(found[0].kind, decoded(found[0].setting), text_of(found[0].words), text_of(found[0].note))
            if rule.kind == COPY:
                self.copy(e, rule)
            elif rule.kind == ONLY:
                self.need_only(e, rule)
        self.add_defaults(program[0].always)

    def lose(self, e: Entry, why: Optional[str]) -> None:
        self.lost.append(f"line {e.line}: {e.key}: {e.value}: {why or 'sheaf has no such thing'}")

    def remark(self, e: Entry, why: Optional[str]) -> None:
        if why is not None:
            self.recipe += f"# {e.key}: {why}\n"

    def need_only(self, e: Entry, rule: Rule) -> None:
        """Every value of a list must be among the words of its rule."""
        for one in filter(None, e.value.split(",")):
            word, known = word_for(rule.words, one)
            if not known:
                self.lose(e, rule.note)
            elif word.startswith("!"):
                self.lose(e, word[1:])
            elif word.startswith("#"):
                self.remark(e, word[1:])

    def copy(self, e: Entry, rule: Rule) -> None:
        value, known = word_for(rule.words, e.value)
        why = None
        if known and "#" in value:
            value, _, why = value.partition("#")
        if re.fullmatch("[0-9_]+", value):  # numbers as YAML has them: 500_000
            value = value.replace("_", "")
        if e.key == "lr_scheduler_kwargs.min_lr":
            value = self.share_of_rate(value)
        if known and value.startswith("!"):
            self.lose(e, value[1:])
        elif value:
            self.put(e, rule, value, why)

    def share_of_rate(self, value: str) -> str:
        """transformers' min_lr is a rate, ours a share of the rate."""
        rate = number(self.values.get("learning_rate", ""))
        share = number(value) / rate if rate else math.nan
        texts = [f"{share:.{digits}g}" for digits in range(6, 18)]
        return next((text for text in texts if float(text) == share), texts[-1])

    def put(self, e: Entry, rule: Rule, value: str, why: Optional[str]) -> None:
        setting, x = rule.setting, number(value)
        if setting == "steps" and x < 1 or setting == "epochs" and self.counts_steps:
            return
        if setting.startswith("warmup") and self.rises_never:
            return
        if setting == "warmup" and 0 < x < 1:  # a share of all steps, as in transformers 5
            setting = "warmup-ratio"
        listed = self.data_list(e, value) if setting in ("data", "eval-data") else value
        if listed is None:
            return self.lose(e, "interleave_probs: one for each of them")
        if "\n" in listed or "\r" in listed:
            return self.lose(e, "a value of several lines")
        if self.given.get(setting) == listed:  # as packing and neat_packing mean the same
            return
        if self.is_given(setting, listed):
            return self.lose(e, "gives again what another key gave")
        try:
            check(lib.sheaf_run_setting_check(encoded(setting), encoded(listed)))
        except ArgumentError as error:
            return self.lose(e, f"{setting} takes {error.expected}")
        self.remark(e, rule.note)
        self.remark(e, why)
        self.recipe += line_of(setting, listed)
        self.given[setting] = listed

    def is_given(self, setting: str, value: str) -> bool:
        """A setting must not be given twice, but one of the two warm-up settings may be 0."""
        other = self.given.get({"warmup": "warmup-ratio", "warmup-ratio": "warmup"}.get(setting, ""), "")
        return setting in self.given or (number(other) > 0 and number(value) > 0)

    def data_list(self, e: Entry, value: str) -> Optional[str]:
        """The value of --data: all names, those of further entries ("datasets[1].path") too, with the weights of
        LLaMA-Factory where they are mixed by weight; None where these are not as many."""
        names = [value]
        before, number_, behind = e.key.partition("[0]")
        while number_ and f"{before}[{len(names)}]{behind}" in self.values:
            names.append(self.values[f"{before}[{len(names)}]{behind}"])
        names = [name.strip(" ") for name in ",".join(names).split(",")]
        if e.key != "dataset" or not self.values.get("mix_strategy", "").startswith("interleave"):
            return ",".join(names)
        written = self.values.get("interleave_probs", "")
        weights = [weight.strip(" ") for weight in written.split(",")] if written else ["1"] * len(names)
        if len(weights) != len(names):
            return None
        return ",".join(f"{name}:{weight}" for name, weight in zip(names, weights))

    def add_defaults(self, always: Any) -> None:
        """Defaults of the program that differ from sheaf's."""
        title = f"# what {self.program} does where its file says nothing\n"
        for row in always:
            if row.setting is None:
                break
            setting = decoded(row.setting)
            if (
                setting in self.given
                or (row.unless is not None and decoded(row.unless) in self.values)
                or (setting.startswith("lora-") and not self.given.get("method", "lora").startswith("lora"))
                or (setting == "epochs" and "steps" in self.given)
                or (setting.startswith("warmup") and (self.rises_never or "warmup" in self.given))
            ):
                continue
            value = str(2 * int(self.given["lora-rank"])) if row.value is None else decoded(row.value)
            self.recipe += f"{title}{setting}: {value}\n"
            self.given[setting] = value
            title = ""


# ---- the command ----------------------------------------------------------

# What could move the cursor or reverse the text of a terminal (src/base/print.h).
STEERS = re.compile(
    "[\0-\x08\n-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)
CODES = {ArgumentError: "usage", DataError: "data", SystemRefused: "io", Unsupported: "unsupported"}


def shown(text: str) -> str:
    return STEERS.sub("?", text).replace("\t", " ")


def write(to: int, text: str) -> None:
    data = re.sub("[\ud800-\udfff]", "\ufffd", text).encode()
    while data:
        data = data[os.write(to, data) :]


def report(error: Error, as_json: bool) -> int:
    lines = [("expected", error.expected), ("found", error.found), ("try", error.try_)]
    if as_json:
        body = {"code": CODES.get(type(error), "other"), "where": error.where, **dict(lines)}
        write(1, json.dumps({"error": body}, ensure_ascii=False) + "\n")
    said = [f"sheaf: {shown(error.where)}\n", *(f"  {name + ':':<9} {shown(text)}\n" for name, text in lines if text)]
    write(2, "".join(said))
    return 2 if isinstance(error, ArgumentError) else 3


def translate(path: str, as_json: bool) -> int:
    made = Translation(path)
    if as_json:
        answer = {"program": made.program, "recipe": made.recipe, "lost": made.lost}
        write(1, json.dumps(answer, ensure_ascii=False) + "\n")
    else:
        write(1, "".join(f"{shown(line)}\n" for line in made.recipe.split("\n")[:-1]))
    for line in made.lost:
        write(2, f"warning: not in the recipe: {shown(line)}\n")
    return 1 if made.lost else 0


def main(words: List[str]) -> int:
    """The exit code of `sheaf translate` with these words behind it."""
    as_json = "--json" in words
    paths = [word for word in words if not word.startswith("-")]
    try:
        if {"--help", "-h"} & set(words):
            write(1, USAGE)
            return 0
        for flag in words:
            if flag.startswith("-") and flag not in ("--json", "--quiet"):
                raise ArgumentError(flag, "a flag of sheaf translate", "", "sheaf translate --help lists them")
        if len(paths) != 1 or not paths[0]:
            found = f"{len(paths)} words beside flags" if paths else "nothing beside flags"
            raise ArgumentError("sheaf translate", "sheaf translate FILE.yaml > NAME.recipe", found)
        return translate(paths[0], as_json)
    except Error as error:
        return report(error, as_json)
    except OSError as error:  # a full disk, or a pipe that nobody reads
        return report(SystemRefused("standard output", "", os.strerror(error.errno or 0)), False)
