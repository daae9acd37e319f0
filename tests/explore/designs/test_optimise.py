"""Optimised designs: never behind the shares of their unit, within every budget, no worse with more of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.machine.load import read_system
from slipstick.backends.technology.claims import claims_of
from slipstick.backends.technology.design import Budget
from slipstick.cost.money import Terms
from slipstick.driver.estimate import estimate, lower, worth
from slipstick.explore.designs.machines import machine_text
from slipstick.explore.designs.optimise import FRONT, Optimum, first_machine, optimise
from slipstick.explore.designs.plans import PlanFinder
from slipstick.explore.designs.setting import DesignJob, DesignSetting
from slipstick.explore.designs.space import DesignForm
from slipstick.explore.goals import Goal
from slipstick.explore.plans.degrees import Degrees
from slipstick.explore.plans.job import PlanJob, PlanMachine
from slipstick.explore.plans.space import Choices, PlanSpace
from slipstick.frontend import load
from slipstick.ir.errors import InfeasibleError, UnknownNameError, UsageError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan

# How far the search may be off what it could find.
TOLERANCE = 0.01
TIME = Goal("step_time_s")


@cache
def job_of(workload: str) -> DesignJob:
    """Llama 3.1 8B under one plan."""
    graph = load("llama-3.1-8b", Workload(workload))
    family = Family(sp=True, zero=1) if workload == "train" else Family(workload=graph.workload)
    if workload == "train":
        plan = make_plan(num_gpus=64, tp=4, seq_len=4096, global_batch=64, family=family)
    else:
        kv_len = 2048 if workload == "decode" else 0
        plan = make_plan(num_gpus=8, tp=4, seq_len=2048, kv_len=kv_len, micro_batch=8, family=family)
    return DesignJob(lower(graph, family), plan)


def best(budgets: Sequence[Budget], setting: DesignSetting, workload: str, goal: Goal = TIME) -> list[Optimum]:
    """Optimise under that plan."""
    limits = {DesignForm(node=b.node, unit=b.unit, memory=b.memory, link=b.link): b for b in budgets}
    return optimise(limits, setting, lambda text: job_of(workload), goal)


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.deep) for k in range(1, 25))])
def test_laws_of_optimised_designs(setting: DesignSetting, seed: int) -> None:
    rng, technology = np.random.default_rng(seed), setting.technology
    nodes = technology.node_names
    at, workload = int(rng.integers(len(nodes) - 1)), str(rng.choice(["train", "prefill", "decode"]))
    goal = Goal(str(rng.choice(["step_time_s", "usd_per_step", "j_per_token"])))
    budget = Budget(
        nodes[at], float(rng.uniform(500, 850)), float(rng.uniform(250, 1200)), str(rng.choice(["a100", "h100"])),
        str(rng.choice(["hbm2e", "hbm3", "hbm3e", "hbm4"])), str(rng.choice(["nvlink3", "nvlink4", "nvlink5"])),
    )  # fmt: skip
    found = best([budget, replace(budget, node=nodes[at + 1])], setting, workload, goal)
    for one in found:
        if one.usual and one.usual["fits"]:
            assert one.columns[goal.name] <= one.usual[goal.name]
        made, unit = one.design, technology.unit(budget.unit)
        claims = claims_of(made, technology)
        assert made.budget.area_mm2 <= budget.area_mm2 * (1 + 1e-9)
        assert made.budget.power_w <= budget.power_w * (1 + 1e-9)
        assert sum(claim.power_w for claim in claims) <= made.budget.power_w * (1 + 1e-9)
        assert sum(claim.area_mm2 for claim in claims) <= unit.area_shares.total * made.budget.area_mm2 * (1 + 1e-7)
        assert sum(claim.edge_mm for claim in claims) <= unit.edge_shares.total * float(made.budget.edge_mm) * (
            1 + 1e-7
        )
        assert made.memory.speed <= 1 + 1e-9
    value = found[0].columns[goal.name]
    if goal.name != "usd_per_step":  # newer wafers cost more
        assert found[1].columns[goal.name] <= value * (1 + TOLERANCE)
    more = {"area_mm2": min(budget.area_mm2 * rng.uniform(1.02, 1.5), 858.0), "power_w": budget.power_w * 1.3}
    for field, larger in more.items():
        (richer,) = best([replace(budget, **{field: larger})], setting, workload, goal)  # type: ignore[arg-type]
        assert richer.columns[goal.name] <= value * (1 + TOLERANCE), field


def test_the_file_of_an_optimum_takes_what_its_columns_say(setting: DesignSetting) -> None:
    (found,) = best([Budget("N5", 814.0, 700.0, memory="hbm4")], setting, "train")
    text = machine_text(found.form, found.design, setting)
    system = replace(read_system(text, "one"), own_prices=setting.prices)
    job = found.job
    answer = worth(estimate(job.lowered.source, system, job.plan, lowered=job.lowered), Terms(basis="build"))
    assert answer.money is not None
    assert found.columns["step_time_s"] == pytest.approx(answer.metrics["step_time_s"], rel=1e-9)
    assert found.columns["usd_per_step"] == pytest.approx(answer.money.metrics["usd_per_step"], rel=1e-9)
    # HBM4 has 45 % of its rate with the shares of H100, and all of it with its own.
    assert found.usual_design is not None
    assert found.usual_design.memory.speed < 0.5 < 0.9 < found.design.memory.speed
    assert found.columns["step_time_s"] < 0.95 * found.usual["step_time_s"]


def test_no_design_of_a_front_beats_another(setting: DesignSetting) -> None:
    (found,) = best([Budget("N5", 814.0, 700.0)], setting, "decode")
    rows = [[float(row[name]) for name in FRONT] for row in found.front]
    assert len(rows) > 10
    assert any(row == [found.columns[name] for name in FRONT] for row in rows)
    for row in rows:
        assert not any(all(a <= b for a, b in zip(other, row, strict=True)) for other in rows if other != row)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_a_plan_is_searched_for_the_design(setting: DesignSetting, tmp_path: Path) -> None:
    finder = PlanFinder(plan_job(), tmp_path)
    limits = {DesignForm(node=node): Budget(node, 814.0, 700.0) for node in ("N5", "N3")}
    found = optimise(limits, setting, finder, TIME)
    assert finder.num_candidates > 100
    for one in found:
        # No plan of the space is faster on the design: the search says so on its own file.
        again = finder(machine_text(one.form, one.design, setting))
        system = read_system(machine_text(one.form, one.design, setting), "one")
        time_s = estimate(again.lowered.source, system, again.plan, lowered=again.lowered).metrics["step_time_s"]
        assert one.columns["step_time_s"] <= time_s * (1 + 1e-9)


def plan_job() -> PlanJob:
    """Plans of Llama 3.1 8B on 64 devices."""
    space = PlanSpace(
        degrees=Degrees(num_gpus=(64,), global_batch=(64,), micro_batch=(1, 2), cp=(1,), vpp=(1,)),
        choices=Choices(zero=(1,), schedule=("1f1b",), recompute=("none", "full")),
        seq_len=4096,
    )
    machine = PlanMachine(name="of-the-design", bases=(Family(),))
    return PlanJob(graph=load("llama-3.1-8b"), space=space, machines=(machine,), goals=(TIME,))


def test_what_cannot_be_optimised_says_why(setting: DesignSetting) -> None:
    small = Budget("N5", 60.0, 700.0)
    with pytest.raises(UsageError, match="no room for a stack of memory beside the die"):
        best([small], setting, "train")
    with pytest.raises(UsageError, match="no room for a stack"):
        first_machine({DesignForm(node="N5"): small}, setting)
    with pytest.raises(UnknownNameError, match="unknown objective 'steptime'; did you mean"):
        best([Budget("N5", 814.0, 700.0)], setting, "decode", Goal("steptime"))

    def none(text: str) -> DesignJob:
        raise InfeasibleError("none of 5 plans runs on a design")

    with pytest.raises(InfeasibleError, match="none of 5 plans"):
        optimise({DesignForm(node="N5"): Budget("N5", 814.0, 700.0)}, setting, none, TIME)
