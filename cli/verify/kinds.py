"""`slipstick compile --verify`: what is checked of a lowered graph, by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...ir.errors import GateError, NotBuiltError, UsageError
from ...ir.graph import Workload
from ..flags.request import Request
from ..prepare import pipeline_of

if TYPE_CHECKING:
    from ...frontend.reference.compare import ComparedModule, Verdict
    from ...ir.graph import Graph
    from ...ir.plan import Plan

# `slipstick compile --verify numeric`: a small model of the same kind, run on simulated ranks and by itself.

# Ranks on an axis: two show what many do; four of tensor parallelism also copy heads of keys.
_MOST, _MOST_TP = 2, 4
_BATCH, _SEQ = 4, 24
_GRADS_BESIDE = ("loss", "logits")
_SHOWN = 6


def numeric(request: Request, traced: Graph, plan: Plan) -> str:
    """Compare with the module: loss, logits and gradients, or logits and caches; GateError where they differ.

    What cannot be run is said with its reason, and fails nothing. The model is made small, its own graph is not read.
    """
    del traced
    _check_spread(plan)
    if plan.redundant_experts:
        raise NotBuiltError(
            "--verify numeric with --redundant-experts: which copy gets a row is not followed; proof is"
        )
    from ...frontend.forms import has_config
    from ...frontend.huggingface.configs.models import read_config
    from ...frontend.huggingface.configs.shrink import shrunken
    from ...frontend.reference.compare import subject_of

    if not has_config(request.source.model):
        raise NotBuiltError("--verify numeric makes a config small and runs that: give a catalogue name or a config")
    start = perf_counter()
    subject = subject_of(shrunken(read_config(request.source.model)), plan.family.workload)
    built_s = perf_counter() - start
    lowered, _ = pipeline_of(request, plan.family).run(subject.graph)
    found = _compared(subject, lowered, plan)
    text = "\n".join(_lines(plan, found, built_s))
    if found.broken or not (found.reason or found.equal):
        raise GateError(text)
    return text


def _check_spread(plan: Plan) -> None:
    """Neither kind of check follows parts of a softmax over ranks."""
    if plan.cp > 1 and plan.family.workload is Workload.DECODE:
        raise NotBuiltError(
            "--verify with --cp in decode: parts of a softmax, weighted by log-sum-exp, are not followed over ranks; "
            "verify the plan without --cp. Bytes and FLOPs of --cp are held against formulas (docs/verification.md)"
        )


def _compared(subject: ComparedModule, lowered: Graph, plan: Plan) -> Verdict:
    from ...frontend.reference.call import NotComputedError
    from ...frontend.reference.compare import Verdict, compare
    from ...frontend.reference.serving import compare_step, step_of

    workload = plan.family.workload
    if workload is Workload.TRAIN:
        return compare(subject, lowered, _degrees(plan), _BATCH, _SEQ)
    try:
        return compare_step(subject, lowered, _degrees(plan), step_of(subject, workload, _BATCH, _SEQ))
    except NotComputedError as error:
        return Verdict(reason=str(error))


def _degrees(plan: Plan) -> dict[str, int]:
    """Few ranks on every axis that the plan has."""
    return {axis: min(n, _MOST_TP if axis == "tp" else _MOST) for axis, n in plan.mesh.items()}


def _lines(plan: Plan, found: Verdict, built_s: float) -> list[str]:
    degrees = " ".join(f"{a}{n}" for a, n in _degrees(plan).items() if n > 1) or "one rank"
    lines = [
        f"numeric    {_outcome(found)}",
        f"plan       {plan.degrees}, run as {degrees}: {found.num_ranks} rank(s), small sizes, float64",
    ]
    if found.differences:
        worst = found.worst
        assert worst is not None
        told = _what_was_compared(plan, [d.what for d in found.differences])
        lines.append(f"compared   {told}; largest difference {worst.relative:.1e} ({worst.what})")
        unequal = [d for d in found.differences if not d.equal]
        lines += [f"different  {d.what}: {d.relative:.1e}" for d in unequal[:_SHOWN]]
        lines += [f"different  and {len(unequal) - _SHOWN} more"] if len(unequal) > _SHOWN else []
    lines += [f"missing    {name}: the module has a gradient, the graph has none" for name in found.missing[:_SHOWN]]
    lines += [f"broken     {found.broken}"] if found.broken else []
    lines += [f"not run    {found.reason}"] if found.reason else []
    return [*lines, f"time       {found.time_s:.2f} s, behind {built_s:.2f} s of recording"]


def _what_was_compared(plan: Plan, names: Sequence[str]) -> str:
    if plan.family.workload is Workload.TRAIN:
        return f"loss, logits, {sum(n not in _GRADS_BESIDE for n in names)} gradients"
    tokens = ", tokens" if "tokens" in names else ""
    return f"logits{tokens}, {sum(n.startswith('cache.') for n in names)} caches of {_SEQ} tokens"


def _outcome(found: Verdict) -> str:
    if found.reason:
        return "not run"
    return "equal to the module" if found.equal else "DIFFERS from the module"


# Orders repeat: a schedule that runs so many micro-batches a stage runs more.
_MICRO_BATCHES_A_STAGE = 4


def proof(request: Request, traced: Graph, plan: Plan) -> str:
    """Prove that what each rank runs is the model, and return the certificate; GateError names what is unproven."""
    _check_spread(plan)
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


VERIFIERS: Mapping[str, Callable[[Request, Graph, Plan], str]] = MappingProxyType({"proof": proof, "numeric": numeric})
