"""A fit to a trace as a file: a stack like the one of the prediction, with the numbers that the trace tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from ....backends.machine.files.catalogue import laid_over, on_chip, read_stack
from ....backends.machine.files.system_build import build_stack
from ....backends.machine.software.stack_limits import movable
from ..written_fits import has_record, name_in, numbers_tree, refuse_unless
from .fit import TraceFit

if TYPE_CHECKING:
    from ....backends.machine.files.system_tree import Tree
    from ....backends.machine.software.stack import StackConstants

Record: TypeAlias = "dict[str, Tree]"


def stack_of(name_or_path: str, chip: str) -> StackConstants:
    """Return a stack as it is on a chip; SystemFileError, UnknownNameError where there is none."""
    return build_stack(on_chip(read_stack(name_or_path).tree, chip), name_or_path)


def tree_of(fit: TraceFit, like: str, path: Path, measured: Sequence[Path], tool: str) -> Record:
    """Return the file of a fit that is written to a path; `tool` is what fitted it, as in `slipstick 0.1.0`."""
    names = [one.name for one in measured]
    told = [(number.path, number.value, movable(number.path)) for number in fit.numbers]
    steps = f"{len(fit.fitted)} step{'' if len(fit.fitted) == 1 else 's'}"
    numbers = numbers_tree(told, f"{steps} of {', '.join(names)}, measured beside a prediction with the stack {like}")
    alone = list(fit.judges) == list(fit.fitted)
    told_of: Record = {
        "table": "trace",
        "data_sets": [*names],
        "free": [number.path for number in fit.numbers],
        "tool": tool,
        "split": "all" if alone else "half",
        "fitted": {"rows": float(len(fit.fitted))},
    }
    if not alone:
        error = fit.judged[0].error_after
        told_of["judged"] = {
            "rows": float(len(fit.judges)),
            "median": round(abs(error), 4),
            "bias": round(error, 4),
        }
    found: Record = {"name": path.stem, "like": name_in(path.parent, like), **numbers, "fit": told_of}
    # What the stack says of some chip alone would lie over what the trace says.
    chips = read_stack(like).tree.get("chips")
    over = {chip: _shared(one, numbers) for chip, one in chips.items()} if isinstance(chips, dict) else {}
    if over := {chip: one for chip, one in over.items() if one}:
        found["chips"] = cast("Tree", over)
    return found


def check(tree: Mapping[str, Tree], like: str) -> StackConstants:
    """Lay a fit over its stack, as estimates will; SystemFileError when that breaks the rules of stacks."""
    over = {key: value for key, value in tree.items() if key not in ("name", "like")}
    return build_stack(on_chip(laid_over(read_stack(like).tree, over), None), str(tree["name"]))


def refuse_other(path: Path) -> None:
    """UsageError where a file that is there is no fit of a stack: a profile that someone wrote is not written over."""
    refuse_unless(path, "a stack", has_record)


def _shared(theirs: Tree, ours: Record) -> Record:
    """Return those of our numbers that a section of a chip says as well."""
    found: Record = {}
    for key, value in theirs.items() if isinstance(theirs, dict) else ():
        mine = ours.get(key)
        if isinstance(mine, dict) and "value" not in mine:
            found |= {key: inner} if (inner := _shared(value, mine)) else {}
        elif mine is not None:
            found[key] = mine
    return found
