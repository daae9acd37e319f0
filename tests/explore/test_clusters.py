"""Clusters for a training run: the best plan of each, the bounds that it breaks, prices at which two cost the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cost.money import Terms
from slipstick.cost.run.training_run import TrainingRun
from slipstick.driver.estimate import estimate, train, worth
from slipstick.explore.clusters import Cluster, Requirements, best_of, best_rows, clusters_in
from slipstick.explore.goals import goals_of
from slipstick.explore.plans.degrees import Degrees
from slipstick.explore.plans.job import PlanJob, PlanMachine
from slipstick.explore.plans.metrics import known_metrics
from slipstick.explore.plans.space import Choices, PlanSpace
from slipstick.explore.searching import CandidateTally, search
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family
from slipstick.ir.text.files import load_graph
from slipstick.report.clusters import ClusterComparison
from slipstick.report.ranking import CandidateRanking

GRAPH = Path("tests/golden/tiny-llama.train.graph")
RUN = TrainingRun(amount=1e9)
SYSTEMS = ("dgx-h100", "dgx-a100-80gb")


def job_of(gpus: tuple[int, ...] = (8, 16), systems: tuple[str, ...] = SYSTEMS) -> PlanJob:
    space = PlanSpace(
        degrees=Degrees(num_gpus=gpus, global_batch=(16,)), seq_len=512,
        choices=Choices(sp=(True,), zero=(1,), recompute=("none",), schedule=("1f1b",), cp=("ring",)),
    )  # fmt: skip
    machines = tuple(PlanMachine(name=name, bases=(Family(kernels="fused"),)) for name in systems)
    goals = goals_of(["step_time_s"], known_metrics(Workload.TRAIN))
    return PlanJob(graph=load_graph(GRAPH), space=space, machines=machines, goals=goals, rows_at_once=50)


def clusters_of(job: PlanJob, wanted: Requirements) -> list[Cluster]:
    return clusters_in(job, wanted, best_rows(job)[0])


@pytest.fixture(scope="module")
def clusters() -> list[Cluster]:
    return clusters_of(job_of(), Requirements(run=RUN))


def test_each_system_and_number_of_gpus_has_the_best_plan_of_a_search_of_its_own(clusters: list[Cluster]) -> None:
    assert [(str(one.machine), one.num_gpus) for one in clusters] == [(s, n) for s in SYSTEMS for n in (8, 16)]
    for one in clusters:
        alone = search(job_of((one.num_gpus,), (one.machine.name,)), top=1).best.top
        assert one.metrics["step_time_s"] == float(alone["step_time_s"][0])


def test_metrics_are_those_of_an_estimate_with_a_run_and_money(clusters: list[Cluster]) -> None:
    one = clusters[0]
    again = worth(train(estimate(load_graph(GRAPH), load_system("dgx-h100"), one.answer.plan), RUN))
    assert again.run is not None
    assert again.money is not None
    assert one.metrics["train_time_s"] == again.run.metrics["train_time_s"]
    assert one.metrics["usd_run"] == one.metrics["usd_run_owned"] == again.money.metrics["usd_run"]
    hours = one.metrics["train_time_s"] / 3600
    assert one.metrics["facility_power_w"] == pytest.approx(one.metrics["kwh"] * 1e3 / hours, rel=1e-12)


def test_bounds_say_how_far_they_are_broken() -> None:
    wanted = Requirements(run=RUN, deadline_s=100.0, budget_usd=10.0, power_w=5.0)
    assert wanted.over({"train_time_s": 150.0, "usd_run": 10.0, "facility_power_w": 4.0}) == {"train_time_s": 1.5}
    # What nobody knows keeps no bound.
    assert wanted.over({"train_time_s": 1.0, "facility_power_w": 1.0}) == {"usd_run": np.inf}


def test_those_that_keep_all_bounds_come_first_and_then_the_nearest(clusters: list[Cluster]) -> None:
    days = sorted(one.metrics["train_time_s"] for one in clusters)
    middle = (days[0] + days[1]) / 2
    found = clusters_of(job_of(), Requirements(run=RUN, deadline_s=middle))
    best = best_of(found, "usd_run")
    assert len(best) == len(SYSTEMS)
    assert best[0].metrics["train_time_s"] == days[0]
    assert not best[0].broken
    assert best[1].broken["train_time_s"] > 1.0
    fastest = min(one.metrics["train_time_s"] for one in found if one.machine == best[1].machine)
    assert best[1].metrics["train_time_s"] == fastest


def ranked(clusters: Sequence[Cluster]) -> CandidateRanking[Cluster]:
    """Clusters by the cost of the run."""
    wanted = Requirements(run=RUN)
    return ClusterComparison(
        model="", wanted=wanted, aim="usd_run", clusters=clusters, tally=CandidateTally(), left_out={}
    ).ranking


def test_a_run_at_its_break_even_price_costs_what_the_other_does(clusters: list[Cluster]) -> None:
    rented = [c for c in clusters_of(job_of(), Requirements(run=RUN, terms=Terms(rented=True))) if c.num_gpus == 8]
    ranking = ranked(rented)
    other, one = (candidate.item for candidate in ranking.candidates)
    price = ranking.break_even(1)
    assert price is not None
    chip = load_system(one.machine.name).chip.name
    system = load_system(one.machine.name, overrides=(f"prices.cloud.{chip}.price={price!r}USD/h",))
    again = worth(train(estimate(load_graph(GRAPH), system, one.answer.plan), RUN), Terms(rented=True))
    assert again.money is not None
    assert float(again.money.metrics["usd_run"]) == pytest.approx(other.metrics["usd_run"], rel=1e-9)


def test_a_cluster_without_sums_has_no_break_even(clusters: list[Cluster]) -> None:
    bare = replace(clusters[0], metrics={"gpu_hours": 1.0})
    assert ranked([bare, clusters[-1]]).break_even(1) is None
