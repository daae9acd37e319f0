"""A server for the benchmarks of serving: step times of a model on four GPUs under vLLM."""

from __future__ import annotations

from slipstick.backends.engine import Engine
from slipstick.backends.engine_file import load_engine
from slipstick.backends.system import load_system
from slipstick.cost.serving.continuous import most_throughput
from slipstick.cost.serving.requests import Lengths
from slipstick.cost.serving.times import StepTimes
from slipstick.driver import lower
from slipstick.frontend import GraphCache, load
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan
from slipstick.serving.tables import Served, step_times

LONGEST = 32_768


def server_times(model: str, system: str) -> tuple[StepTimes, Engine]:
    """Return what steps of a replica take, and the engine that makes them."""
    engine = load_engine("vllm")
    lowered = [
        lower(load(model, phase, cache=GraphCache.default()), Family(workload=phase))
        for phase in (Workload.PREFILL, Workload.DECODE)
    ]
    plan = make_plan(num_gpus=4, tp=4, seq_len=LONGEST, global_batch=1, family=Family(workload=Workload.DECODE))
    machine = engine.under(load_system(system))
    return step_times(Served(*lowered), machine, plan, engine.scheduler, LONGEST), engine


def most_per_s(times: StepTimes, engine: Engine, prompt: int, output: int) -> float:
    """Return the most requests of a length that are answered a second."""
    return float(most_throughput(times, engine, Lengths(float(prompt), float(output))).requests_per_s)
