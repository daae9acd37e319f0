"""Kinds of verification of a lowered graph, by name, as `slipstick compile --verify` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..ir.errors import GateError, UnknownNameError, UsageError
from .numeric.check import check_spread, numeric
from .request import SmallSizes, VerifyRequest

if TYPE_CHECKING:
    from ..ir.graph import Graph
    from ..ir.plan import Plan

# Orders repeat: a schedule that runs so many micro-batches a stage runs more.
_MICRO_BATCHES_A_STAGE = 4


def proof(request: VerifyRequest, sizes: SmallSizes) -> str:
    """Prove that what each rank runs is the model, and return the certificate; GateError names what is unproven."""
    if sizes != SmallSizes():
        raise UsageError("--verify-sizes is of --verify numeric: a proof holds for all sizes; leave it out")
    plan, pipeline = request.plan, request.pipeline
    check_spread(plan)
    from .proof.certificate import FUSE, SHARD, certify

    seen: dict[str, Graph] = {}
    order = [p.name for p in pipeline.passes]
    if SHARD not in order:
        raise UsageError("--verify proof: --passes has no 'shard', so that there is nothing to prove")
    start = perf_counter()
    lowered, _ = pipeline.run(request.traced, None, lambda _, step, graph: seen.update({step.name: graph}))
    place = order.index(SHARD)
    before = seen[order[place - 1]] if place else request.traced
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
    from ..cost.schedules.happens_before import order_faults
    from ..cost.schedules.tasks import schedule_of

    if plan.pp == 1:
        return
    most = _MICRO_BATCHES_A_STAGE * plan.pp
    count = plan.num_micro_batches
    micro = count if count <= most else most + count % plan.pp
    chunks = plan.family.pipeline.chunks_of(plan.vpp)
    yield from order_faults(schedule_of(plan.family.schedule, plan.pp, micro, chunks))


VERIFIERS: Mapping[str, Callable[[VerifyRequest, SmallSizes], str]] = MappingProxyType(
    {"proof": proof, "numeric": numeric}
)


def check_lowered(kind: str, request: VerifyRequest, sizes: Mapping[str, object]) -> str:
    """Verify by one kind and return what it says; GateError where the graph is not proven to be the model."""
    if kind not in VERIFIERS:
        raise UnknownNameError.of("kind of verification", kind, VERIFIERS)
    return VERIFIERS[kind](request, SmallSizes.of(sizes))
