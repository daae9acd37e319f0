"""Which served requests the numbers of engines were fitted to: what an engine's record of its fit says of a row."""

from __future__ import annotations

from dataclasses import field

from ...backends.machine.files.catalogue import read_stack
from ...backends.machine.files.section import section_of
from ...backends.machine.files.system_tree import Tree
from ...backends.machine.software.engine_schema import EngineFitSection
from ...ir.records import dataclass
from ..rows.split import ALL, in_first_half
from .engines import chip_of

TABLE = "inference"


@dataclass(slots=True)
class EngineRecords:
    """The fit of each engine on each chip, each read once."""

    _known: dict[tuple[str, str], EngineFitSection | None] = field(default_factory=dict)

    def saw(self, engine: str, dataset: str, group: str, system: str) -> bool:
        """Whether numbers that an engine has on the chip of a system were fitted to a row."""
        key = (engine, chip_of(system))
        if key not in self._known:
            self._known[key] = _record(*key)
        fit = self._known[key]
        if fit is None or dataset not in fit.data_sets:
            return False
        return fit.split == ALL or in_first_half(TABLE, group)


def _record(engine: str, chip: str) -> EngineFitSection | None:
    """Return the record of a fit on a chip; None where no number was fitted there."""
    here = _below(read_stack(engine, kind="engines").tree.get("chips"), chip)
    fit = _below(here, "fit")
    if not isinstance(fit, dict) or "fitted" not in fit:
        return None
    return section_of(EngineFitSection, fit, f"fit of engine '{engine}' on {chip}")


def _below(tree: Tree, key: str) -> Tree:
    return tree.get(key) if isinstance(tree, dict) else None
