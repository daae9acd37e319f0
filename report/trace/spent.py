"""What a device of each class of stages spends on a micro-batch, phase by phase, and once a step, under one plan."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...cost.step.stage_time import LENT
from ...driver.estimate import Estimate
from ...ir.graph import ONCE_A_STEP, Phase
from ...ir.plan.layout.stages import StageClass, between_stages
from ...ir.records import dataclass
from .nodes import NodeTime

Array = NDArray[np.float64]
Parts = Mapping[str, float]
NodeTimes = Mapping[str, Mapping[int, NodeTime]]


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


def stages_spent(answer: Estimate, nodes: NodeTimes) -> list[StageSpent]:
    """Return the classes of stages of an estimate, as the roll-up accounts for them."""
    table = answer.table
    layout = table.staging.layouts[int(table.staging.which[0])]
    return [_class(answer, nodes, cls) for cls in range(len(layout.classes))]


def pace_once(stages: list[StageSpent]) -> StageSpent:
    """Return the stage whose work once a step takes longest: the others wait for it."""
    return max(stages, key=lambda s: s.once_s)


def _class(answer: Estimate, nodes: NodeTimes, cls: int) -> StageSpent:
    table = answer.table
    layout, time = table.staging.layouts[int(table.staging.which[0])].classes[cls], table.step.stages[cls]
    forward, backward, once = (
        Spent(_first(account.exposed), _first(account.hidden)) for account in (time.forward, time.backward, time.once)
    )
    alone = _once_alone(answer, nodes, layout)
    prepare, reduce = (_behind(once, alone, phase) for phase in (Phase.PREPARE, Phase.REDUCE))
    update = once.less(prepare).less(reduce)
    return StageSpent(layout.first, layout.number, forward, backward, prepare, reduce, update)


def _behind(once: Spent, alone: Mapping[tuple[Phase, str], float], phase: Phase) -> Spent:
    """What of an account is of one phase beside micro-batches.

    The update exposes all its messages, so that what hides is of the other two phases; messages of one part in both
    are exposed alike.
    """
    exposed: dict[str, float] = {}
    hidden: dict[str, float] = {}
    for (of, part), seconds in alone.items():
        if of is not phase or seconds <= 0.0:
            continue
        both = alone.get((Phase.PREPARE, part), 0.0) + alone.get((Phase.REDUCE, part), 0.0)
        mine = seconds / both
        exposed[part] = max(once.exposed.get(part, 0.0) - alone.get((Phase.OPTIMIZER, part), 0.0), 0.0) * mine
        hidden[part] = once.hidden.get(part, 0.0) * mine
    if phase is Phase.REDUCE and LENT in once.exposed:
        exposed[LENT] = once.exposed[LENT]
    return Spent(exposed, hidden)


def _once_alone(answer: Estimate, nodes: NodeTimes, stage: StageClass) -> Mapping[tuple[Phase, str], float]:
    """Seconds of nodes that run once a step on a stage, by phase and part."""
    graph = answer.table.lowered.graph
    found: dict[tuple[Phase, str], float] = {}
    for region, count, sent in zip(graph.regions, stage.counts, stage.messages, strict=True):
        times = sent if between_stages(region.name) else count
        for n in nodes[region.name].values():
            if n.phase in ONCE_A_STEP and not n.is_copy and times:
                found[n.phase, n.part] = found.get((n.phase, n.part), 0.0) + n.time_s * times
    return found


def _first(parts: Mapping[str, Array]) -> Parts:
    return {part: float(np.asarray(seconds).reshape(-1)[0]) for part, seconds in sorted(parts.items())}


def _less(parts: Parts, other: Parts) -> Parts:
    return {part: max(seconds - other.get(part, 0.0), 0.0) for part, seconds in parts.items()}


__all__ = ["Spent", "StageSpent", "pace_once", "stages_spent"]
