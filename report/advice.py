"""A plan that does not fit into what it lacks, and the mildest change of flags that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from ..driver.estimate import Estimate, estimate_many, lower
from ..ir.errors import InfeasibleError, SlipstickError
from ..ir.graph import Workload
from ..ir.layers import num_layers
from ..ir.plan import Family, Plan, divisors
from ..ir.plan.divisibility import legal_degrees
from ..ir.sizes.fixed_sizes import fixed_sizes
from ..ir.units import format_bytes

# Tensor-parallel degree, stages, micro-batch.
_Size: TypeAlias = tuple[int, int, int]


def check_fits(answer: Estimate) -> None:
    """Raise InfeasibleError with the numbers and a next step when the plan needs more memory than the device has."""
    lacking = shortage(answer)
    if lacking is not None:
        raise InfeasibleError(lacking)


def shortage(answer: Estimate) -> str | None:
    """Say what a plan lacks in memory, and what would fit; None when it fits."""
    if answer.fits:
        return None
    need, have = answer.metrics["peak_mem_bytes"], float(answer.table.system.chip.hbm_bytes)
    largest = sorted(answer.memory_bytes.items(), key=lambda kv: -kv[1])
    shares = ", ".join(f"{name} {value / need:.0%}" for name, value in largest[:3])
    return f"a GPU needs {format_bytes(need)} and has {format_bytes(have)} ({shares}). {_next_step(answer)}"


def _next_step(answer: Estimate) -> str:
    """Name the first change that fits, or the one that comes nearest."""
    nearest: tuple[float, str] | None = None
    for plan, need in _tried(answer):
        flags = _flags(answer.plan, plan)
        if need <= answer.table.system.chip.hbm_bytes:
            return f"Try {flags}"
        if nearest is None or need < nearest[0]:
            nearest = (need, flags)
    if nearest is None:
        return f"No other plan is legal with --gpus {answer.plan.num_gpus}: take more, or a shorter --seq"
    return f"Nothing fits with --gpus {answer.plan.num_gpus}: {nearest[1]} still needs {format_bytes(nearest[0])}"


def _tried(answer: Estimate) -> Iterator[tuple[Plan, float]]:
    """Yield other plans for the same GPUs and batch with the memory that they need, the mildest change first."""
    plan, source = answer.plan, answer.table.lowered.source
    for family, sizes in _changes(plan):
        try:
            lowered = lower(source, family)
            degrees = legal_degrees(lowered.graph, plan, "tp")
            own = [(t, p, fixed_sizes(source)[0] or m) for t, p, m in sizes]
            plans = [p for p in _legal(plan, family, degrees, own) if p != plan]
            plans = [p for p in plans if p.pp * p.vpp <= max(num_layers(source), 1)]
            table = estimate_many(lowered, answer.table.system, plans) if plans else None
        except SlipstickError:
            continue
        if table is not None:
            yield from zip(plans, map(float, table.metrics["peak_mem_bytes"]), strict=True)


def _changes(plan: Plan) -> Iterator[tuple[Family, Sequence[_Size]]]:
    """Yield families, each with the sizes to try in it: tensor-parallel first, then stages too."""
    family, now = plan.family, [(plan.tp, plan.pp, plan.micro_batch)]
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


def _legal(plan: Plan, family: Family, degrees: Sequence[int], sizes: Sequence[_Size]) -> list[Plan]:
    """Return the plan under another family with other sizes, where that is a plan."""
    found: list[Plan] = []
    batch = plan.global_batch if family.workload is Workload.TRAIN else None
    for tp, pp, micro_batch in sizes:
        if tp in degrees:
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
