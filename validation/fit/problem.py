"""Numbers of software as least squares over measurements: what moves, between which ends, how far rows are off.

What is minimised is that of fits to kernels: the sum over the rows of 2 s^2 (sqrt(1 + (r/s)^2) - 1), r = log(predicted
/ measured), s = 0.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.software.stack_limits import Movable
from ...ir.records import dataclass
from .fitting import FARTHEST, ROBUST

Array = NDArray[np.float64]
Report = Callable[[str], None]
# Differences are taken over so much of a number: steps have kinks that closer ones would get stuck at.
STEP = 0.02
# A number nearer to an end than so much of its range is at the end.
NEAR = 1e-4
# A start below this part of its range says nothing of how large the number is; a quarter of the range does.
_SMALL = 0.01


class Problem(ABC):
    """Numbers that move, and measurements in parts, each of which depends on some of the numbers.

    Attributes:
        numbers: what moves, each with its ends.
        start: where the numbers begin, as people set them.
        taken: of each part the places of the numbers that it depends on.
    """

    def __init__(self, numbers: Sequence[Movable], start: Sequence[float], taken: Sequence[frozenset[int]]) -> None:
        self.numbers, self.taken = tuple(numbers), tuple(taken)
        self.low = np.asarray([number.low for number in numbers], dtype=np.float64)
        self.high = np.asarray([number.high for number in numbers], dtype=np.float64)
        self.start = np.clip(np.asarray(start, dtype=np.float64), self.low, self.high)

    @abstractmethod
    def log_errors(self, part: int, numbers: Array) -> Array:
        """Return log(predicted / measured) of the measurements of a part under some numbers."""

    @property
    def scale(self) -> Array:
        """What a number is compared with: where it begins, or a part of its range."""
        wide = self.high - self.low
        return np.where(self.start >= _SMALL * wide, self.start, wide / 4.0)

    def residuals(self, numbers: Array) -> list[Array]:
        """Return the errors part by part; far ones are all alike."""
        return [self._bounded(part, numbers) for part in range(len(self.taken))]

    def slopes(self, numbers: Array) -> Array:
        """Return derivatives by differences; only parts that take a number are predicted again."""
        here = self.residuals(numbers)
        steps = np.where(numbers + STEP * self.scale <= self.high, 1.0, -1.0) * STEP * self.scale
        found = np.zeros((sum(map(len, here)), len(numbers)))
        for k, step in enumerate(steps.tolist()):
            beside = numbers.copy()
            beside[k] += step
            parts = (self._bounded(n, beside) if k in self.taken[n] else of for n, of in enumerate(here))
            found[:, k] = np.concatenate([there - of for there, of in zip(parts, here, strict=True)]) / step
        return found

    def written(self, numbers: Array) -> Array:
        """Round numbers as files have them; those near an end of their range are at it."""
        near = NEAR * (self.high - self.low)
        ends = np.where(numbers <= self.low + near, self.low, numbers)
        ends = np.where(ends >= self.high - near, self.high, ends)
        scales = [number.scale for number in self.numbers]
        return np.asarray([float(f"{x / scale:.4g}") * scale for x, scale in zip(ends, scales, strict=True)])

    def _bounded(self, part: int, numbers: Array) -> Array:
        errors = np.nan_to_num(self.log_errors(part, numbers), nan=FARTHEST)
        return np.asarray(np.clip(errors, -FARTHEST, FARTHEST))


@dataclass(frozen=True, slots=True)
class Solution:
    """Numbers as fitted and written; those that no measurement depends on are `idle` and stay where they were."""

    numbers: Array
    idle: NDArray[np.bool_]


def fit(problem: Problem, report: Report) -> Solution:
    """Fit the numbers of a problem, as precise as they are written: what is judged is what is written."""
    from scipy.optimize import least_squares

    scale, margin = problem.scale, 1e-6 * (problem.high - problem.low)
    rounds = 0

    def residuals(shares: Array) -> Array:
        return np.concatenate(problem.residuals(shares * scale))

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
    numbers = np.where(idle, problem.start, problem.written(np.asarray(found.x * scale)))
    return Solution(numbers, np.asarray(idle))
