"""What pydantic finds wrong with a file, as faults in words for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..ir.errors import UsageError, did_you_mean
from .faults import Fault
from .system_numbers import Number, Section
from .system_overrides import kind_at, level_names
from .system_tree import Tree


def faults_of(error: ValidationError, tree: dict[str, Tree], top: type[Section]) -> Iterator[Fault]:
    """Return what is wrong with a tree that should have been a `top`."""
    levels = level_names(tree)
    for detail in error.errors():
        loc = [_shown(part, levels) for part in detail["loc"]]
        shown, message = _said(loc, detail, levels, top)
        yield Fault(detail["loc"], ".".join(shown), message)


def _said(loc: list[str], detail: ErrorDetails, levels: Sequence[str], top: type[Section]) -> tuple[Sequence[str], str]:
    if detail["type"] == "missing":
        return loc[:-1], f"missing {loc[-1]}"
    if detail["type"] == "extra_forbidden":
        return loc[:-1], _unknown_key(loc[:-1], loc[-1], levels, top)
    shown = loc[:-1] if loc and loc[-1] == "value" else loc
    if detail["type"] in ("model_type", "model_attributes_type"):
        return shown, f"expected {_expected(loc, levels, top)}, not {detail['input']!r}"
    return shown, _plain_message(detail)


def _expected(loc: Sequence[str], levels: Sequence[str], top: type[Section]) -> str:
    kind = kind_at(loc, levels, top) if loc else top
    if kind is None or issubclass(kind, Number):
        return "a mapping such as {value: 3350, unit: GB/s, source: ...}"
    return f"a mapping with {', '.join(kind.model_fields)}"


def _plain_message(detail: ErrorDetails) -> str:
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, UsageError):
        return str(cause)
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {detail['input']!r}"


def _shown(part: int | str, levels: Sequence[str]) -> str:
    return levels[part] if isinstance(part, int) and part < len(levels) else str(part)


def _unknown_key(loc: Sequence[str], key: str, levels: Sequence[str], top: type[Section]) -> str:
    kind = kind_at(loc, levels, top) if loc else top
    allowed = sorted(kind.model_fields) if kind else []
    return f"unknown key '{key}'{did_you_mean(key, allowed)} allowed: {', '.join(allowed)}"
