"""The price book of machines: numbers of public sources as they were published, units, and what cannot be."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstick.backends.prices.book import load_prices
from slipstick.backends.prices.numbers import Other, Quoted
from slipstick.ir.errors import SystemFileError, UnknownNameError
from slipstick.ir.units import parse_quantity

# Published numbers, each with where it stands in the book, as the number that is used or among what others say.
with (Path(__file__).parents[1] / "data" / "machine_prices.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def at(path: str) -> Quoted:
    found: object = load_prices().section
    for key in path.split("."):
        found = found[key] if isinstance(found, dict) else getattr(found, key)
    assert isinstance(found, Quoted)
    return found


def said(number: Quoted) -> Iterator[tuple[float, str, str]]:
    yield number.si, number.source, number.confidence
    for other in number.others:
        yield _si(other, number), other.source, other.confidence


def _si(other: Other, number: Quoted) -> float:
    return parse_quantity(f"{other.value} {other.unit or ''}".strip(), number.dimension).value_si


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['parameter']}-{row['value']}")
def test_the_book_has_what_was_published(row: dict[str, str]) -> None:
    number = at(row["path"])
    wanted = parse_quantity(f"{row['value']} {row['unit']}".strip(), number.dimension).value_si
    # The energy of a multiply-add is that of two operations.
    found = [(source, confidence) for value, source, confidence in said(number) if value == pytest.approx(wanted)]
    assert found, f"{row['path']}: {list(said(number))}"
    assert any(row["named"] in source for source, _ in found)
    if row["status"] == "recalled":
        assert "estimated" in {confidence for _, confidence in found}


def test_every_number_has_a_source_and_a_legal_unit() -> None:
    records = load_prices().records
    assert len(records) > 200
    assert all(record.source for record in records)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("servers.psu=-1 USD/W", "must be zero or more"),
        ("switches.ndr-64x400g.price=-36 kUSD", "must be zero or more"),
        ("facility.pue.air=0.9", "must be at least 1"),
        ("tco.availability=1.2", "must be at most 1"),
        ("energy.electricity=67 USD/kWh", "beyond any machine"),
        ("energy.electricity=0.1 USD/GB", "wrong unit"),
        ("tco.method=monthly", "input should be 'chiplet-cloud' or 'annual'"),
        ("carbon.grid=frnce", "unknown grid 'frnce'; did you mean 'france'"),
    ],
)
def test_what_cannot_be_is_refused(setting: str, message: str) -> None:
    with pytest.raises(SystemFileError, match=message):
        load_prices(overrides=(setting,))


def test_a_key_that_no_book_has() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown key of facility 'pie'; did you mean 'pue'\?"):
        load_prices(overrides=("facility.pie.air=1.2",))


def test_profiles_lie_over_the_book() -> None:
    assert load_prices("h100-cluster-2024").section.facility.charged == "per_server"
    assert load_prices().section.facility.charged == "per_watt"
