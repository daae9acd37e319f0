"""The YAML beside a table: what it fills, in which order, and what is wrong with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.ir.errors import SystemFileError, UsageError
from slipstick.validation.rows.formulas import columns_of, count_of
from slipstick.validation.rows.publication_files import SETTINGS
from slipstick.validation.rows.publications import Publication, RowVerdict
from slipstick.validation.rows.rows import Row
from slipstick.validation.rows.tables import NUMBERS, read_table
from slipstick.validation.rows.words import named, overrides_of, system_of
from slipstick.validation.training.cases import training_case
from slipstick.validation.training.machine_shop import MachineShop

Table = Callable[..., Path]
TESTS = Path(__file__).parents[2]
PRODUCT = TESTS.parent / "validation"
HEADER = (
    "id,dataset,accelerator,model,n_gpus,layers,hidden,heads,seq_len,tp,pp,micro_batch,global_batch,step_time_s,note"
)
FIRST = "a,mine,H100-SXM-80GB,our-8b,64,,,,8192,2,1,,256,1.5,container 26.04.01"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return what writes a table of two rows with a file beside it."""

    def write(text: str, *rows: str) -> Path:
        path = tmp_path / "own.csv"
        path.write_text("\n".join([HEADER, *(rows or (FIRST,))]) + "\n", encoding="utf-8")
        (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
        return path

    return write


def first(path: Path) -> Row:
    return read_table(path, []).rows[0]


def test_the_example_of_the_page_makes_a_case(table: Table) -> None:
    page = (TESTS.parent / "docs" / "validation.md").read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert example is not None
    lines = [FIRST.replace("mine", "our_cluster").replace("H100-SXM-80GB", name) for name in ("H100 pod (RoCE)", "x")]
    row = first(table(example[1], *lines, lines[0].replace("a,", "run_17b,", 1)))
    found = training_case(row, MachineShop())
    # 256 sequences x 2 / 64 GPUs / 4.
    assert found.plan.micro_batch == 2
    assert (found.system, found.stack, found.overrides) == ("dgx-h100", "megatron-core", overrides_of(row))
    assert found.assumed == ("sequence_parallel True (its launch script sets it)",)
    assert (found.plan.family.async_tp, found.plan.family.sp, found.plan.family.zero) == (True, True, 1)


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ("known: [{cells: {stack: a}}, {cells: {stack: b}}]", "a"),
        ("known: [{when: {tp: '>2'}, cells: {stack: a}}, {cells: {stack: b}}]", "b"),
        ("known: [{when: {tp * n_gpus: '>=128'}, cells: {stack: a}}]", "a"),
        ("known: [{when: {model: ['x*', our*]}, cells: {stack: a}}]", "a"),
        ("known: [{when: {model: '!our*'}, cells: {stack: a}}]", ""),
        ("known: [{when: {pp: '!>1'}, cells: {stack: a}}]", "a"),
        ("known: [{when: {note: '*26.04*'}, cells: {stack: '= n_gpus // tp'}}]", "32"),
        ("assumed: [{cells: {stack: a}, why: so}]\n  known: [{cells: {stack: b}}]", "b"),
        ("corrected: [{cells: {stack: a}}]\n  known: [{cells: {stack: b}}]", "a"),
        ("notes: {stack: 'container {}'}", "26.04.01"),
    ],
)
def test_the_first_rule_that_holds_fills_a_cell(table: Table, rules: str, wanted: str) -> None:
    assert first(table(f"mine:\n  {rules}\n")).completed()[0].text("stack") == wanted


def test_cells_of_the_table_go_before_what_is_known_and_behind_what_is_corrected(table: Table) -> None:
    rule = "[{cells: {n_gpus: 8, tp: '= n_gpus'}}]"
    known, corrected = (f"mine: {{{key}: {rule}}}" for key in ("known", "corrected"))
    assert [first(table(known)).completed()[0].number(name) for name in ("n_gpus", "tp")] == [64, 2]
    # Formulas of one rule all see the row as it was before.
    assert [first(table(corrected)).completed()[0].number(name) for name in ("n_gpus", "tp")] == [8, 64]


def test_a_data_set_by_its_name_goes_before_patterns_and_these_before_what_is_common(table: Table) -> None:
    text = (
        "'m*': {known: [{cells: {stack: a}}], models: {LLAMA3_8B: llama-3.1-70b}}\nmine: {known: [{cells: {stack: b}}]}"
    )
    row = first(table(text)).having({"model": "LLAMA3_8B"})
    assert row.completed()[0].text("stack") == "b"
    assert named(row).fields["hidden_size"] == 8192
    assert system_of(row) == "dgx-h100"


