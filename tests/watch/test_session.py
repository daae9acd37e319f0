"""A loop that is watched: its own module, sizes and types are predicted, and nothing of it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest
import torch
from torch import nn

import slipstick
from slipstick.driver.estimate import estimate
from slipstick.ir.plan import PlanWords, plan_of
from slipstick.ir.types import DType
from slipstick.watch.clock import StepClock
from slipstick.watch.observed import ObservedRun
from slipstick.watch.reading import WatchedStep
from slipstick.watch.session import RunWatch

from .nets_watched import Bigram, loss_of


def run(
    net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, each: Callable[[nn.Module], torch.Tensor] = loss_of,
    passes: int = 1,
) -> None:  # fmt: skip
    for _ in range(steps):
        for _ in range(passes):
            each(net).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


def watched(net: nn.Module, system: str = "xeon-server", every: int = 2) -> tuple[RunWatch, list[str]]:
    said: list[str] = []
    return slipstick.watch(net, system, every=every, say=said.append), said


def test_the_prediction_is_that_of_the_module_with_the_sizes_of_the_loop() -> None:
    net = Bigram()
    found, said = watched(net)
    with found:
        run(net, torch.optim.AdamW(net.parameters()), 5, passes=3)
    machine = slipstick.load_system("xeon-server")
    words = PlanWords(num_gpus=1, micro_batch=4, global_batch=12, seq_len=8)
    ids = torch.zeros(4, 8, dtype=torch.int64)
    alone = estimate(slipstick.trace(net, ids), machine, plan_of(words, machine.stack))
    assert found.prediction is not None
    assert found.latest is not None
    assert found.prediction.answer.plan == alone.plan
    assert found.prediction.step_s == alone.metrics["step_time_s"]
    held = sum(alone.memory_bytes.values()) - alone.memory_bytes["reserved"]
    assert found.prediction.allocated_bytes == pytest.approx(held, rel=1e-12)
    # Steps 2 and 3, then 4 and 5; the first is recorded and not timed.
    assert [line.split(":")[0] for line in said if line.startswith("step")] == ["step 3", "step 5"]
    assert said[0].startswith("predicted Bigram train in fp32; machine 1 x Xeon-8480+")
    assert found.num_steps == 5
    assert found.latest.allocated_bytes is None


def test_a_watched_loop_draws_the_same_numbers_and_is_left_as_it_was() -> None:
    def losses(watch: bool) -> Sequence[float]:
        torch.manual_seed(0)
        net = Bigram()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if not watch:
            run(net, optimizer, 3)
        else:
            with watched(net)[0]:
                run(net, optimizer, 3)
            assert not net._forward_pre_hooks
        return [float(p.detach().sum()) for p in net.parameters()]

    assert losses(True) == losses(False)


def test_passes_that_do_not_train_are_no_part_of_a_step() -> None:
    net = Bigram()
    found, _ = watched(net)
    with found:
        with torch.no_grad():
            loss_of(net, batch=32)
        net.eval()
        loss_of(net, batch=32)
        net.train()
        run(net, torch.optim.SGD(net.parameters()), 1)
    assert found.prediction is not None
    assert (found.prediction.answer.plan.micro_batch, found.prediction.answer.plan.global_batch) == (4, 4)


def test_only_optimizers_of_the_model_make_steps() -> None:
    net, other = Bigram(), Bigram()
    found, said = watched(net)
    with found:
        run(other, torch.optim.SGD(other.parameters()), 3)
    assert found.num_steps == 0
    assert said == ["no optimizer step was seen: call step() behind each, or look where the optimizer is"]


def test_autocast_is_the_type_of_the_graph() -> None:
    net = Bigram()
    found, _ = watched(net)

    def cast_loss(module: nn.Module) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(module)

    with found:
        run(net, torch.optim.AdamW(net.parameters()), 1, cast_loss)
    assert found.prediction is not None
    assert found.prediction.answer.table.lowered.source.dtype is DType.BF16
    assert found.prediction.answer.plan.main_params_dtype == "fp32"


def test_states_of_parameters_in_16_bits_are_those_of_pytorch() -> None:
    net = Bigram().bfloat16()
    optimizer = torch.optim.AdamW(net.parameters())
    run(net, optimizer, 1)
    shown = ObservedRun.of(net)
    shown.stepped(net, optimizer)
    assert shown.words == {
        "num_gpus": 1, "main_params_dtype": "none", "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16",
        "grad_dtype": "bf16",
    }  # fmt: skip


def test_what_is_said_of_the_plan_overrides_what_the_run_shows() -> None:
    net = Bigram()
    said: list[str] = []
    with slipstick.watch(net, "dgx-h100", PlanWords(num_gpus=8, tp=2, zero=1), say=said.append) as found:
        run(net, torch.optim.AdamW(net.parameters()), 1)
    assert found.prediction is not None, said
    plan = found.prediction.answer.plan
    assert (plan.num_gpus, plan.tp, plan.dp, plan.zero, plan.micro_batch, plan.global_batch) == (8, 2, 4, 1, 4, 16)


def test_a_run_far_from_its_prediction_says_why_once() -> None:
    net = Bigram()
    found, said = watched(net, "dgx-h100", every=1)
    with found:
        run(net, torch.optim.AdamW(net.parameters()), 4)
    causes = [line for line in said if line.startswith("  likely")]
    assert causes[0] == "  likely: the run is on a CPU and the prediction for H100-SXM5-80GB"
    assert causes.count(causes[0]) == 1


def test_batches_of_other_sizes_are_named() -> None:
    net = Bigram()
    found, said = watched(net, every=3)
    with found:
        optimizer = torch.optim.SGD(net.parameters())
        run(net, optimizer, 2)
        run(net, optimizer, 2, lambda module: loss_of(module, seq=16))
    assert any("batches vary in size" in line for line in said)


def test_a_model_that_cannot_be_recorded_trains_on() -> None:
    class Data(Bigram):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            out = super().forward(ids)
            return out * 2 if float(out.detach().sum()) > 0 else out

    net = Data()
    found, said = watched(net)
    with found:
        run(net, torch.optim.SGD(net.parameters()), 3)
    assert found.prediction is None
    assert found.num_steps == 3
    assert said[0].startswith("no prediction: ")
    assert found.latest is not None
    assert found.latest.ratio is None
    assert found.latest.step_s > 0


def test_a_compiled_model_is_the_model() -> None:
    net = Bigram()
    compiled = cast(nn.Module, torch.compile(net, backend="eager"))
    found, said = watched(compiled)
    with found:
        run(compiled, torch.optim.SGD(net.parameters()), 2)
    assert found.prediction is not None, said
    assert found.prediction.answer.table.lowered.source.num_parameters == sum(p.numel() for p in net.parameters())


def test_numbers_follow_from_times() -> None:
    net = Bigram()
    found, _ = watched(net)
    with found:
        run(net, torch.optim.SGD(net.parameters()), 1)
    p = found.prediction
    assert p is not None
    assert p.mfu is not None
    twice = WatchedStep(7, 3, 2 * p.step_s, p, 3 * p.allocated_bytes)
    assert (twice.ratio, twice.memory_ratio) == (2.0, 3.0)
    assert twice.mfu == pytest.approx(p.mfu / 2)
    assert set(twice.numbers()) == {
        f"slipstick/{name}"
        for name in (
            "step_s", "predicted_step_s", "ratio", "mfu", "predicted_mfu", "max_memory_allocated", "predicted_memory",
        )
    }  # fmt: skip


def test_a_clock_has_medians_of_what_lies_between_ends_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("slipstick.watch.clock.time.perf_counter", lambda: now)
    clock = StepClock(on_cuda=False)
    clock.restart()
    for wait_s, step_s in ((1.0, 4.0), (2.0, 5.0), (3.0, 9.0)):
        start = now
        now = start + wait_s
        clock.starts()
        now = start + wait_s + 0.5
        clock.starts()  # a second micro-batch ends no wait
        now = start + step_s
        clock.stepped()
    assert clock.taken() == (5.0, 2.0, 3)
    assert clock.taken() == (0.0, 0.0, 0)
