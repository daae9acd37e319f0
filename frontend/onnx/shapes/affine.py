"""Tensors that depend on positions alone, whatever their symbolic sizes: ranges, and single numbers everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ....ir.errors import NotUnderstoodError
from ....ir.sizes.expr import Dim, Expr, as_dim, as_expr

Number: TypeAlias = int | float | bool | Expr


@dataclass(frozen=True, slots=True)
class Affine:
    """start + the sum of steps[axis] * index[axis]; flags and what a dim of size one holds have no steps."""

    start: Number
    steps: tuple[Dim, ...]

    @property
    def is_uniform(self) -> bool:
        """Whether it is one number everywhere."""
        return all(s == 0 for s in self.steps)

    def widened(self, rank: int) -> Affine:
        """Return the same with dims of size one in front.

        >>> Affine(3, (1,)).widened(2).steps
        (0, 1)
        """
        return Affine(self.start, (0,) * (rank - len(self.steps)) + self.steps)

    def scaled(self, factor: Dim) -> Affine:
        """Return a multiple.

        >>> Affine(3, (0, 1)).scaled(2)
        Affine(start=6, steps=(0, 2))
        """
        return Affine(times(self.start, factor), tuple(times(s, factor) for s in self.steps))

    def plus(self, other: Affine, sign: int = 1) -> Affine:
        """Return the sum with another of the same rank, or with sign = -1 the difference.

        >>> Affine(3, (0, 1)).plus(Affine(2, (0, 1)), -1)
        Affine(start=1, steps=(0, 0))
        """
        pairs = zip(self.steps, other.steps, strict=True)
        return Affine(moved(self.start, other.start, sign), tuple(moved(a, b, sign) for a, b in pairs))

    def within(self, dims: tuple[Dim, ...]) -> Affine:
        """Return the same without steps along dims of size one."""
        return Affine(self.start, tuple(0 if d == 1 else s for d, s in zip(dims, self.steps, strict=True)))


@dataclass(frozen=True, slots=True)
class Joined:
    """Ranges side by side along a last dim, as lookups at several places are written; `parts` lack that dim."""

    parts: tuple[Affine, ...]


Pattern: TypeAlias = Affine | Joined


def whole(n: Number) -> Dim:
    """Return a number as a size; NotUnderstoodError for one with a fraction."""
    if isinstance(n, float):
        raise NotUnderstoodError(f"{n} where a whole number is needed")
    return n if isinstance(n, Expr) else int(n)


def times(a: Number, factor: Dim) -> Dim:
    """Return a product."""
    return as_dim(as_expr(whole(a)) * factor)


def moved(a: Number, by: Number, sign: int = 1) -> Dim:
    """Return a sum, or with sign = -1 a difference."""
    return as_dim(as_expr(whole(a)) + as_expr(whole(by)) * sign)


__all__ = ["Affine", "Joined", "Number", "Pattern", "moved", "times", "whole"]