def test_what_was_assumed_is_told_and_what_was_known_is_not(table: Table) -> None:
    text = "mine: {known: [{cells: {stack: a}}], assumed: [{cells: {stack: b, grad_dtype: bf16}, why: why not}]}"
    assert first(table(text)).completed()[1] == ("grad_dtype bf16 (why not)",)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("mine:\n  known:\n    - cells: {grad_dtyp: bf16}\n", 3, "did you mean 'grad_dtype'"),
        ("mine:\n  known:\n    - when: {modell: x}\n      cells: {stack: a}\n", 3, "did you mean 'model'"),
        ("mine:\n  known:\n    - cells: {tp: '= gpus // 2'}\n", 3, "no column is 'gpus'"),
        ("mine:\n  known:\n    - cells: {tp: '= n_gpus ** 2'}\n", 3, "no formula"),
        ("mine:\n  known:\n    - when: {'tp > 1': 2}\n      cells: {stack: a}\n", 3, "no formula"),
        ("mine:\n  known:\n    - cells: {}\n", 3, "at least 1"),
        ("mine:\n  known:\n    - cells: {tp: [1]}\n", 3, "valid string"),
        ("mine:\n  assumed:\n    - cells: {tp: 1}\n", 3, "missing why"),
        ("mine:\n  knwon: []\n", 2, "did you mean 'known'"),
        ("mine: {}\nmin: {}\n", 2, "no row has this data set; did you mean 'mine'"),
        ("mine:\n  accelerators: {H100: {systm: a}}\n", 2, "did you mean 'system'"),
        ("mine: {known: 3}\n", 1, "valid list"),
    ],
)
def test_faults_have_their_line_and_what_is_allowed(table: Table, text: str, line: int, words: str) -> None:
    path = table(text)
    with pytest.raises(SystemFileError) as error:
        read_table(path, [])
    assert f"own.yaml:{line}: " in str(error.value)
    assert words in str(error.value)


def test_all_columns_that_are_wrong_are_told_at_once(table: Table) -> None:
    with pytest.raises(SystemFileError) as error:
        read_table(table("mine:\n  known:\n    - cells: {a: 1}\n    - cells: {b: 1}\n"), [])
    assert "has 2 faults" in str(error.value)
    assert all(name in str(error.value) for name in ("'a'", "'b'", *SETTINGS))


@pytest.mark.parametrize(
    "formula", ["a.b", "f(a)", "a ** 2", "1.5 * a", "a if b else c", "", "'x'", "min(a)", "(" * 500]
)
def test_what_is_no_formula_is_refused(formula: str) -> None:
    with pytest.raises(UsageError, match="whole numbers and columns with"):
        columns_of(formula)


def test_formulas_say_the_row_that_they_cannot_read() -> None:
    with pytest.raises(UsageError, match="row 'x', column 'a': 'one' is not a number"):
        count_of("a + 1", {"id": "x", "a": "one"})
    with pytest.raises(UsageError, match="row 'x', column 'b - 1': nothing is divided by 0"):
        count_of("a // (b - 1)", {"id": "x", "a": "8"})


@pytest.mark.parametrize(
    ("cell", "pattern", "holds"),
    [
        ("26.06.01", ">=26.06", True), ("26.04.01", ">=26.06", False), ("26.02.01", "<26.03", True),
        ("1.5", ">1.25", True), ("", "<2", False), ("many", ">1", False), ("16", "<=16", True), ("16", "16", True),
    ],
)  # fmt: skip
def test_numbers_and_versions_are_compared(cell: str, pattern: str, holds: bool) -> None:
    rule = RowVerdict.of({"when": {"a": (pattern,)}, "why": "so"})
    assert rule.applies_to({"a": cell}) is holds
    assert rule.applies_to({"a": cell}) is not RowVerdict.of({"when": {"a": (f"!{pattern}",)}, "why": ""}).applies_to(
        {"a": cell}
    )


def test_a_publication_without_conditions_on_what_is_not_fitted_judges_only() -> None:
    assert not Publication.of({"not_fitted": (RowVerdict.of({"when": {"tp": ("1",)}, "why": "so"}),)}).judges_only
    assert Publication.of({"not_fitted": (RowVerdict.of({"why": "so"}),)}).judges_only


def test_the_files_of_the_tables_of_the_repository_are_read() -> None:
    for path in sorted((TESTS / "validation").glob("*.yaml")):
        assert read_table(path.with_suffix(".csv"), []).rows


def test_every_column_that_a_judge_reads_may_be_filled() -> None:
    readers = [*(PRODUCT / "training").glob("*.py"), *(PRODUCT / "inference").glob("*.py"), PRODUCT / "memory.py"]
    for path in (*readers, PRODUCT / "plans.py", PRODUCT / "rows" / "models.py", PRODUCT / "rows" / "words.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="text" | "number" | "flag" | "measured"),
                    args=[ast.Constant(value=str() as column), *_],
                ):
                    assert column in SETTINGS | NUMBERS, f"{path}:{node.lineno}"
