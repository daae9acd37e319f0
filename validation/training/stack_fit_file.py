"""A fit of a stack as a file: a stack like the one that was fitted, with its numbers and a record of the fit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from ...backends.catalogue import laid_over, on_chip, read_stack
from ...backends.stack import StackConstants
from ...backends.stack_limits import keys_of, movable, split_chip
from ...backends.system_build import build_stack
from ..split import HALF, RULE
from ..statistics import Accuracy
from ..written_fits import has_record, refuse_unless
from .fitted import TABLE
from .stack_fit import Number, StackFit
from .stack_profiles import Profile

if TYPE_CHECKING:
    from ...backends.system_tree import Tree

Record: TypeAlias = "dict[str, Tree]"


def tree_of(fit: StackFit, tool: str, folder: Path) -> Record:
    """Return the file of a fit that is written to a folder; `tool` is what fitted it, as in `slipstick 0.1.0`."""
    found: Record = {"name": fit.profile.file.tree.get("name"), "like": _like(fit.profile, folder)}
    for number in fit.numbers:
        *sections, key = keys_of(number.path)
        here = found
        for section in sections:
            here = cast(Record, here.setdefault(section, {}))
        here[key] = _written(number, _source(fit))
    found["fit"] = _record(fit, tool)
    return found


def check(fit: StackFit, tree: Mapping[str, Tree]) -> StackConstants:
    """Lay a fit over its profile, as estimates will; SystemFileError when that breaks the rules of stacks."""
    over = {key: value for key, value in tree.items() if key not in ("name", "like")}
    plain = read_stack(fit.profile.name, unfitted=(fit.profile.name,)).tree
    found = laid_over(plain, over)
    for chip in {split_chip(number.path)[0] for number in fit.numbers}:
        build_stack(on_chip(found, chip), fit.profile.name)
    return build_stack(on_chip(found, None), fit.profile.name)


def refuse_other(path: Path) -> None:
    """UsageError where a file that is there is no fit of a stack: a profile that someone wrote is not written over."""
    refuse_unless(path, "a stack", has_record)


def _like(profile: Profile, folder: Path) -> str:
    """Return how a file of a folder names a profile."""
    if not profile.name.endswith((".yaml", ".yml")):
        return profile.name
    return os.path.relpath(profile.name, folder)


def _written(number: Number, source: str) -> Record:
    at = movable(number.path)
    value = float(f"{number.value / at.scale:.4g}")
    unit: Record = {"unit": at.unit} if at.unit else {}
    return {"value": value, **unit, "confidence": "measured", "source": source}


def _source(fit: StackFit) -> str:
    part = "half of the configurations of " if fit.split == HALF else ""
    return f"robust fit to {part}{', '.join(fit.data_sets)} ({fit.fit.num} rows)"


def _record(fit: StackFit, tool: str) -> Record:
    found: Record = {
        "table": TABLE, "data_sets": list(fit.data_sets), "free": list(fit.profile.free),
        "together": list(fit.together), "split": fit.split, "rule": RULE, "excluded": fit.num_excluded, "tool": tool,
        "fitted": _figures(fit.fit),
    }  # fmt: skip
    return found if fit.judged is None else {**found, "judged": _figures(fit.judged)}


def _figures(accuracy: Accuracy) -> Record:
    figures = asdict(accuracy)
    return {"rows": accuracy.num, **{name: round(figures[name], 4) for name in ("median", "p90", "bias")}}
