"""Machines that an optimiser chooses, each with all plans on it searched: kept, killed, gone on with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from slipstick.explore.block import Block, Found
from slipstick.explore.goals import goals_of
from slipstick.explore.job import InProcess, Job
from slipstick.explore.plans.degrees import Degrees
from slipstick.explore.plans.job import PlanJob, PlanMachine
from slipstick.explore.plans.lowerings import Lowerings
from slipstick.explore.plans.metrics import known_metrics
from slipstick.explore.plans.space import Choices, PlanSpace
from slipstick.explore.runs.ledger import Ledger
from slipstick.explore.runs.run import SearchRun
from slipstick.explore.searching import search
from slipstick.explore.trials.optimizer import CategoricalParameter, Range
from slipstick.explore.trials.optuna_study import OptunaStudy
from slipstick.explore.trials.trial_job import SYSTEM, TrialJob
from slipstick.explore.trials.trying import Resident, TrialResults, resumed, try_machines
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family
from slipstick.ir.text.files import load_graph

pytestmark = pytest.mark.skipif(find_spec("optuna") is None, reason="needs slipstick[search]")

BANDWIDTH, TOPOLOGY = "chip.memory.hbm.bandwidth", "network.nvlink.topology"
GRAPH = load_graph(Path("tests/golden/tiny-llama.train.graph"))


@pytest.fixture(scope="module")
def job() -> TrialJob:
    """Plans of four devices on two systems; a torus lacks its dims, and so is no machine."""
    choices = Choices(sp=(True,), zero=(1,), recompute=("none",), schedule=("1f1b",), cp=("ring",), etp=(True,))
    space = PlanSpace(degrees=Degrees(num_gpus=(4,), global_batch=(8,), pp=(1,), cp=(1,)), choices=choices, seq_len=256)
    machines = tuple(PlanMachine(name=name, bases=(Family(kernels=kernels),))
                     for name, kernels in (("dgx-h100", "fused"), ("dgx-b200", "eager")))  # fmt: skip
    plans = PlanJob(
        graph=GRAPH, space=space, machines=machines,
        goals=goals_of(["step_time_s,peak_mem_bytes"], known_metrics(Workload.TRAIN)), text="space: it\n",
    )  # fmt: skip
    axes = (
        CategoricalParameter(name=SYSTEM, values=("dgx-h100", "dgx-b200")),
        Range(name=BANDWIDTH, first=2.0, last=10.0, unit="TB/s"),
        CategoricalParameter(name=TOPOLOGY, values=("switch", "ring", "torus")),
    )
    return TrialJob(plans=plans, axes=axes, num_trials=6, sampler="tpe", seed=1, at_once=3)


class Dying:
    """An executor whose process dies behind so many blocks."""

    def __init__(self, num_blocks: int) -> None:
        self.left = num_blocks

    def run(self, job: Job, blocks: Iterable[Block]) -> Iterator[Found]:
        """Yield until it dies."""
        for found in InProcess().run(job, blocks):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            yield found


def run_of(job: TrialJob) -> SearchRun:
    return SearchRun.of(job, "1+a", "it", "", ["step_time_s"], job.words)


def tried(
    job: TrialJob, executor: InProcess | Dying | Resident | None = None, ledger: Ledger | None = None
) -> TrialResults:
    path = None if ledger is None else ledger.path.with_suffix(".optuna")
    signs = [goal.sign for goal in job.goals]
    study = OptunaStudy.open(job.axes, signs, job.sampler, job.seed, path, job.digest)
    return try_machines(job, study, executor or InProcess(), ledger)


@pytest.fixture(scope="module")
def through(job: TrialJob) -> TrialResults:
    return tried(job)


def same(one: TrialResults, other: TrialResults) -> bool:
    a, b = one.searched.best, other.searched.best
    pairs = ((a.top, b.top), (a.front, b.front), (a.cloud, b.cloud))
    equal = all(list(x) == list(y) and all(np.array_equal(x[name], y[name]) for name in x) for x, y in pairs)
    return equal and (one.trials, one.infeasible) == (other.trials, other.infeasible)


def test_the_plan_of_each_machine_is_the_best_of_all_plans_on_it(job: TrialJob, through: TrialResults) -> None:
    top = through.searched.best.top
    assert len(top["trial"]) + sum(through.infeasible.values()) == len(through.trials)
    for at in (0, len(top["trial"]) - 1):
        trial = through.trials[int(top["trial"][at])]
        alone = search(job.on([trial])).best.top
        assert {name: top[name][at] for name in job.plans.metrics} == {n: alone[n][0] for n in job.plans.metrics}
        plans, rows = job.answered(top, [one for one in through.trials if one.values[TOPOLOGY] != "torus"])
        assert plans.plan_of(rows, at) == job.on([trial]).plan_of(alone, 0)
        assert plans.machines[int(rows["system"][at])] == job.machine(trial)


def test_machines_that_cannot_be_are_counted_with_why(through: TrialResults) -> None:
    broken = [trial for trial in through.trials if trial.values[TOPOLOGY] == "torus"]
    assert broken
    assert sum(through.infeasible.values()) == len(broken)
    assert all("a torus needs dims" in why for why in through.infeasible)


def test_a_process_that_keeps_what_is_lowered_finds_the_same_bits(job: TrialJob, through: TrialResults) -> None:
    assert same(tried(job, Resident(Lowerings(GRAPH))), through)


def test_killed_anywhere_it_goes_on_to_the_same_trials_and_rows(
    job: TrialJob, through: TrialResults, tmp_path: Path
) -> None:
    path = tmp_path / "it-1.sqlite"
    with pytest.raises(KeyboardInterrupt, match="0 of 6 blocks are kept"), Ledger.create(path, run_of(job)) as ledger:
        tried(job, Dying(1), ledger)
    for num_blocks in (4, 1):
        with pytest.raises(KeyboardInterrupt, match="--resume"), resumed(path, job, "1+a") as ledger:
            tried(job, Dying(num_blocks), ledger)
    with resumed(path, job, "1+a") as ledger:
        done = tried(job, None, ledger)
    assert same(done, through)
    assert 0 < done.searched.ran.num_kept < 6


def test_a_run_goes_on_longer_and_never_shorter(job: TrialJob, through: TrialResults, tmp_path: Path) -> None:
    path = tmp_path / "it-1.sqlite"
    short = replace(job, num_trials=3)
    with Ledger.create(path, run_of(short)) as ledger:
        tried(short, None, ledger)
    with resumed(path, job, "1+a") as ledger:
        assert same(tried(job, None, ledger), through)
        assert ledger.num_done() == 6
    with pytest.raises(UsageError, match="has 6 trials: resume with as many or more, not 3"):
        resumed(path, short, "1+a")
    with pytest.raises(UsageError, match="another search"):
        resumed(path, replace(job, seed=2), "1+a")


def test_a_machine_that_is_chosen_again_is_neither_searched_nor_shown_again(job: TrialJob) -> None:
    few = replace(job, axes=(job.axes[0],), num_trials=9)
    done = tried(few)
    assert len(done.trials) == 9
    assert len(done.searched.best.top["trial"]) == len({str(trial.values) for trial in done.trials}) == 2
    assert done.searched.tally.num_kept == 9
