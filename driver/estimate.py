"""Model, plan and system to an estimate: load, lower, annotate, roll up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ..backends.machine.system import System
from ..backends.machine.system_table import num_machines, some_machines
from ..backends.pricing.roofline import Backend
from ..cost.cautions import cautions
from ..cost.flops import Convention
from ..cost.money import StepMoney, SystemWork, Terms, step_money, system_money
from ..cost.replicated import Replicated
from ..cost.run.training_run import RunEstimate, TrainingJob, TrainingRun
from ..cost.step.prepared import PreparedPlans, memory_of
from ..ir.errors import UsageError
from ..ir.graph import Graph, Workload
from ..ir.plan import Plan, PlanTable
from ..ir.plan.divisibility import check_divisibility
from ..ir.plan.structure import check_axes
from ..ir.records import dataclass
from ..ir.sizes.fixed_sizes import check_sizes
from ..ir.sizes.points import Points
from ..ir.text.stages import stage
from ..ir.units import format_bytes
from .evaluation import Estimates as Estimates
from .evaluation import evaluate as evaluate
from .evaluation import fits_memory, host_metric
from .evaluation import step_of as step_of
from .lowering import Lowered as Lowered
from .lowering import compiled as compiled
from .lowering import lower as lower
from .lowering import pipeline_for as pipeline_for
from .uncertainty.bands import Band
from .uncertainty.figures import figure, with_interval

Array = NDArray[np.float64]
# Machines of a table that are priced at a time: their arrays stay in the cache of a core.
MACHINES = 4096


@dataclass(frozen=True, slots=True, repr=False)
class Estimate:
    """The answer for one plan. `breakdown_s` adds up to `step_time_s`, `memory_bytes` to `peak_mem_bytes`.

    `run` is there when a whole training run was asked for, `money` when it was priced: see `train` and `worth`.
    `replicated` says what tensor parallelism does not divide; None without tensor parallelism.
    """

    plan: Plan
    metrics: Mapping[str, float]
    breakdown_s: Mapping[str, float]
    hidden_comm_s: Mapping[str, float]
    memory_bytes: Mapping[str, float]
    warnings: tuple[str, ...]
    table: Estimates
    run: RunEstimate | None = None
    money: StepMoney | None = None
    replicated: Replicated | None = None

    @property
    def fits(self) -> bool:
        """Whether the plan fits in the memory of the device, and what it offloads in that of the host."""
        return bool(self.table.fits[0])

    def summary(self, bands: Mapping[str, Band] = MappingProxyType({})) -> tuple[tuple[str, str], ...]:
        """Return what people ask for first, a name and its text a line: model, machine, plan, step, memory.

        `bands` are those of its metrics: see `uncertainty.answers.step_bands`.
        """
        plan, system, graph, m = self.plan, self.table.system, self.table.lowered.source, self.metrics
        assumed = " assumed" if system.assumed else ""
        step = figure("step_time_s", m["step_time_s"], bands.get("step_time_s"))
        rates = (name for name in ("mfu", "tokens_per_s_per_gpu", "samples_per_s_per_gpu") if name in m)
        held = with_interval("peak_mem_bytes", m["peak_mem_bytes"], bands.get("peak_mem_bytes"))
        memory = f"{held} of {format_bytes(float(system.chip.hbm_bytes))} a GPU"
        return (
            (graph.name, f"{graph.workload} in {graph.dtype}"),
            ("machine", f"{plan.num_gpus} x {system.chip.name} ({system.name}, {system.stack.name}{assumed})"),
            ("plan", f"{plan.degrees}  mbs {plan.micro_batch}  gbs {plan.global_batch}  seq {plan.seq_len}"),
            ("step", ", ".join((step, *(figure(name, m[name], None) for name in rates)))),
            ("memory", memory if self.fits else f"{memory}: DOES NOT FIT"),
        )

    def __repr__(self) -> str:
        (model, said), *lines = self.summary()
        return "\n".join((f"{model}  {said}", *(f"  {name:<7}  {text}" for name, text in lines)))


@dataclass(frozen=True, slots=True)
class MachineEstimates:
    """The answer for one plan on a table of machines: metrics, breakdown and memory as columns, a row a machine."""

    plan: Plan
    system: System
    metrics: Mapping[str, Array]
    breakdown_s: Mapping[str, Array]
    hidden_comm_s: Mapping[str, Array]
    memory_bytes: Mapping[str, Array]

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the plan fits each machine."""
        return fits_memory(self.system, PlanTable.of([self.plan]), self.metrics)


def evaluate_machines(
    lowered: Lowered, system: System, plan: Plan, convention: Convention = Convention.FULL
) -> MachineEstimates:
    """Price one plan on each machine of a table: see `backends/machine/system_table.py`. PlanError if not legal."""
    parts = [
        (table.metrics, table.step.breakdown, table.step.hidden_comm_s, table.memory_bytes)
        for table in machine_tables(lowered, system, plan, convention)
    ]
    joined = (
        {name: np.concatenate([p[name] for p in found]) for name in found[0]} for found in zip(*parts, strict=True)
    )
    return MachineEstimates(plan, system, *joined)


def machine_tables(
    lowered: Lowered, system: System, plan: Plan, convention: Convention = Convention.FULL
) -> Iterator[Estimates]:
    """Price one plan on each machine of a table, MACHINES of them at a time. PlanError when it is not legal."""
    one, num = checked_table(lowered, [plan]), num_machines(system) or 1
    for start in range(0, num, MACHINES):
        rows = slice(start, min(start + MACHINES, num))
        yield evaluate(lowered, some_machines(system, rows), one.repeated(rows.stop - start), convention)


