"""Parts of machines and plans: what is listed of each is what the price book and the technology say."""

from __future__ import annotations

import json

import pytest

from slipstick.backends.prices.book import load_prices
from slipstick.cli.catalogue import KINDS
from slipstick.ir.errors import UnknownNameError
from slipstick.ir.plan.precision import PRECISIONS
from slipstick.ir.schedules.registry import SCHEDULES
from slipstick.report.catalogue.catalogue import list_text, show_text
from slipstick.report.catalogue.parts import PARTS, parts, show_part


def test_every_kind_of_part_can_be_asked_for() -> None:
    assert set(PARTS) < set(KINDS)
    assert all(parts(kind) for kind in PARTS)


def test_every_number_of_a_part_of_the_price_book_is_shown_under_the_path_that_set_takes() -> None:
    book = {record.path: record.value_si for record in load_prices().records}
    for kind in PARTS:
        for record in parts(kind):
            name = str(record["name"])
            said = json.loads(show_part(kind, name, True, None))["numbers"]
            shown = {one["path"]: one["value_si"] for one in said if isinstance(one, dict)}
            assert {path: value for path, value in book.items() if path.startswith(f"prices.{kind}.{name}.")} == {
                path: value for path, value in shown.items() if path.startswith("prices.")
            }


def test_a_node_has_what_prices_and_technology_say_of_it() -> None:
    text = show_part("nodes", "N5", False, None)
    assert "prices.nodes.N5.wafer_price" in text
    assert "\nnodes.N5.logic" in text


def test_schedules_and_recipes_are_those_of_plans() -> None:
    assert [one["name"] for one in json.loads(list_text("schedules", True))] == [*SCHEDULES]
    assert {one["name"] for one in json.loads(list_text("precisions", True))} <= {*PRECISIONS}
    assert "interleaved" in show_text("schedules", "1f1b", False)


def test_an_unknown_part_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ucie-standard'"):
        show_part("d2d", "ucie-standad", False, None)
