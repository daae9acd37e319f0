"""From a table to outcomes: parts, outliers, processes, causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from slipstick.frontend import GraphCache
from slipstick.validation.judge import read_tables
from slipstick.validation.results.outcomes import Outcome, Part
from slipstick.validation.rows.publications import reason
from slipstick.validation.rows.tables import RowFault, Table, read_table
from slipstick.validation.training.judge import prepared
from slipstick.validation.training.machine_shop import MachineShop
from slipstick.validation.training.outcomes import dealt, read_cases, step_outcomes

HERE = Path(__file__).parents[1]
SMALL = ("vtrain_single_0004", "vtrain_single_0432", "vtrain_single_0885", "maxtext_32B_v5p-128")


@pytest.fixture(scope="module")
def whole() -> Table:
    return read_table(HERE / "training_step.csv", [])


@pytest.fixture(scope="module")
def cache(graph_folder: Path) -> GraphCache:
    return GraphCache(graph_folder)


def some(table: Table, names: Sequence[str]) -> Table:
    return Table(table.path, table.columns, tuple(row for row in table.rows if row.id in names))


def judged(table: Table, cache: GraphCache, jobs: int) -> list[Outcome]:
    faults: list[RowFault] = []
    found = step_outcomes(table, cache, None, jobs, None, faults)
    assert faults == []
    return found


@pytest.mark.slow
def test_the_answer_is_the_same_in_any_number_of_processes(whole: Table, cache: GraphCache) -> None:
    table = some(whole, SMALL)
    one, two = judged(table, cache, 1), judged(table, cache, 2)
    assert [(o.row.id, o.part, o.reason) for o in one] == [(o.row.id, o.part, o.reason) for o in two]
    # Rows come back in the order of the table, the one that is refused among them.
    assert [o.row.id for o in one] == [row.id for row in table.rows]
    assert [o.predicted for o in one[1:]] == [o.predicted for o in two[1:]]


@pytest.mark.slow
def test_a_case_is_priced_alone_as_in_its_table(whole: Table, cache: GraphCache) -> None:
    from slipstick.driver.estimate import evaluate

    table = some(whole, [row.id for row in whole.rows if row.text("model") == "GPT-h1024-L12"][:4])
    outcomes = {outcome.row.id: outcome.predicted for outcome in judged(table, cache, 1)}
    cases, _ = read_cases(table, MachineShop(), [])
    alone = {
        case.row.id: float(evaluate(lowered, system, plans).metrics["step_time_s"][0])
        for case, lowered, plans, system in prepared(list(cases.values()), cache)
    }
    assert alone == pytest.approx(outcomes, rel=1e-12)


def test_rows_of_training_are_told_by_their_columns() -> None:
    _, kinds = read_tables([HERE / name for name in ("training_step.csv", "memory.csv", "fits.csv", "layer_time.csv")])
    assert [kind.name for kind in kinds] == ["training", "memory", "memory", "layer"]


def test_every_rule_is_of_rows_that_are_there(whole: Table) -> None:
    for source in {row.dataset: row.source for row in whole.rows}.values():
        mine = [row.cells for row in whole.rows if row.source == source]
        for rule in (*source.outliers, *source.causes):
            assert any(map(rule.applies_to, mine)), rule
    left = Counter(row.dataset for row in whole.rows if reason(row.source.outliers, row.cells))
    # Of nanotron seven and eight runs by id, and four of tp 32 with 32 to 128 sequences of 4096 or more hidden values.
    assert left == {"nanotron_h100": 19, "vtrain_single_node": 5, "vtrain_multi_node": 3}


def test_an_allocator_that_thrashes_is_told_by_sizes(whole: Table) -> None:
    source = next(row.source for row in whole.rows if row.dataset == "nanotron_h100")
    cells = {"id": "x", "dataset": "nanotron_h100", "tp": "32", "hidden": "4096", "micro_batch": "32"}
    assert reason(source.outliers, cells) != ""
    assert reason(source.outliers, {**cells, "micro_batch": "31"}) == ""
    assert reason(source.outliers, {**cells, "tp": "16"}) == ""


def test_korthikanti_s_steps_are_in_no_fit(whole: Table) -> None:
    from slipstick.backends.machine.load import stack_names
    from slipstick.backends.machine.software.stack_record import fit_records

    judging = {row.dataset for row in whole.rows if row.source.judges_only}
    assert judging == {"korthikanti2022_table5"}
    fitted = {name for stack in stack_names() for fit in fit_records(stack) for name in fit.data_sets}
    assert not fitted & judging
    assert {row.dataset for row in whole.rows} >= fitted


def test_models_are_dealt_so_that_parts_take_about_as_long() -> None:
    # Weights are rows + 25: 75, 55, 45, 35. Two parts: 75 + 35 and 55 + 45.
    models = [dict.fromkeys(range(n)) for n in (50, 30, 20, 10)]
    parts = dealt(models, 2)  # type: ignore[arg-type]
    assert [[len(one) for one in part] for part in parts] == [[50, 10], [30, 20]]


def test_parts_are_never_more_than_models() -> None:
    assert len(dealt([{}, {}], 8)) == 2


@pytest.mark.slow
def test_skipped_rows_are_counted_and_say_why(whole: Table, cache: GraphCache) -> None:
    found = judged(some(whole, SMALL), cache, 1)
    left = [o for o in found if o.part is Part.SKIPPED]
    assert [(o.row.id, o.reason != "") for o in left] == [("maxtext_32B_v5p-128", True)]
