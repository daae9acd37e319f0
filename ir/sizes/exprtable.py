"""Many expressions evaluated at once: the powers of symbols, their products, and sums of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..records import dataclass
from .expr import Expr, Monomial, Num, depends_on, number_of
from .rowsums import RowSums

Index = NDArray[np.intp]
# Rows times points that stay in a core's cache.
_BLOCK = 2**14


@dataclass(frozen=True, slots=True)
class ExprTable:
    """Expressions over common monomials: `evaluate` takes a few steps over all of them, whatever their number.

    Attributes:
        monomials: the products of powers that occur.
        powers: the powers of symbols that these are made of.
        factors: for each place in a product, the power that each monomial has there; behind the last one a one.
        sums: the rows as sums of monomials.
    """

    monomials: tuple[Monomial, ...]
    powers: tuple[tuple[str, int], ...]
    factors: tuple[Index, ...]
    sums: RowSums

    @classmethod
    def of(cls, exprs: Sequence[Expr]) -> ExprTable:
        """Compile expressions; their order is the order of the rows."""
        index: dict[Monomial, int] = {}
        number: dict[Expr, int] = {}
        which = [number.setdefault(e, len(number)) for e in exprs]
        rows = [{index.setdefault(m, len(index)): float(c) for m, c in e.terms} for e in number]
        monomials = tuple(index)
        powers = {p: k for k, p in enumerate(dict.fromkeys(p for m in monomials for p in m))}
        longest = max(map(len, monomials), default=0)
        places = [[powers[m[j]] if j < len(m) else len(powers) for m in monomials] for j in range(longest)]
        return cls(monomials, tuple(powers), tuple(np.array(p, dtype=np.intp) for p in places), RowSums.of(rows, which))

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that any row depends on; a share depends on its axis."""
        return frozenset(name for s, _ in self.powers for name in depends_on(s))

    def evaluate(self, env: Mapping[str, Num], num_points: int) -> NDArray[np.float64]:
        """Return an array (rows x points); each symbol is a number or an array of `num_points`."""
        powers = np.ones((len(self.powers) + 1, num_points))
        for row, (s, e) in enumerate(self.powers):
            powers[row] = np.asarray(number_of(s, env), dtype=np.float64) ** e
        block = max(_BLOCK // max(self.sums.num_distinct, 1), 64)
        if num_points <= block:
            return self._sums(powers)
        parts = [self._sums(powers[:, start : start + block]) for start in range(0, num_points, block)]
        return np.concatenate(parts, axis=1)

    def _sums(self, powers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Multiply powers to monomials, and add these up."""
        if not self.factors:
            return self.sums.of_rows(np.ones((len(self.monomials), powers.shape[1])))
        first, *others = self.factors
        values = powers[first]
        for place in others:
            values *= powers[place]
        return self.sums.of_rows(values)
