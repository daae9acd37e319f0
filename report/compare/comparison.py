"""Two saved reports into what changed: metrics, parts by size of change, inputs that differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from ...driver.uncertainty.bands import Band
from ...ir.errors import UsageError
from ...ir.records import dataclass
from .saved import Saved
from .saved_bands import are_paired


@dataclass(frozen=True, slots=True)
class Change:
    """One number in both reports; `ratio` is the band of B / A where that is known."""

    name: str
    unit: str
    before: float
    after: float
    ratio: Band | None = None

    @property
    def difference(self) -> float:
        """B - A."""
        return self.after - self.before

    @property
    def relative(self) -> float:
        """B / A - 1; infinite for something that was zero.

        >>> Change("step_time_s", "s", 10.0, 11.0).relative, Change("bubble", "s", 0.0, 1.0).relative
        (0.1, inf)
        """
        if self.before:
            return self.difference / abs(self.before)
        return math.copysign(math.inf, self.difference) if self.difference else 0.0


@dataclass(frozen=True, slots=True)
class ComparisonSection:
    """The parts of a metric, largest change first, and the change of the whole."""

    name: str
    title: str
    whole: Change
    parts: Sequence[Change]
    add_up: bool


@dataclass(frozen=True, slots=True)
class Differs:
    """An input that the reports do not share, None where one does not have it."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Comparison:
    """Report `a` beside report `b`."""

    a: Saved
    b: Saved

    @cached_property
    def metrics(self) -> Mapping[str, Change]:
        """The metrics that both have."""
        both = [name for name in self.a.metrics if name in self.b.metrics]
        return {n: Change(n, self.a.unit(n), self.a.metrics[n], self.b.metrics[n], self._ratio(n)) for n in both}

    @property
    def is_paired(self) -> bool:
        """Whether both share their errors, so that these cancel in ratios: the same software on the same silicon."""
        return are_paired(self.a.inputs, self.b.inputs)

    def _ratio(self, name: str) -> Band | None:
        """The band of B / A of a metric: of differences between plans on a machine, or of both by themselves."""
        if self.is_paired:
            return self.b.ratio_bands.get(name)
        bands = self.a.bands.get(name), self.b.bands.get(name)
        return None if bands[0] is None or bands[1] is None else bands[1].over(bands[0])

    @cached_property
    def alone(self) -> Mapping[str, str]:
        """The metrics that one report has alone, and which."""
        only_a = {name: "A" for name in self.a.metrics if name not in self.b.metrics}
        return only_a | {name: "B" for name in self.b.metrics if name not in self.a.metrics}

    @cached_property
    def sections(self) -> Sequence[ComparisonSection]:
        """What the metrics are made of; a part that only one report has is zero in the other."""
        found = []
        for one, other in zip(self.a.parts, self.b.parts, strict=True):
            whole = self.metrics.get(one.of)
            names = list(dict.fromkeys((*one.values, *other.values)))
            if not one.add_up:
                names = [n for n in names if n in one.values and n in other.values]
            changes = [Change(n, one.unit, one.values.get(n, 0.0), other.values.get(n, 0.0)) for n in names]
            if whole is not None:
                found.append(
                    ComparisonSection(
                        one.name, one.title, whole, tuple(sorted(changes, key=lambda c: -abs(c.difference))), one.add_up
                    )
                )
        return tuple(found)

    @cached_property
    def inputs(self) -> Sequence[Differs]:
        """The inputs that differ."""
        names = dict.fromkeys((*self.a.inputs, *self.b.inputs))
        pairs = [(n, self.a.inputs.get(n), self.b.inputs.get(n)) for n in names]
        return tuple(Differs(*pair) for pair in pairs if pair[1] != pair[2])

    @cached_property
    def warnings(self) -> Sequence[tuple[str, str]]:
        """The warnings that only one report has, and which."""
        only_a = [("A", w) for w in self.a.warnings if w not in self.b.warnings]
        return (*only_a, *(("B", w) for w in self.b.warnings if w not in self.a.warnings))

    @property
    def headline(self) -> Change:
        """The number that the comparison is about."""
        name = next(n for n in ("step_time_s", "median_ape", *self.metrics) if n in self.metrics)
        return self.metrics[name]


def compare(a: Saved, b: Saved) -> Comparison:
    """Put two reports side by side; UsageError when they are not of one kind or share no metric."""
    if a.schema != b.schema:
        raise UsageError(f"'{a.path}' is a {a.schema}, '{b.path}' a {b.schema}: give two reports of one kind")
    found = Comparison(a, b)
    if not found.metrics:
        raise UsageError(f"'{a.path}' and '{b.path}' have no metric in common")
    return found


def split(changes: Iterable[Change], least: float) -> tuple[list[Change], list[Change]]:
    """Part what changes by more than `least` from the rest."""
    every = list(changes)
    large = [c for c in every if abs(c.difference) > least]
    return large, [c for c in every if abs(c.difference) <= least]
