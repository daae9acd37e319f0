"""Trees of values into sections of a schema, with all faults at once, and the numbers that a section holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ....ir.errors import UsageError, did_you_mean
from .faults import Fault, Locate, all_of, nowhere
from .records import NumberRecord
from .system_numbers import Number, Section, leaves_of
from .system_overrides import kind_at
from .system_tree import Tree, names_of

# What pydantic finds wrong with a file, as faults in words for people.


def faults_of(error: ValidationError, tree: dict[str, Tree], top: type[Section]) -> Iterator[Fault]:
    """Return what is wrong with a tree that should have been a `top`."""
    for detail in error.errors():
        # Of a part that may be of several kinds, pydantic says the kind as well: in brackets, unlike any key.
        keys = tuple(part for part in detail["loc"] if not str(part).startswith("<"))
        shown, message = _said(_shown(keys, tree), detail, tree, top)
        # What is wrong with a number is its value, which may stand on a line of its own.
        inside = detail["input"] if detail["type"] == "value_error" else None
        at = (*keys, "value") if isinstance(inside, dict) and "value" in inside else keys
        yield Fault(at, ".".join(shown), message)


def _said(loc: list[str], detail: ErrorDetails, tree: Tree, top: type[Section]) -> tuple[Sequence[str], str]:
    if detail["type"] == "missing":
        return loc[:-1], f"missing {loc[-1]}"
    if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return loc[:-1], _unknown_key(loc[:-1], loc[-1], tree, top)
    shown = loc[:-1] if loc and loc[-1] == "value" else loc
    if detail["type"] in ("model_type", "model_attributes_type", "dataclass_type"):
        return shown, f"expected {_expected(loc, tree, top)}, not {detail['input']!r}"
    return shown, _plain_message(detail)


def _expected(loc: Sequence[str], tree: Tree, top: type[Section]) -> str:
    kind = kind_at(loc, tree, top) if loc else top
    if kind is None or issubclass(kind, Number):
        return "a quantity such as 3350 GB/s, or {value: 3350, unit: GB/s, source: ...}"
    return f"a mapping with {', '.join(kind.model_fields)}"


def _plain_message(detail: ErrorDetails) -> str:
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, UsageError):
        return str(cause)
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {detail['input']!r}"


def _shown(keys: Sequence[int | str], tree: Tree) -> list[str]:
    """Return the way to something with entries of lists by their names."""
    shown: list[str] = []
    for key in keys:
        if isinstance(tree, list):
            names = names_of(tree)
            found = isinstance(key, int) and key < len(names)
            shown.append(names[int(key)] if found else str(key))
            tree = tree[int(key)] if found else None
        else:
            shown.append(str(key))
            tree = tree.get(str(key)) if isinstance(tree, dict) else None
    return shown


def _unknown_key(loc: Sequence[str], key: str, tree: Tree, top: type[Section]) -> str:
    kind = kind_at(loc, tree, top) if loc else top
    allowed = (
        sorted([f.name for f in fields(kind) if f.init] if issubclass(kind, Number) else kind.model_fields)
        if kind
        else []
    )
    return f"unknown key '{key}'{did_you_mean(key, allowed)} allowed: {', '.join(allowed)}"


S = TypeVar("S", bound=Section)


def records_of(section: Section, path: str = "") -> Iterator[NumberRecord]:
    """Return every number of a section with its path, in the order of the schema."""
    return (leaf.record(here) for here, leaf in leaves_of(section, path) if isinstance(leaf, Number))


def checked(top: type[S], tree: dict[str, Tree]) -> tuple[S | None, list[Fault]]:
    """Check a tree against its schema; return the section, or None and all faults."""
    try:
        return top.model_validate(tree), []
    except ValidationError as error:
        return None, list(faults_of(error, tree, top))


def section_of(top: type[S], tree: dict[str, Tree], what: str, locate: Locate = nowhere) -> S:
    """Check a tree against its schema; SystemFileError lists all faults, each where it lies."""
    section, faults = checked(top, tree)
    if section is None:
        raise all_of(what, faults, locate)
    return section
