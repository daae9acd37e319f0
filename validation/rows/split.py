"""Which rows a fit may see: half of the configurations, chosen by a hash, or all; and which ones it did see."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import SystemFileError
from ...ir.records import dataclass

if TYPE_CHECKING:
    from ...backends.machine.files.system_tree import Tree

HALF, ALL = "half", "all"
RULE = "rows whose sha256 of 'table|group' is even are fitted"


def in_first_half(table: str, group: str) -> bool:
    """Whether a configuration is in the half that is fitted; whole configurations are, never parts of one.

    >>> in_first_half("gemm", "4096,4096"), in_first_half("gemm", "4096,11008")
    (True, False)
    """
    return hashlib.sha256(f"{table}|{group}".encode()).digest()[-1] % 2 == 0


@dataclass(frozen=True, slots=True)
class FittedKernel:
    """What one kind of kernel in a calibration was fitted to.

    Attributes:
        table: the kind of table.
        data_sets: the data sets whose rows it saw.
        systems: the systems whose rows it saw.
        split: `half` of the configurations, or `all` of them.
        joint: whether every constant of the kind was fitted, so that nothing is left of calibrations below.
    """

    table: str
    data_sets: tuple[str, ...]
    systems: tuple[str, ...]
    split: str
    joint: bool = False

    def saw(self, table: str, dataset: str, system: str, group: str) -> bool:
        """Whether a row was among those that were fitted; a system that is a file goes by the file's name."""
        if table != self.table or dataset not in self.data_sets or Path(system).name not in self.systems:
            return False
        return self.split == ALL or in_first_half(table, group)


def fits_of(layers: Sequence[tuple[str, Mapping[str, Tree]]], cls: str, kind: str) -> tuple[FittedKernel, ...]:
    """Return the fits behind the constants of a kind when calibrations lie over one another.

    SystemFileError when a record of a fit cannot be read.
    """
    found: list[FittedKernel] = []
    for where, tree in layers:
        record = _below(_below(tree.get("fit"), cls), kind)
        if record is not None:
            fit = _read(record, f"{where}: fit.{cls}.{kind}")
            found = [fit] if fit.joint else [*found, fit]
    return tuple(found)


def seen(fits: Iterable[FittedKernel], table: str, dataset: str, system: str, group: str) -> bool:
    """Whether any of the fits saw a row."""
    return any(f.saw(table, dataset, system, group) for f in fits)


def _below(tree: Tree, key: str) -> Tree:
    return tree.get(key) if isinstance(tree, dict) else None


def _read(record: Tree, where: str) -> FittedKernel:
    names = [f.name for f in fields(FittedKernel)]
    if not isinstance(record, dict) or not set(names) <= set(record):
        raise SystemFileError(f"{where}: expected a record with {', '.join(names)}")
    split = record["split"]
    if split not in (HALF, ALL):
        raise SystemFileError(f"{where}.split: '{split}' is neither {HALF} nor {ALL}")
    sets, systems = (_words(record[key], f"{where}.{key}") for key in ("data_sets", "systems"))
    return FittedKernel(str(record["table"]), sets, systems, str(split), record["joint"] is True)


def _words(tree: Tree, where: str) -> tuple[str, ...]:
    if not isinstance(tree, list):
        raise SystemFileError(f"{where}: expected a list of names, not {tree!r}")
    return tuple(str(item) for item in tree)
