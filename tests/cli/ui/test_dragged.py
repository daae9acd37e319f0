"""The slide rule takes names of the catalogue and numbers within bounds, and says the same as the command line."""

from __future__ import annotations

import shlex
from ast import literal_eval
from typing import TYPE_CHECKING

import pytest

import slipstick
from slipstick.cli.ui.dragged import Dragged
from slipstick.cli.ui.dragged_server import choices
from slipstick.cli.ui.rule import SlideRule
from slipstick.ir.errors import SlipstickError, UsageError

if TYPE_CHECKING:
    from slipstick.report.results.steps import StepResult

START: dict[str, object] = {
    "model": "gpt2",
    "system": "dgx-h100",
    "gpus": 8,
    "tp": 2,
    "pp": 1,
    "cp": 1,
    "ep": 1,
    "mbs": 1,
    "gbs": 64,
    "seq": 512,
    "zero": "1",
    "recompute": "none",
}


@pytest.mark.parametrize(
    "said",
    [
        {"model": "/etc/passwd"},
        {"model": "../../x.json"},
        {"model": "os:system"},
        {"model": "m.py:make"},
        {"system": "dgx-h100.yaml"},
        {"system": "/tmp/x.yaml"},
        {"gpus": 0},
        {"gpus": "8"},
        {"gpus": True},
        {"tp": 2.0},
        {"seq": 1 << 40},
        {"hbm": 0.0},
        {"hbm": float("nan")},
        {"clock": "2"},
        {"zero": "4"},
        {"recompute": "all"},
        {"plan": "x.yaml"},
        {"set": "server.price=1USD"},
        {"model": None},
        {"model": ["gpt2"]},
    ],
    ids=str,
)
def test_what_is_no_name_of_the_catalogue_or_no_number_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(SlipstickError):
        Dragged.read({**START, **said})


@pytest.mark.parametrize("said", [None, [], "gpt2", 3])
def test_what_is_no_point_is_refused(said: object) -> None:
    with pytest.raises(UsageError, match="an object"):
        Dragged.read(said)


@pytest.mark.parametrize(
    "moved", [{}, {"hbm": 2.0, "outer": 0.5}, {"clock": 1.25, "price": 0.5}, {"inner": 0.25, "capacity": 3.0}], ids=str
)
def test_an_answer_is_that_of_its_command_and_of_its_python(moved: dict[str, object]) -> None:
    found = SlideRule().answer(Dragged.read({**START, **moved}))
    words: dict[str, object] = {"slipstick": slipstick}
    exec(str(found["python"]).replace("slipstick.estimate(", "found = slipstick.estimate("), words)
    same: StepResult = words["found"]  # type: ignore[assignment]
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    assert metrics == {name: same.metrics[name] for name in metrics}
    assert {"step_time_s", "usd_per_mtok"} <= set(metrics)
    # The flags of the command are the words of the call.
    flags = shlex.split(str(found["command"]))[2:]
    _, _, said = str(found["python"]).partition("set=")
    assert [text for text in flags if "=" in text] == [
        f"{k}={v}" for k, v in literal_eval(said.rstrip(")") or "{}").items()
    ]


def test_curves_pass_through_the_point() -> None:
    found = SlideRule().answer(Dragged.read({**START, "hbm": 1.5}))
    metrics, curves = found["metrics"], found["curves"]
    assert isinstance(metrics, dict)
    assert isinstance(curves, list)
    over = ["GPUs", "HBM bandwidth", "bandwidth between nodes", "clock"]
    assert [one["label"] for one in curves] == [f"step time over {name}" for name in over]
    for one in curves:
        at = min(range(len(one["x"])), key=lambda k: abs(one["x"][k] - one["here"]))
        assert one["lines"][0]["y"][at] == pytest.approx(metrics["step_time_s"], rel=1e-12)


def test_the_best_plan_is_no_worse_than_any_that_was_tried_by_hand() -> None:
    rule, asked = SlideRule(), Dragged.read(START)
    left = [rule.warm(asked) for _ in range(8)]
    assert left[-1] == 0
    best = rule.answer(asked)["best"]
    assert isinstance(best, dict)
    words = {k: v for k, v in START.items() if k not in ("model", "system", "tp", "pp", "mbs", "zero")}
    for tp, pp, mbs in ((1, 1, 1), (2, 1, 1), (1, 1, 8), (2, 2, 2), (1, 4, 1)):
        degrees = {"tp": tp, "pp": pp, "mbs": mbs, "zero": 1, "stack": asked.stack}
        one = slipstick.estimate("gpt2", "dgx-h100", **degrees, **words)  # type: ignore[arg-type]
        assert best["step_time_s"] <= one.metrics["step_time_s"] * (1 + 1e-12)


def test_a_plan_that_is_not_legal_says_why_and_still_has_a_best_one() -> None:
    rule, asked = SlideRule(), Dragged.read({**START, "tp": 8})
    rule.warm(asked)
    found = rule.answer(asked)
    assert "tp=8 does not divide the 12 heads" in str(found["error"])
    assert found["best"] is not None


def test_each_system_says_what_its_sliders_move() -> None:
    systems = choices()["systems"]
    assert isinstance(systems, dict)
    assert systems["dgx-h100"]["numbers"]["price"] == {"value": 310000.0, "unit": "USD"}
    assert systems["dgx-h100"]["numbers"]["hbm"] == {"value": 3.35e12, "unit": "B/s"}


def test_what_a_price_does_not_change_is_kept_and_is_what_would_be_worked_out_anew() -> None:
    rule, kept = SlideRule(), ("curves", "best", "warming")
    rule.warm(Dragged.read(START))
    first = rule.answer(Dragged.read(START))
    dearer = rule.answer(Dragged.read({**START, "price": 2.0}))
    assert {name: first[name] for name in kept} == {name: dearer[name] for name in kept}
    assert first["metrics"] != dearer["metrics"]
    for moved in ({"hbm": 2.0}, {"tp": 1}, {"gpus": 16}, {"clock": 0.5}):
        here = Dragged.read({**START, **moved})
        anew = SlideRule()
        anew.lowered = dict(rule.lowered)
        assert rule.answer(here) == anew.answer(here)
