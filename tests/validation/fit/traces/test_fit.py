"""A stack from a trace: numbers that bring a prediction to what was measured, and what other steps say of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.machine.software.stack import StackConstants
from slipstick.cli import run
from slipstick.ir.errors import UsageError
from slipstick.measured.match.match import Matched, match
from slipstick.measured.match.planned import MatrixProduct, PlannedNode, PlannedStage, PlannedStep
from slipstick.measured.traces.trace import read_trace
from slipstick.validation.fit.traces.fit import ClassTime, PredictedParts, fit_trace
from tests.measured.conftest import Trained, trained

__all__ = ["trained"]
# A product of 10 us and a norm of 2 us whose issue takes 5.
NODES = (PlannedNode("block/%1", "matmul", "matmul", "q", "forward", 1e-5, (MatrixProduct(1, 64, 32, 16),)),
         PlannedNode("block/%2", "norm", "norm", "norm", "forward", 5e-6, kernel_s=2e-6))  # fmt: skip
STEP = PlannedStep(NODES, (PlannedStage(0, ((("block", 0),),)),), 1, 1)
STACK = StackConstants("mine", 0.0, 0.0, 0.0)


def steps_of(path: Path, steps: Sequence[tuple[float, float, float]]) -> Matched:
    """Match steps of a product, a norm and a pause, each of so many microseconds."""
    events: list[dict[str, object]] = []
    at, number = 0.0, 0
    for k, (product, norm, pause) in enumerate(steps):
        begin = at
        for op, lasting in (("aten::mm", product), ("aten::rsqrt", norm)):
            number += 1
            dims = {"Input Dims": [[64, 16], [16, 32]]} if op == "aten::mm" else {}
            for cat, start, dur, args in (
                ("cpu_op", at, 0.9, dims),
                ("cuda_runtime", at + 0.1, 0.5, {"correlation": number}),
                ("kernel", at + 1, lasting, {"correlation": number}),
            ):
                events.append({"ph": "X", "cat": cat, "name": op, "pid": 1, "tid": 1, "ts": start, "dur": dur,
                               "args": args})  # fmt: skip
            at += lasting
        at += pause
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{k}", "pid": 1, "tid": 1,
                       "ts": begin, "dur": at - begin})  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return match(read_trace(path), STEP)


def test_numbers_bring_the_prediction_to_what_was_measured_and_other_steps_judge(tmp_path: Path) -> None:
    # The first and the third step are fitted: 20 us of products, 12 of the norm, 8 of waiting; the others are longer.
    matched = steps_of(tmp_path / "t.json", [(20, 12, 8), (22, 12, 8), (20, 12, 8), (22, 12, 8)])
    fit = fit_trace(matched, PredictedParts(15e-6, 0.0, STACK))
    assert {n.path: n.value for n in fit.numbers} == pytest.approx(
        # The norm's own 2 us become 12, whatever its issue took.
        {"kernel_slowdown.matmul": 2.0, "kernel_slowdown.rowwise": 6.0, "host.micro_batch": 8e-6}, rel=1e-5
    )  # fmt: skip
    assert (fit.fitted, fit.judges) == ([0, 2], [1, 3])
    rows = {row.name: row for row in fit.judged}
    assert rows["step"].before_s == pytest.approx(15e-6)
    assert rows["step"].after_s == pytest.approx(40e-6, rel=1e-5)
    assert rows["step"].error_after == pytest.approx(40 / 42 - 1, rel=1e-4)
    assert rows["products"].error_before == pytest.approx(10 / 22 - 1)
    assert rows["products"].error_after == pytest.approx(20 / 22 - 1, rel=1e-4)
    assert rows["row-wise"].error_after == pytest.approx(0.0, abs=1e-5)
    assert "no such message" in fit.untold["slowdown.tp"]
    assert "host.layer" in fit.untold


def test_a_factor_is_found_beside_what_the_host_lets_kernels_take() -> None:
    # Two kernels of 1 us that are issued in 4, one of 10 us: at twice the time 4 + 4 + 20.
    time = ClassTime(np.array([1e-6, 1e-6, 1e-5]), np.array([4e-6, 4e-6, 0.0]), 28e-6)
    assert time.predicted_s() == pytest.approx(18e-6)
    assert time.factor == pytest.approx(2.0, rel=1e-5)


def test_a_trace_of_another_model_is_refused(tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 5,
               "args": {"Input Dims": [[3, 5], [5, 7]]}}]  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    with pytest.raises(UsageError, match="no kernel is of a node of the prediction"):
        fit_trace(match(read_trace(path), STEP), PredictedParts(15e-6, 0.0, STACK))


@pytest.mark.slow
def test_a_stack_of_this_cpu_predicts_what_was_measured_here(trained: Trained, tmp_path: Path) -> None:
    out, again = tmp_path / "mine.yaml", tmp_path / "again.json"
    words = ["--measured", str(trained.trace), "--predicted", str(trained.report), "-q", "-o", str(out)]
    assert run(["calibrate", *words]) == 0
    words = ["--system", "dgx-h100", "--gpus", "1", "--seq", "64", "--mbs", "2", "--dtype", "fp32", "--no-fuse"]
    assert run(["estimate", str(trained.config), *words, "--stack", str(out), "-q", "-o", str(again)]) == 0
    before, after = (
        json.loads(path.read_text(encoding="utf-8"))["metrics"]["step_time_s"] for path in (trained.report, again)
    )
    steps = [step.time_us * 1e-6 for step in read_trace(trained.trace).steps]
    # An H100 is tens of times as fast as this CPU. The second and fourth step were not fitted; a shared machine's steps
    # differ by some tens of percent.
    measured = float(np.median(steps[1::2]))
    assert before / measured < 0.2
    assert after / measured == pytest.approx(1.0, abs=0.4)
    # It is a stack like others, and may be fitted anew.
    assert run(["show", "stack", str(out)]) == 0
    assert run(["calibrate", "--measured", str(trained.trace), "--predicted", str(again), "--stack", str(out), "-q",
                "-o", str(tmp_path / "twice.yaml")]) == 0  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--measured", "t.json", "-o", "x.yaml"), "needs the prediction"),
        (("--measured", "t.json", "--predicted", "p.json", "-o", "folder"), "a trace makes one stack"),
        (("--measured", "t.json", "--predicted", "p.json", "--joint", "-o", "x.yaml"), "leave out --joint"),
        (("--predicted", "p.json", "-o", "x.yaml"), "give one with --measured"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", *words]) == 2
    assert said in capsys.readouterr().err
