"""Text such as `3350 GB/s` into a number in base units, and numbers back into text for people.

Base units are s, B (bytes), FLOP, W, J, Hz, V, A, USD, kg, mm, mm2 and 1 (plain numbers); a dimension is spelled as
its base unit, so the dimension of `3350 GB/s` is `B/s`. Case counts: `GB` is 1e9 bytes, `GiB` is 2**30 bytes,
`Gbit` is 1e9 / 8 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from .errors import UsageError, did_you_mean
from .records import dataclass


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in the base unit of its dimension."""

    value_si: float
    dimension: str


# Groups of three digits may be parted by commas, and an amount of US dollars may begin with its sign.
_NUMBER = re.compile(
    r"\s*(?P<sign>[+-]?)(?P<usd>\$?)"
    r"(?P<number>(?:[0-9]{1,3}(?:,[0-9]{3})+\.?[0-9]*|[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"\s*(?P<unit>.*?)\s*"
)
_DOLLARS = re.compile(r"([kM]?)(|/.+)")
_SMALL = {"p": 1e-12, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0}
_LARGE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def _scaled(symbol: str, dimension: str, prefixes: Mapping[str, float], factor: float = 1.0) -> dict[str, Quantity]:
    return {prefix + symbol: Quantity(scale * factor, dimension) for prefix, scale in prefixes.items()}


_ATOMS: Mapping[str, Quantity] = {
    **_scaled("B", "B", _LARGE | _BINARY),
    **_scaled("bit", "B", _LARGE | _BINARY, 1 / 8),
    **_scaled("FLOP", "FLOP", _LARGE),
    **_scaled("s", "s", _SMALL),
    **_scaled("W", "W", _SMALL | _LARGE),
    **_scaled("J", "J", _SMALL | _LARGE),
    **_scaled("Wh", "J", _LARGE, 3600.0),
    **_scaled("Hz", "Hz", _LARGE),
    **_scaled("USD", "USD", {"": 1.0, "k": 1e3, "M": 1e6}),
    **{name: Quantity(v, "s") for name, v in (("min", 60.0), ("h", 3600.0), ("d", 86400.0), ("day", 86400.0))},
    # A year of 365 days, and its twelfth, as facilities are priced.
    **{name: Quantity(v, "s") for name, v in (("month", 2628000.0), ("year", 31536000.0))},
    **{name: Quantity(v, "mm2") for name, v in (("mm2", 1.0), ("cm2", 100.0), ("m2", 1e6))},
    **_scaled("V", "V", _SMALL),
    **_scaled("A", "A", _SMALL),
    **{name: Quantity(v, "mm") for name, v in (("mm", 1.0), ("um", 1e-3), ("m", 1e3))},
    **{name: Quantity(v, "kg") for name, v in (("kg", 1.0), ("g", 1e-3), ("t", 1e3))},
    "%": Quantity(0.01, "1"),
    "1": Quantity(1.0, "1"),
}
_ALIASES: Mapping[str, str] = {"J/s": "W", "1/s": "Hz"}


@lru_cache(maxsize=4096)
def parse_quantity(text: str, dimension: str | None = None) -> Quantity:
    """Read a number and its unit; a number alone is in base units.

    Args:
        text: a number, then an optional unit or quotient of units, as `USD/W/month`.
        dimension: the base unit that the quantity must have, or None for any; a number alone then takes it.

    Raises:
        UsageError: not a finite number, an unknown or ambiguous unit, or a unit of another dimension.

    >>> parse_quantity("3350 GB/s")
    Quantity(value_si=3350000000000.0, dimension='B/s')
    >>> parse_quantity("80 GiB").value_si == 80 * 2**30, parse_quantity("80GB").value_si == 80e9
    (True, True)
    >>> parse_quantity("400 Gbit/s"), parse_quantity("0.08 USD/kWh").dimension
    (Quantity(value_si=50000000000.0, dimension='B/s'), 'USD/J')
    >>> parse_quantity("4.8e12", "B/s")
    Quantity(value_si=4800000000000.0, dimension='B/s')
    >>> parse_quantity("400 Gb/s")
    Traceback (most recent call last):
    slipstick.ir.errors.UsageError: ambiguous unit 'Gb/s' in '400 Gb/s': Gbit/s counts bits, GB/s bytes
    """
    number, name = split_quantity(text, dimension)
    if not name:
        return Quantity(number, dimension or "1")
    unit = _unit(name, text, dimension)
    if dimension is not None and unit.dimension != dimension:
        raise UsageError(f"wrong unit '{name}' in '{text}': allowed: {units_of(dimension)}")
    return Quantity(_finite(number * unit.value_si, text), unit.dimension)


def is_digits(text: str) -> bool:
    """Whether a text is digits from 0 to 9 alone: numbers of other scripts are words.

    >>> is_digits("08"), is_digits("\N{ARABIC-INDIC DIGIT EIGHT}"), is_digits("8_0"), is_digits("")
    (True, False, False, False)
    """
    return text.isascii() and text.isdecimal()


