"""Measurements taken inside a fresh process: `python -m benchmarks.probes PROBE ARGS` prints samples as JSON."""

from __future__ import annotations

import importlib
import json
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from time import process_time
from types import MappingProxyType
from typing import TYPE_CHECKING

from .driving import driving
from .samples import SYSTEM, Samples, cached_graph, lowered_once, peak_bytes, seconds
from .search_probes import families, layouts, screening, searched

if TYPE_CHECKING:
    from slipstick.ir.graph import Graph


def trace(model: str) -> Samples:
    """Time the first recording of a model (forward, loss, backward, folding), everything imported before."""
    from slipstick.frontend import load
    from slipstick.frontend.huggingface.configs.models import read_config

    kind = read_config(model).model_type
    for name in ("torch", "slipstick.frontend.huggingface.recording", "slipstick.frontend.fold.trace"):
        importlib.import_module(name)
    importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    taken_s = seconds(lambda: load(model))
    return {"trace_s": [taken_s], "peak_rss_mib": [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]}


def verifying(model: str, repeat: str) -> Samples:
    """Take the share of lowering that the verifier of layouts has, both in processor time."""
    from slipstick.driver.estimate import lower
    from slipstick.ir.plan import Family
    from slipstick.passes.families import pipeline_for
    from slipstick.passes.layouts.check import verify_layouts

    graph, family = cached_graph(model), Family(sp=True, pp=True, zero=1)
    made: list[Graph] = [graph]
    lower(graph, family)
    pipeline_for(family).run(graph, dump=lambda _, __, after: made.append(after))
    shares: list[float] = []
    for _ in range(int(repeat)):
        start = process_time()
        lower(graph, family)
        between = process_time()
        for before, after in pairwise(made):
            verify_layouts(after, "", before)
        shares.append(100 * (process_time() - between) / (between - start))
    return {"percent": shares}


def lowering(model: str, repeat: str) -> Samples:
    """Time the passes and the compilation of one family of training plans."""
    from slipstick.driver.estimate import lower
    from slipstick.ir.plan import Family

    graph, family = cached_graph(model), Family(sp=True)
    return {"lower_s": [seconds(lambda: lower(graph, family)) for _ in range(int(repeat))]}


