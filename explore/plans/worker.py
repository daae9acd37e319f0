"""Blocks of plans, pruned and priced: legality and memory first, time and money for what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...backends.machine.files.many_systems import Systems
from ...backends.machine.system import System
from ...cost.money import Work, step_money, system_money
from ...driver.estimate import Estimates, Lowered, evaluate, screen
from ...ir.errors import InternalError, SlipstickError
from ...ir.kept import Kept
from ...ir.plan import Family
from ..block import Array, Block, Found, joined
from .degrees import NUMBERS, Counts, plan_table
from .lowerings import Lowerings

if TYPE_CHECKING:
    from .job import Part, PlanJob

UNEVEN = "heads, sizes, lengths or layers do not divide"
TOO_LARGE = "does not fit the memory"
# Machines come round again with each family; one is some 200 kB.
_MACHINES = 1024


class PlanWorker:
    """Works on blocks of plans in one process."""

    def __init__(self, job: PlanJob, lowerings: Lowerings | None = None) -> None:
        """Keep the job, and what others have lowered of its graph; nothing is loaded yet."""
        self._job = job
        self._lowerings = Lowerings(job.graph) if lowerings is None else lowerings
        self._systems, self._files = Kept[int, System](_MACHINES), Systems()

    def work(self, block: Block) -> Found:
        """Prune and evaluate a block."""
        part = self._job.parts[block.part]
        numbers = self._job.numbers(part)[:, block.first : block.last]
        lowered = self._lower(part.family)
        if isinstance(lowered, str):
            return Found(block.number, {lowered: len(block)}, 0, self._none())
        # Money is that of a system of so many devices: plans of one number of them are priced at a time.
        edges = np.flatnonzero(np.diff(numbers[0])) + 1
        alike = np.split(numbers, edges, axis=1) if self._job.terms is not None else [numbers]
        return joined([self._found(block, part, lowered, some) for some in alike])

    def _found(self, block: Block, part: Part, lowered: Lowered, numbers: Counts) -> Found:
        space, system = self._job.space, self._system(part.machine)
        load = (space.capacity_factor, space.expert_imbalance)
        plans = plan_table(part.family, numbers, space.seq_len, space.kv_len, load)
        screened = screen(lowered, system, plans)
        num_legal = int(screened.legal.sum())
        pruned = {UNEVEN: numbers.shape[1] - num_legal, TOO_LARGE: num_legal - int(screened.fits.sum())}
        fitting, rows = screened.fitting(), np.flatnonzero(screened.fits)
        if fitting is None:
            return Found(block.number, _some(pruned), num_legal, self._none())
        try:
            table = evaluate(lowered, system, fitting.plans, self._job.convention, fitting)
        except SlipstickError as error:
            pruned[f"cannot be priced: {error}"] = len(rows)
            return Found(block.number, _some(pruned), num_legal, self._none())
        columns, dropped = self._kept(block.part, numbers[:, rows], table)
        return Found(block.number, _some(pruned | dropped), num_legal, columns)

    def _kept(self, part: int, numbers: Counts, table: Estimates) -> tuple[dict[str, Array], dict[str, int]]:
        """The columns of plans that keep every limit, and how many do not, by the first that they break."""
        metrics = dict(table.metrics)
        if self._job.terms is not None:
            metrics |= self._money(table)
        given = dict(zip(NUMBERS, numbers.astype(np.float64), strict=True))
        same = {"part": float(part), **self._job.words_of(self._job.parts[part])}
        columns = {name: np.full(numbers.shape[1], value) for name, value in same.items()} | given
        columns |= {name: _column(metrics.get(name, 0.0), len(table.plans)) for name in self._job.metrics}
        columns = {name: columns[name] for name in self._job.columns}
        dropped: dict[str, int] = {}
        for limit in self._job.limits:
            holds = limit.holds(columns[limit.name], float(table.system.chip.hbm_bytes))
            dropped[f"breaks {limit}"] = int((~holds).sum())
            columns = {name: column[holds] for name, column in columns.items()}
        return columns, dropped

    def _money(self, table: Estimates) -> Mapping[str, Array]:
        """Money and energy of the steps of a table, all of one number of devices, as `worth` has them."""
        m, num = table.metrics, len(table.plans)
        tokens = m["tokens_per_s"] * m["step_time_s"]
        work = Work(table.lowered.source.workload, m["step_time_s"], tokens, m["model_flops"], None)
        money = system_money(table.system, int(table.plans.num_gpus[0]), self._job.terms)
        spent = step_money(money, work, table.timing, table.plans).metrics
        unknown = ("kg_co2e_per_mtok",) if money.made.unknown else ()
        return {k: _column(v, num) * (np.nan if k in unknown else 1.0) for k, v in spent.items()}

    def _none(self) -> dict[str, Array]:
        return {name: np.zeros(0) for name in self._job.columns}

    def _system(self, machine: int) -> System:
        return self._systems.of(machine, lambda: self._job.machines[machine].load(self._files))

    def _lower(self, family: Family) -> Lowered | str:
        """A family lowered, or why it cannot be."""
        try:
            return self._lowerings.of(family)
        except SlipstickError as error:
            if isinstance(error, InternalError):
                raise
            return f"cannot be built: {error}"


def _column(values: Array | float, num: int) -> Array:
    return np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), num))


def _some(pruned: Mapping[str, int]) -> dict[str, int]:
    """Reasons that there were."""
    return {reason: num for reason, num in pruned.items() if num}