def number_of(text: str) -> float:
    """Return the number that a text is, in digits from 0 to 9; ValueError for another, and for underscores in it.

    >>> number_of(" -1.5e3 ")
    -1500.0
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"'{text[:40]}' is no number: its digits are 0 to 9")
    return float(text)


@lru_cache(maxsize=4096)
def split_quantity(text: str, dimension: str | None = None) -> tuple[float, str]:
    """Return the number and the unit as written; the unit may be empty, the dimension is for messages alone.

    >>> split_quantity("989e12"), split_quantity("4.8TB/s"), split_quantity("0.11/cm2")
    ((989000000000000.0, ''), (4.8, 'TB/s'), (0.11, '1/cm2'))
    >>> split_quantity("$30,000"), split_quantity("$1.5M"), split_quantity("$0.08/kWh")
    ((30000.0, 'USD'), (1.5, 'MUSD'), (0.08, 'USD/kWh'))
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        known = "as in '3350 GB/s'" if dimension is None else f"allowed: {units_of(dimension)}"
        raise UsageError(f"'{text}' is not a quantity: write a number and a unit, {known}")
    number, unit = _finite(float(match["sign"] + match["number"].replace(",", "")), text), match["unit"]
    if match["usd"]:
        scale = _DOLLARS.fullmatch(unit)
        if scale is None:
            raise UsageError(f"'{text}' has a unit beside $: write $30,000, $30k, $1.5M or $2.50/h")
        return number, f"{scale[1]}USD{scale[2]}"
    # People write 0.11/cm2 for 0.11 1/cm2.
    return number, f"1{unit}" if unit.startswith("/") else unit


def parse_typed(text: str, dimension: str, what: str = "") -> float:
    """Read what people type for `what`, in base units: a time needs its unit, for 2000 may be meant in ms or in s.

    Raises:
        UsageError: as `parse_quantity`, and a time of a number alone, but for 0.

    >>> parse_typed("2000ms", "s"), parse_typed("0", "s"), parse_typed("80e9", "B")
    (2.0, 0.0, 80000000000.0)
    """
    of = f"{what}: " if what else ""
    number, unit = split_quantity(text)
    if dimension == "s" and not unit and number:
        # Latencies below a minute are as a rule written in seconds.
        ms = number if abs(number) >= 60.0 else number * 1e3
        allowed = f"allowed: {units_of('s')}"
        raise UsageError(f"{of}missing unit of '{text.strip()}': give {ms:g}ms or {ms / 1e3:g}s; {allowed}")
    return parse_quantity(text, dimension).value_si


def units_of(dimension: str) -> str:
    """Name the units that people use for a dimension, for messages.

    >>> units_of("s"), units_of("B/s")
    ('s, ms, us, ns, min, h, d, month, year', 'B/s, GB/s, TB/s, GiB/s, Gbit/s')
    """
    common = {
        "B": "B, MB, GB, MiB, GiB, TB",
        "B/s": "B/s, GB/s, TB/s, GiB/s, Gbit/s",
        "FLOP": "FLOP, GFLOP, TFLOP, PFLOP",
        "FLOP/s": "FLOP/s, GFLOP/s, TFLOP/s, PFLOP/s",
        "s": "s, ms, us, ns, min, h, d, month, year",
        "W": "W, kW, MW",
        "J": "J, kJ, kWh",
        "Hz": "Hz, MHz, GHz",
        "USD": "USD, kUSD, MUSD",
        "V": "V, mV",
        "mm2": "mm2, cm2, m2",
        "J/B": "J/B, pJ/B, pJ/bit",
        "W/B": "W/B, W/MB, W/GB",
        "1/mm": "1/mm",
        "1/mm2": "1/mm2, 1/cm2",
        "mm": "mm, um, m",
        "kg": "kg, g, t",
        "USD/mm2": "USD/mm2, USD/cm2",
        "USD/B": "USD/GB, USD/GiB",
        "USD/W": "USD/W, USD/kW",
        "USD/A": "USD/A",
        "J/mm2": "kWh/cm2, J/mm2",
        "USD/J": "USD/kWh, USD/MWh, USD/J",
        "USD/s": "USD/h, USD/year, USD/s",
        "USD/W/s": "USD/W/month, USD/kW/month, USD/W/year",
        "J/FLOP": "pJ/FLOP, J/FLOP",
        "kg/mm2": "kg/cm2, kg/mm2",
        "kg/B": "kg/GB, kg/B",
        "kg/J": "kg/kWh, kg/MWh, kg/J",
        "1": "1, %, or no unit",
    }
    return common.get(dimension, dimension)


def _unit(name: str, text: str, wanted: str | None) -> Quantity:
    top, *bottoms = name.split("/")
    if not all(part in _ATOMS for part in (top, *bottoms)):
        raise UsageError(_unknown_unit(name, text, wanted))
    value, dimension = _ATOMS[top].value_si, _ATOMS[top].dimension
    for bottom in bottoms:
        value, dimension = value / _ATOMS[bottom].value_si, f"{dimension}/{_ATOMS[bottom].dimension}"
    return Quantity(value, _ALIASES.get(dimension, dimension))


