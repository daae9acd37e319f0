"""What a device of each class of stages spends on a micro-batch, phase by phase, and once a step, under one plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...backends.network.sms import lent_share
from ...cost import rollup
from ...driver import Estimate, Estimates

Array = NDArray[np.float64]
Parts = Mapping[str, float]
_BY_REGION = Mapping[tuple[str, str, str], Array]


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds by part: `exposed` adds up to the time that passes, `hidden` runs beside it."""

    exposed: Parts
    hidden: Parts

    @property
    def time_s(self) -> float:
        """Seconds that pass."""
        return sum(self.exposed.values())

    def share(self, part: str) -> float:
        """Return which share of a part is exposed; 1 where nothing is known of it.

        >>> Spent({"comm.dp": 1.0}, {"comm.dp": 3.0}).share("comm.dp")
        0.25
        """
        exposed = self.exposed.get(part, 0.0)
        whole = exposed + self.hidden.get(part, 0.0)
        return exposed / whole if whole > 0.0 else 1.0

    def less(self, other: Spent) -> Spent:
        """Return what is left without another account."""
        return Spent(_less(self.exposed, other.exposed), _less(self.hidden, other.hidden))


@dataclass(frozen=True, slots=True)
class StageSpent:
    """One class of stages.

    Attributes:
        first: earliest stage of the class.
        number: how many stages it has.
        forward: one micro-batch's forward phase in all chunks of the stage.
        backward: its backward phase, recomputation among it.
        prepare: what comes before the first micro-batch.
        reduce: what comes behind the last one: gradients that replicas sum.
        update: what follows: the optimizer and what it gathers.
    """

    first: int
    number: int
    forward: Spent
    backward: Spent
    prepare: Spent
    reduce: Spent
    update: Spent

    @property
    def once_s(self) -> float:
        """Seconds that pass once a step."""
        return self.prepare.time_s + self.reduce.time_s + self.update.time_s


def stages_spent(answer: Estimate) -> list[StageSpent]:
    """Return the classes of stages of an estimate, as the roll-up accounts for them."""
    table = answer.table
    spent = table.timing.sums(rollup._label, once=True)
    if table.plans.family.async_tp:
        spent = rollup._with_hidden(spent, table.timing, table.plans)
    return [_class(table, spent, cls) for cls in range(table.staging.num_classes) if table.staging.is_there(cls)[0]]


def pace_once(stages: list[StageSpent]) -> StageSpent:
    """Return the stage whose work once a step takes longest: the others wait for it."""
    return max(stages, key=lambda s: s.once_s)


def _class(table: Estimates, spent: _BY_REGION, cls: int) -> StageSpent:
    """Account for phases apart by leaving the others out of what was spent."""
    layout = table.staging.layouts[table.staging.which[0]].classes[cls]
    share = lent_share(table.system)

    def account(*phases: str, once: bool = False) -> Spent:
        kept = {key: s for key, s in spent.items() if key[1] in phases}
        stage = rollup._stage(kept, table.staging, cls, table.plans.columns["cp"])
        found = stage.once if once else stage.micro
        return _lent(Spent(_of(found.exposed), _of(found.hidden)), share)

    forward = account("forward")
    prepare = account("forward", "prepare", once=True)
    behind = account("forward", "backward", "reduce", once=True)
    update = account("forward", "backward", "reduce", "optimizer", once=True).less(behind)
    both = account("forward", "backward")
    return StageSpent(layout.first, layout.number, forward, both.less(forward), prepare, behind, update)


def _lent(spent: Spent, share: float) -> Spent:
    """Add the computation that waits for the SMs that hidden messages hold."""
    hidden = [s for part, s in spent.hidden.items() if part.startswith("comm.") and part != "comm.tp"]
    if share <= 0.0 or not hidden:
        return spent
    return Spent({**spent.exposed, rollup.LENT: sum(hidden) * share}, spent.hidden)


def _of(parts: Mapping[str, Array]) -> Parts:
    return {part: float(np.asarray(seconds).reshape(-1)[0]) for part, seconds in sorted(parts.items())}


def _less(parts: Parts, other: Parts) -> Parts:
    return {part: max(seconds - other.get(part, 0.0), 0.0) for part, seconds in parts.items()}


__all__ = ["Spent", "StageSpent", "pace_once", "stages_spent"]