def shapes(kind: str, repeat: str) -> Samples:
    """Time recording and lowering of models of one kind, each of other sizes, behind a first one."""
    from slipstick.driver.estimate import lower
    from slipstick.frontend import config_of, load_config
    from slipstick.ir.plan import Family

    def one(width: int) -> None:
        sizes: dict[str, object] = {"hidden_size": width, "num_hidden_layers": 40, "num_attention_heads": width // 128}
        named = config_of(f"{kind}-{width}", {"model_type": kind, "vocab_size": 51_200, **sizes})
        lower(load_config(named), Family(sp=True, pp=True, zero=1))

    widths = range(1024, 1024 + 128 * (int(repeat) + 1), 128)
    return {"shape_s": [seconds(partial(one, width)) for width in widths][1:]}


def single(model: str, stages: str, repeat: str) -> Samples:
    """Time one estimate of a graph that is loaded and lowered."""
    from slipstick.backends.machine.load import load_system
    from slipstick.driver.estimate import estimate, lower
    from slipstick.ir.plan import Family, make_plan

    graph, system, pp = cached_graph(model), load_system(SYSTEM), int(stages)
    family = Family(sp=True) if pp == 1 else Family(sp=True, pp=True, zero=1, recompute="selective")
    plan = make_plan(num_gpus=512, tp=8, pp=pp, seq_len=8192, global_batch=512, family=family)
    lowered = lower(graph, family)
    estimate(graph, system, plan, lowered=lowered)
    return {"estimate_s": [seconds(lambda: estimate(graph, system, plan, lowered=lowered)) for _ in range(int(repeat))]}


def evaluation(model: str, num_plans: str, kind: str, repeat: str) -> Samples:
    """Time a table of random legal plans, and say how much memory the process took at most.

    Of `repeated` ones many are one point to most nodes; `distinct` ones have a length each.
    """
    from slipstick.backends.machine.load import load_system
    from slipstick.driver.estimate import evaluate

    from .plans import random_plans, with_own_lengths

    lowered, system = lowered_once(cached_graph(model)), load_system(SYSTEM)
    plans = random_plans(lowered.graph, int(num_plans))
    if kind == "distinct":
        plans = with_own_lengths(plans)
    evaluate(lowered, system, random_plans(lowered.graph, 1))
    times = [seconds(lambda: evaluate(lowered, system, plans)) for _ in range(int(repeat))]
    return {"evaluate_s": times, "peak_bytes": [peak_bytes()]}


def decoding(model: str, num_points: str, repeat: str) -> Samples:
    """Time a table of decode steps, each of another degree, batch or context."""
    from slipstick.backends.machine.load import load_system
    from slipstick.driver.estimate import evaluate, lower
    from slipstick.frontend import GraphCache, load
    from slipstick.ir.graph import Workload
    from slipstick.ir.plan import Family

    from .plans import decode_plans

    family, system = Family(workload=Workload.DECODE), load_system(SYSTEM)
    lowered = lower(load(model, Workload.DECODE, cache=GraphCache.default()), family)
    plans = decode_plans(family, int(num_points))
    evaluate(lowered, system, decode_plans(family, 4))
    return {"evaluate_s": [seconds(lambda: evaluate(lowered, system, plans)) for _ in range(int(repeat))]}


def requests(model: str, load: str, num_requests: str, repeat: str) -> Samples:
    """Time requests one by one on a server of four GPUs, at a load over the most that it can answer."""
    from slipstick.cost.serving.simulate.run import Pool, simulate
    from slipstick.cost.serving.traffic.sizes import LengthMix, Lognormal
    from slipstick.cost.serving.traffic.traffic import poisson

    from .servers import most_per_s, server_times

    times, engine = server_times(model, SYSTEM)
    rate = float(load) * most_per_s(times, engine, prompt=1000, output=200)
    traffic = poisson(rate, LengthMix(Lognormal(1000.0, 0.8), Lognormal(200.0, 0.8)), int(num_requests))
    pool = Pool(times, engine)
    taken = [seconds(lambda: simulate(traffic, pool)) for _ in range(int(repeat))]
    return {"simulate_s": taken, "peak_bytes": [peak_bytes()]}


def machines(model: str, num_machines: str, repeat: str) -> Samples:
    """Time one plan on a table of random chip designs, and say how much memory the process took at most."""
    from slipstick.backends.machine.load import load_system
    from slipstick.driver.estimate import evaluate_machines
    from slipstick.ir.plan import Family, make_plan

    from .machines import random_machines

    lowered, system = lowered_once(cached_graph(model)), load_system(SYSTEM)
    plan = make_plan(num_gpus=512, tp=8, seq_len=8192, global_batch=512, family=Family(sp=True))
    designs = random_machines(system, int(num_machines))
    evaluate_machines(lowered, random_machines(system, 1), plan)
    times = [seconds(lambda: evaluate_machines(lowered, designs, plan)) for _ in range(int(repeat))]
    return {"evaluate_s": times, "peak_bytes": [peak_bytes()]}


def costs(num_designs: str, repeat: str) -> Samples:
    """Time a space of chip designs, each with its die, package, system and ownership, nothing timed on them."""
    from slipstick.explore.designs.designs import explore

    from .spaces import setting, space

    around, designs = setting(), space(int(num_designs))
    list(explore(space(4), around))
    times = [seconds(lambda: list(explore(designs, around))) for _ in range(int(repeat))]
    return {"explore_s": times, "num_designs": [float(designs.num_designs())], "peak_bytes": [peak_bytes()]}


def pays(model: str, num_designs: str, repeat: str) -> Samples:
    """Time a space of chip designs with the money of each and the time, energy and money of a training step on it."""
    from slipstick.driver.estimate import lower
    from slipstick.explore.designs.designs import explore
    from slipstick.explore.designs.setting import DesignJob
    from slipstick.ir.plan import Family, make_plan

    from .spaces import setting, space

    family = Family(sp=True, pp=True, zero=1, recompute="full")
    plan = make_plan(num_gpus=1024, tp=8, pp=8, seq_len=8192, global_batch=512, family=family)
    around, designs, job = setting(), space(int(num_designs)), DesignJob(lower(cached_graph(model), family), plan)
    list(explore(space(4), around, job))
    times = [seconds(lambda: list(explore(designs, around, job))) for _ in range(int(repeat))]
    return {"explore_s": times, "num_designs": [float(designs.num_designs())], "peak_bytes": [peak_bytes()]}


def products(num: str, repeat: str) -> Samples:
    """Time the model of matrix products on as many distinct ones, and on a few as one estimate has them."""
    import numpy as np

    from slipstick.backends.kernels.gemm import gemm_sizes, gemm_times
    from slipstick.backends.machine.load import load_system

    system = load_system(SYSTEM)
    random = np.random.default_rng(0)
    shapes = random.integers(1, 16384, (3, int(num))).astype(np.float64)
    many, few = gemm_sizes(*shapes), gemm_sizes(*shapes[:, :40])
    constants = system.kernels.gemm["bf16"]
    gemm_times(few, system.chip, constants)
    return {
        "many_s": [seconds(lambda: gemm_times(many, system.chip, constants)) for _ in range(int(repeat))],
        "few_s": [seconds(lambda: gemm_times(few, system.chip, constants)) for _ in range(int(repeat))],
    }


def simulation(repeat: str) -> Samples:
    """Time the event simulation of 512 micro-batches on 64 stages of 3 chunks."""
    import numpy as np

    from slipstick.cost.schedules.simulate import simulate
    from slipstick.cost.schedules.tasks import StageTimes

    forward, dgrad, wgrad = np.random.default_rng(0).uniform(0.8, 1.2, (3, 64, 3))
    times = StageTimes.of(forward, dgrad, wgrad, send_s=0.01)
    return {"simulate_s": [seconds(lambda: simulate("1f1b", times, 512)) for _ in range(int(repeat))]}


def pipelines(schedule: str, num_chunks: str, num_plans: str, repeat: str) -> Samples:
    """Time the pipelined part of a table of plans: 8 stages of three classes, all times distinct."""
    import numpy as np

    from slipstick.cost.schedules.pipeline import ClassTimes, Pipelines, pipeline_times

    num = int(num_plans)
    random = np.random.default_rng(0)
    forward, send = random.uniform(0.8, 1.2, (3, num)), np.full((3, num), 0.01)
    times = ClassTimes(forward, forward * 1.1, forward * 0.9, send)
    which, chunks = np.zeros(num, dtype=np.intp), np.full(num, float(num_chunks))
    micro_batches = np.asarray(random.integers(4, 65, num) * 8, dtype=np.float64)

    every, rows = [(schedule, np.arange(num))], [(0, 1, 1, 1, 1, 1, 1, 2)]

    def work() -> object:
        return pipeline_times([Pipelines(every, times, rows, which, chunks, micro_batches)])

    work()
    return {"pipeline_s": [seconds(work) for _ in range(int(repeat))]}


def doubling(model: str, num_plans: str, repeat: str) -> Samples:
    """Time a table, and the same with twice the layers, micro-batches or GPUs, taking turns."""
    from slipstick.backends.machine.load import load_system
    from slipstick.driver.estimate import evaluate

    from .plans import random_plans
    from .servers import with_twice_the_layers

    graph, system = cached_graph(model), load_system(SYSTEM)
    lowered, deeper = lowered_once(graph), lowered_once(with_twice_the_layers(graph))
    plans = random_plans(lowered.graph, int(num_plans))
    cases = {
        "base": (lowered, plans),
        "layers": (deeper, plans),
        "micro-batches": (lowered, replace(plans, num_micro_batches=plans.num_micro_batches * 2)),
        "gpus": (lowered, replace(plans, dp=plans.dp * 2, num_gpus=plans.num_gpus * 2)),
    }
    calls = {name: partial(evaluate, compiled, system, table) for name, (compiled, table) in cases.items()}
    return _in_turns(calls, int(repeat))


def serving(model: str, repeat: str) -> Samples:
    """Time an answer of a server, its graphs lowered, and the same with twice the tokens, layers or GPUs."""
    from .servers import doubled

    return _in_turns(doubled(model, SYSTEM), int(repeat))


def _in_turns(calls: Mapping[str, Callable[[], object]], repeat: int) -> Samples:
    """Time calls, taking turns: nobody goes first every time, for what ran before leaves its traces in caches."""
    times: Samples = {name: [] for name in calls}
    for turn in range(repeat):
        for name in (*calls, *calls)[turn % len(calls) : turn % len(calls) + len(calls)]:
            times[name].append(seconds(calls[name]))
    return times


PROBES: Mapping[str, Callable[..., Samples]] = MappingProxyType(
    {
        "trace": trace,
        "lowering": lowering,
        "verifying": verifying,
        "single": single,
        "shapes": shapes,
        "evaluation": evaluation,
        "layouts": layouts,
        "driving": driving,
        "decoding": decoding,
        "requests": requests,
        "machines": machines,
        "costs": costs,
        "pays": pays,
        "screening": screening,
        "searched": searched,
        "families": families,
        "products": products,
        "simulation": simulation,
        "pipelines": pipelines,
        "doubling": doubling,
        "serving": serving,
    }
)

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]](*sys.argv[2:])))
