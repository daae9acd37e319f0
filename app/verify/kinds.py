"""Kinds of checks of a lowered graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...ir.errors import GateError, UnknownNameError, UsageError
from ..prepare import pipeline_of
from ..request import Request
from .numeric import check_spread, numeric
from .sizes import SmallSizes

if TYPE_CHECKING:
    from ...ir.graph import Graph
    from ...ir.plan import Plan

# Orders repeat: a schedule that runs so many micro-batches a stage runs more.
_MICRO_BATCHES_A_STAGE = 4


def proof(request: Request, traced: Graph, plan: Plan, sizes: SmallSizes) -> str:
    """Prove that what each rank runs is the model, and return the certificate; GateError names what is unproven."""
    if sizes != SmallSizes():
        raise UsageError("--verify-sizes is of --verify numeric: a proof holds for all sizes; leave it out")
    check_spread(plan)
    from ...passes.proof.certificate import FUSE, SHARD, certify

    pipeline = pipeline_of(request, plan.family)
    seen: dict[str, Graph] = {}
    order = [p.name for p in pipeline.passes]
    if SHARD not in order:
        raise UsageError("--verify proof: --passes has no 'shard', so that there is nothing to prove")
    start = perf_counter()
    lowered, _ = pipeline.run(traced, None, lambda _, step, graph: seen.update({step.name: graph}))
    place = order.index(SHARD)
    before = seen[order[place - 1]] if place else traced
    lowering_s, start = perf_counter() - start, perf_counter()
    unfused = seen[order[order.index(FUSE) - 1]] if FUSE in order else None
    found = certify(before, seen[SHARD], lowered, order, unfused)
    stages = list(_order_faults(plan))
    holds = found.holds and not stages
    lines = [
        f"proof      {found.name}: {'holds' if holds else 'FAILS'}",
        *found.lines(),
        f"schedule   {plan.family.schedule}, {plan.pp} stages: {stages[0] if stages else _RUNS}",
        f"time       {perf_counter() - start:.2f} s, behind {lowering_s:.2f} s of lowering",
    ]
    if not holds:
        raise GateError("\n".join(lines))
    return "\n".join(lines)


_RUNS = "each receive has one send, no task waits for itself"


def _order_faults(plan: Plan) -> Iterator[str]:
    """Why the order of tasks on the stages could not run."""
    from ...cost.schedules.happens_before import order_faults
    from ...cost.schedules.tasks import schedule_of

    if plan.pp == 1:
        return
    most = _MICRO_BATCHES_A_STAGE * plan.pp
    count = plan.num_micro_batches
    micro = count if count <= most else most + count % plan.pp
    chunks = plan.family.pipeline.chunks_of(plan.vpp)
    yield from order_faults(schedule_of(plan.family.schedule, plan.pp, micro, chunks))


VERIFIERS: Mapping[str, Callable[[Request, Graph, Plan, SmallSizes], str]] = MappingProxyType(
    {"proof": proof, "numeric": numeric}
)


def check_lowered(kind: str, request: Request, traced: Graph, plan: Plan, sizes: Mapping[str, object]) -> str:
    """Verify by one kind and return what it says; GateError where the graph is not proven to be the model."""
    if kind not in VERIFIERS:
        raise UnknownNameError.of("kind of verification", kind, VERIFIERS)
    return VERIFIERS[kind](request, traced, plan, SmallSizes.of(sizes))
