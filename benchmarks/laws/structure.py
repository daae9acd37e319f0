"""Laws between families: axes of degree one, stages of ZeRO, recomputation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from slipstick.driver import Lowered
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family

from .laws import Case, Outcome, over

Lowering = Callable[[Family], Lowered]
# An axis that a graph may have at degree one.
_AXES: tuple[tuple[str, str | bool], ...] = (("pp", True), ("cp", "allgather"), ("cp", "ring"), ("ep", True))


def of_families(case: Case, lowering: Lowering, draw: random.Random, experts: bool) -> Iterator[Outcome]:
    """Yield what comparing the same plans in other families shows."""
    family = case.ready.plans.family
    if family.workload is not Workload.TRAIN:
        return
    yield from _of_axes(case, lowering, draw, experts)
    if family.zero < 3:
        yield from _compared(case, lowering, {"zero": family.zero + 1}, "a higher stage of ZeRO", slower=False)
    if family.recompute == "none":
        policy = draw.choice(["full", "selective", "ops"])
        yield from _compared(case, lowering, {"recompute": policy}, f"recomputation ({policy})", slower=True)


def _of_axes(case: Case, lowering: Lowering, draw: random.Random, experts: bool) -> Iterator[Outcome]:
    name, value = draw.choice(_AXES)
    family = case.ready.plans.family
    if getattr(family, name) not in (False, "none") or (name == "ep" and not experts):
        return
    found = _beside(case, lowering, {name: value})
    if found is not None:
        rows, answer = found
        for metric, told in (("step_time_s", "time"), ("peak_mem_bytes", "memory")):
            here, there = case.answer.metrics[metric][rows], answer.metrics[metric]
            yield Outcome(f"an axis of degree one changes nothing: {name}={value}, {told}", rows, np.abs(over(there, here)))


def _compared(
    case: Case, lowering: Lowering, words: dict[str, object], told: str, slower: bool
) -> Iterator[Outcome]:
    found = _beside(case, lowering, words)
    if found is None:
        return
    rows, answer = found
    yield Outcome(
        f"{told} keeps no more memory", rows, over(answer.metrics["peak_mem_bytes"], case.peak_bytes[rows])
    )
    if slower:
        yield Outcome(f"{told} is not faster", rows, over(case.time_s[rows], answer.metrics["step_time_s"]))


def _beside(case: Case, lowering: Lowering, words: dict[str, object]):
    plans = case.ready.plans
    try:
        family = replace(plans.family, **words)
        return case.beside(lowering(family), replace(plans, family=family))
    except SlipstickError:
        return None
