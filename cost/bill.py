"""What something costs as a record that adds up: a line for each part, with its formula and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType

import numpy as np

from ..ir.errors import UnknownNameError
from ..ir.records import dataclass
from ..ir.sizes.expr import Num

_NOTHING: Mapping[str, Num] = MappingProxyType({})


def _nothing() -> Mapping[str, Num]:
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Bill:
    """One line, and the lines that it is the sum of; a million designs are one bill of arrays.

    Attributes:
        name: what people call it, unique among its neighbours: `package`, `raw chips`.
        usd: what it costs; with parts, their sum.
        formula: how `usd` comes about, in the words of `values`; empty for a sum. It is proportional to a `count`.
        values: what the formula is of, by name with its unit: `{"yield": 0.42, "wafer_usd": 16988.0}`.
        numbers: paths of the numbers of the system and its prices that it is made of, for their sources.
        parts: the lines that it is the sum of, in the order people read them.
    """

    name: str
    usd: Num
    formula: str = ""
    values: Mapping[str, Num] = field(default_factory=_nothing, hash=False)
    numbers: tuple[str, ...] = ()
    parts: tuple[Bill, ...] = ()

    @classmethod
    def of(cls, name: str, parts: Sequence[Bill], values: Mapping[str, Num] = _NOTHING) -> Bill:
        """Add lines up.

        >>> Bill.of("package", [Bill("chips", 600.0), Bill("substrate", 16.0)]).usd
        616.0
        """
        return cls(name, sum((p.usd for p in parts), start=0.0), values=values, parts=tuple(parts))

    def times(self, count: Num, name: str = "") -> Bill:
        """Return the bill of so many of it, each line times the count; one of a thing is the thing.

        >>> three = Bill.of("die", [Bill("raw", 2.0, "w / n", {"w": 6.0, "n": 3.0})]).times(3.0)
        >>> three.usd, three.line("raw").formula, three.line("raw").values["count"]
        (6.0, 'count * (w / n)', 3.0)
        """
        if np.ndim(count) == 0 and count == 1.0:
            return replace(self, name=name or self.name)
        formula, values = self._counted(count)
        parts = tuple(part.times(count) for part in self.parts)
        return Bill(name or self.name, self.usd * count, formula, values, self.numbers, parts)

    def _counted(self, count: Num) -> tuple[str, Mapping[str, Num]]:
        if not self.formula:
            return "", self.values
        if "count" in self.values:
            return self.formula, {**self.values, "count": self.values["count"] * count}
        inner = self.formula if self.formula.isidentifier() else f"({self.formula})"
        return f"count * {inner}", {"count": count, **self.values}

    def line(self, path: str) -> Bill:
        """Return a line by its path below this one, `package/raw chips`; UnknownNameError names those there are."""
        head, _, rest = path.partition("/")
        for part in self.parts:
            if part.name == head:
                return part.line(rest) if rest else part
        raise UnknownNameError.of(f"line of {self.name}", head, [part.name for part in self.parts])

    def walk(self, path: str = "") -> Iterator[tuple[str, Bill]]:
        """Yield every line with its path, each before its parts."""
        here = f"{path}/{self.name}" if path else self.name
        yield here, self
        for part in self.parts:
            yield from part.walk(here)
