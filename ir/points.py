"""The distinct values that some columns of a plan table take: what depends on few symbols is computed few times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from .plan import PlanTable

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class Points:
    """Distinct rows of any set of columns of a plan table, found once a set."""

    def __init__(self, plans: PlanTable) -> None:
        """Keep the columns; nothing is searched yet."""
        self._columns = plans.columns
        self.num_plans = len(plans)
        self._codes: dict[str, tuple[int, Index]] = {}
        self._known: dict[tuple[str, ...], tuple[Mapping[str, Array], Index]] = {}

    def of(self, symbols: Iterable[str]) -> tuple[Mapping[str, Array], Index]:
        """Return the distinct points (symbol -> values) and, for each plan, the index of its point."""
        key = tuple(sorted(symbols))
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def _find(self, symbols: tuple[str, ...]) -> tuple[Mapping[str, Array], Index]:
        if self.num_plans == 1:
            return {s: self._columns[s] for s in symbols}, np.zeros(1, dtype=np.intp)
        code = np.zeros(self.num_plans, dtype=np.int64)
        for s in symbols:
            num, inverse = self._code(s)
            code = code * num + inverse
        _, first, point = np.unique(code, return_index=True, return_inverse=True)
        return {s: self._columns[s][first] for s in symbols}, point.reshape(-1)

    def _code(self, symbol: str) -> tuple[int, Index]:
        if symbol not in self._codes:
            values, inverse = np.unique(self._columns[symbol], return_inverse=True)
            self._codes[symbol] = (len(values), inverse.reshape(-1))
        return self._codes[symbol]
