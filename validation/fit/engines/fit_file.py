"""Fits of an engine as a file: the numbers of each chip with a record of the fit, laid over the engine's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from ....backends.machine.files.catalogue import laid_over
from ....backends.machine.files.section import section_of
from ....backends.machine.software.engine_limits import ENGINE_MOVABLE
from ....backends.machine.software.engine_schema import EngineFile
from ....backends.machine.software.stack_limits import movable
from ...inference.fitted import TABLE
from ..profiles import ProfileFit
from ..written_fits import has_record, name_in, numbers_tree, record_of, refuse_unless, source_of
from .profiles import engine_of

if TYPE_CHECKING:
    from ....backends.machine.files.system_tree import Tree

Record: TypeAlias = "dict[str, Tree]"


def tree_of(fits: Sequence[ProfileFit], tool: str, folder: Path) -> Record:
    """Return the file of the fits of one engine that is written to a folder; `tool` is what fitted them."""
    profile = fits[0].profile
    chips: Record = {fit.chip: _on_chip(fit, tool) for fit in fits}
    return {"name": engine_of(profile), "like": name_in(folder, profile.name), "chips": chips}


def check(fits: Sequence[ProfileFit], tree: Record) -> None:
    """Lay fits over their engine, as estimates will; SystemFileError when that breaks the rules of engines."""
    plain = {key: value for key, value in fits[0].profile.file.tree.items() if key != "chips"}
    for fit in fits:
        here = cast(Record, cast(Record, tree["chips"])[fit.chip])
        section_of(EngineFile, laid_over(plain, here), f"engine '{fits[0].profile.name}' on {fit.chip}")


def refuse_other(path: Path) -> None:
    """UsageError where a file that is there is no fit of an engine: one that someone wrote is not written over."""
    refuse_unless(path, "an engine", _is_fit)


def _is_fit(tree: Record) -> bool:
    chips = tree.get("chips")
    return isinstance(chips, dict) and any(map(has_record, chips.values()))


def _on_chip(fit: ProfileFit, tool: str) -> Record:
    told = ((number.path, number.value, movable(number.path, ENGINE_MOVABLE)) for number in fit.numbers)
    found = numbers_tree(told, source_of(fit.split, fit.data_sets, fit.fit.num, "quantities"))
    return {**found, "fit": record_of(fit, TABLE, tool)}
