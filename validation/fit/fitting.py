"""Constants of kernels by robust least squares on the logarithm of predicted over measured times.

What is minimised is the sum over the rows of 2 s^2 (sqrt(1 + (r/s)^2) - 1), r = log(predicted / measured), s = 0.1:
squares for errors below 10 %, sizes above, so that a few odd rows do not bend a fit. Constants stay within their
limits, and a weak pull keeps those that the rows do not tell where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...backends.kernels.limits import ConstantRange, Scope, limits_of
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..rows.gather import CasePool

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Array = NDArray[np.float64]
T = TypeVar("T")
# Errors above this count by their size and no longer by their square.
ROBUST = 0.1
# The pull towards where a constant began: a factor e off counts like one row that is 10 % off.
PULL = 0.1
# Further starts: constants times these, in turn.
STARTS: Sequence[tuple[float, ...]] = ((1.0,), (0.6, 1.6), (1.6, 0.6))
# Rows that each number must have; fewer would be met exactly and tell nothing.
ROWS_PER_NUMBER = 2
# Logarithms beyond this are all the same: a model that gives nothing sensible there.
FARTHEST = 5.0
_STEP = 1e-4


@dataclass(frozen=True, slots=True)
class ConstantSlot:
    """One number that a fit moves: a constant, and the chip or library it belongs to, or nothing for all."""

    field: str
    owner: str


# Whom a constant of a pool belongs to; None leaves it as it is.
Owners = Callable[[CasePool, ConstantRange], str | None]


@dataclass(frozen=True, slots=True)
class _Problem:
    """Pools, the numbers that move, and which of them each pool's constants take."""

    pools: tuple[CasePool, ...]
    measured: tuple[Array, ...]
    slots: tuple[ConstantSlot, ...]
    taken: tuple[Mapping[str, int], ...]
    weights: tuple[float, ...]
    start: Array
    low: Array
    high: Array

    @property
    def scale(self) -> Array:
        """What a number is compared with: where it began, or a small part of its range."""
        return np.maximum(np.abs(self.start), 0.02 * (self.high - self.low))

    def constants(self, place: int, numbers: Array) -> object:
        """Return the constants of a pool under some numbers."""
        moved = {name: float(numbers[k]) for name, k in self.taken[place].items()}
        return with_values(self.pools[place].constants, moved)

    def residuals(self, numbers: Array) -> Array:
        """Return what is squared and summed: errors pool by pool, then the pull."""
        rows = [self._of(place, numbers) for place in range(len(self.pools))]
        return np.concatenate([*rows, self._pull(numbers)])

    def slopes(self, numbers: Array) -> Array:
        """Return the derivatives by finite differences; only pools that take a number are predicted again."""
        here = [self._of(place, numbers) for place in range(len(self.pools))]
        ends = np.cumsum([0, *map(len, here)])
        found = np.zeros((ends[-1] + len(numbers), len(numbers)))
        for k, step in enumerate(self._steps(numbers)):
            beside = numbers.copy()
            beside[k] += step
            for place, taken in enumerate(self.taken):
                if k in taken.values():
                    found[ends[place] : ends[place + 1], k] = (self._of(place, beside) - here[place]) / step
            found[ends[-1] :, k] = (self._pull(beside) - self._pull(numbers)) / step
        return found

    def _steps(self, numbers: Array) -> Array:
        step = _STEP * self.scale
        return np.where(numbers + step <= self.high, step, -step)

    def _of(self, place: int, numbers: Array) -> Array:
        errors = log_errors(self.pools[place], self.constants(place, numbers), self.measured[place])
        return self.weights[place] * softened(errors)

    def _pull(self, numbers: Array) -> Array:
        little = 0.02 * self.scale
        return np.asarray(PULL * np.log((numbers + little) / (self.start + little)))


def fitted(
    pools: Sequence[CasePool],
    owners: Owners,
    alike: bool = False,
    to_the_ends: bool = False,
    kept: frozenset[str] = frozenset(),
) -> dict[ConstantSlot, float]:
    """Fit the constants that have an owner to the cases of pools of one kind of kernel; see `tells`.

    With `alike` pools have the same weight, however many rows they have. Those that are `kept` stay, as do a chip's own
    that come to lie at an end of their range, unless they may go `to_the_ends`.

    Raises:
        UsageError: scipy is not installed.
    """
    need_scipy()
    problem = _problem(pools, owners, alike, kept)
    if not problem.slots:
        return {}
    numbers = min((_solve(problem, factors) for factors in STARTS), key=lambda found: found[0])[1]
    stuck = frozenset[str]() if to_the_ends else _at_a_limit(problem, numbers)
    if stuck:
        return fitted(pools, owners, alike, to_the_ends, kept | stuck)
    return {slot: float(x) for slot, x in zip(problem.slots, numbers, strict=True)}


def _at_a_limit(problem: _Problem, numbers: Array) -> frozenset[str]:
    """Name constants of a chip's own that a fit ran to an end of their range: its rows do not tell them."""
    limits = limits_of(type(problem.pools[0].constants))
    near = 1e-3 * (problem.high - problem.low)
    ends = (numbers <= problem.low + near) | (numbers >= problem.high - near)
    found = (slot.field for slot, end in zip(problem.slots, ends, strict=True) if end)
    return frozenset(name for name in found if limits[name].scope is Scope.CHIP)


