"""Bills as text, records and reasons: small ones by hand, and the formulas of every line of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from slipstick.backends.machine.files.records import NumberRecord
from slipstick.backends.machine.load import load_system, system_names
from slipstick.cost.bill import Bill
from slipstick.cost.money import Terms, system_money
from slipstick.ir.errors import UnknownNameError
from slipstick.report.cost.bills import bill_lines, bill_record, bill_text
from slipstick.report.explain.bill_reasons import explain_line, find_lines

RAW = Bill("raw", 60.0, "wafer_usd / dies", {"wafer_usd": 6_000.0, "dies": 100.0}, ("prices.wafer",))
CHIPS = Bill.of("chips", [Bill.of("logic", [RAW, Bill("test", 20.0, "each_usd", {"each_usd": 20.0})])])
PACKAGE = Bill.of("package", [CHIPS, Bill("substrate", 20.0), Bill("dust", 0.001), Bill("nothing", 0.0)])
RECORD = NumberRecord("prices.wafer", 6.0, "kUSD", 6_000.0, "USD", "an offer", "datasheet", None)
TERMS = (Terms(), Terms(basis="build"))


def test_lines_of_one_part_are_told_together_and_small_ones_left_out() -> None:
    lines = [line.split() for line in bill_text(PACKAGE, units={"each": 2.0}).splitlines()]
    assert lines == [
        ["line", "USD", "share", "each"],
        ["package", "$100.00", "100.0%", "$50.00"],
        ["chips:", "logic", "$80.00", "80.0%", "$40.00"],
        ["raw", "$60.00", "60.0%", "$30.00"],
        ["test", "$20.00", "20.0%", "$10.00"],
        ["substrate", "$20.00", "20.0%", "$10.00"],
    ]


def test_a_name_is_not_said_twice() -> None:
    twice = Bill.of("package", [Bill.of("raw package", [Bill.of("package", [Bill("wires", 1.0), Bill("base", 1.0)])])])
    names = [line.partition("$")[0].strip() for line in bill_text(twice).splitlines()[1:]]
    assert names == ["package: raw package", "wires", "base"]


def test_records_keep_every_line() -> None:
    assert [path for path, _ in bill_lines(PACKAGE)] == [
        "package", "package/chips", "package/chips/logic", "package/chips/logic/raw", "package/chips/logic/test",
        "package/substrate", "package/dust", "package/nothing",
    ]  # fmt: skip
    record = bill_record(PACKAGE.line("chips/logic/raw"))
    assert record == {
        "name": "raw", "usd": 60.0, "formula": "wafer_usd / dies", "values": {"wafer_usd": 6_000.0, "dies": 100.0},
        "numbers": ["prices.wafer"],
    }  # fmt: skip


def test_a_bill_of_one_design_may_hold_arrays() -> None:
    wide = PACKAGE.times(np.array([2.0]))
    assert bill_text(wide).splitlines()[1].split() == ["package", "$200.00", "100.0%"]
    assert bill_record(wide)["usd"] == pytest.approx(200.0, rel=1e-4)
    assert "= count * (wafer_usd / dies)" in explain_line([wide], "raw", [RECORD])


def test_a_leaf_is_explained_by_formula_values_and_sources() -> None:
    assert explain_line([PACKAGE], "logic/raw", [RECORD]).splitlines() == [
        "package/chips/logic/raw = $60.00 (60 USD)",
        "  = wafer_usd / dies",
        "    wafer_usd: 6000 USD",
        "    dies: 100",
        "    prices.wafer: 6 kUSD [datasheet] an offer",
    ]


def test_a_sum_is_explained_by_its_largest_leaves() -> None:
    text = explain_line([PACKAGE], "package", [RECORD])
    assert "  = chips $80.00 + substrate $20.00 + dust $0.001" in text
    order = [text.index(words) for words in ("chips/logic/raw = $60.00", "chips/logic/test = $20.00", "substrate = ")]
    assert order == sorted(order)
    assert text.splitlines()[-1] == "  and 1 smaller lines"


def test_the_line_nearest_to_the_top_is_meant_and_others_are_named() -> None:
    other = Bill.of("year", [Bill("package", 3.0)])
    assert [path for path, _ in find_lines([other, PACKAGE], "Package")] == ["package", "year/package"]
    assert explain_line([other, PACKAGE], "package", []).splitlines()[-1] == "also: year/package"
    with pytest.raises(UnknownNameError, match="unknown line 'substate'; did you mean 'substrate'"):
        find_lines([PACKAGE], "substate")


@pytest.mark.parametrize("name", system_names())
def test_every_line_of_the_catalogue_is_its_formula_or_its_parts(name: str) -> None:
    system = load_system(name)
    known = {record.path for record in (*system.sources, *system.prices.records)}
    for terms in TERMS:
        for path, line in _walked(system_money(system, 1024, terms).bills):
            assert set(line.numbers) <= known, path
            if line.parts:
                assert sum(float(part.usd) for part in line.parts) == pytest.approx(float(line.usd), rel=1e-9), path
            elif line.formula:
                assert _evaluated(line) == pytest.approx(float(line.usd), rel=1e-9), path
            else:
                assert float(line.usd) == 0.0, path


def _walked(bills: tuple[Bill, ...]) -> Iterator[tuple[str, Bill]]:
    for bill in bills:
        yield from bill.walk()


def _evaluated(line: Bill) -> float:
    """Work a formula out: arithmetic of the names in its values, and nothing else."""
    names = set(re.findall(r"[A-Za-z_]\w*", line.formula))
    assert names <= set(line.values), line.formula
    text = re.sub(r"\byield\b", "good", line.formula)
    return float(eval(text, {"__builtins__": {}}, {k: float(v) for k, v in line.values.items()}))