def _unknown_unit(name: str, text: str, wanted: str | None) -> str:
    given = f"unit '{name}' in '{text}'"
    bits = re.fullmatch(r"([kMGTPE]?i?)b(|/s|ps)", name)
    if bits:
        rate = "/s" if bits[2] else ""
        return f"ambiguous {given}: {bits[1]}bit{rate} counts bits, {bits[1]}B{rate} bytes"
    flops = re.fullmatch(r"([kMGTPEZ]?)(?i:flops?(?:/s)?)", name)
    if flops:
        return f"ambiguous {given}: write {flops[1]}FLOP/s for a rate, {flops[1]}FLOP for a count"
    near = did_you_mean(name, [*_ATOMS, "GB/s", "TB/s", "GiB/s", "Gbit/s"])
    atoms = "B, bit, FLOP, s, W, J, Wh, Hz, V, A, USD, kg, mm, mm2, % and quotients of them"
    return f"unknown {given}{near} allowed: {atoms if wanted is None else units_of(wanted)}"


def _finite(number: float, text: str) -> float:
    if not math.isfinite(number):
        raise UsageError(f"'{text}' is not a finite number")
    return number


def format_si(value: float, unit: str, digits: int = 3) -> str:
    """Write a number with the decimal prefix that leaves one to three digits before the point.

    >>> format_si(989e12, "FLOP/s"), format_si(0.0, "B/s"), format_si(999.9e9, "B/s"), format_si(5e-6, "s")
    ('989 TFLOP/s', '0 B/s', '1 TB/s', '5 us')
    """
    if value == 0:
        return f"0 {unit}"
    rounded = float(f"{value:.{digits}g}")
    prefixes = sorted((scale, prefix) for prefix, scale in (_LARGE | _SMALL).items() if prefix != "µ")
    fitting = [(s, p) for s, p in prefixes if s <= abs(rounded)]
    scale, prefix = fitting[-1] if fitting else prefixes[0]
    return f"{rounded / scale:.{digits}g} {prefix}{unit}"


def format_time(seconds: float) -> str:
    """Write a duration: seconds and below with a prefix, above in minutes, hours or days.

    >>> format_time(0.0123), format_time(5e-6), format_time(59.96), format_time(5400), format_time(3e6)
    ('12.3 ms', '5 us', '60 s', '1.5 h', '34.7 days')
    """
    if abs(seconds) < 1:
        return format_si(seconds, "s")
    for limit, scale, unit in ((120.0, 1.0, "s"), (3600.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if abs(seconds) < limit:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 86400:.3g} days"


def format_bytes(num_bytes: float) -> str:
    """Write an amount of memory with binary prefixes.

    >>> format_bytes(85520809984), format_bytes(512), format_bytes(1536)
    ('79.6 GiB', '512 B', '1.5 KiB')
    """
    for prefix, scale in reversed(_BINARY.items()):
        if abs(num_bytes) >= scale:
            return f"{_plain(num_bytes / scale)} {prefix}B"
    return f"{_plain(num_bytes)} B"


def format_flops(num_flops: float) -> str:
    """Write a count of operations.

    >>> format_flops(6.1e15)
    '6.1 PFLOP'
    """
    return format_si(num_flops, "FLOP")


def format_flop_per_s(flop_per_s: float) -> str:
    """Write a rate of operations.

    >>> format_flop_per_s(400.4e12)
    '400 TFLOP/s'
    """
    return format_si(flop_per_s, "FLOP/s")


def format_bytes_per_s(bytes_per_s: float) -> str:
    """Write a bandwidth with decimal prefixes, as data sheets do.

    >>> format_bytes_per_s(3.35e12)
    '3.35 TB/s'
    """
    return format_si(bytes_per_s, "B/s")


def format_usd(amount: float) -> str:
    """Write an amount of money with as many digits as tell something.

    >>> format_usd(1.7412), format_usd(28000.0), format_usd(5.04e7), format_usd(0.0031), format_usd(0.0)
    ('$1.74', '$28,000', '$50.4M', '$0.0031', '$0')
    """
    size = abs(amount)
    if size == 0:
        return "$0"
    for scale, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if size >= scale:
            return f"${amount / scale:.3g}{suffix}"
    if size >= 1000:
        return f"${amount:,.0f}"
    return f"${amount:.2f}" if size >= 0.1 else f"${amount:.3g}"


def _plain(value: float) -> str:
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def format_in(value: float, unit: str) -> str | None:
    """Return a value in a unit that people see in a form of its own; None for any other unit.

    >>> format_in(11.64, "s"), format_in(0.3, "W"), format_in(0.3, "1")
    ('11.6 s', '300 mW', None)
    """
    if unit in ("J", "W", "B/s", "B/USD", "FLOP/USD", "FLOP/s/W"):
        return format_si(value, unit)
    form = _FORMS.get(unit)
    return None if form is None else form(value)


_FORMS: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {"s": format_time, "B": format_bytes, "FLOP": format_flops, "FLOP/s": format_flop_per_s, "USD": format_usd}
)
