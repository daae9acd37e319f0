"""Candidates of families as tables, and those of them that a software stack runs; those last asked for are kept."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ...ir.kept import RecentResults
from ...ir.plan import Family, Plan
from ...ir.plan.case import Above
from ...ir.plan.plan import completed
from ...ir.plan.word import changed
from ...ir.plan.words import PlanNumbers
from .degrees import Counts, candidates, counted, plan_table
from .space import PlanRunner, PlanSpace

# Tables of candidates that are kept, a few megabytes each.
_TABLES = 64


class CandidateTables:
    """Tables of a space: one for all families that differ in nothing that numbers depend on."""

    __slots__ = ("_classes", "_num_blocks", "_run", "_run_tables", "_space", "_tables")

    def __init__(self, space: PlanSpace, num_blocks: int) -> None:
        """Keep the space and the layers that stages share out."""
        self._space, self._num_blocks = space, num_blocks
        self._tables = RecentResults[Hashable, Counts](_TABLES)
        self._classes = RecentResults[Hashable, Counts](_TABLES)
        self._run_tables = RecentResults[Hashable, Counts](_TABLES)
        # Classes of candidates that are run, by family and degrees above one.
        self._run: dict[Hashable, tuple[int, ...]] = {}

    def all_of(self, family: Family, above: Above) -> Counts:
        """Return all candidates of a family with such degrees above one."""
        args = self._space.degrees, family, above, self._num_blocks, self._space.load(family)
        return self._tables.of(_key(family, above), lambda: candidates(*args))

    def run_by(self, runner: PlanRunner, family: Family, above: Above) -> Counts:
        """Return those of them that a stack runs: it is asked about one of each class."""
        space, numbers, key = self._space, self.all_of(family, above), _key(family, above)

        def classes_of() -> Counts:
            table = plan_table(family, numbers, space.seq_len, space.kv_len, space.load(family))
            return runner.alike(family, table)

        classes, which = self._classes.of((key, runner), classes_of), (family, above, runner)
        if which not in self._run:
            kinds, first = np.unique(classes, return_index=True)
            pairs = zip(kinds.tolist(), first.tolist(), strict=True)
            good = (kind for kind, at in pairs if runner.runs(plan_of(space, family, numbers[:, at].tolist())))
            self._run[which] = tuple(good)
        run = self._run[which]
        return self._run_tables.of((key, runner, run), lambda: numbers.compress(np.isin(classes, run), axis=1))


def _key(family: Family, above: Above) -> Hashable:
    """Return what numbers depend on."""
    return family.schedule, family.etp, family.usp, family.hsdp, family.capacity, above


def plan_of(space: PlanSpace, family: Family, numbers: Sequence[int]) -> Plan:
    """Return the plan of a candidate; PlanError when it is not one."""
    said = {**counted(numbers), **space.load(family), "seq_len": space.seq_len, "kv_len": space.kv_len}
    return completed(changed(PlanNumbers(), said), family)
