"""The leaves of a system file: numbers with unit and source, checked against what their place allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ....ir.errors import UsageError
from ....ir.units import format_si, parse_quantity, split_quantity, units_of
from .number_schema import number_schema
from .records import Confidence, NumberRecord

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


class Section(BaseModel):
    """A part of a system file; a key that it does not know is an error."""

    # A section is part of a few files at most: what validates it is made with the file that it is read in.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    # What people call an entry of a list of such.
    called: ClassVar[str] = "entry"

    @classmethod
    def describes(cls, tree: object) -> bool:
        """Whether what is written is of this kind, where a place may hold one of several."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """`{value: 989, unit: TFLOP/s, source: ...}` or `{value: "989 TFLOP/s", source: ...}`; `si` is in base units.

    `989 TFLOP/s` alone is short for an estimate whose source is the file that it stands in.

    A subclass says which dimension and which range its place allows.
    """

    dimension: ClassVar[str] = "1"
    zero_allowed: ClassVar[bool] = False
    maximum: ClassVar[float] = float("inf")
    # Beyond it lies no machine, built or planned: a slip of the unit.
    sane: ClassVar[tuple[float, float]] = (0.0, float("inf"))
    whole: ClassVar[bool] = False
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    unit: str | None = None
    value: float | str
    source: str
    confidence: Confidence = "datasheet"
    as_of: str | None = None
    si: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the number, and check that its place allows it."""
        number = self._si(self.value, self.unit)
        self._check_range(self.value, number)
        self._check_sense(self._text(self.value, self.unit), number)
        object.__setattr__(self, "si", number)

    @classmethod
    def describes(cls, tree: object) -> bool:
        """Whether what is written is of this kind, where a place may hold one of several."""
        return True

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read all kinds of numbers alike."""
        return number_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Say in the schema which units there are; JSON Schema cannot check them."""
        schema = handler.resolve_ref_schema(handler(core["schema"] if core["type"] == "function-before" else core))
        units = f"{schema.get('description', '')} Units: {units_of(cls.dimension)}.".strip()
        short = {"type": ["string", "number"], "description": "The value with its unit, an estimate of this file."}
        return {"anyOf": [{k: v for k, v in schema.items() if k != "description"}, short], "description": units}

    @classmethod
    def _si(cls, value: float | str, unit: str | None) -> float:
        text = cls._text(value, unit)
        if not split_quantity(text)[1] and cls.dimension != "1":
            raise UsageError(f"missing unit of '{text}': allowed: {units_of(cls.dimension)}")
        return parse_quantity(text, cls.dimension).value_si

    @classmethod
    def _text(cls, value: float | str, unit: str | None) -> str:
        if isinstance(value, str) and unit is not None and split_quantity(value)[1]:
            raise UsageError(f"unit given twice: '{value}' and '{unit}'")
        return f"{value} {unit or ''}".strip()

    @classmethod
    def _check_range(cls, value: float | str, number: float) -> None:
        if number < 0 or (number == 0 and not cls.zero_allowed):
            raise UsageError(f"'{value}' must be {'zero or more' if cls.zero_allowed else 'more than zero'}")
        if number > cls.maximum:
            raise UsageError(f"'{value}' must be at most {cls.maximum:g}")
        if cls.whole and number != int(number):
            raise UsageError(f"'{value}' must be a whole number")

    @classmethod
    def _check_sense(cls, text: str, number: float) -> None:
        low, high = cls.sane
        if number and not low <= number <= high:
            unit = "" if cls.dimension == "1" else cls.dimension
            sense = f"{format_si(low, unit)} to {format_si(high, unit)}"
            raise UsageError(f"'{text}' is beyond any machine: from {sense}")

    def record(self, path: str) -> NumberRecord:
        """Return the number as written and in base units, for people who ask where it comes from."""
        number, unit = split_quantity(self._text(self.value, self.unit))
        return NumberRecord(path, number, unit, self.si, self.dimension, self.source, self.confidence, self.as_of)


def leaves_of(section: Section, path: str = "") -> Iterator[tuple[str, Number | str]]:
    """Yield every number and every word of a section with its path, in the order of the schema."""
    for key in type(section).model_fields:
        yield from _leaves(getattr(section, key), f"{path}.{key}" if path else key)


def _leaves(found: object, path: str) -> Iterator[tuple[str, Number | str]]:
    if isinstance(found, Number | str):
        yield path, found
    elif isinstance(found, Section):
        yield from leaves_of(found, path)
    elif isinstance(found, list):
        for place, entry in enumerate(found):
            yield from _leaves(entry, f"{path}.{getattr(entry, 'name', place)}")
    elif isinstance(found, dict):
        for name, entry in found.items():
            yield from _leaves(entry, f"{path}.{name}")


class Count(Number):
    """A whole number of things."""

    whole = True
    sane = (1, 1e9)


class Ratio(Number):
    """A part of something: more than zero, at most one."""

    maximum = 1.0


class Share(Number):
    """A part of something: from none to all of it."""

    zero_allowed = True
    maximum = 1.0


def check_margin(value: float | str, number: float) -> None:
    """Raise UsageError for a margin of a whole price, which would be without end."""
    if number >= 1.0:
        raise UsageError(f"'{value}' must be below 1: it is a part of the price, cost / (1 - margin)")


class Margin(Share):
    """A part of a price that its seller keeps: from none to less than all of it."""

    @classmethod
    def _check_range(cls, value: float | str, number: float) -> None:
        super()._check_range(value, number)
        check_margin(value, number)


class Factor(Number):
    """How many times something is, or lasts: 1 where it changes nothing."""

    sane = (0.1, 1e3)


class Capacity(Number):
    """An amount of memory."""

    dimension = "B"
    sane = (1e3, 1e16)


class Reserve(Capacity):
    """An amount of memory that may be zero."""

    zero_allowed = True


class Bandwidth(Number):
    """Bytes per second."""

    dimension = "B/s"
    sane = (1e6, 1e17)


class FlopRate(Number):
    """Floating-point operations per second."""

    dimension = "FLOP/s"
    sane = (1e8, 1e20)


class Latency(Number):
    """A time that may be zero."""

    dimension = "s"
    zero_allowed = True
    sane = (1e-12, 10.0)


class Frequency(Number):
    """A clock."""

    dimension = "Hz"
    sane = (1e6, 1e11)


class Power(Number):
    """Electrical power."""

    dimension = "W"
    sane = (1e-3, 1e6)


class Price(Number):
    """What something is bought for."""

    dimension = "USD"
    sane = (1e-3, 1e9)


class Some(Number):
    """How many there are, on average where that is no whole number."""

    zero_allowed = True
    sane = (1e-3, 1e6)


def filled(record: R, section: Section | None) -> R:
    """Return a record with what a section of a file says in the place of its own, in base units.

    A field is named as its key in the file, with `_s` behind where it is a time; a field without a key stays.
    """
    given = {one.name: getattr(section, one.name.removesuffix("_s"), None) for one in fields(record)}
    told = {name: _plain(value, getattr(record, name)) for name, value in given.items() if value is not None}
    return replace(record, **told)


def _plain(given: object, usual: object) -> object:
    if isinstance(given, Section) and is_dataclass(usual) and not isinstance(usual, type):
        return filled(usual, given)
    if not isinstance(given, Number):
        return given
    return int(given.si) if isinstance(usual, int) else given.si
