"""Quantities: what is read, what is refused and how, what people are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.machine.files.faults import FileFault, in_files
from slipstick.backends.machine.files.kinds import LATENCY, RESERVE, NumberKind
from slipstick.backends.machine.files.number import Number
from slipstick.ir.errors import UsageError
from slipstick.ir.units import (
    Quantity,
    format_bytes,
    format_bytes_per_s,
    format_flop_per_s,
    format_flops,
    format_si,
    format_time,
    parse_quantity,
    parse_typed,
    split_quantity,
    units_of,
)


@pytest.mark.parametrize(
    ("text", "value", "dimension"),
    [
        ("3350 GB/s", 3350e9, "B/s"),
        ("4.8TB/s", 4.8e12, "B/s"),
        ("80 GB", 80e9, "B"),
        ("80 GiB", 80 * 1024**3, "B"),
        ("81559 MiB", 85520809984, "B"),
        ("400 Gbit/s", 50e9, "B/s"),
        ("989 TFLOP/s", 989e12, "FLOP/s"),
        ("1 ZFLOP", 1e21, "FLOP"),
        ("3.2 us", 3.2e-6, "s"),
        ("3.2 µs", 3.2e-6, "s"),
        ("2 h", 7200, "s"),
        ("1.83 GHz", 1.83e9, "Hz"),
        ("5 1/s", 5, "Hz"),
        ("700 W", 700, "W"),
        ("2 kWh", 7.2e6, "J"),
        ("3 pJ/bit", 24e-12, "J/B"),
        ("30 kUSD", 30e3, "USD"),
        ("814 mm2", 814, "mm2"),
        ("0.1 1/cm2", 0.001, "1/mm2"),
        ("80 %", 0.8, "1"),
        ("989e12", 989e12, "1"),
        (" -.5e-3 ", -0.5e-3, "1"),
    ],
)
def test_reads(text: str, value: float, dimension: str) -> None:
    quantity = parse_quantity(text)
    assert quantity.value_si == pytest.approx(value, rel=1e-12)
    assert quantity.dimension == dimension


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("400 Gb/s", "ambiguous unit 'Gb/s' in '400 Gb/s': Gbit/s counts bits, GB/s bytes"),
        ("400 Gbps", "Gbit/s counts bits, GB/s bytes"),
        ("400 Gb", "Gbit counts bits, GB bytes"),
        ("8 Gib", "Gibit counts bits, GiB bytes"),
        ("989 TFLOPS", "write TFLOP/s for a rate, TFLOP for a count"),
        ("3350 gb/s", "unknown unit 'gb/s' in '3350 gb/s'"),
        ("3350 GB/S", "did you mean 'GB/s'?"),
        ("3350 GBps", "did you mean 'GB/s'?"),
        ("1e400 s", "not a finite number"),
        ("1e300 ZFLOP", "not a finite number"),
        ("nan", "'nan' is not a quantity"),
        ("fast", "write a number and a unit"),
        ("", "'' is not a quantity"),
        ("1 GB/s/sx", "unknown unit"),
    ],
)
def test_refuses_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_quantity(text)
    assert message in str(caught.value)


def test_a_wrong_dimension_names_the_text_and_the_units_allowed() -> None:
    with pytest.raises(UsageError) as caught:
        parse_quantity("80 GB", "B/s")
    assert str(caught.value) == f"wrong unit 'GB' in '80 GB': allowed: {units_of('B/s')}"


def test_a_bare_number_takes_the_dimension_asked_for() -> None:
    assert parse_quantity("4.8e12", "B/s") == Quantity(4.8e12, "B/s")


@pytest.mark.parametrize(
    ("text", "near"), [("2000", "2000ms or 2s"), ("0.5", "500ms or 0.5s"), ("30 ", "30000ms or 30s")]
)
def test_a_time_that_people_type_needs_its_unit(text: str, near: str) -> None:
    """Serving tools mean milliseconds by a bare number, and seconds are the base unit here."""
    with pytest.raises(UsageError, match=f"--ttft: missing unit of '{text.strip()}': give {near}; allowed: s, ms, us"):
        parse_typed(text, "s", "--ttft")
    assert parse_typed(f"{text}ms", "s") == pytest.approx(float(text) / 1e3)
    assert parse_typed("0", "s") == 0.0
    assert parse_typed(text, "B") == float(text)


@pytest.mark.parametrize("dimension", ["B", "B/s", "FLOP", "FLOP/s", "s", "W", "J", "Hz", "USD", "mm2"])
def test_every_unit_that_messages_offer_is_read(dimension: str) -> None:
    for unit in units_of(dimension).split(", "):
        assert parse_quantity(f"1 {unit}").dimension == dimension


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["", "s", "GB/s", "TFLOP/s"]))
def test_splitting_gives_back_number_and_unit(number: float, unit: str) -> None:
    assert split_quantity(f"{number!r} {unit}") == (number, unit)


@given(st.floats(1e-11, 1e23))
def test_format_si_keeps_three_digits_and_is_read_back(value: float) -> None:
    assert parse_quantity(format_si(value, "W")).value_si == pytest.approx(value, rel=5e-3)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_time(0.0123), "12.3 ms"),
        (format_time(0.0), "0 s"),
        (format_time(300), "5 min"),
        (format_time(5400), "1.5 h"),
        (format_time(86400 * 12), "12 days"),
        (format_bytes(80 * 2**30), "80 GiB"),
        (format_bytes(0), "0 B"),
        (format_bytes(-(2**20)), "-1 MiB"),
        (format_flops(1.5e21), "1.5 ZFLOP"),
        (format_flop_per_s(989e12), "989 TFLOP/s"),
        (format_bytes_per_s(999.7e9), "1 TB/s"),
    ],
)
def test_shows(shown: str, expected: str) -> None:
    assert shown == expected


def test_a_fault_in_no_file_has_no_place() -> None:
    assert in_files([])(FileFault(("chip",), "chip", "missing")) == ""


@pytest.mark.parametrize(("kind", "text"), [(LATENCY, "0.1 ps"), (LATENCY, "11 s"), (RESERVE, "12 B")])
def test_numbers_beyond_any_machine_are_refused(kind: NumberKind, text: str) -> None:
    with pytest.raises(UsageError, match="beyond any machine"):
        Number(kind=kind, value=text, source="nobody")
