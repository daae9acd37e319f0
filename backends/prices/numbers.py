"""The leaves of the price book: numbers as in a system file, with what other sources say beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from pydantic import ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ...ir.errors import UsageError
from ..machine.files.number_schema import field, number_fields, number_schema, record_schema
from ..machine.files.records import Confidence, NumberRecord
from ..machine.files.system_numbers import Number, check_margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """What another source says of the same number: shown to people, used by nobody until they `--set` it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    unit: str | None = None
    value: float | str
    source: str
    confidence: Confidence = "datasheet"
    as_of: str | None = None
    note: str | None = None

    @property
    def told(self) -> str:
        """Its source with its note behind it."""
        return self.source if self.note is None else f"{self.source}: {self.note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted(Number):
    """A number that sources differ on."""

    others: tuple[Other, ...] = ()

    def __post_init__(self) -> None:
        """Check what other sources say as the number itself."""
        Number.__post_init__(self)
        for other in self.others:
            self._check_range(other.value, self._si(other.value, other.unit))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read all kinds of numbers alike."""
        return number_schema(cls, (_others(),))

    def records_of_others(self, path: str) -> tuple[NumberRecord, ...]:
        """Return what other sources say, as records like that of the number itself."""
        return tuple(self._as_told(other).record(path) for other in self.others)

    def _as_told(self, other: Other) -> Quoted:
        return replace(
            self, value=other.value, unit=other.unit, source=other.told, confidence=other.confidence,
            as_of=other.as_of, others=(),
        )  # fmt: skip


@cache
def _others() -> core_schema.DataclassField:
    note = field("note", core_schema.nullable_schema(core_schema.str_schema()), optional=True)
    other = record_schema(Other, [*number_fields(), note], named=False)
    several = core_schema.with_default_schema(core_schema.tuple_variable_schema(other), default=())
    return field("others", several)


class Share(Quoted):
    """A part of something: from none to all of it."""

    zero_allowed = True
    maximum = 1.0


class Yield(Quoted):
    """A part that is good: more than none."""

    maximum = 1.0


class Overhead(Quoted):
    """What a whole takes over a part of it: 1 or more."""

    maximum = 10.0

    @classmethod
    def _check_range(cls, value: float | str, number: float) -> None:
        super()._check_range(value, number)
        if number < 1.0:
            raise UsageError(f"'{value}' must be at least 1: the whole takes no less than its part")


class Margin(Share):
    """A part of a price that its seller keeps: from none to less than all of it."""

    @classmethod
    def _check_range(cls, value: float | str, number: float) -> None:
        super()._check_range(value, number)
        check_margin(value, number)


class Plain(Quoted):
    """A number without a unit: zero or more."""

    zero_allowed = True


class Divisor(Quoted):
    """A number without a unit that others are divided by: more than none."""


class Money(Quoted):
    """An amount of money."""

    dimension = "USD"
    zero_allowed = True
    sane = (1e-9, 1e13)


class MoneyPerArea(Quoted):
    """Money for an area."""

    dimension = "USD/mm2"
    zero_allowed = True
    sane = (1e-9, 1e7)


class MoneyPerByte(Quoted):
    """Money for memory."""

    dimension = "USD/B"
    zero_allowed = True
    sane = (1e-15, 1e-3)


class MoneyPerPower(Quoted):
    """Money for power that can be drawn, or conducted away."""

    dimension = "USD/W"
    zero_allowed = True
    sane = (1e-6, 1e4)


class MoneyPerCurrent(Quoted):
    """Money for current that can be delivered."""

    dimension = "USD/A"
    zero_allowed = True
    sane = (1e-6, 1e4)


class MoneyPerEnergy(Quoted):
    """Money for energy, as USD/kWh."""

    dimension = "USD/J"
    zero_allowed = True
    sane = (1e-12, 1e-5)


class MoneyPerTime(Quoted):
    """Money for time, as USD/h."""

    dimension = "USD/s"
    zero_allowed = True
    sane = (1e-12, 1e4)


class MoneyPerPowerAndTime(Quoted):
    """Money for power that is drawn all the time, as USD/W/month."""

    dimension = "USD/W/s"
    zero_allowed = True
    sane = (1e-15, 1e-3)


class Defects(Quoted):
    """Defects of an area, as 0.1 1/cm2."""

    dimension = "1/mm2"
    zero_allowed = True
    sane = (1e-9, 1.0)


class Length(Quoted):
    """A length."""

    dimension = "mm"
    zero_allowed = True
    sane = (1e-6, 1e8)


class Area(Quoted):
    """An area."""

    dimension = "mm2"
    zero_allowed = True
    sane = (1e-8, 1e8)


class Period(Quoted):
    """A time, as 4 year."""

    dimension = "s"
    zero_allowed = True
    sane = (1e-6, 1e11)


class Life(Quoted):
    """A depreciation period: more than none."""

    dimension = "s"
    sane = (3600.0, 1e11)


class EnergyPerByte(Quoted):
    """Energy to move data, as 4.5 pJ/bit."""

    dimension = "J/B"
    zero_allowed = True
    sane = (1e-16, 1e-6)


class EnergyPerFlop(Quoted):
    """Energy of an operation, as 0.18 pJ/FLOP."""

    dimension = "J/FLOP"
    zero_allowed = True
    sane = (1e-18, 1e-6)


class EnergyPerArea(Quoted):
    """Energy to make an area, as 2.75 kWh/cm2."""

    dimension = "J/mm2"
    zero_allowed = True
    sane = (1e-3, 1e9)


class PowerPerByte(Quoted):
    """Power of memory, as 0.4 W/GB."""

    dimension = "W/B"
    zero_allowed = True
    sane = (1e-15, 1.0)


class Voltage(Quoted):
    """A voltage."""

    dimension = "V"
    sane = (1e-3, 1e6)


class Watts(Quoted):
    """Power that may be zero."""

    dimension = "W"
    zero_allowed = True
    sane = (1e-6, 1e9)


class Mass(Quoted):
    """Carbon dioxide, or what warms as much, as 5 kg."""

    dimension = "kg"
    zero_allowed = True
    sane = (1e-9, 1e12)


class MassPerArea(Quoted):
    """Carbon dioxide of an area, as 1.5 kg/cm2."""

    dimension = "kg/mm2"
    zero_allowed = True
    sane = (1e-9, 1e3)


class MassPerByte(Quoted):
    """Carbon dioxide of memory, as 0.1 kg/GB."""

    dimension = "kg/B"
    zero_allowed = True
    sane = (1e-15, 1e-3)


class MassPerEnergy(Quoted):
    """Carbon dioxide of energy, as 0.4 kg/kWh."""

    dimension = "kg/J"
    zero_allowed = True
    sane = (1e-12, 1e-3)
