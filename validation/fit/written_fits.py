"""Files of fits: the parts that those of stacks and of engines have in common, and which may be written over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from ...backends.machine.files.system_tree import read_tree
from ...backends.machine.software.stack_limits import Movable
from ...ir.errors import ParseError, SystemFileError, UsageError
from ...ir.text.untrusted import read_settings
from ..results.statistics import Accuracy
from ..rows.split import HALF, RULE
from .profiles import ProfileFit

if TYPE_CHECKING:
    from ...backends.machine.files.system_tree import Tree

Record: TypeAlias = "dict[str, Tree]"


def numbers_tree(numbers: Iterable[tuple[str, float, Movable]], source: str) -> Record:
    """Return fitted numbers, in base units, where their paths put them in a file, each with its source."""
    found: Record = {}
    for path, value, at in numbers:
        *sections, key = path.split(".")
        here = found
        for section in sections:
            here = cast(Record, here.setdefault(section, {}))
        unit: Record = {"unit": at.unit} if at.unit else {}
        here[key] = {"value": float(f"{value / at.scale:.4g}"), **unit, "confidence": "measured", "source": source}
    return found


def source_of(split: str, data_sets: Sequence[str], num: int, what: str) -> str:
    """Return the source of a fitted number: of so many rows, or quantities, of these data sets."""
    part = "half of the configurations of " if split == HALF else ""
    return f"robust fit to {part}{', '.join(data_sets)} ({num} {what})"


def figures(accuracy: Accuracy) -> Record:
    """Return an accuracy as the record of a fit has it."""
    found = asdict(accuracy)
    return {"rows": accuracy.num, **{name: round(found[name], 4) for name in ("median", "p90", "bias")}}


def record_of(fit: ProfileFit, table: str, tool: str) -> Record:
    """Return the record of a fit to rows of a kind of table, as the file of its numbers has it."""
    return {
        "table": table,
        "data_sets": list(fit.data_sets),
        "free": list(fit.profile.free),
        **({"together": list(fit.together)} if fit.together else {}),
        "split": fit.split,
        "rule": RULE,
        "excluded": fit.num_excluded,
        "tool": tool,
        "fitted": figures(fit.fit),
        **({} if fit.judged is None else {"judged": figures(fit.judged)}),
    }


def name_in(folder: Path, name: str) -> str:
    """Return how a file of a folder names a profile of the catalogue, or one that is a file."""
    return os.path.relpath(name, folder) if name.endswith((".yaml", ".yml")) else name


def refuse_unless(path: Path, what: str, fitted: Callable[[dict[str, Tree]], bool]) -> None:
    """UsageError where a file that is there is no fit of `what`: one that someone wrote is not written over."""
    if path.is_dir():
        raise UsageError(f"cannot write '{path}': Is a directory")
    if not path.exists():
        return
    try:
        tree = read_tree(read_settings(path), path.name)
    except (OSError, ParseError, SystemFileError) as error:
        raise UsageError(f"cannot read '{path}', the fit to replace: {error}") from error
    if not fitted(tree):
        raise UsageError(f"'{path}' is no fit of {what}: it is not written over; give another -o FILE.yaml or FOLDER")


def has_record(tree: Tree) -> bool:
    """Whether a part of a file has the record of a fit."""
    fit = tree.get("fit") if isinstance(tree, dict) else None
    return isinstance(fit, dict) and "fitted" in fit
