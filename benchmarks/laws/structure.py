"""Laws between families: axes of degree one, stages of ZeRO, recomputation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from slipstick.driver.estimate import Estimates, Lowered
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family
from slipstick.ir.plan.word import changed

from .laws import BALANCED, Array, Case, Index, Outcome, over

Lowering = Callable[[Family], Lowered]
Words = Mapping[str, str | int | bool]
Flags = NDArray[np.bool_]
# What is no law, and why.
EXPERTS = "an axis of degree one changes nothing: ep"
GATHERED = "stage 3 of ZeRO keeps no more memory than stage 2"
SHARDS = "stage 3 of ZeRO keeps at most its shards of parameters more than stage 2"
SCATTERED = "sequence parallelism keeps no more memory, with recomputation (ops)"
SEQUENCE = "sequence parallelism keeps no more memory, over a single rank"
UNSHARDED = "a higher stage of ZeRO keeps no more memory, over a single rank"
COPIES = "recomputation is not faster, with activations copied to the host"
COPIED = "recomputation keeps no more memory, with activations copied to the host"
HIDING = "recomputation is not faster, with gradients that are sent or copied"
HELD = "an axis of degree one changes nothing: cp, memory"
NO_LAWS = {
    EXPERTS: "rows that are exchanged have a dispatch, a bank of experts and a combine, rows that stay have one "
    "kernel; no command prices the first with --ep 1",
    UNSHARDED: "one rank shards nothing, and holds what the stage gathers or reduces beside what it has",
    COPIES: "what is recomputed is not copied: where the host link takes longest, less of it takes less",
    COPIED: "what is copied to the host is not on the device either way, what is recomputed is for a while",
    GATHERED: "it holds gathered parameters beside the shards: of few layers a stage that is more than sharding saves",
    SCATTERED: "as in torchtitan, what reduce-scatters return is kept, and what all-reduces return is computed again",
    SEQUENCE: "a collective that moves nothing ends or keeps what it returns; commands price --tp 1 without",
    HELD: "a collective that moves nothing ends what it reads a node later or earlier: temporaries differ",
    HIDING: "a forward phase that keeps less writes less, and what runs again hides messages that take longest",
}
# An axis that a graph may have at degree one.
_AXES: tuple[tuple[str, str | bool], ...] = (("pp", True), ("cp", "allgather"), ("cp", "ring"), ("ep", True))


def of_families(case: Case, lowering: Lowering, draw: random.Random, experts: bool) -> Iterator[Outcome]:
    """Yield what comparing the same plans in other families shows."""
    family = case.ready.plans.family
    if family.workload is not Workload.TRAIN:
        return
    name, value = draw.choice(_AXES)
    if getattr(family, name) in (False, "none") and (name != "ep" or experts):
        yield from _of_axis(case, lowering, name, value)
    if family.zero < 3:
        yield from _of_zero(case, lowering)
    if not family.sp:
        yield from _of_sequence(case, lowering)
    if family.recompute == "none":
        yield from _of_recomputation(case, lowering, draw.choice(["full", "selective", "ops"]))


def _of_axis(case: Case, lowering: Lowering, name: str, value: str | bool) -> Iterator[Outcome]:
    found = _beside(case, lowering, {name: value})
    if found is None:
        return
    rows, answer = found
    for metric, told in (("step_time_s", "time"), ("peak_mem_bytes", "memory")):
        excess = np.abs(over(answer.metrics[metric], case.answer.metrics[metric][rows]))
        law = EXPERTS if name == "ep" else f"an axis of degree one changes nothing: {name}, {told}"
        yield Outcome(law, rows, excess)


def _of_zero(case: Case, lowering: Lowering) -> Iterator[Outcome]:
    found = _beside(case, lowering, {"zero": case.ready.plans.family.zero + 1})
    if found is None:
        return
    rows, answer = found
    plans = case.ready.plans
    columns = plans.columns
    # Experts are sharded over the ranks that have the same ones.
    shards = columns["fsdp"] if plans.family.hsdp else plans.dp / np.where(columns["ep"] > 1.0, columns["ep"], 1.0)
    sharded = np.broadcast_to(shards, plans.dp.shape)[rows] > 1.0
    law = GATHERED if plans.family.zero == 2 else "a higher stage of ZeRO keeps no more memory"
    yield from _of_memory(case, law, rows, answer, sharded)
    yield from _of_memory(case, UNSHARDED, rows, answer, ~sharded)
    if law is GATHERED:
        yield from _of_gathers(case, rows, answer)


def _of_gathers(case: Case, rows: Index, answer: Estimates) -> Iterator[Outcome]:
    """Bound what stage 3 of ZeRO may need beyond stage 2 by the shards of parameters that it keeps.

    Of the P bytes of parameters of a pipeline stage, sharded over N ranks, stage 2 holds P at every moment, and stage 3
    P / N beside those that are gathered at that moment, which are P at most; all else is the same in both. So no
    pipeline stage needs more than its own P / N beyond stage 2, and the fullest one no more than the fullest under
    stage 2 and its own P / N, which is what the answer calls weights. What an allocator leaves empty scales both alike
    and is left out with what software reserves.
    """
    here, there = case.answer.memory_bytes, answer.memory_bytes
    most = np.asarray(sum(np.asarray(v) for name, v in here.items() if name != "reserved"))[rows]
    beside = np.asarray(sum(np.asarray(v) for name, v in there.items() if name not in ("reserved", "weights")))
    yield from _of_stages(case, SHARDS, rows, answer, over(beside, most), np.ones(len(rows), dtype=np.bool_))


def _of_sequence(case: Case, lowering: Lowering) -> Iterator[Outcome]:
    found = _beside(case, lowering, {"sp": True})
    if found is None:
        return
    rows, answer = found
    law = SCATTERED if case.ready.plans.family.recompute == "ops" else "sequence parallelism keeps no more memory"
    shared = case.ready.plans.tp[rows] > 1.0
    yield from _of_memory(case, law, rows, answer, shared)
    yield from _of_memory(case, SEQUENCE, rows, answer, ~shared)


def _of_recomputation(case: Case, lowering: Lowering, policy: str) -> Iterator[Outcome]:
    found = _beside(case, lowering, {"recompute": policy})
    if found is None:
        return
    rows, answer = found
    every = np.ones(len(rows), dtype=np.bool_)
    family = case.ready.plans.family
    copied = "activations" in family.offload
    kept = COPIED if copied else f"recomputation ({policy}) keeps no more memory"
    yield from _of_memory(case, kept, rows, answer, every)
    columns = case.ready.plans.columns
    sends = ((case.ready.plans.dp * columns["cp"] * columns["up"])[rows] > 1.0) | ("optimizer" in family.offload)
    excess, alike = over(case.time_s[rows], answer.metrics["step_time_s"]), case.alike(rows, answer)
    slower = COPIES if copied else f"recomputation ({policy}) is not faster"
    for law, part in ((COPIES if copied else HIDING, alike & sends), (slower, alike & ~sends)):
        yield Outcome(law, rows[part], excess[part])
    yield Outcome(f"{slower}{BALANCED}", rows[~alike], excess[~alike])


def _of_memory(case: Case, law: str, rows: Index, answer: Estimates, part: Flags) -> Iterator[Outcome]:
    """Compare what some of the partners keep."""
    excess = over(answer.metrics["peak_mem_bytes"], case.peak_bytes[rows])
    yield from _of_stages(case, law, rows, answer, excess, part)


def _of_stages(case: Case, law: str, rows: Index, answer: Estimates, excess: Array, part: Flags) -> Iterator[Outcome]:
    """Tell, of some of the partners, those whose stages hold the same layers, and the others apart."""
    alike = case.alike(rows, answer)
    for told, here in ((law, alike & part), (f"{law}{BALANCED}", ~alike & part)):
        yield Outcome(told, rows[here], excess[here])


def _beside(case: Case, lowering: Lowering, words: Words) -> tuple[Index, Estimates] | None:
    plans = case.ready.plans
    try:
        family = changed(plans.family, words)
        return case.beside(lowering(family), replace(plans, family=family))
    except SlipstickError:
        return None
