"""`plan=FILE`: a file in the words of verbs, which says what is not typed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import UnknownNameError, UsageError
from ...ir.records import dataclass
from ...ir.text.formats import yaml_node
from ...ir.text.untrusted import read_settings
from ..arguments.options import Opt
from .words import MODEL, plan_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import yaml

# Frameworks whose launches are read.
FRAMEWORKS = (
    "megatron",
    "torchtitan",
    "deepspeed",
    "transformers",
    "nanotron",
    "maxtext",
    "vllm",
    "sglang",
    "tensorrt-llm",
    "lmdeploy",
)
_SCHEMA, _FRAMEWORK = "schema", "framework"
_EXAMPLE = "an entry looks like `tp: 8`"


@dataclass(frozen=True, slots=True)
class PlanFileEntry:
    """One entry of a plan file: its key as written, its value as text or as texts, and its line."""

    key: str
    value: str | tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class PlanFile:
    """What a plan file says, by the fields of requests, and the framework whose launch it was imported from."""

    values: Mapping[str, object]
    framework: str | None = None


def read_plan_file(path: str, verb: str, options: Mapping[str, Opt]) -> PlanFile:
    """Return what a plan file says to a verb with these words; UsageError where it cannot be read."""
    try:
        text = read_settings(Path(path))
    except OSError as error:
        raise UsageError(f"cannot read plan '{path}': {error.strerror}") from error
    return read_plan(text, path, verb, options)


def read_plan(text: str, path: str, verb: str, options: Mapping[str, Opt]) -> PlanFile:
    """Return what the text of a plan file says to a verb with these words.

    UnknownNameError for a key that is none, UsageError for a value that its word refuses, both with the line.
    """
    known = {word: opt for word, opt in {MODEL.word: MODEL, **options}.items() if word in plan_words()}
    values: dict[str, object] = {}
    framework = None
    for entry in entries(text, path):
        if entry.key == _FRAMEWORK:
            framework = _framework(entry, path)
            continue
        opt = _option(entry, known, path, verb)
        if opt.field in values:
            raise UsageError(
                f"{path}:{entry.line}: {entry.key}: said twice, under two names of one flag: leave one out"
            )
        values[opt.field] = _value(entry, opt, path)
    return PlanFile(values, framework)


def entries(text: str, path: str) -> Sequence[PlanFileEntry]:
    """Read the entries of a plan file, but for its schema; UsageError names the line of what is none."""
    import yaml

    top = yaml_node(text, path, yaml.BaseLoader)
    if not isinstance(top, yaml.MappingNode) or not top.value:
        raise UsageError(f"'{path}' is no plan: it has no entries; {_EXAMPLE}")
    found = [
        PlanFileEntry(
            str(key.value), _words(value, f"{path}:{key.start_mark.line + 1}: {key.value}"), key.start_mark.line + 1
        )
        for key, value in top.value
    ]
    from ...ir.plan.files import SCHEMA

    given = next((entry for entry in found if entry.key == _SCHEMA), None)
    if given is not None and given.value != SCHEMA:
        raise UsageError(f"{path}:{given.line}: schema {given.value}: this version reads {SCHEMA}")
    return tuple(entry for entry in found if entry.key != _SCHEMA)


def _framework(entry: PlanFileEntry, path: str) -> str:
    """Return the framework that an entry names; UnknownNameError with the line for another."""
    if entry.value not in FRAMEWORKS:
        named = UnknownNameError.of("framework", str(entry.value), FRAMEWORKS)
        raise UnknownNameError(f"{path}:{entry.line}: {named}")
    return str(entry.value)


def _words(value: yaml.Node, where: str) -> str | tuple[str, ...]:
    """Return a value as it is written; what it means is for its flag to say."""
    import yaml

    if isinstance(value, yaml.SequenceNode):
        found = [_words(one, where) for one in value.value]
        if all(isinstance(one, str) for one in found):
            return tuple(str(one) for one in found)
    if not isinstance(value, yaml.ScalarNode):
        raise UsageError(f"{where}: a value is a number, a word, true or false, or a list of these; {_EXAMPLE}")
    if value.style is None and value.value in ("", "null", "~"):
        raise UsageError(f"{where}: says nothing: leave it out")
    return str(value.value)


def _option(entry: PlanFileEntry, known: Mapping[str, Opt], path: str, verb: str) -> Opt:
    """Return the word that a key names by any of its long names, - and _ alike."""
    name = entry.key.replace("-", "_")
    for opt in known.values():
        if name in {flag.lstrip("-").replace("-", "_") for flag in opt.names}:
            return opt
    if name in plan_words():
        raise UsageError(f"{path}:{entry.line}: {entry.key}: `slipstick {verb}` takes no such flag: leave it out")
    raise UnknownNameError(f"{path}:{entry.line}: {UnknownNameError.of('key', entry.key, [_SCHEMA, *known])}")


def _value(entry: PlanFileEntry, opt: Opt, path: str) -> object:
    """Read a value as its word reads it; UsageError with the line for what it refuses."""
    where = f"{path}:{entry.line}: {entry.key}"
    if not isinstance(entry.value, str) and not (opt.is_many or opt.is_list):
        raise UsageError(f"{where}: a list, and it takes one value; {_EXAMPLE}")
    try:
        return opt.read(entry.value)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
