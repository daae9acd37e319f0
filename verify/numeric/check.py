"""`--verify numeric`: a small model of the same kind, or a user's module, on simulated ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from ...ir.errors import GateError, NotUnderstoodError, UsageError
from ...ir.graph import LengthBound, Workload
from ...ir.records import dataclass
from ..request import SmallSizes, VerifyRequest

if TYPE_CHECKING:
    from ...ir.graph import Graph
    from ...ir.plan import Plan
    from .compare import ComparedModule, Verdict

# Ranks on an axis: two show what many do; four of tensor parallelism also copy heads of keys.
_MOST, _MOST_TP = 2, 4
_BATCH, _SEQ = 4, 24
# Lengths that are tried where a graph does not hold at the usual one.
_LONGEST = 4096
_BESIDE = ("loss", "logits", "tokens")
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class NumericRun:
    """What was run: degrees of the ranks, sequences, tokens of each, and the verdict; no ranks where nothing ran."""

    degrees: Mapping[str, int]
    batch: int
    length: int
    verdict: Verdict


def numeric(request: VerifyRequest, sizes: SmallSizes) -> str:
    """Compare with the module: loss and gradients, or results and caches.

    The model is built small, its own graph is not read. GateError where the two differ, and where nothing was run.
    """
    start = perf_counter()
    done = _numeric_run(request, sizes)
    text = "\n".join(_lines(request.plan, done, perf_counter() - start))
    if not done.verdict.equal:
        raise GateError(text)
    return text


def check_spread(plan: Plan) -> None:
    """Refuse parts of a softmax that lie on several ranks: neither kind of check follows them; GateError."""
    if reason := _spread(plan):
        raise GateError(f"not run    {reason}")


def _spread(plan: Plan) -> str:
    if plan.cp == 1 or plan.family.workload is not Workload.DECODE:
        return ""
    return (
        "--verify with --cp in decode: parts of a softmax, weighted by log-sum-exp, are not followed over ranks; "
        "verify the plan without --cp. Bytes and FLOPs of --cp are held against formulas (docs/verification.md)"
    )


def _numeric_run(request: VerifyRequest, sizes: SmallSizes) -> NumericRun:
    """Build the model, lower it by the plan and compare; what cannot be run is a reason."""
    from .call import NotComputedError
    from .compare import Verdict

    plan = request.plan
    degrees = {axis: min(n, _MOST_TP if axis == "tp" else _MOST) for axis, n in plan.mesh.items()}
    reason = _spread(plan)
    if plan.redundant_experts:
        reason = "--verify numeric with --redundant-experts: which copy gets a row is not followed; proof is"
    batch, length = _BATCH, _SEQ
    if not reason:
        try:
            subject = _subject(request, sizes, degrees)
            batch, length = _lengths(subject.graph, degrees, sizes)
            lowered, _ = request.pipeline.run(subject.graph)
            return NumericRun(
                degrees, batch, length, _compared(request.model, subject, lowered, degrees, batch, length)
            )
        except (NotComputedError, NotUnderstoodError) as error:
            reason = str(error)
    return NumericRun(degrees, batch, length, Verdict(reason=reason))


def _subject(request: VerifyRequest, sizes: SmallSizes, degrees: Mapping[str, int]) -> ComparedModule:
    """Build what is compared: a small model of a config, or the module of a factory."""
    from ...frontend.forms import CONFIG, FACTORY, form_of
    from ...frontend.huggingface.configs.models import read_config
    from ...frontend.huggingface.configs.shrink import shrunken
    from .call import NotComputedError
    from .compare import subject_of
    from .own import own_subject

    form = form_of(request.model)
    if form is FACTORY:
        copies = math.prod(n for axis, n in degrees.items() if axis not in ("tp", "pp"))
        lengths = {"batch": _BATCH, "seq": _SEQ, "kv": _SEQ, **sizes.lengths}
        return own_subject(request.model, replace(request.options, sizes=lengths), sizes.arguments, copies)
    if sizes.arguments:
        name = next(iter(sizes.arguments))
        raise UsageError(f"--verify-sizes {name}: an argument of a factory (file.py:function), which this model is not")
    if form is not CONFIG:
        raise NotComputedError(
            f"'{request.model}' is {form.name}, which has no module to compare with: name the config or the factory "
            "that it was made of, or ask for --verify proof"
        )
    if request.options.images:
        raise NotComputedError(f"--images {request.options.images}: the model is compared on tokens alone")
    return subject_of(shrunken(read_config(request.model)), request.plan.family.workload)


def _lengths(graph: Graph, degrees: Mapping[str, int], sizes: SmallSizes) -> tuple[int, int]:
    """Return how many sequences are run and how long they are: those typed, else the first that the graph holds at.

    UsageError for a typed size that the graph is not of, or that ranks do not divide; NotComputedError without one.
    """
    from ...ir.sizes.fixed_sizes import fixed_sizes
    from .call import NotComputedError
    from .compare import BATCH_AXES

    name = "kv" if graph.workload is Workload.DECODE else "seq"
    if wrong := next((n for n in sizes.lengths if n not in ("batch", name)), None):
        raise UsageError(f"--verify-sizes {wrong}: the phase {graph.workload} has batch and {name}")
    fixed_batch, fixed_length = fixed_sizes(graph)
    ranks = math.prod(degrees.get(axis, 1) for axis in BATCH_AXES)
    batch = sizes.lengths.get("batch", fixed_batch or max(_BATCH, ranks))
    if fixed_batch not in (None, batch):
        raise UsageError(f"--verify-sizes batch={batch}: the graph is of a batch of {fixed_batch}")
    if fixed_batch is not None and ranks > 1:
        raise NotComputedError(f"the batch is fixed at {fixed_batch}, which {ranks} ranks cannot share")
    if batch % ranks:
        raise UsageError(f"--verify-sizes batch={batch}: {ranks} ranks share the batch; give a multiple of {ranks}")
    bounds = [b for b in graph.bounds if b.name == name]
    bounds += [LengthBound(name, fixed_length, fixed_length)] if fixed_length else []
    length = sizes.lengths.get(name, 0)
    legal = " and ".join(b.legal for b in bounds)
    if length and not all(b.holds(length) for b in bounds):
        raise UsageError(f"--verify-sizes {name}={length}: the graph holds for {legal}")
    choices = (*range(_SEQ, _LONGEST + 1), *range(_SEQ, 0, -1))
    length = length or next((n for n in choices if all(b.holds(n) for b in bounds)), 0)
    if not length:
        raise NotComputedError(f"the graph holds for {name} {legal}, which is above {_LONGEST}")
    return batch, length


def _compared(
    model: str, subject: ComparedModule, lowered: Graph, degrees: Mapping[str, int], batch: int, length: int
) -> Verdict:
    from ...frontend.forms import FACTORY, form_of
    from .own import compare_own
    from .serving import compare_phase

    run = compare_own if form_of(model) is FACTORY else compare_phase
    return run(subject, lowered, degrees, batch, length)


def _lines(plan: Plan, done: NumericRun, time_s: float) -> list[str]:
    from .run import TOLERANCE

    found = done.verdict
    degrees = " x ".join(f"{a}{n}" for a, n in done.degrees.items() if n > 1) or "one rank"
    if found.reason:
        head = ["numeric    not run", f"plan       {plan.degrees}", f"not run    {found.reason}"]
        return [*head, "           not run is not proven"]
    lines = [
        f"numeric    {'equal to' if found.equal else 'DIFFERS from'} the module",
        f"plan       {plan.degrees}, run as {degrees}: {found.num_ranks} rank(s), small sizes, float64",
    ]
    if found.differences:
        worst = found.worst
        assert worst is not None
        lines.append(f"ran        {done.batch} x {done.length} tokens at {degrees}, {found.num_nodes} nodes")
        size = f"largest difference {worst.relative:.1e} of {TOLERANCE:.0e} allowed ({worst.what})"
        lines.append(f"compared   {_what_was_compared(plan, done, [d.what for d in found.differences])}; {size}")
        unequal = [d for d in found.differences if not d.equal]
        lines += [f"different  {d.what}: {d.relative:.1e}" for d in unequal[:_SHOWN]]
        lines += [f"different  and {len(unequal) - _SHOWN} more"] if len(unequal) > _SHOWN else []
    lines += [f"missing    {name}: the module has a gradient, the graph has none" for name in found.missing[:_SHOWN]]
    lines += [f"broken     {found.broken}"] if found.broken else []
    return [*lines, f"time       {found.time_s:.2f} s, behind {time_s - found.time_s:.2f} s of recording"]


def _what_was_compared(plan: Plan, done: NumericRun, names: Sequence[str]) -> str:
    gradients = sum(n not in _BESIDE for n in names)
    named = ", ".join(n for n in names if n in _BESIDE)
    if plan.family.workload is Workload.TRAIN:
        return f"{named}, {gradients} gradients"
    caches = sum(n.startswith("cache.") for n in names)
    if not named:
        return f"{len(names) - caches} result(s)"
    return f"{named}, {caches} caches of {done.length} tokens"
