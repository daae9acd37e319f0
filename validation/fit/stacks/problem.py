"""Numbers of stacks as a problem of least squares over steps: what moves, between which ends, how far steps are off.

What is minimised is that of fits to kernels: the sum over the rows of 2 s^2 (sqrt(1 + (r/s)^2) - 1), r = log(predicted
/ measured), s = 0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ....backends.machine.software.stack import StackConstants
from ....backends.machine.software.stack_limits import movable, moved
from ....ir.records import dataclass
from ..fitting import FARTHEST, ROBUST
from .pricer import StackPricer
from .profiles import Profiles, ProfileSlot, Taken

Array = NDArray[np.float64]
Report = Callable[[str], None]
# Differences are taken over so much of a number: steps have kinks that closer ones would get stuck at.
STEP = 0.02
# A number nearer to an end than so much of its range is at the end.
NEAR = 1e-4
# A start below this part of its range says nothing of how large the number is; a quarter of the range does.
_SMALL = 0.01


@dataclass(frozen=True, slots=True)
class StackProblem:
    """Steps, the numbers that move, and where each stands in the stack of each table."""

    pricers: tuple[StackPricer, ...]
    taken: tuple[Taken, ...]
    slots: tuple[ProfileSlot, ...]
    start: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, pricers: Sequence[StackPricer], profiles: Profiles) -> StackProblem:
        """Gather the numbers that steps take, each where its profile has it."""
        taken = tuple(profiles.of(pricer.table.cases[0]) for pricer in pricers)
        found = {slot for one in taken for slot in one.slots.values()}
        # Those that need no node priced again stand first, so that what was priced serves all of them.
        slots = tuple(sorted(found, key=lambda slot: (not movable(slot.path).rolled, slot.profile, slot.path)))
        numbers = [movable(slot.path) for slot in slots]
        start = [movable(slot.path).of(profiles.start(slot)) for slot in slots]
        low, high = np.asarray([n.low for n in numbers]), np.asarray([n.high for n in numbers])
        return cls(tuple(pricers), taken, slots, np.clip(np.asarray(start), low, high), low, high)

    @property
    def scale(self) -> Array:
        """What a number is compared with: where it begins, or a part of its range."""
        wide = self.high - self.low
        return np.where(self.start >= _SMALL * wide, self.start, wide / 4.0)

    def values(self, numbers: Array) -> Mapping[ProfileSlot, float]:
        """Return numbers by their slots."""
        return {slot: float(x) for slot, x in zip(self.slots, numbers, strict=True)}

    def residuals(self, numbers: Array) -> Array:
        """Return log(predicted / measured), table by table; far ones are all alike."""
        return np.concatenate(self.by_table(self.values(numbers)))

    def by_table(self, values: Mapping[ProfileSlot, float]) -> list[Array]:
        """Return log(predicted / measured) of each table."""
        pairs = zip(self.pricers, self.taken, strict=True)
        return [_bounded(pricer.log_errors(with_values(taken, values))) for pricer, taken in pairs]

    def slopes(self, numbers: Array) -> Array:
        """Return derivatives by differences; only tables that take a number are priced again."""
        here = self.by_table(self.values(numbers))
        steps = np.where(numbers + STEP * self.scale <= self.high, 1.0, -1.0) * STEP * self.scale
        found = np.zeros((sum(map(len, here)), len(numbers)))
        for k, (slot, step) in enumerate(zip(self.slots, steps, strict=True)):
            beside = {**self.values(numbers), slot: float(numbers[k] + step)}
            found[:, k] = np.concatenate([self._change(n, slot, beside, here[n]) for n in range(len(here))]) / step
        return found

    def _change(self, place: int, slot: ProfileSlot, beside: Mapping[ProfileSlot, float], here: Array) -> Array:
        taken = self.taken[place]
        if slot not in taken.slots.values():
            return np.zeros_like(here)
        return _bounded(self.pricers[place].log_errors(with_values(taken, beside))) - here


@dataclass(frozen=True, slots=True)
class Solution:
    """Numbers as fitted; `untold` are those that no step depends on, which stay where they were."""

    values: Mapping[ProfileSlot, float]
    untold: frozenset[ProfileSlot]


class Moving(Protocol):
    """A problem of least squares: numbers between their ends, residuals under them, and the slopes of those."""

    @property
    def start(self) -> Array:
        """Where the numbers begin."""
        ...

    @property
    def low(self) -> Array:
        """The least that they may be."""
        ...

    @property
    def high(self) -> Array:
        """The most."""
        ...

    @property
    def scale(self) -> Array:
        """What they are compared with."""
        ...

    def residuals(self, numbers: Array) -> Array:
        """Return log(predicted / measured) under numbers."""
        ...

    def slopes(self, numbers: Array) -> Array:
        """Return the derivatives of that."""
        ...


def solve(problem: StackProblem, report: Report) -> Solution:
    """Fit the numbers of a problem, as precise as they are written and at an end of their range where they are near it.

    UsageError where scipy is not installed.
    """
    found, idle = least(problem, report)
    untold = frozenset(slot for slot, alone in zip(problem.slots, idle, strict=True) if alone)
    # Round numbers as files have them, so that what is judged is what is written.
    near = NEAR * (problem.high - problem.low)
    ends = np.where(found <= problem.low + near, problem.low, found)
    ends = np.where(ends >= problem.high - near, problem.high, ends)
    kept = np.where(
        idle, problem.start, np.asarray([rounded(slot, x) for slot, x in zip(problem.slots, ends, strict=True)])
    )
    return Solution(problem.values(kept), untold)


def least(problem: Moving, report: Report) -> tuple[Array, NDArray[np.bool_]]:
    """Return the numbers of the least sum of softened squares, and which of them no residual depends on."""
    from scipy.optimize import least_squares

    scale, margin = problem.scale, 1e-6 * (problem.high - problem.low)
    rounds = 0

    def residuals(shares: Array) -> Array:
        return problem.residuals(shares * scale)

    def slopes(shares: Array) -> Array:
        nonlocal rounds
        rounds += 1
        off = np.abs(np.expm1(residuals(shares)))
        report(f"round {rounds}: median error {np.median(off):.1%}, p90 {np.quantile(off, 0.9):.1%}")
        return problem.slopes(shares * scale) * scale

    start = np.clip(problem.start, problem.low + margin, problem.high - margin)
    found = least_squares(
        residuals,
        start / scale,
        jac=slopes,
        bounds=(problem.low / scale, problem.high / scale),
        loss="soft_l1",
        f_scale=ROBUST,
        ftol=1e-5,
        xtol=1e-5,
        max_nfev=40,
    )
    idle = ~np.any(np.asarray(found.jac) != 0.0, axis=0) & np.isclose(found.x, start / scale)
    return np.asarray(found.x * scale), np.asarray(idle)


def with_values(taken: Taken, values: Mapping[ProfileSlot, float]) -> StackConstants:
    """Return a stack with the numbers of a fit where it takes them."""
    return moved(taken.plain, {path: values[slot] for path, slot in taken.slots.items() if slot in values})


def _bounded(errors: Array) -> Array:
    return np.asarray(np.clip(np.nan_to_num(errors, nan=FARTHEST), -FARTHEST, FARTHEST))


def rounded(slot: ProfileSlot, value: float) -> float:
    """Return a number with as many digits as a fit tells, in base units."""
    scale = movable(slot.path).scale
    return float(f"{value / scale:.4g}") * scale
