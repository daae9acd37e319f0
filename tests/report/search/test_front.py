"""The front: which plans are on it, how it reads as a table, as JSON, as a picture and as a page."""

import json
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from slipstick.explore.goals import Goal
from slipstick.ir.errors import UnknownNameError, UsageError
from slipstick.report.readable import shown_column
from slipstick.report.search.chart_scale import Scale
from slipstick.report.search.front import Front, sampled
from slipstick.report.search.front_html import front_html
from slipstick.report.search.front_svg import front_svg
from slipstick.report.search.front_table import front_json, front_table

GIB = 2.0**30
TIME, MEMORY, MONEY = Goal("step_time_s"), Goal("peak_mem_bytes"), Goal("usd_per_mtok")
SVG = "{http://www.w3.org/2000/svg}"


def front(*goals: Goal, cloud: int = 0) -> Front:
    """Four plans: c is beaten by b in time and memory and by a in money, d has no time."""
    columns = {
        "step_time_s": np.array([1.0, 2.0, 2.5, np.nan]),
        "peak_mem_bytes": np.array([60.0, 30.0, 40.0, 10.0]) * GIB,
        "usd_per_mtok": np.array([0.4, 0.9, 0.5, 0.1]),
        "tp": np.array([8.0, 4.0, 2.0, 1.0]),
    }
    behind = {"step_time_s": np.linspace(1.5, 4.0, cloud), "peak_mem_bytes": np.linspace(70.0, 35.0, cloud) * GIB}
    labels = ["tp8 <b>&", "tp4", "tp2", "tp1"]
    return Front.of(goals or (TIME, MEMORY), labels, columns, "a <title>", behind if cloud else None, 1000)


def test_a_plan_is_on_the_front_unless_another_beats_it_in_all_goals() -> None:
    assert front().is_best.tolist() == [True, True, False, False]
    assert front(TIME, MEMORY, MONEY).is_best.tolist() == [True, True, True, False]
    assert front(TIME).is_best.tolist() == [True, False, False, False]


def test_more_can_be_better() -> None:
    # Of time and the most memory alone a has all.
    assert front(TIME, Goal("peak_mem_bytes", -1.0)).best.tolist() == [0]


def test_the_best_by_the_first_goal_stands_first_and_nothing_last() -> None:
    assert front(MEMORY).order.tolist() == [3, 1, 2, 0]
    assert front(TIME).order.tolist() == [0, 1, 2, 3]


def test_goals_must_be_columns() -> None:
    with pytest.raises(UnknownNameError, match="unknown goal 'mfu'"):
        front(Goal("mfu"))
    with pytest.raises(UsageError, match="equally long"):
        Front((TIME,), ["a"], {"step_time_s": np.zeros(2)}, np.ones(1, dtype=bool))
    with pytest.raises(UsageError, match="a goal at least"):
        Front((), [], {}, np.ones(0, dtype=bool))


def test_the_table_names_units_and_which_way_is_better() -> None:
    assert front_table(front(), columns=["tp"]).splitlines() == [
        "   step time (less)  memory/GPU (less)  tp  plan",
        "1            1.00 s           60.0 GiB   8  tp8 <b>&",
        "2            2.00 s           30.0 GiB   4  tp4",
        "2 plans of 1,000, Pareto-optimal in step time (less) and memory/GPU (less)",
    ]
    assert front_table(front(), most=1).endswith(", 1 of them here")


def test_json_has_all_rows_in_order_with_si_numbers() -> None:
    found = json.loads(front_json(front(TIME, Goal("tp", -1.0))))
    assert found["schema"] == "slipstick/front/1"
    assert found["goals"][1] == {"name": "tp", "label": "tp", "unit": "", "better": "more"}
    assert [point["plan"] for point in found["points"]] == ["tp8 <b>&", "tp4", "tp2", "tp1"]
    assert (found["points"][0]["peak_mem_bytes"], found["points"][3]["step_time_s"]) == (60 * GIB, None)
    assert (found["num_evaluated"], found["num_pareto"], found["points"][0]["pareto"]) == (1000, 1, True)


def circles(text: str, kind: str) -> list[ET.Element]:
    return [c for c in ET.fromstring(text).iter(f"{SVG}circle") if c.get("class") == kind]


