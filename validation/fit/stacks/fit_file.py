"""A fit of a stack as a file: a stack like the one that was fitted, with its numbers and a record of the fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ....backends.machine.files.catalogue import laid_over, on_chip, read_stack
from ....backends.machine.files.system_build import build_stack
from ....backends.machine.software.stack import StackConstants
from ....backends.machine.software.stack_limits import movable, split_chip
from ...training.fitted import TABLE
from ..profiles import ProfileFit
from ..written_fits import has_record, name_in, numbers_tree, record_of, refuse_unless, source_of

if TYPE_CHECKING:
    from ....backends.machine.files.system_tree import Tree

Record: TypeAlias = "dict[str, Tree]"


def tree_of(fit: ProfileFit, tool: str, folder: Path) -> Record:
    """Return the file of a fit that is written to a folder; `tool` is what fitted it, as in `slipstick 0.1.0`."""
    told = ((number.path, number.value, movable(number.path)) for number in fit.numbers)
    numbers = numbers_tree(told, source_of(fit.split, fit.data_sets, fit.fit.num, "rows"))
    return {
        "name": fit.profile.file.tree.get("name"),
        "like": name_in(folder, fit.profile.name),
        **numbers,
        "fit": record_of(fit, TABLE, tool),
    }


def check(fit: ProfileFit, tree: Mapping[str, Tree]) -> StackConstants:
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
