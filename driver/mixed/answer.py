"""The answer for one plan whose stages stand on machines of several kinds: step, memory, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ...cost.cautions import cautions
from ...cost.flops import Convention
from ...cost.money import StepMoney, SystemWork, Terms, step_money, system_money
from ...cost.step.counted import Counted
from ...cost.step.prepared import PreparedPlans
from ...ir.errors import UsageError
from ...ir.graph import Graph, Workload
from ...ir.plan import Plan
from ...ir.plan.layout.stages import between_stages
from ...ir.plan.precision import counted_dtype
from ...ir.records import dataclass
from ...ir.sizes.points import Points
from ..lowering import Lowered, lower
from .layers import layers_of
from .pricing import Fleet, MixedPricer, MixedTable

# Of machines together, sums of those of each; of the others some follow from these, and `gpu_power_w` has no meaning.
_ADDED = (
    "usd_per_step",
    "usd_capex",
    "usd_opex",
    "usd_tco",
    "average_power_w",
    "j_per_token",
    "j_per_token_facility",
    "kg_co2e_per_mtok",
)


@dataclass(frozen=True, slots=True)
class MixedStage:
    """One pipeline stage: its machine, its layers by chunk, a micro-batch on it, and a device of it."""

    system: str
    layers: tuple[int, ...]
    forward_s: float
    backward_s: float
    memory_bytes: Mapping[str, float]
    limit_bytes: float

    @property
    def peak_mem_bytes(self) -> float:
        """The sum of the parts."""
        return sum(self.memory_bytes.values())


@dataclass(frozen=True, slots=True)
class MixedStep:
    """A step on a fleet. `breakdown_s` is that of the stage that sets the pace, and adds up to `step_time_s`.

    Attributes:
        model: name of the graph.
        workload: what a step is.
        plan: with so many layers a chunk.
        fleet: the machines.
        layers: of each chunk, in the order of the model.
        metrics: of all machines together; `peak_mem_bytes` is of the device that has least room left.
        breakdown_s: parts of the step.
        hidden_comm_s: communication that hides.
        stages: from the first on.
        money: by machine; empty where nothing is priced.
        warnings: what to know.
    """

    model: str
    workload: Workload
    plan: Plan
    fleet: Fleet
    layers: tuple[int, ...]
    metrics: Mapping[str, float]
    breakdown_s: Mapping[str, float]
    hidden_comm_s: Mapping[str, float]
    stages: tuple[MixedStage, ...]
    money: tuple[StepMoney, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every stage fits the devices of its machine."""
        return all(stage.peak_mem_bytes <= stage.limit_bytes for stage in self.stages)

    def num_gpus(self, group: int) -> int:
        """Return the accelerators of one machine."""
        return self.plan.num_gpus // self.plan.pp * self.fleet.stages[group]


def mixed_step(
    graph: Graph,
    plan: Plan,
    fleet: Fleet,
    convention: Convention = Convention.FULL,
    lowered: Lowered | None = None,
    terms: Terms | None = None,
) -> MixedStep:
    """Estimate a step on a fleet, layers as the plan says: balanced by the machines' times and memories, or as listed.

    Inside a stage everything is as on its machine alone. Stages of one machine send through its network, those of two
    through the slower of their outermost networks, or a slower link. The schedule is that of one pipeline whose stages
    differ; money is what each machine costs for as long as the step takes, the link between them aside.

    PlanError for a plan that is not legal, or that several machines cannot hold; see `MixedPricer`. A plan that does
    not fit is answered too.
    """
    done = lowered or lower(graph, plan.family)
    pricer = MixedPricer(done, plan, fleet)
    layers = layers_of(pricer)
    table = pricer.table([layers])
    metrics = _metrics(pricer, table, convention)
    answer = MixedStep(
        done.source.name,
        done.source.workload,
        plan,
        fleet,
        layers,
        metrics,
        {k: float(v[0]) for k, v in table.step.breakdown.items()},
        {k: float(v[0]) for k, v in table.step.hidden_comm_s.items()},
        tuple(_stages(pricer, table)),
    )
    answer = replace(answer, warnings=tuple(dict.fromkeys(_warnings(done, answer))))
    try:
        return _priced(answer, pricer, table, terms)
    except UsageError as error:
        if terms is not None and (terms.rented or terms.basis == "build"):
            raise
        return replace(answer, warnings=(*answer.warnings, f"not priced: {error}"))


