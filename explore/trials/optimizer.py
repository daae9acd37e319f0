"""What an optimiser chooses from and how it is spoken to: axes, trials, and the protocol of asking and telling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from ...ir.records import dataclass

Value: TypeAlias = int | float | str
# What a trial was worth, goal by goal; None when nothing is feasible there.
Values: TypeAlias = tuple[float, ...] | None
# A range is cut into so many steps at least: its values are short enough to be typed again.
_STEPS = 1000
# Digits of a value on a logarithmic range.
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Numbers between two ends, both of them included.

    Attributes:
        name: what it is a range of.
        first: the least, in `unit`.
        last: the largest, in `unit`.
        unit: as it was typed; empty for plain numbers.
        is_log: whether each factor is as likely as the next, and not each step.
        is_whole: whether only whole numbers are in it.
    """

    name: str
    first: float
    last: float
    unit: str = ""
    is_log: bool = False
    is_whole: bool = False

    def value(self, raw: float) -> float | int:
        """Return a number of the range near a raw one, short enough to be typed again.

        >>> Range(name="hbm", first=2.0, last=10.0, unit="TB/s").value(6.1237777)
        6.124
        """
        if self.is_whole:
            return round(raw)
        step = 10 ** (math.floor(math.log10(raw)) + 1 - _DIGITS) if self.is_log else (self.last - self.first) / _STEPS
        rounded = round(raw, math.ceil(-math.log10(step) - 1e-9))
        return float(min(max(rounded, self.first), self.last))

    def text(self, value: Value) -> str:
        """Return a value as people type it.

        >>> Range(name="hbm", first=2.0, last=10.0, unit="TB/s").text(6.124)
        '6.124TB/s'
        """
        return f"{repr(value).removesuffix('.0')}{self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoricalParameter:
    """Words or numbers as words, one of which is chosen: what it is a choice of, and which there are."""

    name: str
    values: tuple[str, ...]

    def text(self, value: Value) -> str:
        """Return a value as people type it."""
        return str(value)


Axis: TypeAlias = Range | CategoricalParameter


@dataclass(frozen=True, slots=True)
class Trial:
    """One point of a space: its number, from 0 on, and its value on every axis by name."""

    number: int
    values: Mapping[str, Value]


class TrialOptimizer(Protocol):
    """Chooses where to look next, from what was found so far."""

    def ask(self) -> Trial:
        """Return the next trial: first all that it was asked for in an earlier process, told or not, in order."""
        ...

    def tell(self, number: int, values: Values) -> None:
        """Say what a trial was worth, goal by goal as their metrics are, or None when nothing is feasible there.

        What was told before may be told again; UsageError where it is not the same.
        """
        ...


def run_trials(
    optimizer: TrialOptimizer,
    num_trials: int,
    at_once: int,
    price: Callable[[Sequence[Trial], int], Sequence[Values]],
) -> None:
    """Ask for trials, some at a time, have them priced, and tell what they are worth in their order.

    Whole batches are asked for, so that a study that goes on longer later does as if it never had stopped.

    Args:
        optimizer: chooses.
        num_trials: how many are told.
        at_once: trials that are asked for before the first of them is told.
        price: is given a batch, and how many of it count; returns what each of these is worth.
    """
    for first in range(0, num_trials, at_once):
        asked = [optimizer.ask() for _ in range(at_once)]
        worth = price(asked, min(at_once, num_trials - first))
        for trial, values in zip(asked, worth, strict=False):
            optimizer.tell(trial.number, values)
