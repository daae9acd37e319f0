"""What holds of every plan on every machine: each law compares columns of answers, plan by plan."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slipstick.backends.machine.system import System
from slipstick.cost.step.prepared import PreparedPlans
from slipstick.driver.estimate import Estimates, Lowered, Screened, evaluate, screen
from slipstick.ir.graph import Workload
from slipstick.ir.plan import PlanTable

from .machines import NARROWER, better_machines

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Sums of some hundred numbers in another order differ by less.
NEAR = 1e-9
# What is no law, and why.
LOW_MFU = "MFU <= 1 in a low precision"
DROPPED = "MFU <= 1 where experts drop tokens"
MORE_LINKS = "twice the GPUs and the batch: no shorter step, on links between pairs of chips"
MORE_NODES = "twice the GPUs and the batch: no shorter step, with pipeline stages"
BALANCED = ", after layers were balanced anew"
FASTER = "more speed never slows"
WAVES = "a peak of a higher clock is that of fewer cores; rows distributed over fewer may take a wave more"
TWICE = "twice the micro-batches take at most twice as long"
NO_LAWS = {
    LOW_MFU: "MFU is against the peak of the model's dtype; products of fp8 and fp4 run above that peak",
    f"{FASTER}: {NARROWER}": WAVES,
    TWICE: "of a zero-bubble schedule the order of twice as many micro-batches is not that of fewer, twice over",
    DROPPED: "model FLOPs are those of every token that is routed; beyond the capacity of an expert they run nowhere",
    MORE_LINKS: "in a mesh or torus a group of more chips has more links, and its collectives are faster",
    MORE_NODES: "more replicas move stages to other nodes; a message between stages takes the way between them",
    BALANCED: "stages are balanced by cost, so that another length or policy moves a layer to another stage",
}
_SWITCHED = ("switch", "fat_tree", "rail_optimised")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One law on a table of plans: by how much each breaks it, as a share; zero or less where it holds.

    `rows` are the plans of the table that it was tried on.
    """

    law: str
    rows: Index
    excess: Array

    @property
    def broken(self) -> NDArray[np.bool_]:
        """Which of them break it."""
        return np.asarray(~(self.excess <= NEAR))


@dataclass(frozen=True, slots=True)
class Case:
    """A table of legal plans of one family, priced on one machine."""

    lowered: Lowered
    system: System
    ready: PreparedPlans
    answer: Estimates

    @classmethod
    def of(cls, lowered: Lowered, system: System, plans: PlanTable) -> Case | None:
        """Keep the plans that are legal and price them; None where none is."""
        found: Screened = screen(lowered, system, plans)
        if found.prepared is None:
            return None
        ready = found.prepared
        return cls(lowered, system, ready, evaluate(lowered, system, ready.plans, prepared=ready))

    @property
    def time_s(self) -> Array:
        """Seconds of a step, plan by plan."""
        return np.asarray(self.answer.metrics["step_time_s"])

    @property
    def peak_bytes(self) -> Array:
        """Bytes of the fullest device, plan by plan."""
        return np.asarray(self.answer.metrics["peak_mem_bytes"])

    def on(self, system: System) -> Estimates:
        """Price the same plans on another machine with the same software."""
        return evaluate(self.lowered, system, self.ready.plans, prepared=self.ready)

    def alike(self, rows: Index, other: Estimates) -> NDArray[np.bool_]:
        """Whether the stages of partners hold the same layers: what balances layers by cost may move some."""
        here, there = self.answer.staging, other.staging
        one = [layout.stages for layout in here.layouts], [layout.classes for layout in here.layouts]
        two = [layout.stages for layout in there.layouts], [layout.classes for layout in there.layouts]
        pairs = zip(here.which[rows].tolist(), there.which.tolist(), strict=True)
        return np.array([(one[0][a], one[1][a]) == (two[0][b], two[1][b]) for a, b in pairs], dtype=np.bool_)

    def all(self, law: str, excess: Array) -> Outcome:
        """An outcome over all plans."""
        return Outcome(law, np.arange(len(self.ready.plans)), np.asarray(excess))

    def beside(self, lowered: Lowered, plans: PlanTable) -> tuple[Index, Estimates] | None:
        """Price other plans, row by row the partners of these, where they are legal."""
        found = screen(lowered, self.system, plans)
        if found.prepared is None:
            return None
        return np.flatnonzero(found.legal), evaluate(
            lowered, self.system, found.prepared.plans, prepared=found.prepared
        )


def over(more: Array, less: Array) -> Array:
    """By which share a column that should be at most another is above it."""
    return np.asarray((more - less) / np.maximum(np.abs(less), 1e-30))


def of_answers(case: Case) -> Iterator[Outcome]:
    """Numbers are finite and not negative, parts add up, and no machine does more than its peak."""
    found = case.answer
    for name, column in found.metrics.items():
        wrong = ~np.isfinite(column) | (column < 0.0)
        yield case.all("every metric is finite and not negative", np.where(wrong, 1.0, 0.0))
        if name == "mfu":
            yield from _of_mfu(case, column)
    if "hfu" in found.metrics:
        yield case.all("HFU >= MFU", over(found.metrics["mfu"], found.metrics["hfu"]))
    parts = sum(np.asarray(v) for v in found.step.breakdown.values())
    yield case.all("parts of the step add up to it", np.abs(over(np.asarray(parts), case.time_s)))
    least = np.min([np.broadcast_to(v, case.time_s.shape) for v in found.step.breakdown.values()], axis=0)
    yield case.all("no part of the step is negative", np.where(least < -1e-15, 1.0, 0.0))
    held = np.asarray(sum(np.asarray(v) for v in found.memory_bytes.values()))
    yield case.all("parts of memory add up to it", np.abs(over(held, case.peak_bytes)))