@dataclass(frozen=True, slots=True)
class Screened:
    """Legality and peak memory of a table of plans, before any timing.

    `prepared` holds the legal plans, None if there are none.
    """

    legal: NDArray[np.bool_]
    fits: NDArray[np.bool_]
    peak_mem_bytes: Array
    prepared: PreparedPlans | None = None

    def fitting(self) -> PreparedPlans | None:
        """Return the plans that fit, in their order, ready for `evaluate`; None where none does."""
        if self.prepared is None or not self.fits.any():
            return None
        return self.prepared.part(np.flatnonzero(self.fits[self.legal]))


def screen(lowered: Lowered, system: System, plans: PlanTable) -> Screened:
    """Check constraints and memory of a table of plans, without times; an illegal plan needs infinite memory."""
    check_axes(lowered.graph.axes, plans.mesh)
    points = Points(plans)
    legal = lowered.constraints.hold(plans, points)
    needed = np.full(len(plans), np.inf)
    if not legal.any():
        return Screened(legal, legal, needed)
    if not legal.all():
        rows = np.flatnonzero(legal)
        plans = plans.part(rows)
        points = points.part(plans, rows)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        prepared = PreparedPlans.of(lowered.stages, lowered.memory, system, plans, points)
        metrics = {"peak_mem_bytes": prepared.peak_mem_bytes, **host_metric(lowered, prepared)}
    needed[legal] = prepared.peak_mem_bytes
    fits = legal.copy()
    fits[legal] = fits_memory(system, plans, metrics)
    return Screened(legal, fits, needed, prepared)


def stage_memory(table: Estimates, cls: int) -> Mapping[str, Array]:
    """Return bytes of a device of one class of stages by part, plan by plan; those of the fullest are reported."""
    staging = table.staging.only(cls)
    return memory_of(table.lowered.memory, table.system, Points(table.plans), table.plans, staging)


def estimate(
    graph: Graph,
    system: System,
    plan: Plan,
    convention: Convention = Convention.FULL,
    lowered: Lowered | None = None,
    backends: Sequence[Backend] | None = None,
) -> Estimate:
    """Answer for one plan: how long, what fits, where the time goes; `lowered` and `backends` as of `evaluate`.

    PlanError when a degree does not divide what must be even. A plan that does not fit is answered too: see `fits`.
    """
    done = lowered or lower(graph, plan.family)
    with stage(f"price {plan.degrees} on {system.name}"):
        table = evaluate(done, system, checked_table(done, [plan]), convention, backends=backends)
    metrics = {k: float(v[0]) for k, v in table.metrics.items()}
    breakdown = {k: float(v[0]) for k, v in table.step.breakdown.items()}
    sizes = {name: float(column[0]) for name, column in table.plans.columns.items()}
    replicated = Replicated.of(done.graph, sizes) if plan.tp > 1 else None
    warnings = cautions(done.graph, system, plan, metrics, breakdown, replicated)
    return Estimate(
        plan,
        metrics,
        breakdown,
        {k: float(v[0]) for k, v in table.step.hidden_comm_s.items()},
        {k: float(v[0]) for k, v in table.memory_bytes.items()},
        (*done.graph.notes, *warnings, *done.uneven.notes(plan)),
        table,
        replicated=replicated,
    )


def train(answer: Estimate, run: TrainingRun) -> Estimate:
    """Answer for a whole training run of steps such as this one: how long it takes, with checkpoints and failures.

    UsageError when the steps are not of training, or nothing gets done between failures.
    """
    source, system = answer.table.lowered.source, answer.table.system
    if source.workload is not Workload.TRAIN:
        raise UsageError(f"a training run is made of training steps, and this is one of {source.workload}")
    job = TrainingJob.of(source, system, answer.plan, answer.metrics["step_time_s"])
    found = run.over(job)
    return replace(answer, run=found, warnings=(*answer.warnings, *found.warnings(job, system)))


def worth(answer: Estimate, terms: Terms | None = None) -> Estimate:
    """Price the steps of an estimate, and its run where it has one: dollars, energy, carbon under the system's prices.

    UsageError where the system cannot be priced at all; what is missing otherwise is in `money.money.unpriced`.
    """
    table, m = answer.table, answer.metrics
    run_s = None if answer.run is None else answer.run.metrics.get("train_time_s")
    if run_s is not None and answer.run is not None and answer.run.run.sites is not None:
        run_s *= answer.run.run.sites.num  # money is of the GPUs of one site
    work = SystemWork(
        table.lowered.source.workload, m["step_time_s"], m["tokens_per_s"] * m["step_time_s"], m["model_flops"], run_s
    )
    money = system_money(table.system, answer.plan.num_gpus, terms)
    found = step_money(money, work, table.timing, table.plans)
    metrics = {name: float(np.ravel(value)[0]) for name, value in found.metrics.items()}
    return replace(answer, money=replace(found, metrics=metrics))


def estimate_many(lowered: Lowered, system: System, plans: Sequence[Plan]) -> Estimates:
    """Estimate several plans of one family, each checked for divisibility and for the sizes of the graph."""
    return evaluate(lowered, system, checked_table(lowered, plans))


def checked_table(lowered: Lowered, plans: Sequence[Plan]) -> PlanTable:
    """Return the plans as a table; PlanError for the first that is not legal, with what would be."""
    table = PlanTable.of(plans)
    for plan in plans:
        check_sizes(lowered.source, plan)
    for plan, legal in zip(plans, lowered.constraints.hold(table, Points(table)), strict=True):
        if not legal:
            check_divisibility(lowered.graph, plan)
    return table
