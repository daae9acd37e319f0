"""A server of the slide rule: names and bounds, and the same numbers as its command, its Python and its plan file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import slipstick
from slipstick.cli.ui.dragged_server import DraggedServer, read_point
from slipstick.cli.ui.rule import SlideRule
from slipstick.ir.errors import SlipstickError

if TYPE_CHECKING:
    from slipstick.report.results.steps import ServeResult

SERVER: dict[str, object] = {
    "phase": "serve",
    "model": "gpt2",
    "system": "dgx-h100",
    "gpus": 4,
    "tp": 2,
    "pp": 1,
    "ep": 1,
    "engine": "vllm",
    "precision": "none",
    "isl": 256,
    "osl": 64,
    "load": "request rate",
    "rate": 20.5,
    "clients": 16,
    "limits": "p99",
    "ttft_ms": 500.0,
    "tpot_ms": 20.0,
}


@pytest.fixture(scope="module")
def rule() -> SlideRule:
    return SlideRule()


@pytest.mark.parametrize(
    "said",
    [
        {"phase": "else"},
        {"model": "/etc/passwd"},
        {"engine": "/etc/passwd"},
        {"engine": "vllm.yaml"},
        {"precision": "/tmp/x"},
        {"load": "closed:8"},
        {"limits": "p100"},
        {"isl": 0},
        {"isl": "128..1024"},
        {"rate": 0.0},
        {"rate": float("nan")},
        {"rate": True},
        {"ttft_ms": -1.0},
        {"gbs": 8},
        {"set": "server.price=1USD"},
        {"serve": "trace.csv"},
    ],
    ids=str,
)
def test_what_is_no_name_of_the_catalogue_or_no_number_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(SlipstickError):
        read_point({**SERVER, **said})


@pytest.mark.parametrize(
    "moved",
    [
        {},
        {"load": "concurrency", "limits": "mean", "tpot_ms": 0.0},
        {"hbm": 2.0, "price": 0.5, "precision": "fp8"},
        {"engine": "sglang", "clock": 1.5, "ttft_ms": 0.0, "rate": 8.0},
    ],
    ids=str,
)
def test_an_answer_is_that_of_its_python_and_its_plan_file(
    moved: dict[str, object], rule: SlideRule, tmp_path: Path
) -> None:
    asked = read_point({**SERVER, **moved})
    found = rule.answer(asked)
    words: dict[str, object] = {"slipstick": slipstick}
    exec(str(found["python"]).replace("slipstick.serve(", "found = slipstick.serve("), words)
    same: ServeResult = words["found"]  # type: ignore[assignment]
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    assert metrics == {name: same.metrics[name] for name in metrics}
    assert {"ttft_s", "tpot_s", "usd_per_mtok_output"} <= set(metrics)
    plan = tmp_path / "plan.yaml"
    plan.write_text(rule.plan_file(asked), encoding="utf-8")
    again = slipstick.serve("gpt2", "dgx-h100", plan=str(plan))
    assert metrics == {name: again.metrics[name] for name in metrics}


def test_an_answer_is_that_of_its_command(rule: SlideRule, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from slipstick.cli import root

    found = rule.answer(read_point({**SERVER, "outer": 0.5}))
    _, *args = shlex.split(str(found["command"]))
    root.main([*args, "-o", str(tmp_path / "r.json")], standalone_mode=False)
    told = json.loads((tmp_path / "r.json").read_text())["metrics"]
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    assert metrics == {name: told[name] for name in metrics}


def test_curves_pass_through_the_point(rule: SlideRule) -> None:
    # At half the greatest rate, which is a point of the curve.
    curve = rule.answer(read_point(SERVER))["curves"][0]  # type: ignore[index]
    rate = curve["x"][5]
    found = rule.answer(read_point({**SERVER, "rate": rate}))
    metrics, curves = found["metrics"], found["curves"]
    assert isinstance(metrics, dict)
    assert isinstance(curves, list)
    for one, name in zip(curves, ("ttft", "tpot"), strict=False):
        lines = {line["name"]: line["y"][5] for line in one["lines"]}
        assert lines["mean"] == pytest.approx(metrics[f"{name}_s"], rel=1e-4)
        assert lines["p99"] == pytest.approx(metrics[f"{name}_tail_s"], rel=1e-4)
        assert lines["p50"] <= lines["p90"] <= lines["p99"]


def test_the_best_plan_answers_no_less_than_any_that_was_tried_by_hand(rule: SlideRule) -> None:
    asked = read_point(SERVER)
    assert isinstance(asked, DraggedServer)
    while rule.warm(asked):
        pass
    best = rule.answer(asked)["best"]
    assert isinstance(best, dict)
    taken = read_point({**SERVER, **best["take"]})
    assert isinstance(taken, DraggedServer)
    most = {(one.tp, one.pp): rate for one, rate in rule.servers.most.items()}
    # Twelve heads are divided by 1, 2 and 4, four GPUs hold these.
    assert most[taken.tp, taken.pp] == max(most.values()) > 0.0
    for tp in (1, 2, 4):
        within = slipstick.serve(
            "gpt2",
            "dgx-h100",
            gpus=4,
            tp=tp,
            isl=256,
            osl=64,
            request_rate=most[tp, 1] * 0.99,
            ttft="p99:500ms",
            tpot="p99:20ms",
        )
        assert within.metrics["request_goodput_rps"] > 0.0


def test_a_rate_that_no_replica_answers_says_what_does(rule: SlideRule) -> None:
    found = rule.answer(read_point({**SERVER, "rate": 1e5}))
    assert "can be answered" in str(found["error"])