def _metrics(pricer: MixedPricer, table: MixedTable, convention: Convention) -> Mapping[str, float]:
    """Metrics of a step by their usual names; utilisations are of the peaks of all machines together.

    The bandwidth that memories use (MBU) is left out: of machines that differ it has no one peak.
    """
    done, system = pricer.lowered, pricer.fleet.systems[0]
    tightest = int((table.peaks[:, 0] / table.limits).argmax())
    ready = PreparedPlans(pricer.plans, Points(pricer.plans), table.stages.staging, table.memory_bytes[tightest])
    counted = Counted(done.source, done.graph, done.flops, done.recomputed, None)
    found = {k: float(v[0]) for k, v in counted.metrics(system, ready, table.step, convention).items()}
    written = str(done.source.dtype)
    for name, dtype in {
        "mfu": counted_dtype(pricer.plan.family, written),
        "hfu": counted_dtype(pricer.plan.family, written),
        "mfu_bf16": written,
    }.items():
        if name in found:
            peaks = [float(s.chip.matmul_flop_per_s(dtype)) for s in pricer.fleet.systems]
            more = sum((p - peaks[0]) * n for p, n in zip(peaks, pricer.fleet.stages, strict=True)) / pricer.plan.pp
            found[name] *= peaks[0] / (peaks[0] + more)
    if pricer.plan.family.offload:
        host = [
            float(done.memory.host_bytes(ready.points, pricer.plans, table.stages.of(g))[0])
            for g in range(len(pricer.fleet.systems))
        ]
        found["host_mem_bytes"] = max(host)
    for name, value in found.items():
        if not np.isfinite(value):
            raise UsageError(f"{name} is beyond any number: a value of {pricer.fleet.name} or of the plan is absurd")
    return found


def _stages(pricer: MixedPricer, table: MixedTable) -> Iterator[MixedStage]:
    layout = table.stages.staging.layouts[0]
    for cls, chunks in zip(layout.stages, layout.held, strict=True):
        group, spent = table.stages.group[cls], table.step.stages[cls]
        yield MixedStage(
            pricer.fleet.systems[group].name,
            tuple(layout.blocks[c] for c in chunks),
            float(spent.forward_s[0]),
            float(spent.backward_s[0]),
            MappingProxyType({k: float(np.ravel(v)[0]) for k, v in pricer.memory_of_class(table, cls).items()}),
            float(table.limits[group]),
        )


def _warnings(done: Lowered, answer: MixedStep) -> Iterator[str]:
    """Notes of the model, and what to know of each machine."""
    yield from done.graph.notes
    for system in answer.fleet.systems:
        mine = [s for s in answer.stages if s.system == system.name]
        fullest = max(s.peak_mem_bytes for s in mine)
        metrics = {**answer.metrics, "peak_mem_bytes": fullest}
        yield from cautions(done.graph, system, answer.plan, metrics, answer.breakdown_s)
    yield from done.uneven.notes(answer.plan)


def _priced(answer: MixedStep, pricer: MixedPricer, table: MixedTable, terms: Terms | None) -> MixedStep:
    """Price what each machine does for as long as the step takes."""
    m = answer.metrics
    tokens = m["tokens_per_s"] * m["step_time_s"]
    work = SystemWork(answer.workload, m["step_time_s"], tokens, m["model_flops"])
    found = list[StepMoney]()
    for g, (system, timing) in enumerate(zip(answer.fleet.systems, pricer.timings, strict=True)):
        money = system_money(system, answer.num_gpus(g), terms)
        mine = table.stages.of(g)
        runs = (mine.counts[0] * mine.number[0][:, None]).sum(axis=0) * float(mine.share[0])
        names = (r.name for r in pricer.lowered.graph.regions)
        # What stages send one another takes no energy here, as with one system.
        inside = {name: num for name, num in zip(names, runs.tolist(), strict=True) if not between_stages(name)}
        one = step_money(money, work, timing, pricer.plans, inside)
        found.append(replace(one, metrics={k: float(np.ravel(v)[0]) for k, v in one.metrics.items()}))
    return replace(answer, money=tuple(found), metrics={**m, **_together(answer, found, tokens)})


def _together(answer: MixedStep, found: Sequence[StepMoney], tokens: float) -> Mapping[str, float]:
    """Metrics of money, energy and carbon of all machines."""
    each = [one.metrics for one in found]
    per_mtok = {Workload.PREFILL: "usd_per_mtok_input", Workload.DECODE: "usd_per_mtok_output"}
    added = {name: sum(float(m[name]) for m in each) for name in _ADDED if all(name in m for m in each)}
    step_s, usd = answer.metrics["step_time_s"], added["usd_per_step"]
    together = {
        **added,
        "usd_per_gpu_hour": usd * 3600.0 / step_s / answer.plan.num_gpus,
        per_mtok.get(answer.workload, "usd_per_mtok"): 1e6 * usd / tokens,
        "tokens_per_usd": tokens / usd,
        "model_flops_per_usd": answer.metrics["model_flops"] / usd,
        "model_flop_per_s_per_w": answer.metrics["model_flops"] / step_s / added["average_power_w"],
    }
    if added.get("usd_capex"):
        together["tokens_per_s_per_usd_capex"] = answer.metrics["tokens_per_s"] / added["usd_capex"]
    return together
