"""Plans of trainer and engine found together: the fastest step, for every way to share the devices out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from ...backends.machine.system import System
from ...ir.errors import InfeasibleError, NotBuiltError, PlanError, UsageError
from ...ir.graph import Graph
from ...ir.plan import Plan
from ...ir.records import dataclass
from ...ir.text.stages import stage
from ..serve.server import Server, replicated
from .rollout import rollout_time
from .step import COLOCATED, PostTraining, PostTrainingStep, fastest, post_training_step

# Shares of the devices that make rollouts where both have their own.
_EIGHTHS = range(1, 8)
_REFUSED = (PlanError, InfeasibleError, UsageError, NotBuiltError)


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is tried.

    Attributes:
        plans: training plans on so many devices; those that are not legal are left out.
        servers: engines of one replica each.
    """

    plans: Callable[[int], Iterator[Plan]]
    servers: Sequence[Server]


def find_step(
    asked: PostTraining, graph: Graph, system: System, num_gpus: int, candidates: Candidates
) -> tuple[PostTrainingStep, int]:
    """Return the fastest step on so many devices, and how many pairs of plans it was chosen among.

    The trainer does not see how rollouts are made, and the engine not how they are learned: of each number of devices
    the fastest engine and the fastest trainer are the best pair. InfeasibleError where nothing fits.
    """
    found: list[PostTrainingStep] = []
    num_tried = 0
    for trainers, engines in _shares(asked, system, num_gpus):
        plans, rolled = list(candidates.plans(trainers)), list[tuple[float, Server]]()
        for one in candidates.servers:
            if engines % one.plan.num_gpus == 0:
                server = replicated(one, engines // one.plan.num_gpus)
                with suppress(*_REFUSED), stage(f"rollouts on {engines} GPUs, {one.plan.degrees} each"):
                    rolled.append((rollout_time(server, asked.rollouts).all_s, server))
        if not rolled and asked.algorithm.rolls_out:
            continue
        num_tried += len(plans) * max(len(rolled), 1)
        engine = min(rolled, key=lambda pair: pair[0])[1] if rolled else None
        for plan in plans:
            with suppress(*_REFUSED):
                found.append(post_training_step(asked, graph, system, plan, engine))
    if not found:
        raise InfeasibleError(
            f"no pair of plans on {num_gpus} devices fits: more devices, --recompute full, or a shorter --max-tokens"
        )
    return fastest(found), num_tried


def _shares(asked: PostTraining, system: System, num_gpus: int) -> Iterator[tuple[int, int]]:
    """Devices of the trainer and of the engine."""
    if asked.placement == COLOCATED or not asked.algorithm.rolls_out:
        yield num_gpus, num_gpus
        return
    unit = max(num_gpus // 8, 1)
    for eighth in _EIGHTHS:
        engines = eighth * unit
        if 0 < engines < num_gpus:
            yield num_gpus - engines, engines
