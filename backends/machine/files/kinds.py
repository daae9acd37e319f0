"""What a field of a record says of its number: its kind, its keys in a file, its label; and the table of kinds.

`Annotated[Num, Key("memory.hbm.bandwidth", label="HBM bandwidth"), BANDWIDTH]`: all that reads, checks, overrides,
tabulates, prints or describes the number follows from these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from ....ir.errors import UsageError
from ....ir.records import dataclass
from ....ir.units import format_si

Better: TypeAlias = Literal["", "more", "less"]


@dataclass(frozen=True, slots=True, eq=False)
class NumberKind:
    """One kind of numbers.

    Attributes:
        name: what schemas call it.
        told: what it is.
        dimension: its base unit; 1 for none.
        sane: beyond it lies no machine, built or planned: a slip of the unit.
        zero: whether it may be none at all.
        least: the least that it may be, with `why`.
        below: what it stays below, with `why`.
        most: the most that it may be.
        whole: whether it counts things.
        better: whether a machine is faster with more of it, or with less; empty where it is neither.
        why: the reason for `least` or `below`.
        quoted: whether what other sources say may stand beside one.
    """

    name: str
    told: str
    dimension: str = "1"
    sane: tuple[float, float] = (0.0, float("inf"))
    zero: bool = False
    least: float = 0.0
    below: float = float("inf")
    most: float = float("inf")
    whole: bool = False
    better: Better = ""
    why: str = ""
    quoted: bool = False

    def check(self, value: float | str, number: float) -> None:
        """Raise UsageError for a number, written as `value`, that its place does not allow."""
        if number < 0 or (number == 0 and not self.zero):
            raise UsageError(f"'{value}' must be {'zero or more' if self.zero else 'more than zero'}")
        if number > self.most:
            raise UsageError(f"'{value}' must be at most {self.most:g}")
        if self.whole and number != int(number):
            raise UsageError(f"'{value}' must be a whole number")
        if number < self.least:
            raise UsageError(f"'{value}' must be at least {self.least:g}: {self.why}")
        if number >= self.below:
            raise UsageError(f"'{value}' must be below {self.below:g}: {self.why}")

    def check_sense(self, text: str, number: float) -> None:
        """Raise UsageError for a number beyond any machine."""
        low, high = self.sane
        if number and not low <= number <= high:
            unit = "" if self.dimension == "1" else self.dimension
            sense = f"{format_si(low, unit)} to {format_si(high, unit)}"
            raise UsageError(f"'{text}' is beyond any machine: from {sense}")


@dataclass(frozen=True, slots=True)
class Key:
    """Where a field stands in a file, and what people call it.

    Attributes:
        path: keys from those of its record on; empty for the name of the field.
        label: what people read for the number.
        moves: whether sensitivities have it: a rate or a time, and not a number that says how a rate is reached.
        column: whether it may differ from machine to machine in a table of them.
        form: whether only machines that have it at all can share a table.
        needed: whether a file must say it; None where it must if the record has no usual value.
    """

    path: str = ""
    label: str = ""
    moves: bool = False
    column: bool = True
    form: bool = False
    needed: bool | None = None


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A field that no file says."""


@dataclass(frozen=True, slots=True)
class Inline:
    """A field whose keys stand among those of the section that has it."""


@dataclass(frozen=True, slots=True)
class TextPattern:
    """Text, whatever the field is made of; what it looks like."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class OneWord:
    """One of some words, whatever the field is made of."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Least:
    """The fewest entries of a list or a mapping."""

    entries: int = 1


@dataclass(frozen=True, slots=True)
class Checked:
    """What more is asked of a value: a function that yields what is wrong with it."""

    by: Callable[..., Iterable[str]]


NO_END = "it is a part of the price, cost / (1 - margin)"

COUNT = NumberKind("Count", "A whole number of things.", sane=(1, 1e9), whole=True)
RATIO = NumberKind("Ratio", "A part of something: more than zero, at most one.", most=1.0, better="more")
SHARE = NumberKind("Share", "A part of something: from none to all of it.", zero=True, most=1.0)
MARGIN = NumberKind(
    "Margin",
    "A part of a price that its seller keeps: from none to less than all of it.",
    zero=True,
    most=1.0,
    below=1.0,
    why=NO_END,
)
FACTOR = NumberKind("Factor", "How many times something is, or lasts: 1 where it changes nothing.", sane=(0.1, 1e3))
CAPACITY = NumberKind("Capacity", "An amount of memory.", "B", (1e3, 1e16), better="more")
RESERVE = NumberKind("Reserve", "An amount of memory that may be zero.", "B", (1e3, 1e16), zero=True)
BANDWIDTH = NumberKind("Bandwidth", "Bytes per second.", "B/s", (1e6, 1e17), better="more")
FLOP_RATE = NumberKind("FlopRate", "Floating-point operations per second.", "FLOP/s", (1e8, 1e20), better="more")
LATENCY = NumberKind("Latency", "A time that may be zero.", "s", (1e-12, 10.0), zero=True, better="less")
FREQUENCY = NumberKind("Frequency", "A clock.", "Hz", (1e6, 1e11), better="more")
POWER = NumberKind("Power", "Electrical power.", "W", (1e-3, 1e6))
REST_POWER = NumberKind("RestPower", "Power that may be none.", "W", (1e-3, 1e6), zero=True)
WIRE_ENERGY = NumberKind("WireEnergy", "Energy to move data.", "J/B", (1e-16, 1e-6), better="less")
FLOP_ENERGY = NumberKind("FlopEnergy", "Energy of one operation.", "J/FLOP", (1e-18, 1e-6), better="less")
ENERGY_RATIO = NumberKind("EnergyRatio", "Energy over that of the chip that was measured.", sane=(1e-4, 1e4))
PRICE = NumberKind("Price", "What something is bought for.", "USD", (1e-3, 1e9))
SOME = NumberKind("Some", "How many there are, on average where that is no whole number.", sane=(1e-3, 1e6), zero=True)
CABLE_LENGTH = NumberKind("CableLength", "The length of a cable.", "mm", (1.0, 1e8))
DIE_AREA = NumberKind("DieArea", "An area of silicon, or of what carries it.", "mm2", (1e-2, 1e5))
ASPECT = NumberKind("Aspect", "The longer side of a die over the shorter: one or more.", most=100.0)
VOLUME = NumberKind("Volume", "How many are made over the life of a product.", sane=(1, 1e12))
OVERSUBSCRIPTION = NumberKind(
    "Oversubscription", "Ranks below an uplink over those that it carries at full speed: one or more.", most=1000.0
)
INTERFERENCE = NumberKind(
    "Interference", "Seconds that a second of other work adds; it may be none.", sane=(1e-3, 10.0), zero=True
)
