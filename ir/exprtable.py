"""Many expressions evaluated at once: a matrix of coefficients times the monomials at every point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .expr import Expr, Monomial, Num
from .shares import depends_on, number_of


@dataclass(frozen=True, slots=True)
class ExprTable:
    """Expressions over common monomials: `evaluate` costs one matrix product, whatever their number."""

    monomials: tuple[Monomial, ...]
    coefficients: NDArray[np.float64]

    @classmethod
    def of(cls, exprs: Sequence[Expr]) -> ExprTable:
        """Compile expressions; their order is the order of the rows."""
        index: dict[Monomial, int] = {}
        for e in exprs:
            for m, _ in e.terms:
                index.setdefault(m, len(index))
        table = np.zeros((len(exprs), max(len(index), 1)))
        for row, e in enumerate(exprs):
            for m, c in e.terms:
                table[row, index[m]] = c
        return cls(tuple(index) or ((),), table)

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that any row depends on; a share depends on its axis."""
        return frozenset(depends_on(s) for m in self.monomials for s, _ in m)

    def evaluate(self, env: Mapping[str, Num], num_points: int) -> NDArray[np.float64]:
        """Return an array (rows x points); each symbol is a number or an array of `num_points`."""
        values = np.ones((len(self.monomials), num_points))
        for row, m in enumerate(self.monomials):
            for s, e in m:
                values[row] *= np.asarray(number_of(s, env), dtype=np.float64) ** e
        # Term by term: a matrix product may round differently for another number of points.
        out = np.zeros((len(self.coefficients), num_points))
        for column, value in zip(self.coefficients.T, values, strict=True):
            rows = np.flatnonzero(column)
            out[rows] += column[rows, None] * value
        return out
