from __future__ import annotations

import pickle
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.system import System
from slipstick.cost.money import Terms
from slipstick.cost.schedules.pipeline import Paced, Pipelines
from slipstick.driver.estimate import Estimates, Lowered, estimate, worth
from slipstick.driver.evaluation import evaluated
from slipstick.explore.best import Best
from slipstick.explore.block import Block, Found, joined
from slipstick.explore.goals import MetricLimit, goals_of
from slipstick.explore.job import InProcess
from slipstick.explore.plans.degrees import Degrees
from slipstick.explore.plans.job import TOO_LARGE, PlanJob, PlanMachine, PlanWorker
from slipstick.explore.plans.metrics import known_metrics
from slipstick.explore.plans.space import Choices, PlanSpace
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, PlanTable
from slipstick.ir.schedules.registry import SCHEDULES
from slipstick.ir.text.files import load_graph
from slipstick.passes.pipeline import Pipeline
from slipstick.report.search.plans import PlanRows

KNOWN = known_metrics(Workload.TRAIN)
GRAPHS = ("tests/golden/tiny-llama.train.graph", "tests/golden/tiny-mixtral.train.graph")


def job_of(graph: str, **words: object) -> PlanJob:
    space = PlanSpace(
        degrees=Degrees(num_gpus=(8,), global_batch=(16,), ep=(1, 2)), seq_len=512,
        choices=Choices(sp=(True,), zero=(1,), recompute=("none",), schedule=("1f1b",), cp=("ring",), etp=(True,)),
    )  # fmt: skip
    usual: dict[str, object] = {
        "space": space, "machines": (PlanMachine(name="dgx-h100", bases=(Family(kernels="fused"),)),),
        "goals": goals_of(["step_time_s,peak_mem_bytes"], KNOWN), "rows_at_once": 9,
    }  # fmt: skip
    return PlanJob(graph=load_graph(Path(graph)), **(usual | words))  # type: ignore[arg-type]


def wide(graph: str) -> PlanJob:
    """A job of hundreds of families, with money."""
    space = PlanSpace(degrees=Degrees(num_gpus=(16,), global_batch=(64,)), choices=Choices(), seq_len=512)
    return job_of(graph, space=space, terms=Terms(), rows_at_once=97)


def whole(job: PlanJob) -> Found:
    return joined(list(InProcess().run(job, job.blocks())))


@pytest.mark.parametrize("graph", GRAPHS)
def test_rows_are_what_an_estimate_of_the_plan_says_bit_for_bit(graph: str) -> None:
    job, draw = wide(graph), np.random.default_rng(7)
    worker, system = job.open(), job.machines[0].load()
    for block in draw.choice(np.array(job.blocks(), dtype=object), 12, replace=False):
        found = worker.work(block)
        assert found.num_candidates == len(block)
        for at in draw.choice(found.num_rows, min(found.num_rows, 2), replace=False).tolist():
            plan = job.plan_of(found.columns, at)
            answer = worth(estimate(job.graph, system, plan))
            assert answer.money is not None
            said = {**answer.metrics, **answer.money.metrics}
            assert {n: found.columns[n][at] for n in job.metrics} == {n: float(said[n]) for n in job.metrics}, plan


@pytest.fixture(scope="module")
def schedules() -> tuple[PlanJob, PlanWorker, Mapping[int, Found]]:
    """A job over all schedules, a worker of it, and what each of its blocks finds alone."""
    choices = Choices(sp=(True, False), zero=(1,), recompute=("none",), cp=("ring",), etp=(True,))
    space = PlanSpace(degrees=Degrees(num_gpus=(8,), global_batch=(16,)), choices=choices, seq_len=512)
    limit = MetricLimit.of("mfu>=0.0001", KNOWN)
    job = job_of(GRAPHS[0], space=space, rows_at_once=60, limits=(limit,))
    worker = job.open()
    return job, worker, {block.number: worker.work(block) for block in job.blocks()}


@settings(max_examples=20)
@given(st.data())
def test_blocks_of_several_schedules_that_are_one_table_find_what_each_finds_alone(
    schedules: tuple[PlanJob, PlanWorker, Mapping[int, Found]], data: st.DataObject
) -> None:
    job, worker, alone = schedules
    assert {part.family.schedule for part in job.parts} == set(SCHEDULES)
    asked = data.draw(st.lists(st.sampled_from(job.blocks()), unique=True, min_size=1))
    found = list(worker.work_through(asked))
    assert [one.number for one in found] == [block.number for block in asked]
    for one in found:
        other = alone[one.number]
        assert (one.pruned, one.num_legal, list(one.columns)) == (other.pruned, other.num_legal, list(other.columns))
        assert all(np.array_equal(one.columns[name], column) for name, column in other.columns.items())


