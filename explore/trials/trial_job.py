"""A search over machines that an optimiser chooses: on each of them the best of all plans."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ...ir.records import dataclass
from ...ir.units import parse_quantity
from ..best import Best, Columns
from ..block import Array, Block, Found, cut
from ..goals import Goal
from ..plans.job import PART, PlanJob, PlanMachine, PlanPart
from ..searching import CandidateTally
from .optimizer import Axis, CategoricalParameter, Range, Trial, Values

# Column of the trial that a row is of, and the axis of systems where there are several.
TRIAL, SYSTEM = "trial", "system"
# Plans that were evaluated and are not the best of their machine.
BEATEN = "beaten by another plan on the same machine"


@dataclass(frozen=True, kw_only=True)
class TrialJob:
    """Trials of machines, each a block of one row at most: the best plan on that machine.

    Attributes:
        plans: what is searched on each machine; its machines are the systems to start from.
        axes: numbers of the systems by path, and `system` where there are several.
        num_trials: machines that are tried.
        sampler: how they are chosen; see `OptunaStudy`.
        seed: of the choice.
        at_once: machines that are chosen before the first of them is searched.
    """

    plans: PlanJob
    axes: tuple[Axis, ...]
    num_trials: int
    sampler: str = "tpe"
    seed: int = 0
    at_once: int = 8

    @property
    def goals(self) -> tuple[Goal, ...]:
        """What it is for."""
        return self.plans.goals

    @property
    def text(self) -> str:
        """The space as YAML."""
        return self.plans.text

    @property
    def digest(self) -> str:
        """What tells this study from any other; how many trials it has does not."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        text = repr((self.plans.digest, self.axes, self.sampler, self.seed, self.at_once))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def columns(self) -> Sequence[str]:
        """Trial and values of the axes, then those of plans."""
        return (TRIAL, *(axis.name for axis in self.axes if axis.name != SYSTEM), *self.plans.columns)

    @property
    def words(self) -> Mapping[str, tuple[str, ...]]:
        """Of each column whose numbers stand for words, the words from 0 on."""
        choices = {axis.name: axis.values for axis in self.axes if isinstance(axis, CategoricalParameter)}
        return choices | dict(self.plans.words)

    def blocks(self) -> Sequence[Block]:
        """Return a block for each trial."""
        return tuple(cut(0, self.num_trials, 1, 0))

    def machine(self, trial: Trial) -> PlanMachine:
        """Return the machine of a trial."""
        base = self.plans.machines[self._system(trial)]
        own = (f"{axis.name}={axis.text(trial.values[axis.name])}" for axis in self.axes if axis.name != SYSTEM)
        return replace(base, overrides=(*base.overrides, *own))

    def on(self, trials: Sequence[Trial]) -> PlanJob:
        """Return the search of plans on the machines of these trials."""
        return replace(self.plans, machines=tuple(map(self.machine, trials)))

    def found(self, trial: Trial, job: PlanJob, best: Best, tally: CandidateTally) -> Found:
        """Return the block of a trial: the best row of its machine, or none; `job` is what searched it."""
        pruned, crashed = dict(tally.pruned), tuple(tally.crashed)
        if not tally.num_kept:
            return Found(trial.number, pruned, tally.num_legal, self.no_rows(), crashed)
        row = {name: float(best.top[name][0]) for name in self.plans.columns}
        row |= {a.name: self._number(a, trial) for a in self.axes if a.name != SYSTEM}
        part = job.parts[int(row[PART])]
        base = self.plans.bases.index(job.bases[part.base])
        mine = self._places[replace(part, machine=self._system(trial), base=base)]
        row |= {TRIAL: float(trial.number), PART: float(mine), SYSTEM: float(self._system(trial)), "base": float(base)}
        beaten = {BEATEN: tally.num_kept - 1} if tally.num_kept > 1 else {}
        columns = {name: np.array([row[name]]) for name in self.columns}
        return Found(trial.number, pruned | beaten, tally.num_legal, columns, crashed)

    def again(self, found: Found, trial: Trial) -> Found:
        """Return what was found on a machine as the block of another trial that has it too."""
        if found.number == trial.number:
            return found
        number = np.full(found.num_rows, float(trial.number))
        return replace(found, number=trial.number, columns={**found.columns, TRIAL: number})

    def no_rows(self) -> dict[str, Array]:
        """Return the columns of a trial where nothing is feasible."""
        return {name: np.zeros(0) for name in self.columns}

    def values(self, found: Found) -> Values:
        """Return what a trial was worth, goal by goal; None where no plan was left, or a goal has no number."""
        if not found.num_rows:
            return None
        worth = tuple(float(found.columns[goal.name][0]) for goal in self.goals)
        return worth if np.isfinite(worth).all() else None

    def answered(self, rows: Columns, trials: Sequence[Trial]) -> tuple[PlanJob, dict[str, Array]]:
        """Return rows of trials as rows of a search of plans on the machines of these trials, and that search."""
        numbers = [trial.number for trial in trials]
        job = self.on(trials)
        at = [numbers.index(int(number)) for number in rows[TRIAL]]
        parts = [self.plans.parts[int(part)] for part in rows[PART]]
        bases = [job.bases.index(self.plans.bases[part.base]) for part in parts]
        place = {part: k for k, part in enumerate(job.parts)}
        own = {axis.name for axis in self.axes}
        kept = {name: column for name, column in rows.items() if name not in own}
        new = [replace(p, machine=m, base=b) for p, m, b in zip(parts, at, bases, strict=True)]
        moved = {PART: [place[part] for part in new], SYSTEM: at, "base": bases}
        return job, kept | {name: np.array(column, dtype=np.float64) for name, column in moved.items()}

    def _system(self, trial: Trial) -> int:
        if SYSTEM not in trial.values:
            return 0
        return self._names.index(str(trial.values[SYSTEM]))

    @cached_property
    def _names(self) -> list[str]:
        return [machine.name for machine in self.plans.machines]

    @cached_property
    def _places(self) -> dict[PlanPart, int]:
        return {part: k for k, part in enumerate(self.plans.parts)}

    def _number(self, axis: Axis, trial: Trial) -> float:
        value = trial.values[axis.name]
        if isinstance(axis, Range):
            return parse_quantity(axis.text(value)).value_si
        return float(axis.values.index(str(value)))
