"""Measurements of searches and of what they do with families of plans; `benchmarks.probes` runs them."""

from __future__ import annotations

from functools import partial

from .samples import SYSTEM, Samples, cached_graph, peak_bytes, seconds


def layouts(model: str, stages: str, num_plans: str, repeat: str) -> Samples:
    """Time a table of pipelines with a length each, whose stages share the layers out for each of them."""
    from slipstick.backends.machine.load import load_system
    from slipstick.driver.estimate import evaluate, lower
    from slipstick.ir.plan import Family, PlanTable, make_plan

    from .plans import with_own_lengths

    family, pp = Family(sp=True, pp=True, zero=1, recompute="full"), int(stages)
    lowered, system = lower(cached_graph(model), family), load_system(SYSTEM)
    plan = make_plan(num_gpus=64 * pp, tp=8, pp=pp, seq_len=8192, global_batch=64 * pp, family=family)
    plans = with_own_lengths(PlanTable.of([plan]).repeated(int(num_plans)))
    evaluate(lowered, system, PlanTable.of([plan]))
    # A copy of the family has no layouts yet: each run lays all of them.
    copies = [lower(lowered.source, family) for _ in range(int(repeat))]
    times = [seconds(partial(evaluate, copy, system, plans)) for copy in copies]
    return {"evaluate_s": times, "peak_bytes": [peak_bytes()]}


def screening(model: str, num_plans: str, repeat: str) -> Samples:
    """Time constraints and memory of a table of plans over every axis, nothing timed."""
    from slipstick.backends.machine.load import load_system
    from slipstick.driver.estimate import lower, screen
    from slipstick.ir.plan import Family

    from .plans import screened_plans

    family = Family(sp=True, ep=True, pp=True, cp="allgather", zero=1, recompute="selective")
    lowered, system = lower(cached_graph(model), family), load_system(SYSTEM)
    plans = screened_plans(family, int(num_plans))
    return {"screen_s": [seconds(lambda: screen(lowered, system, plans)) for _ in range(int(repeat))]}


def searched(model: str, repeat: str) -> Samples:
    """Time all plans of one family as a search does: those that are legal and fit are timed; how many do."""
    from slipstick.backends.machine.load import load_system
    from slipstick.driver.estimate import evaluate, lower, screen
    from slipstick.ir.plan import Family

    from .plans import family_plans

    moe = model == "deepseek-v3"
    gpus, batch, layers = (2_048, 16_384, 61) if moe else (16_384, 2_048, 126)
    family = Family(sp=True, pp=True, zero=1, ep=moe, recompute="full", cp="ring")
    lowered, system = lower(cached_graph(model), family), load_system(SYSTEM)
    plans = family_plans(family, gpus, batch, layers)

    def work() -> int:
        fitting = screen(lowered, system, plans).fitting()
        assert fitting is not None
        evaluate(lowered, system, fitting.plans, prepared=fitting)
        return len(fitting.plans)

    feasible = float(work())
    times = [seconds(work) for _ in range(int(repeat))]
    return {"search_s": times, "num_plans": [float(len(plans))], "num_feasible": [feasible]}


def families(model: str) -> Samples:
    """Time families of training plans lowered one behind the other, as a search does."""
    from itertools import product

    from slipstick.explore.plans.lowerings import Lowerings
    from slipstick.ir.plan import Family

    methods = ("none", "ring", "ulysses", "allgather")
    found = [
        Family(sp=sp, pp=True, ep=model == "deepseek-v3", zero=zero, recompute=recompute, schedule=schedule, cp=cp)
        for sp, zero, recompute, schedule, cp in product(
            (True, False), (1, 3), ("none", "selective", "full"), ("1f1b", "zb-h1", "dualpipe"), methods
        )
    ]
    lowerings = Lowerings(cached_graph(model))
    taken_s = seconds(lambda: [lowerings.of(family) for family in found])
    return {"lower_s": [taken_s], "num_families": [float(len(found))]}
