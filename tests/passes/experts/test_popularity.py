"""Popularity of experts in a plan: the load of the busiest rank, what copies weigh, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstick.backends.kernels.loads import power_law_loads
from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Estimate, estimate, lower
from slipstick.frontend import load
from slipstick.ir.errors import ParseError, PlanError, UsageError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import PlanTable, PlanWords, plan_of
from slipstick.ir.plan.case import divisors
from slipstick.passes.experts.popularity import busiest_of, read_loads

DECODE = {"phase": "decode", "num_gpus": 8, "ep": 8, "seq_len": 1024, "micro_batch": 32, "kernels": "eager"}
COPIES = {"eplb": True, "redundant_experts": 16}


@pytest.fixture(scope="module")
def qwen() -> Graph:
    return load("qwen3-30b-a3b", "decode")


def words(**said: object) -> PlanWords:
    return PlanWords(**(DECODE | said))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def answer(graph: Graph, **said: object) -> Estimate:
    return estimate(graph, load_system("dgx-h100"), plan_of(words(**said)))


def test_a_popularity_is_the_imbalance_that_it_makes(qwen: Graph, tmp_path: Path) -> None:
    # One layer: of eight ranks of 16 experts, the first gets 3 rows an expert, the others 1: 48 of 160, mean 20.
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([[3] * 16 + [1] * 112]))
    said = answer(qwen, expert_popularity=str(path))
    assert said.metrics["step_time_s"] == answer(qwen, expert_imbalance=2.4).metrics["step_time_s"]
    assert said.metrics["hfu"] == answer(qwen, expert_imbalance=2.4).metrics["hfu"]


def test_balance_and_copies_pay_for_popular_experts(qwen: Graph) -> None:
    skewed, placed = {"expert_popularity": "power:1.2"}, {"expert_popularity": "power:1.2", "eplb": True}
    alike, worst, better = (answer(qwen, **said).metrics["step_time_s"] for said in ({}, skewed, placed))
    assert alike < better < worst


def test_copies_weigh_what_experts_weigh(qwen: Graph) -> None:
    # 16 copies on 8 ranks: two more of 3 x 2048 x 768 weights in bf16 in each of 48 layers.
    with_copies, without = (answer(qwen, **said).memory_bytes["weights"] for said in (COPIES, {}))
    more = with_copies - without
    assert more == 2 * 3 * 2048 * 768 * 2 * 48


def test_ranks_divide_experts_and_copies_together(qwen: Graph) -> None:
    # 128 experts and 16 copies on 16 ranks are 9 each; 12 ranks divide 144 and not 128.
    assert answer(qwen, num_gpus=12, ep=12, **COPIES).metrics["step_time_s"] > 0
    with pytest.raises(PlanError, match="128"):
        answer(qwen, num_gpus=12, ep=12)


def test_a_table_has_the_load_of_each_degree(qwen: Graph) -> None:
    plans = [plan_of(words(num_gpus=n, ep=n, expert_popularity="power:1.2")) for n in (2, 8, 32)]
    lowered = lower(qwen, plans[0].family)
    from slipstick.driver.estimate import evaluate

    table = evaluate(lowered, load_system("dgx-h100"), PlanTable.of(plans)).metrics["step_time_s"]
    alone = [estimate(qwen, load_system("dgx-h100"), plan).metrics["step_time_s"] for plan in plans]
    assert table.tolist() == alone


@pytest.mark.parametrize("ranks", [1, 4, 32])
def test_in_order_the_law_is_that_of_measured_kernels(ranks: int) -> None:
    found = busiest_of("power:1.2", 128, 8, 0, False, ("ep",))
    busiest = power_law_loads(8192, 128, 8, ranks, 1.2).sum(axis=1).mean()
    assert found.evaluate({"ep": float(ranks)}) == pytest.approx(busiest / (8192 * 8 / ranks), abs=1e-3)


def test_more_ranks_are_never_less_uneven_and_balance_is_never_worse() -> None:
    ranks = [float(num) for num in divisors(128)]
    cases = ((0, False), (0, True), (32, True))
    loads = [busiest_of("power:1.2", 128, 8, copies, eplb, ("ep",)) for copies, eplb in cases]
    in_order, placed, copied = [[load.evaluate({"ep": num}) for num in ranks] for load in loads]
    assert in_order == sorted(in_order)
    assert all(a <= b for a, b in zip(placed, in_order, strict=True))
    both = [row for row, num in enumerate(ranks) if 160 % num == 0]
    assert all(copied[row] <= placed[row] + 1e-4 for row in both)


def test_counts_as_sglang_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "statistics.json"
    path.write_text(json.dumps({"logical_count": [[[0, 0], [1, 2]], [[0, 0], [3, 4]]]}))
    assert read_loads(str(path)).tolist() == [[4, 6]]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"expert_popularity": "power:1"}, "not 1"),
        ({"expert_popularity": "power:many"}, "exponent"),
        ({"expert_popularity": "zipf"}, "allowed: power:X, model"),
        ({"redundant_experts": 8}, "add it"),
        ({"redundant_experts": 8, "eplb": True, "phase": "train"}, "in training"),
        ({"expert_popularity": "power:1.2", "expert_imbalance": 2.0}, "give one"),
        ({"expert_popularity": "power:1.2", "ep": 1}, "without expert parallelism"),
    ],
)
def test_what_says_nothing_is_refused(said: dict[str, object], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        plan_of(words(**said))


def test_files_of_no_rows_are_refused(qwen: Graph, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[["many"]]')
    with pytest.raises(ParseError, match="rows of experts are a list"):
        answer(qwen, expert_popularity=str(path))
    path.write_text("[[1, 2, 3]]")
    with pytest.raises(UsageError, match="rows of 3 experts, the model has 128"):
        answer(qwen, expert_popularity=str(path))
    with pytest.raises(UsageError, match="cannot read"):
        answer(qwen, expert_popularity="none.json")
    with pytest.raises(UsageError, match="by its name"):
        answer(qwen, expert_popularity="model")
