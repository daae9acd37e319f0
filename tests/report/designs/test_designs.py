"""Rankings of made-up designs, by hand: what is legal, what is best, what people and programs read of it."""

import json

import numpy as np
import pytest

from slipstick.explore.designs.designs import Designs
from slipstick.explore.designs.space import DesignForm
from slipstick.ir.errors import InfeasibleError, UnknownNameError, UsageError
from slipstick.report.designs.designs import Ranking, design_goals, designs_json, designs_rows, goals_text
from slipstick.report.designs.designs_table import designs_table

NAN = float("nan")


def designs(form: DesignForm, reason: list[float], unpriced: tuple[str, ...] = (), **columns: list[float]) -> Designs:
    return Designs(form, {k: np.array(v) for k, v in columns.items()}, np.array(reason), unpriced)


def untimed() -> list[Designs]:
    """Three dies of N5, of which one is too large, and two chiplets of N3."""
    return [
        designs(DesignForm(node="N5"), [0.0, 0.0, 102.0], die_mm2=[400.0, 600.0, 900.0], package_w=[700.0] * 3,
                num_stacks=[4.0, 6.0, 9.0], d2d_bytes_per_s=[0.0] * 3, usd_per_gpu_hour=[1.0, 2.0, NAN],
                fp16_flop_per_s=[1e15, 1.5e15, NAN], package_yield=[0.9, 0.8, NAN]),
        designs(DesignForm(node="N3", num_dies=2, d2d="ucie-advanced", join="ring"), [0.0], ("switches: no price",),
                die_mm2=[400.0], package_w=[700.0], num_stacks=[4.0], d2d_bytes_per_s=[1e12],
                usd_per_gpu_hour=[1.5], fp16_flop_per_s=[0.9e15], package_yield=[0.7]),
    ]  # fmt: skip


def timed(*fits: float) -> list[Designs]:
    return [
        designs(DesignForm(node="N5"), [0.0, 0.0], die_mm2=[400.0, 600.0], package_w=[700.0] * 2, num_stacks=[4.0] * 2,
                d2d_bytes_per_s=[0.0] * 2, step_time_s=[2.0, 1.0], usd_per_step=[3.0, 4.0], fits=list(fits),
                peak_mem_bytes=[2.0**34, 2.0**34], hbm_bytes=[2.0**33, 2.0**35]),
    ]  # fmt: skip


GOALS = design_goals("usd_per_gpu_hour,+fp16_flop_per_s", False)


def test_designs_are_ranked_by_the_first_goal() -> None:
    ranking = Ranking.of(untimed(), GOALS)
    assert ranking.order.tolist() == [0, 3, 1]
    # The chiplets cost more than the small die and do less; the large one does most.
    assert ranking.best.tolist() == [True, True, False, False]
    assert ranking.chosen(True, None).tolist() == [0, 1]
    assert ranking.chosen(False, 2).tolist() == [0, 3]
    assert Ranking.of(untimed(), design_goals("+fp16_flop_per_s", False)).order.tolist() == [1, 0, 3]


def test_of_equals_the_next_goal_decides() -> None:
    found = Ranking.of(untimed(), design_goals("package_w,+package_yield", False))
    assert found.order.tolist() == [0, 1, 3]


def test_goals_are_read_and_printed() -> None:
    assert goals_text(design_goals(" usd_per_gpu , + mfu", True)) == "usd_per_gpu,+mfu"
    assert [goal.name for goal in design_goals(None, True)] == ["usd_per_step", "step_time_s"]
    assert [goal.sign for goal in design_goals(None, False)] == [-1.0, -1.0]
    for text in ("", ",", "+", "mfu,mfu", "mfu,+mfu"):
        with pytest.raises(UsageError, match="one column or more, each once"):
            design_goals(text, True)


def test_a_goal_that_is_no_column_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown objective 'usd_per_gpuhour'; did you mean 'usd_per_gpu_hour'"):
        Ranking.of(untimed(), design_goals("usd_per_gpuhour", False))


def test_nothing_built_and_nothing_that_holds_the_plan_are_errors() -> None:
    with pytest.raises(UsageError, match="none of 1 designs can be built"):
        Ranking.of([designs(DesignForm(node="N5"), [102.0], die_mm2=[900.0])], GOALS)
    with pytest.raises(InfeasibleError, match=r"none of 2 designs has the memory .* 16 GiB .* the largest has 32 GiB"):
        Ranking.of(timed(0.0, 0.0), design_goals(None, True))


def test_a_design_without_the_memory_is_not_shown() -> None:
    ranking = Ranking.of(timed(0.0, 1.0), design_goals(None, True))
    assert ranking.order.tolist() == [1]
    assert ranking.best.tolist() == [False, True]
    assert "too little memory for the plan: 1" in designs_table(ranking, ranking.order)


def test_people_see_what_differs_and_why_others_are_missing() -> None:
    ranking = Ranking.of(untimed(), GOALS)
    assert designs_table(ranking, ranking.order).splitlines() == [
        "   node  dies  D2D            join  die      stacks  D2D bandwidth  fp16         yield  $/GPU-h",
        "*  N5    1     -              line  400 mm2  4       -              1 PFLOP/s    90.0%  $1.00",
        "   N3    2     ucie-advanced  ring  400 mm2  4       1 TB/s         900 TFLOP/s  70.0%  $1.50",
        "*  N5    1     -              line  600 mm2  6       -              1.5 PFLOP/s  80.0%  $2.00",
        "3 of 4 designs; * the 2 Pareto-optimal in usd_per_gpu_hour,+fp16_flop_per_s",
        "cannot be built: die beyond the field of lithography 1",
        "every sum is at least so much, without switches",
        "not priced: switches: no price",
        "where an interface joins dies, each die is a GPU",
    ]


def test_a_goal_has_a_column_whatever_it_is() -> None:
    ranking = Ranking.of(untimed(), design_goals("package_w", False))
    assert "power" in designs_table(ranking, ranking.order).splitlines()[0]


def test_programs_read_every_column() -> None:
    ranking = Ranking.of(untimed(), GOALS)
    rows = designs_rows(ranking, ranking.chosen(False, None))
    assert [(row["node"], row["num_dies"], row["die_mm2"], row["pareto"]) for row in rows] == [
        ("N5", 1, 400.0, True), ("N3", 2, 400.0, False), ("N5", 1, 600.0, True),
    ]  # fmt: skip
    document = json.loads(designs_json(ranking, ranking.chosen(True, None)))
    assert (document["num_designs"], document["num_built"], document["num_legal"]) == (4, 3, 3)
    assert document["objective"] == "usd_per_gpu_hour,+fp16_flop_per_s"
    assert document["unpriced"] == ["switches: no price"]
    assert [d["usd_per_gpu_hour"] for d in document["designs"]] == [1.0, 2.0]
    assert document["designs"][0]["num_dies"] == 1


def test_what_is_no_number_is_left_empty() -> None:
    found = [designs(DesignForm(node="N1"), [0.0], usd_per_gpu=[1.0], tco2e=[NAN], fits=[1.0], peak_mem_bytes=[1.0],
                     hbm_bytes=[2.0])]  # fmt: skip
    ranking = Ranking.of(found, design_goals("usd_per_gpu", True))
    assert json.loads(designs_json(ranking, ranking.order))["designs"][0]["tco2e"] is None
    assert json.loads(designs_json(ranking, ranking.order))["designs"][0]["fits"] is True
    assert list(designs_rows(ranking, ranking.order)[0].values())[-6:] == [1.0, None, True, 1.0, 2.0, True]