def _of_mfu(case: Case, mfu: Array) -> Iterator[Outcome]:
    plans = case.ready.plans
    low = plans.family.precision != "none"
    held = np.inf if plans.capacity_factor is None else plans.capacity_factor
    drops = np.broadcast_to(held < (1.0 if plans.expert_imbalance is None else plans.expert_imbalance), mfu.shape)
    law = LOW_MFU if low else "model FLOPs are within the peak: MFU <= 1"
    for told, rows in ((DROPPED, np.flatnonzero(drops)), (law, np.flatnonzero(~drops))):
        yield Outcome(told, rows, mfu[rows] - 1.0)


def of_machines(case: Case, draw: random.Random) -> Iterator[Outcome]:
    """A better resource never slows a step, and changes no byte."""
    for better in better_machines(case.system, draw.choice([1.1, 2.0, 2.0, 8.0])):
        found = case.on(better.system)
        yield case.all(f"{FASTER}: {better.resource}", over(found.metrics["step_time_s"], case.time_s))
        lost = case.answer.fits & ~found.fits
        yield case.all("more capacity never stops a plan from fitting", np.where(lost, 1.0, 0.0))


def of_tables(case: Case, draw: random.Random) -> Iterator[Outcome]:
    """A plan alone, and among others in another order, is the same to the last bit."""
    num = len(case.ready.plans)
    order = np.array(draw.sample(range(num), num), dtype=np.intp)
    mixed = evaluate(case.lowered, case.system, case.ready.plans.part(order))
    for name in ("step_time_s", "peak_mem_bytes"):
        differ = mixed.metrics[name] != case.answer.metrics[name][order]
        yield Outcome("the order of a table changes no bit", order, np.where(differ, 1.0, 0.0))
    rows = np.array(draw.sample(range(num), min(3, num)), dtype=np.intp)
    alone = [evaluate(case.lowered, case.system, case.ready.plans.part(rows[k : k + 1])) for k in range(len(rows))]
    differ = np.array([a.metrics["step_time_s"][0] for a in alone]) != case.time_s[rows]
    yield Outcome("a plan alone is the plan in a table, bit for bit", rows, np.where(differ, 1.0, 0.0))


def of_more_work(case: Case) -> Iterator[Outcome]:
    """More tokens take longer: longer sequences, more and larger micro-batches; twice as many, no more than twice."""
    plans = case.ready.plans
    if plans.family.workload is Workload.TRAIN:
        more = case.beside(case.lowered, replace(plans, num_micro_batches=2.0 * plans.num_micro_batches))
        if more is not None:
            rows, found = more
            time_s = found.metrics["step_time_s"]
            yield Outcome("twice the micro-batches take longer", rows, over(case.time_s[rows], time_s))
            yield Outcome(TWICE, rows, over(time_s, 2 * case.time_s[rows]))
    longer = replace(plans, kv_len=2.0 * plans.kv_len) if plans.family.workload is Workload.DECODE else replace(
        plans, seq_len=2.0 * plans.seq_len)  # fmt: skip
    for name, other in (("length", longer), ("micro-batch", replace(plans, micro_batch=2.0 * plans.micro_batch))):
        more = case.beside(case.lowered, other)
        if more is not None:
            rows, found = more
            excess = over(case.time_s[rows], found.metrics["step_time_s"])
            yield from _of_layouts(case, f"twice the {name} takes longer", rows, excess, found)
            excess = over(case.peak_bytes[rows], found.metrics["peak_mem_bytes"])
            yield from _of_layouts(case, f"twice the {name} takes more memory", rows, excess, found)


def _of_layouts(case: Case, law: str, rows: Index, excess: Array, other: Estimates) -> Iterator[Outcome]:
    """A law for plans whose stages hold the same layers, and apart those whose layers were balanced anew."""
    alike = case.alike(rows, other)
    yield Outcome(law, rows[alike], excess[alike])
    if not alike.all():
        yield Outcome(f"{law}{BALANCED}", rows[~alike], excess[~alike])


def of_more_gpus(case: Case) -> Iterator[Outcome]:
    """Twice the replicas with twice the batch: no step is shorter but by what ZeRO shards, no GPU does more."""
    plans = case.ready.plans
    if plans.family.workload is not Workload.TRAIN:
        return
    twice = replace(plans, num_gpus=2.0 * plans.num_gpus, dp=2.0 * plans.dp)
    more = case.beside(case.lowered, twice)
    if more is None:
        return
    rows, found = more
    if plans.family.zero == 0:
        # Between stages a message takes the way that the order of ranks gives it, which more replicas change.
        place = plans.stages[0][rows] > 1.0
        links = any(level.topology not in _SWITCHED for level in case.system.levels)
        law = "twice the GPUs and the batch: no shorter step (without ZeRO)"
        excess = over(case.time_s[rows], found.metrics["step_time_s"])
        for told, here in ((MORE_LINKS if links else law, ~place), (MORE_LINKS if links else MORE_NODES, place)):
            yield Outcome(told, rows[here], excess[here])
    held = found.metrics["peak_mem_bytes"]
    yield Outcome("twice the GPUs and the batch: no more memory a GPU", rows, over(held, case.peak_bytes[rows]))
