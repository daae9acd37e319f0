"""Training runs by hand, against what was published of one, and what is refused."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstick.backends.machine.chip import HostLink, HostMemory
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.cost.run.goodput import shares
from slipstick.cost.run.training_run import (
    Amount,
    Checkpoints,
    Failures,
    RunEstimate,
    TrainingJob,
    TrainingRun,
    Unit,
    checkpoint_bytes,
)
from slipstick.driver.estimate import Estimate, estimate, train
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, make_plan

Traced = Callable[[str], Graph]
HOUR = 3600.0
# Two nodes of eight; a step is 2 s of 4 sequences of 1000 tokens; 160 GB of states.
JOB = TrainingJob(
    step_time_s=2.0, samples=4, tokens=4000, num_gpus=16, num_nodes=2, state_bytes=160e9, copy_bytes_per_s=10e9
)  # fmt: skip


@pytest.mark.parametrize(
    ("amount", "unit", "steps"), [(4000, "tokens", 1), (4001, "tokens", 2), (40, "samples", 10), (7, "steps", 7)]
)
def test_a_run_has_as_many_steps_as_its_length_needs(amount: float, unit: Amount, steps: int) -> None:
    metrics = TrainingRun(amount=amount, unit=unit).over(JOB).metrics
    assert metrics["num_steps"] == steps
    assert metrics["train_time_s"] == metrics["productive_time_s"] == 2.0 * steps
    assert metrics["gpu_hours"] == pytest.approx(2.0 * steps * 16 / 3600, rel=1e-12)
    assert "train_goodput" not in metrics


def test_blocking_checkpoints_by_hand() -> None:
    # 160 GB over min(2 nodes x 2 GB/s, 8 GB/s) are 40 s, beside 500 steps of 2 s.
    saved = Checkpoints(every_steps=500, node_bytes_per_s=2e9, bytes_per_s=8e9)
    found = TrainingRun(amount=1000, unit="steps", checkpoints=saved).over(JOB)
    assert found.saving is not None
    assert (found.saving.stall_s, found.saving.write_s, found.saving.late_s) == (40.0, 40.0, 0.0)
    assert found.metrics["train_goodput"] == pytest.approx(1000 / 1040, rel=1e-12)
    assert found.metrics["train_time_s"] == pytest.approx(2000 * 1.04, rel=1e-12)
    assert found.metrics["effective_tokens_per_s"] == pytest.approx(2000 / 1.04, rel=1e-12)


def test_the_storage_may_be_the_narrower_one() -> None:
    saved = Checkpoints(every_s=1001.0, node_bytes_per_s=2e9, bytes_per_s=1e9)
    found = TrainingRun(checkpoints=saved).over(JOB)
    assert found.saving is not None
    assert found.saving.write_s == 160.0
    # To the nearest step of 2 s.
    assert found.saving.every_steps in (500, 501)
    assert "train_time_s" not in found.metrics


def test_asynchronous_checkpoints_wait_for_the_copy_alone() -> None:
    # A GPU copies 160 GB / 16 = 10 GB at 10 GB/s; both nodes write 160 GB at 4 GB/s, of which 39 s beside the steps.
    saved = Checkpoints(every_steps=500, node_bytes_per_s=2e9, asynchronous=True)
    found = TrainingRun(checkpoints=saved, failures=Failures(mtbf_s=10 * HOUR, of="job", restart_s=300.0)).over(JOB)
    assert found.saving is not None
    assert (found.saving.stall_s, found.saving.write_s, found.saving.late_s) == (1.0, 40.0, 39.0)
    assert found.shares == shares(1000.0, 1.0, 10 * HOUR, 300.0, 39.0)


def test_a_link_slower_than_the_storage_sets_the_pace() -> None:
    slow = replace(JOB, copy_bytes_per_s=0.1e9)
    found = TrainingRun(checkpoints=Checkpoints(every_steps=500, bytes_per_s=1e12)).over(slow)
    assert found.saving is not None
    assert found.saving.stall_s == 100.0


def test_the_size_of_a_checkpoint_may_be_given() -> None:
    found = TrainingRun(checkpoints=Checkpoints(every_steps=500, bytes_per_s=1e9, num_bytes=30e9)).over(JOB)
    assert found.metrics["checkpoint_stall_s"] == 30.0


def test_a_measured_stall_takes_the_place_of_the_write_or_the_copy() -> None:
    blocking = TrainingRun(checkpoints=Checkpoints(every_steps=500, stall_s=25.0)).over(JOB)
    assert blocking.metrics["train_goodput"] == pytest.approx(1000 / 1025, rel=1e-12)
    saved = Checkpoints(every_steps=500, stall_s=25.0, node_bytes_per_s=2e9, asynchronous=True)
    found = TrainingRun(checkpoints=saved).over(replace(JOB, copy_bytes_per_s=None))
    assert found.saving is not None
    # Written after 40 s, of which the run waits for 25 s.
    assert (found.saving.stall_s, found.saving.write_s, found.saving.late_s) == (25.0, 40.0, 15.0)
    with pytest.raises(UsageError, match="need the bandwidth of their storage"):
        Checkpoints(every_steps=500, stall_s=25.0, asynchronous=True)


def test_the_best_number_of_steps_beats_every_other() -> None:
    failing = Failures(mtbf_s=3 * HOUR, of="job", restart_s=300.0)
    auto = Checkpoints(bytes_per_s=8e9)
    best = TrainingRun(checkpoints=auto, failures=failing).over(JOB)
    assert best.saving is not None
    assert best.saving.chosen
    # Young: sqrt(2 x 20 s x 10800 s) = 657 s, 20 s less to the next order, in steps of 2 s.
    assert best.saving.every_steps == pytest.approx((657 - 13) / 2, abs=2)
    for num in range(best.saving.every_steps - 5, best.saving.every_steps + 6):
        other = TrainingRun(checkpoints=replace(auto, every_steps=num), failures=failing).over(JOB)
        assert other.metrics["train_goodput"] <= best.metrics["train_goodput"]


def test_the_best_interval_leaves_time_to_write() -> None:
    # The best would be shorter than the 400 s that writing takes: 400 s less 1 s of copying, in steps of 2 s.
    saved = Checkpoints(bytes_per_s=0.4e9, asynchronous=True)
    found = TrainingRun(checkpoints=saved, failures=Failures(mtbf_s=1800.0, of="job")).over(JOB)
    assert found.saving is not None
    assert found.saving.every_steps == 200


@pytest.mark.parametrize(("of", "mtbf_h"), [("job", 100.0), ("node", 50.0), ("gpu", 100.0 / 16)])
def test_a_job_fails_as_often_as_its_parts_together(of: Unit, mtbf_h: float) -> None:
    assert Failures(mtbf_s=100 * HOUR, of=of).of_job_s(16, 2) == mtbf_h * HOUR


def llama3(gpu_mtbf_s: float) -> RunEstimate:
    """Llama 3.1 405B as published: 400 TFLOP/s a GPU on 16384 GPUs, 16M tokens a step, 3.8e25 FLOPs in all."""
    tokens = 16 * 2**20
    flops = 3.8e25 / 15.6e12 * tokens
    job = TrainingJob(
        step_time_s=flops / (400e12 * 16_384), samples=2048, tokens=tokens, num_gpus=16_384, num_nodes=2048,
        state_bytes=14 * 405.9e9, copy_bytes_per_s=50e9,
    )  # fmt: skip
    saved = Checkpoints(bytes_per_s=2e12, asynchronous=True)
    failing = Failures(mtbf_s=gpu_mtbf_s, restart_s=600.0)
    return TrainingRun(amount=15.6e12, checkpoints=saved, failures=failing).over(job)


def test_llama_3_fails_and_gets_on_as_published() -> None:
    # arXiv 2407.21783, section 3.3.4: 419 unexpected interruptions in 54 days; more than 90 % effective training time.
    found = llama3(54 * 24 * HOUR * 16_384 / 419)
    assert found.metrics["job_mtbf_s"] / HOUR == pytest.approx(3.09, abs=0.01)
    assert found.metrics["num_failures"] == pytest.approx(419 * found.metrics["train_time_s"] / (54 * 86400), rel=1e-9)
    assert 0.90 < found.metrics["train_goodput"] < 0.97
    # The model card has 30.84 million GPU-hours; that is all of training, long contexts and annealing too.
    assert found.metrics["gpu_hours"] == pytest.approx(30.84e6, rel=0.12)


@pytest.fixture
def answer(traced: Traced) -> Estimate:
    plan = make_plan(num_gpus=16, tp=2, seq_len=64, global_batch=32, family=Family(sp=True, zero=1))
    return estimate(traced("tiny-llama.train"), load_system("dgx-h100"), plan)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2"])
def test_a_checkpoint_is_weights_and_optimizer_states(traced: Traced, name: str) -> None:
    # Two bytes of weight, fp32 master and two moments; a tied table once.
    graph = traced(f"{name}.train")
    assert checkpoint_bytes(graph) == 14 * int(str(graph.num_parameters))


def test_a_run_follows_from_an_estimate(answer: Estimate) -> None:
    found = train(answer, TrainingRun(amount=2048e3, checkpoints=Checkpoints(every_steps=10, node_bytes_per_s=1e9)))
    assert found.run is not None
    assert found.metrics == answer.metrics
    # 32 x 64 tokens a step; 14 x 82240 B by two nodes of 1 GB/s.
    assert found.run.metrics["num_steps"] == 1000
    assert found.run.metrics["checkpoint_stall_s"] == pytest.approx(14 * 82240 / 2e9, rel=1e-12)
    # Through the link of an H100: 64 GB/s, of which copies reach a part.
    link = answer.table.system.chip.host_link
    assert link is not None
    asynchronous = Checkpoints(every_steps=10**6, node_bytes_per_s=1e6, asynchronous=True)
    saving = train(answer, TrainingRun(checkpoints=asynchronous)).run
    assert saving is not None
    copied_s = 14 * 82240 / 16 / (link.bytes_per_s * link.efficiency)
    assert saving.metrics["checkpoint_stall_s"] == pytest.approx(copied_s, rel=1e-12)


def test_a_copy_that_does_not_fit_the_host_is_noted(answer: Estimate) -> None:
    def on(system: System) -> Estimate:
        table = replace(answer.table, system=system)
        saved = Checkpoints(every_steps=1000, bytes_per_s=1e9, asynchronous=True)
        return train(replace(answer, table=table), TrainingRun(checkpoints=saved))

    system = answer.table.system
    assert on(system).warnings == answer.warnings
    small = replace(system, host=HostMemory(1000.0, 1e9, 1.0))
    assert any("its host, which keeps a copy of it, has 1000 B" in w for w in on(small).warnings)


def test_only_training_is_a_run(traced: Traced) -> None:
    family = Family(workload=traced("tiny-llama.decode").workload)
    plan = make_plan(num_gpus=1, seq_len=64, kv_len=64, family=family)
    decoded = estimate(traced("tiny-llama.decode"), load_system("dgx-h100"), plan)
    with pytest.raises(UsageError, match="made of training steps, and this is one of decode"):
        train(decoded, TrainingRun(amount=1e9))


def test_a_run_that_gets_nowhere_is_refused() -> None:
    run = TrainingRun(checkpoints=Checkpoints(bytes_per_s=1e9), failures=Failures(mtbf_s=1.0, of="job"))
    with pytest.raises(UsageError, match="fails every 1 s, restarts in 10 min and makes no progress"):
        run.over(JOB)


def test_a_checkpoint_that_is_due_before_the_last_is_written_is_refused() -> None:
    saved = Checkpoints(every_steps=100, bytes_per_s=0.4e9, asynchronous=True)
    with pytest.raises(UsageError, match=r"149 GiB take 6\.67 min; every 200 steps or more"):
        TrainingRun(checkpoints=saved).over(JOB)


def test_a_copy_needs_a_link() -> None:
    run = TrainingRun(checkpoints=Checkpoints(every_steps=1000, bytes_per_s=1e9, asynchronous=True))
    with pytest.raises(UsageError, match=r"add chip\.host_link"):
        run.over(replace(JOB, copy_bytes_per_s=None))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_numbers_that_are_none_are_refused(bad: float) -> None:
    for asked in (
        lambda: Checkpoints(every_s=bad, bytes_per_s=1e9),
        lambda: Checkpoints(bytes_per_s=bad),
        lambda: Checkpoints(node_bytes_per_s=bad),
        lambda: Checkpoints(bytes_per_s=1e9, num_bytes=bad),
        lambda: TrainingRun(amount=bad),
        lambda: Failures(mtbf_s=1.0, restart_s=bad if bad else -1.0),
    ):
        with pytest.raises(UsageError):
            asked()


def test_a_job_copies_through_its_host_link_where_it_has_one(traced: Traced) -> None:
    system = load_system("dgx-h100")
    plan = make_plan(num_gpus=16, tp=2, seq_len=64, global_batch=32, family=Family())
    bare = replace(system, chip=replace(system.chip, host_link=None))
    linked = replace(system, chip=replace(system.chip, host_link=HostLink(20e9, 0.5, 1e-5)))
    jobs = [TrainingJob.of(traced("tiny-llama.train"), one, plan, 1.0) for one in (bare, linked)]
    assert [job.copy_bytes_per_s for job in jobs] == [None, 20e9 * 0.5]
