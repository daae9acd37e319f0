"""Numbers of a stack that a fit may move: by their path in a file, with the ends between which they stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from ....ir.errors import UnknownNameError
from ....ir.records import dataclass
from .stack import FitBounds, HostFloor, Overlap, StackConstants

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")

_MS = 1e-3
_CHIPS = "chips."


@dataclass(frozen=True, slots=True)
class Movable:
    """A number of a stack or an engine, in base units.

    Attributes:
        path: where it stands in a file, as in `host.layer`.
        section: the part of `StackConstants` that holds it, empty where it holds it itself.
        field: its field there, as in `layer_s`.
        low: the least that it may be.
        high: the most.
        unit: in which it is written: `ms`, or nothing for a plain number.
        rolled: whether it matters only where times of kernels and messages are put together.
    """

    path: str
    section: str
    field: str
    low: float
    high: float
    unit: str = ""
    rolled: bool = False

    @property
    def scale(self) -> float:
        """One unit of it in base units."""
        return _MS if self.unit == "ms" else 1.0

    def of(self, holder: object) -> float:
        """Return the number that a stack, or an engine, has; 1 for a factor that it does not say."""
        found = getattr(getattr(holder, self.section) if self.section else holder, self.field)
        return 1.0 if found is None else float(found)


def movable_in(record: type[DataclassInstance], section: str = "") -> Iterator[Movable]:
    """Return the numbers of a record that a fit may move, those of its sections first, as its fields say."""
    for one in fields(record):
        if isinstance(one.default_factory, type) and is_dataclass(one.default_factory):
            yield from movable_in(one.default_factory, one.name)
    for one in fields(record):
        ends = one.metadata.get("ends")
        if isinstance(ends, FitBounds):
            key, scale = one.name.removesuffix("_s"), _MS if ends.unit else 1.0
            path = f"{section}.{key}" if section else key
            yield Movable(path, section, one.name, ends.low * scale, ends.high * scale, ends.unit, ends.rolled)


MOVABLE: Mapping[str, Movable] = MappingProxyType({one.path: one for one in movable_in(StackConstants)})


def split_chip(path: str) -> tuple[str, str]:
    """Split a path into the chip that it is about, empty for any chip, and the number.

    >>> split_chip("chips.h100-sxm-80gb.kernel_slowdown.matmul"), split_chip("host.layer")
    (('h100-sxm-80gb', 'kernel_slowdown.matmul'), ('', 'host.layer'))
    """
    if not path.startswith(_CHIPS):
        return "", path
    chip, _, number = path.removeprefix(_CHIPS).partition(".")
    return chip, number


def keys_of(path: str) -> tuple[str, ...]:
    """Return the keys that lead to a number in a file.

    >>> keys_of("chips.h100-sxm-80gb.host.layer")
    ('chips', 'h100-sxm-80gb', 'host', 'layer')
    """
    return tuple(path.split("."))


def movable(path: str, known: Mapping[str, Movable] = MOVABLE) -> Movable:
    """Return the number at a path, of any chip or of one; UnknownNameError names the nearest.

    >>> movable("host.layer").high, movable("chips.h100-sxm-80gb.host.layer").path
    (0.02, 'host.layer')
    """
    number = split_chip(path)[1]
    if number not in known:
        raise UnknownNameError.of("number to fit", number, known)
    return known[number]


def moved(stack: StackConstants, values: Mapping[str, float]) -> StackConstants:
    """Return a stack with numbers in the place of its own, by their paths, in base units.

    >>> moved(StackConstants("mine", 0.0, 0.0, 0.0), {"host.layer": 2e-3, "overlap.dp": 0.5}).host.layer_s
    0.002
    """
    parts: dict[str, dict[str, float]] = {}
    for path, value in values.items():
        number = movable(path)
        parts.setdefault(number.section, {})[number.field] = value
    whole = parts.pop("", {})
    inner = {name: _with(getattr(stack, name), values) for name, values in parts.items()}
    return _with(stack, {**whole, **inner})


def _with(record: R, values: Mapping[str, object]) -> R:
    return replace(record, **values)


def priced_alike(stack: StackConstants) -> StackConstants:
    """Return a stack without what matters only where times are put together: equal ones price each node alike."""
    return replace(stack, host=HostFloor(), overlap=Overlap(), rank_spread=0.0)