def test_what_cannot_be_priced_in_a_table_is_left_out_of_its_own_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(wide(GRAPHS[0]), terms=None)
    blocks = [block for block in job.blocks() if job.parts[block.part].family.pp][:12]

    def evaluated_but_for_one(
        lowered: Lowered, system: System, plans: PlanTable, *rest: object
    ) -> Generator[Pipelines, Paced, Estimates]:
        if any(kind.name == "gpipe" for kind, _ in plans.schedules()):
            raise PlanError("no gpipe here")
        return (yield from evaluated(lowered, system, plans, *rest))  # type: ignore[arg-type]

    usual = {one.number: one for one in job.open().work_through(blocks)}
    monkeypatch.setattr("slipstick.explore.plans.job.evaluated", evaluated_but_for_one)
    for block, found in zip(blocks, job.open().work_through(blocks), strict=True):
        if job.parts[block.part].family.schedule == "gpipe" and usual[block.number].num_rows:
            assert found.pruned["cannot be priced: no gpipe here"] == usual[block.number].num_rows
        else:
            assert found.pruned == usual[block.number].pruned
            assert np.array_equal(found.columns["step_time_s"], usual[block.number].columns["step_time_s"])


def test_any_cut_into_blocks_finds_the_same_bits() -> None:
    one, other = job_of(GRAPHS[1]), job_of(GRAPHS[1], rows_at_once=5000)
    a, b = whole(one), whole(other)
    assert (a.pruned, a.num_legal, list(a.columns)) == (b.pruned, b.num_legal, list(b.columns))
    assert all(np.array_equal(a.columns[name], b.columns[name]) for name in a.columns)


def test_a_job_is_the_same_in_another_process() -> None:
    job = wide(GRAPHS[0])
    sent: PlanJob = pickle.loads(pickle.dumps(job))
    assert sent.digest == job.digest
    assert list(sent.blocks()) == list(job.blocks())
    block = job.blocks()[3]
    a, b = job.open().work(block), sent.open().work(block)
    assert all(np.array_equal(a.columns[name], b.columns[name]) for name in job.columns)


def test_limits_leave_out_what_breaks_them_and_say_how_many() -> None:
    free = whole(job_of(GRAPHS[0]))
    middle = float(np.median(free.columns["step_time_s"]))
    kept = whole(job_of(GRAPHS[0], limits=(MetricLimit("step_time_s", "<=", middle),)))
    good = free.columns["step_time_s"] <= middle
    assert kept.num_rows == int(good.sum())
    assert kept.pruned[f"breaks step_time_s<={middle:g}"] == int((~good).sum())
    assert np.array_equal(kept.columns["step_time_s"], free.columns["step_time_s"][good])


def test_a_share_of_the_device_is_a_limit_of_memory() -> None:
    job = job_of(GRAPHS[0])
    most = job.machines[0].load().chip.hbm_bytes
    free = whole(job)
    share = float(np.median(free.columns["peak_mem_bytes"])) / most
    kept = whole(job_of(GRAPHS[0], limits=(MetricLimit.of(f"mem<={share}", KNOWN),)))
    assert kept.num_rows == int((free.columns["peak_mem_bytes"] <= share * most).sum())


def test_systems_beside_one_another_find_what_each_finds_alone() -> None:
    bases = (Family(kernels="fused"),)
    two = (
        PlanMachine(name="dgx-h100", bases=bases),
        PlanMachine(name="dgx-h100", bases=bases, overrides=("chip.memory.hbm.capacity=1.2GB",)),
    )
    both = whole(job_of(GRAPHS[0], machines=two))
    for k, machine in enumerate(two):
        alone = whole(job_of(GRAPHS[0], machines=(machine,)))
        mine = both.columns["system"] == k
        assert sorted(both.columns["step_time_s"][mine]) == sorted(alone.columns["step_time_s"])
    assert both.pruned[TOO_LARGE] > 0


