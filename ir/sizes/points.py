"""The distinct values that some columns of a plan table take: what depends on few symbols is computed few times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ..plan import PlanTable

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Codes up to which a table of all of them is quicker than sorting: so many, and so many a plan.
_FEW, _EACH = 1024, 16
# No symbol of a graph: the devices of a plan.
GPUS = "gpus"


class Points:
    """Distinct rows of any set of columns of a plan table, found once a set."""

    def __init__(self, plans: PlanTable) -> None:
        """Keep the columns; nothing is searched yet."""
        self._columns = {**plans.columns, GPUS: plans.num_gpus}
        self.placement = plans.family.placement
        self.num_plans = len(plans)
        self._codes: dict[str, tuple[int, Index]] = {}
        self._known: dict[tuple[str, ...], tuple[Mapping[str, Array], Index]] = {}

    def of(self, symbols: Iterable[str]) -> tuple[Mapping[str, Array], Index]:
        """Return the distinct points (symbol -> values) and, for each plan, the index of its point."""
        key = tuple(sorted(symbols))
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def part(self, plans: PlanTable, rows: Index) -> Points:
        """Return the points of some plans, which are these rows of the table; what was found is not searched again."""
        some = Points(plans)
        some._codes = {s: (num, code[rows]) for s, (num, code) in self._codes.items()}
        some._known = {key: _met(env, point[rows]) for key, (env, point) in self._known.items()}
        return some

    def _find(self, symbols: tuple[str, ...]) -> tuple[Mapping[str, Array], Index]:
        if self.num_plans == 1:
            return {s: self._columns[s] for s in symbols}, np.zeros(1, dtype=np.intp)
        code, most = np.zeros(self.num_plans, dtype=np.int64), 1
        for s in symbols:
            if s not in self._codes:
                self._codes[s] = _numbered(self._columns[s])
            num, inverse = self._codes[s]
            code, most = code * num + inverse, most * num
        first, point = distinct(code, most)
        return {s: self._columns[s][first] for s in symbols}, point


def _numbered(column: Array) -> tuple[int, Index]:
    """Number the distinct values of a column in their order, and say which of them each plan has."""
    if (column == column[0]).all():
        return 1, np.zeros(len(column), dtype=np.intp)
    if column.min() >= 0.0 and column.max() < _most(column):
        whole = column.astype(np.int64)
        if (whole == column).all():
            first, which = distinct(whole, int(whole.max()) + 1)
            return len(first), which
    values, which = np.unique(column, return_inverse=True)
    return len(values), which.reshape(-1)


def distinct(code: Index, most: int) -> tuple[Index, Index]:
    """Return a plan that has each distinct code, codes in their order, and which of them each plan has.

    Codes lie below `most`; where that is not large, a look at each is enough and nothing is sorted.
    """
    if most > _most(code):
        _, first, which = np.unique(code, return_index=True, return_inverse=True)
        return first, which.reshape(-1)
    place = np.full(most, -1, dtype=np.intp)
    place[code] = np.arange(len(code))
    there = np.flatnonzero(place >= 0)
    first = place[there]
    place[there] = np.arange(len(there))
    return first, place[code]


def _most(code: Array | Index) -> int:
    return _FEW + _EACH * len(code)


def _met(env: Mapping[str, Array], point: Index) -> tuple[Mapping[str, Array], Index]:
    """Leave out the points that no plan has."""
    num = len(next(iter(env.values()))) if env else 1
    there = np.bincount(point, minlength=num) > 0
    if there.all():
        return env, point
    return {s: values[there] for s, values in env.items()}, (np.cumsum(there) - 1)[point]