def test_the_picture_has_a_named_point_a_plan_and_a_faint_cloud() -> None:
    text = front_svg(front(cloud=50))
    assert (len(circles(text, "best")), len(circles(text, "other"))) == (2, 1)
    cloud = next(g for g in ET.fromstring(text).iter(f"{SVG}g") if g.get("class") == "cloud")
    told = [t.text or "" for t in ET.fromstring(text).iter(f"{SVG}text")]
    left_out = next(t for t in told if "lie outside" in t)
    # 90 % of 50 by time; memory goes up to all but its most.
    assert len(list(cloud)) + int(left_out.split()[0]) == 50
    assert next(ET.fromstring(text).iter(f"{SVG}title")).text == "tp2\nstep time 2.5 s\nmemory/GPU 40 GiB"


def test_less_lies_left_and_below() -> None:
    a, b = sorted(circles(front_svg(front()), "best"), key=lambda c: float(c.get("cx") or 0))
    # a takes 1 s and 60 GiB, b 2 s and 30 GiB; pixels count from the top.
    assert float(a.get("cy") or 0) < float(b.get("cy") or 0)


def test_a_third_goal_is_a_colour_with_a_key() -> None:
    text = front_svg(front(TIME, MEMORY, MONEY))
    styles = [c.get("style") for c in circles(text, "best")]
    assert {"fill:#440154", "fill:#c8d22a"} <= set(styles)
    assert "cost of 1M tokens" in text


def test_one_goal_is_bars() -> None:
    bars = [r for r in ET.fromstring(front_svg(front(TIME))).iter(f"{SVG}rect") if "bar" in str(r.get("class"))]
    widths = [float(bar.get("width") or 0) for bar in bars]
    # 1 s, 2 s and 2.5 s from zero; the plan without a time has none.
    assert widths == pytest.approx([widths[0], 2 * widths[0], 2.5 * widths[0]], abs=0.2)


def test_goals_that_no_plan_has_are_said() -> None:
    empty = Front.of([TIME, MEMORY], ["a"], {"step_time_s": np.array([np.nan]), "peak_mem_bytes": np.array([1.0])})
    assert "no plan has all goals" in front_svg(empty)


def test_the_page_needs_nothing_and_shows_text_as_text() -> None:
    page = front_html(front(cloud=5), ["tp"], ["a note & more"])
    assert "a &lt;title&gt;" in page
    assert "tp8 &lt;b&gt;&amp;" in page
    assert "a note &amp; more" in page
    outside = ("src=", "href=", "url(", "@import", "fetch(")
    assert not [word for word in outside if word in page]
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    # A row of the table and a point of the picture for each plan of the front.
    assert page.count('data-row="0"') == page.count('data-row="1"') == 2


def test_the_same_front_is_the_same_page() -> None:
    assert front_html(front(cloud=9)) == front_html(front(cloud=9))


def test_a_sample_is_some_of_the_rows_and_always_the_same() -> None:
    columns = {"a": np.arange(1000.0), "b": -np.arange(1000.0)}
    found = sampled(columns, 10, seed=3)
    assert len(found["a"]) == 10
    assert (found["a"] == -found["b"]).all()
    assert (found["a"] == sampled(columns, 10, seed=3)["a"]).all()
    assert sampled(columns, 1000) is columns


@pytest.mark.parametrize(
    ("scale", "texts"),
    [
        (Scale(0.0, 1.0, 0, 1, "1"), ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]),
        (Scale(0.011, 0.019, 0, 1, "s"), ["12 ms", "14 ms", "16 ms", "18 ms"]),
        (Scale(0.0, 2.2 * 86400, 0, 1, "s"), ["0 s", "12 h", "24 h", "36 h", "2 days"]),
        (Scale(1.0, 1.001, 0, 1, ""), ["1", "1.0002", "1.0004", "1.0006", "1.0008", "1.001"]),
        (Scale(0.02, 300.0, 0, 1, "USD", True), ["$0.10", "$1.00", "$10.00", "$100.00"]),
    ],
)
def test_ticks_are_round_in_their_unit_and_tell_each_other_apart(scale: Scale, texts: list[str]) -> None:
    assert [text for _, text in scale.ticks()] == texts


def test_a_scale_of_one_value_has_room() -> None:
    scale = Scale.of([2.0, 2.0], 0.0, 100.0, "s")
    assert scale.at(2.0) == pytest.approx(50.0)


def test_columns_have_digits_enough() -> None:
    assert shown_column([7200.0, 5400.0], "s") == ["2.00 h", "1.50 h"]
    assert shown_column([0.4471, 0.4472, math.inf], "USD") == ["$0.4471", "$0.4472", "-"]
    assert shown_column([0.31, 0.312], "1") == ["31.0 %", "31.2 %"]
    assert shown_column([], "s") == []