def test_the_best_of_blocks_in_any_order_are_the_same() -> None:
    job = job_of(GRAPHS[1])
    parts = list(InProcess().run(job, job.blocks()))
    orders = [parts, parts[::-1], [parts[k] for k in np.random.default_rng(1).permutation(len(parts))]]
    bests = []
    for order in orders:
        best = Best(job.goals, 7)
        for found in order:
            best.take(found)
        bests.append(best)
    rows = joined(parts).columns
    assert bests[0].top["step_time_s"].tolist() == sorted(rows["step_time_s"])[:7]
    for best in bests[1:]:
        for mine, first in ((best.top, bests[0].top), (best.front, bests[0].front), (best.cloud, bests[0].cloud)):
            assert all(np.array_equal(mine[name], first[name]) for name in first)


def test_a_family_that_cannot_be_built_says_so_among_the_reasons() -> None:
    odd = (PlanMachine(name="dgx-h100", bases=(Family(kernels="fused", tp_plan="nowhere.yaml"),)),)
    job = job_of(GRAPHS[0], machines=odd)
    found = job.open().work(Block(0, 0, 0, 2))
    ((reason, num),) = found.pruned.items()
    assert num == 2
    assert "nowhere.yaml" in reason


def test_a_model_that_cannot_have_stages_is_priced_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Pipeline, graph: Graph) -> Graph:
        raise PlanError("no stages here")

    job = job_of(GRAPHS[0])
    blocks = list(job.blocks())
    usual = list(job.open().work_through(blocks))
    monkeypatch.setattr(Pipeline, "apply", refused)
    for block, found, before in zip(blocks, job.open().work_through(blocks), usual, strict=True):
        if (family := job.parts[block.part].family).pp:
            assert list(found.pruned) == ["cannot be built: no stages here"]
        else:
            assert job.lowered_for(family).pp
            assert np.array_equal(found.columns["step_time_s"], before.columns["step_time_s"])


def test_money_of_several_numbers_of_devices_is_that_of_each() -> None:
    space = PlanSpace(
        degrees=Degrees(num_gpus=(4, 8), global_batch=(16,), ep=(1,)), seq_len=512,
        choices=Choices(sp=(True,), zero=(1,), recompute=("none",), schedule=("1f1b",), cp=("ring",), etp=(True,)),
    )  # fmt: skip
    both = whole(job_of(GRAPHS[0], space=space, terms=Terms(), rows_at_once=5000))
    for gpus in (4, 8):
        one = replace(space, degrees=replace(space.degrees, num_gpus=(gpus,)))
        alone = whole(job_of(GRAPHS[0], space=one, terms=Terms(), rows_at_once=5000))
        mine = both.columns["gpus"] == gpus
        assert sorted(both.columns["usd_per_mtok"][mine]) == sorted(alone.columns["usd_per_mtok"])


@pytest.mark.parametrize("name", KNOWN)
def test_every_metric_can_be_an_objective_and_a_limit(name: str) -> None:
    limits = (MetricLimit(name, ">=", -1.0),)
    job = job_of(GRAPHS[0], goals=goals_of([name], KNOWN), limits=limits, terms=Terms(), rows_at_once=5000)
    found = job.open().work(job.blocks()[0])
    best = Best(job.goals)
    best.take(found)
    assert found.num_rows
    assert np.isfinite(best.top[name]).all()


def test_a_system_whose_file_changes_is_another_search(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text((Path("backends/systems/dgx-h100.yaml")).read_text())
    machines = (PlanMachine(name=str(file), bases=(Family(kernels="fused"),)),)
    before = job_of(GRAPHS[0], machines=machines).digest
    assert job_of(GRAPHS[0], machines=machines).digest == before
    file.write_text(file.read_text().replace("chip: h100-sxm-80gb", "chip: h200-sxm-141gb"))
    assert job_of(GRAPHS[0], machines=machines).digest != before


def test_rows_that_differ_have_labels_that_differ() -> None:
    space = PlanSpace(
        degrees=Degrees(num_gpus=(4, 8), global_batch=(16,), cp_ulysses=()), seq_len=512,
        choices=Choices(zero=(1,), recompute=("none",), schedule=("1f1b",)),
    )  # fmt: skip
    job = job_of(GRAPHS[1], space=space)
    rows, found = PlanRows(job, {"model": "tiny"}), whole(job).columns
    labels = [(rows.label(found, at), *rows.others(found, at).values()) for at in range(len(found["part"]))]
    assert len(set(labels)) == len(labels)
