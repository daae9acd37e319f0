"""The grid: every model of the catalogue on every system, by families of plans of training, prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

from slipstick import Family, GraphCache, PlanTable, evaluate, load, load_system, lower, make_plan, screen
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Lowered
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Plan

# What became of a plan.
ANSWERED, NO_FIT, REFUSED = 0, 1, 2
_GPUS = (8, 64, 512, 4096)
# Experts over all ranks but those of pipelines, as far as all models with experts divide.
_MOST_EP = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """One family of plans, the numbers that its plans take and the software; rows are all products of numbers."""

    family: Family
    numbers: Mapping[str, tuple[int, ...]]
    seq: int = 4096
    stack: str = "megatron-core"


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "train zero1": Kind(
            Family(sp=True, pp=True, zero=1, recompute="selective", kernels="fused"),
            {"num_gpus": _GPUS, "tp": (1, 4, 8), "pp": (1, 8), "micro_batch": (1, 2)},
        ),
        "train zero3": Kind(
            Family(zero=3, recompute="full", kernels="torch"), {"num_gpus": _GPUS, "tp": (1,), "micro_batch": (1, 4)}
        ),
        "train long": Kind(
            Family(sp=True, zero=1, cp="ring", kernels="fused"),
            {"num_gpus": _GPUS[1:], "tp": (4, 8), "cp": (2, 8)}, seq=65536,
        ),
        "prefill": Kind(
            Family(workload=Workload.PREFILL, kernels="fused"), {"num_gpus": (1, 2, 4, 8), "micro_batch": (1, 4)},
            stack="vllm",
        ),
        "decode": Kind(
            Family(workload=Workload.DECODE, kernels="fused"), {"num_gpus": (1, 2, 4, 8), "micro_batch": (1, 16, 128)},
            stack="vllm",
        ),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one plan: its step in seconds and the bytes of a device, both 0 where it is refused."""

    status: int
    step_s: float = 0.0
    mem_bytes: float = 0.0


def answers(models: list[str], systems: list[str]) -> Iterator[tuple[str, Answer]]:
    """Yield every answer of the grid by its name: model, kind, system, degrees."""
    cache = GraphCache.default()
    stacks = dict.fromkeys(kind.stack for kind in KINDS.values())
    machines = {stack: {name: load_system(name, stack=stack) for name in systems} for stack in stacks}
    for model, (name, kind) in product(models, KINDS.items()):
        graph = load(model, workload=kind.family.workload, cache=cache)
        kind = _with_experts(graph, kind)
        plans = {_shown(numbers): _plan(kind, numbers) for numbers in _rows(kind)}
        made = {shown: plan for shown, plan in plans.items() if plan is not None}
        done = _lowered(graph, kind.family)
        for system, machine in machines[kind.stack].items():
            found = {} if done is None else _answered(done, machine, made)
            yield from ((f"{model} {name} {system} {s}", found.get(s, Answer(REFUSED))) for s in plans)


def _with_experts(graph: Graph, kind: Kind) -> Kind:
    """Spread experts over ranks where a model trained without long sequences has some."""
    if (
        "experts" not in {str(n.op) for r in graph.regions for n in r.nodes}
        or "tp" not in kind.numbers
        or kind.seq > 4096
    ):
        return kind
    return replace(kind, family=replace(kind.family, ep=True), numbers={**kind.numbers, "ep": (_MOST_EP,)})


def _rows(kind: Kind) -> Iterator[dict[str, int]]:
    for values in product(*kind.numbers.values()):
        numbers = dict(zip(kind.numbers, values, strict=True))
        serving = kind.family.workload is not Workload.TRAIN
        yield {**numbers, "tp": numbers["num_gpus"]} if serving else numbers


def _shown(numbers: Mapping[str, int]) -> str:
    return " ".join(f"{key}={value}" for key, value in numbers.items())


def _plan(kind: Kind, numbers: Mapping[str, int]) -> Plan | None:
    """Return the plan, with 8 micro-batches a replica in training; None where its degrees are refused."""
    decode, train = kind.family.workload is Workload.DECODE, kind.family.workload is Workload.TRAIN
    replicas = numbers["num_gpus"] // (numbers["tp"] * numbers.get("pp", 1) * numbers.get("cp", 1))
    batch = max(replicas, 1) * numbers.get("micro_batch", 1) * (8 if train else 1)
    try:
        return make_plan(
            **numbers, seq_len=1 if decode else kind.seq, kv_len=kind.seq if decode else 0, global_batch=batch,
            family=kind.family,
        )  # fmt: skip
    except SlipstickError:
        return None


def _lowered(graph: Graph, family: Family) -> Lowered | None:
    try:
        return lower(graph, family)
    except SlipstickError:
        return None


def _answered(done: Lowered, system: System, plans: Mapping[str, Plan]) -> dict[str, Answer]:
    """Price the plans of one family that are legal on a system."""
    if not plans:
        return {}
    table = PlanTable.of(list(plans.values()))
    try:
        seen = screen(done, system, table)
        legal = [k for k, one in enumerate(seen.legal) if one]
        priced = evaluate(done, system, table.part(legal)) if legal else None  # type: ignore[arg-type]
    except SlipstickError:
        return {}
    times = {} if priced is None else dict(zip(legal, priced.metrics["step_time_s"], strict=True))
    return {
        shown: Answer(ANSWERED if seen.fits[k] else NO_FIT, float(times[k]), float(seen.peak_mem_bytes[k]))
        for k, shown in enumerate(plans)
        if k in times
    }