def tells(pools: Sequence[CasePool], owners: Owners) -> bool:
    """Whether pools have rows enough for the constants that have an owner."""
    slots = {slot for pool in pools for slot in _slots_of(pool, owners).values()}
    return sum(len(pool.cases) for pool in pools) >= ROWS_PER_NUMBER * len(slots)


def with_fitted(pool: CasePool, owners: Owners, values: Mapping[ConstantSlot, float]) -> CasePool:
    """Return a pool with the constants that a fit found for it."""
    moved = {name: values[slot] for name, slot in _slots_of(pool, owners).items() if slot in values}
    return replace(pool, constants=with_values(pool.constants, moved))


def with_values(constants: T, values: Mapping[str, float]) -> T:
    """Return constants with some of them replaced."""
    return cast(T, replace(cast("DataclassInstance", constants), **values))


def log_errors(pool: CasePool, constants: object, measured: Array) -> Array:
    """Return log(predicted / measured) of the cases of a pool under some constants."""
    seconds = np.asarray(pool.judge.seconds(pool.cases, pool.system, constants), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(seconds / measured)
    return np.asarray(np.clip(np.nan_to_num(found, nan=FARTHEST), -FARTHEST, FARTHEST))


def softened(errors: Array) -> Array:
    """Return numbers whose squares grow as errors do beyond `ROBUST`, and as their squares below.

    The square is 2 s^2 (sqrt(1 + (r/s)^2) - 1), which scipy calls soft_l1.

    >>> [round(float(x), 3) for x in softened(np.array([0.01, -0.01, 1.0]))]
    [0.01, -0.01, 0.425]
    """
    over = np.sqrt(1.0 + (errors / ROBUST) ** 2)
    return np.asarray(np.sign(errors) * ROBUST * np.sqrt(2.0 * (over - 1.0)))


def measured_of(pool: CasePool) -> Array:
    """Return the measured times of the cases of a pool."""
    return np.asarray([case.measured_s for case in pool.cases], dtype=np.float64)


def _slots_of(pool: CasePool, owners: Owners, more: frozenset[str] = frozenset()) -> dict[str, ConstantSlot]:
    kept = {*pool.judge.fixed(pool.cls, pool.kind), *more}
    found = {}
    for name, limit in limits_of(type(pool.constants)).items():
        owner = owners(pool, limit)
        if owner is not None and name not in kept and limit.low < limit.high:
            found[name] = ConstantSlot(name, owner)
    return found


def _problem(pools: Sequence[CasePool], owners: Owners, alike: bool, kept: frozenset[str]) -> _Problem:
    by_pool = [_slots_of(pool, owners, kept) for pool in pools]
    slots = tuple(dict.fromkeys(slot for of in by_pool for slot in of.values()))
    place = {slot: k for k, slot in enumerate(slots)}
    start = {
        slot: getattr(pool.constants, slot.field)
        for pool, of in zip(pools, by_pool, strict=True)
        for slot in of.values()
    }
    limits = [limits_of(type(pools[0].constants))[slot.field] for slot in slots]
    return _Problem(
        tuple(pools),
        tuple(map(measured_of, pools)),
        slots,
        tuple({name: place[slot] for name, slot in of.items()} for of in by_pool),
        _weights(pools, alike),
        np.asarray([start[slot] for slot in slots]),
        np.asarray([limit.low for limit in limits]),
        np.asarray([limit.high for limit in limits]),
    )


def _weights(pools: Sequence[CasePool], alike: bool) -> tuple[float, ...]:
    """Return the weight of the rows of each pool, by which errors are multiplied before they are squared."""
    sizes = np.asarray([len(pool.cases) for pool in pools])
    return tuple(np.sqrt(sizes.mean() / sizes if alike else np.ones(len(pools))).tolist())


def need_scipy() -> None:
    """UsageError where scipy is not installed, and how to get it."""
    if find_spec("scipy") is None:
        raise UsageError("a fit needs scipy; install it with: pip install 'slipstick[calibrate]'")


def _solve(problem: _Problem, factors: Sequence[float]) -> tuple[float, Array]:
    """Return the cost and the numbers of the optimum that one start leads to."""
    from scipy.optimize import least_squares

    scale, margin = problem.scale, 1e-6 * (problem.high - problem.low)
    times = np.resize(np.asarray(factors), len(problem.slots))
    inside = np.clip(problem.start * times, problem.low + margin, problem.high - margin)

    def residuals(shares: Array) -> Array:
        return problem.residuals(shares * scale)

    def slopes(shares: Array) -> Array:
        return problem.slopes(shares * scale) * scale

    found = least_squares(
        residuals,
        inside / scale,
        jac=slopes,
        bounds=(problem.low / scale, problem.high / scale),
        ftol=1e-5,
        xtol=1e-5,
        max_nfev=80,
    )
    return float(found.cost), np.clip(found.x * scale, problem.low, problem.high)
