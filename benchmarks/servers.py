"""A server for the benchmarks of serving: step times of a model on four GPUs under vLLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine import Engine
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cost.serving.batching.continuous import most_throughput
from slipstick.cost.serving.batching.times import StepTimes
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.driver.estimate import lower
from slipstick.driver.serve.load import Load
from slipstick.driver.serve.serve import serve
from slipstick.driver.serve.server import Server
from slipstick.driver.serve.tables import ServedModel, step_times
from slipstick.frontend import GraphCache, load
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, Plan, make_plan

LONGEST = 32_768


PHASES = (Workload.PREFILL, Workload.DECODE)


def server_times(model: str, system: str) -> tuple[StepTimes, Engine]:
    """Return what steps of a replica take, and the engine that makes them."""
    engine = load_engine("vllm")
    machine = engine.under(load_system(system))
    return step_times(_served(_graphs(model)), machine, _plan(1), engine.scheduler, LONGEST), engine


def doubled(model: str, system: str) -> dict[str, Callable[[], object]]:
    """Return answers of one server, as calls, and the same with twice the tokens, layers or GPUs."""
    engine, machine, graphs = load_engine("vllm"), load_system(system), _graphs(model)
    once, deeper = _served(graphs), _served([with_twice_the_layers(graph) for graph in graphs])

    def answer(served: ServedModel, replicas: int, tokens: float) -> Callable[[], object]:
        lengths, load = Lengths(1000.0 * tokens, 200.0 * tokens), Load(concurrency=32.0)
        return lambda: serve(Server.of(served, machine, _plan(replicas), engine, LONGEST), lengths, load)

    return {
        "base": answer(once, 1, 1.0),
        "tokens": answer(once, 1, 2.0),
        "layers": answer(deeper, 1, 1.0),
        "gpus": answer(once, 2, 1.0),
    }


def with_twice_the_layers(graph: Graph) -> Graph:
    """Return a graph whose repeated layers run twice as often."""
    runs = tuple(replace(run, count=run.count * 2) if run.count > 1 else run for run in graph.schedule)
    return replace(graph, schedule=runs)


def _graphs(model: str) -> list[Graph]:
    return [load(model, phase, cache=GraphCache.default()) for phase in PHASES]


def _served(graphs: Sequence[Graph]) -> ServedModel:
    return ServedModel(*(lower(graph, Family(workload=phase)) for graph, phase in zip(graphs, PHASES, strict=True)))


def _plan(replicas: int) -> Plan:
    family = Family(workload=Workload.DECODE)
    return make_plan(num_gpus=4 * replicas, tp=4, seq_len=LONGEST, global_batch=replicas, family=family)


def most_per_s(times: StepTimes, engine: Engine, prompt: int, output: int) -> float:
    """Return the most requests of a length that are answered a second."""
    return float(most_throughput(times, engine, Lengths(float(prompt), float(output))).requests_per_s)
