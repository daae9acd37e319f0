"""A plan that does not fit into what it lacks, and the mildest change of flags that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from ..driver.estimate import Estimate, checked_table, compiled, pipeline_for, screen
from ..ir.errors import SlipstickError
from ..ir.graph import Workload
from ..ir.layers import num_layers
from ..ir.plan import Family, Plan, divisors
from ..ir.plan.divisibility import legal_degrees
from ..ir.sizes.fixed_sizes import fixed_sizes
from ..ir.units import format_bytes
from ..passes.manager import Prefixes

# Tensor-parallel degree, stages, micro-batch.
_Size: TypeAlias = tuple[int, int, int]


def shortage(answer: Estimate) -> str | None:
    """Say what a plan lacks in memory, and what would fit; None when it fits."""
    if answer.fits:
        return None
    need, have = answer.metrics["peak_mem_bytes"], float(answer.table.system.chip.hbm_bytes)
    largest = sorted(answer.memory_bytes.items(), key=lambda kv: -kv[1])
    shares = ", ".join(f"{name} {value / need:.0%}" for name, value in largest[:3])
    return f"a GPU needs {format_bytes(need)} and has {format_bytes(have)} ({shares}). {next_step(answer)}"


def next_step(answer: Estimate) -> str:
    """Name the first change of flags with which a plan that does not fit would, or the one that comes nearest."""
    changes, prefixes = list(_changes(answer.plan)), Prefixes(answer.table.lowered.source)
    needs: dict[int, list[tuple[float, Plan]]] = {}
    # What cannot fit is lowered last, to say how near it comes where nothing fits.
    for number in sorted(range(len(changes)), key=lambda k: _is_hopeless(answer, *changes[k])):
        needs[number] = list(_needs(answer, *changes[number], prefixes))
        for need, plan in needs[number]:
            if need <= answer.table.system.chip.hbm_bytes:
                return f"Try {_flags(answer.plan, plan)}"
    tried = [one for number in sorted(needs) for one in needs[number]]
    if not tried:
        return f"No other plan is legal with --gpus {answer.plan.num_gpus}: take more, or a shorter --seq"
    need, plan = min(tried, key=lambda one: one[0])
    return (
        f"Nothing fits with --gpus {answer.plan.num_gpus}: {_flags(answer.plan, plan)} still needs {format_bytes(need)}"
    )


def _is_hopeless(answer: Estimate, family: Family, sizes: Sequence[_Size]) -> bool:
    """Whether weights alone are too large in the plan, and a change leaves them as they are.

    Without stages, weights of a device depend on tensor parallelism and, from stage 3 on, on ZeRO; neither on
    micro-batches nor on recomputation.
    """
    now = answer.plan
    kept = family.zero < 3 and now.family.zero < 3 and all((tp, pp) == (now.tp, 1) for tp, pp, _ in sizes)
    return kept and bool(answer.memory_bytes["weights"] > answer.table.system.chip.hbm_bytes)


def _needs(
    answer: Estimate, family: Family, sizes: Sequence[_Size], prefixes: Prefixes
) -> Iterator[tuple[float, Plan]]:
    """Yield the bytes that legal plans of a change need, with the plans, for the same GPUs and batch."""
    plan, source = answer.plan, answer.table.lowered.source
    fixed = [(t, p, fixed_sizes(source)[0] or m) for t, p, m in sizes]
    plans = [p for p in _legal(plan, family, fixed) if p != plan and p.pp * p.vpp <= max(num_layers(source), 1)]
    needs: dict[Plan, float] = {}
    for own in dict.fromkeys(p.family for p in plans):
        with suppress(SlipstickError):
            lowered = (
                answer.table.lowered if own == plan.family else compiled(source, own, *prefixes.run(pipeline_for(own)))
            )
            degrees = legal_degrees(lowered.graph, plan, "tp")
            legal = [p for p in plans if p.family == own and p.tp in degrees]
            if legal:
                screened = screen(lowered, answer.table.system, checked_table(lowered, legal))
                needs |= zip(legal, map(float, screened.peak_mem_bytes), strict=True)
    yield from ((needs[p], p) for p in plans if p in needs)


def _changes(plan: Plan) -> Iterator[tuple[Family, Sequence[_Size]]]:
    """Yield families, each with the sizes to try in it: tensor-parallel first, then stages too."""
    family, now = replace(plan.family, tp=True), [(plan.tp, plan.pp, plan.micro_batch)]
    smaller = [(plan.tp, plan.pp, m) for m in reversed(divisors(plan.micro_batch)) if m < plan.micro_batch]
    wider = [(t, plan.pp, 1) for t in divisors(plan.num_gpus) if t > plan.tp]
    deeper = [(t, p, 1) for p in divisors(plan.num_gpus) if p > plan.pp for t in (plan.tp, *(w[0] for w in wider))]
    yield family, smaller
    if family.workload is not Workload.TRAIN:
        yield family, wider
        return
    if family.reshard != "layer":
        yield replace(family, reshard="layer"), now
    shared = plan.dp * plan.cp > 1
    if shared:
        yield from ((replace(family, zero=z), now) for z in (1, 3) if z > family.zero)
    if family.recompute == "none":
        yield _all_layers(family), now
    yield replace(family, sp=True), wider
    zero = 3 if shared else family.zero
    yield replace(_all_layers(family), zero=zero), [(plan.tp, plan.pp, 1)]
    yield replace(_all_layers(family), sp=True, zero=zero), wider
    if plan.vpp == 1:
        yield replace(family, sp=True, zero=min(zero, 1), pp=True), deeper
        yield replace(_all_layers(family), sp=True, zero=min(zero, 1), pp=True), deeper


def _all_layers(family: Family) -> Family:
    """The family with every layer recomputed, in the groups in which it is, if any."""
    return replace(family, recompute="full", recompute_modules=(), recompute_layers=0)


def _legal(plan: Plan, family: Family, sizes: Sequence[_Size]) -> list[Plan]:
    """Return the plan under another family with other sizes, where that is a plan."""
    found: list[Plan] = []
    batch = plan.global_batch if family.workload is Workload.TRAIN else None
    for tp, pp, micro_batch in sizes:
        open_again = {"etp": None, "dp": None, "global_batch": batch}
        with suppress(SlipstickError):
            found.append(plan.under(family, {"tp": tp, "pp": pp, "micro_batch": micro_batch, **open_again}))
    return found


def _flags(old: Plan, new: Plan) -> str:
    """Write what differs, as flags."""
    pairs = (
        (f"--tp {new.tp}", old.tp != new.tp),
        (f"--pp {new.pp}", old.pp != new.pp),
        (f"--dp {new.dp}", old.dp != new.dp),
        ("--sp", new.family.sp and not old.family.sp),
        (f"--zero {new.family.zero}", old.family.zero != new.family.zero),
        (f"--reshard {new.family.reshard}", old.family.reshard != new.family.reshard),
        (f"--recompute {new.family.recompute}", old.family.recompute != new.family.recompute),
        ("no --recompute-layers", old.family.recompute_layers != new.family.recompute_layers),
        ("no --recompute-modules", old.family.recompute_modules != new.family.recompute_modules),
        (f"--mbs {new.micro_batch}", old.micro_batch != new.micro_batch),
    )
    return " ".join(flag for flag, differs in pairs if differs)
