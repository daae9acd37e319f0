"""Symbols whose value is a function of expressions: a size rounded down, the larger or the smaller of two sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .expr import Dim, Expr, Num

# Makes the expression again, from arguments that changed.
Build = Callable[["Dim", "Dim"], "Dim"]


class Derived(str):
    """A symbol that is written as what it stands for, without a space: `floor((seq+127)/128)`.

    An expression stays a polynomial: this is a symbol like any other, but its value follows from those of the symbols
    in its arguments, and it changes with them where these are substituted.

    Attributes:
        build: makes the expression of two arguments, simplified; `floor_div`, `larger` or `smaller`.
        args: the two arguments.
    """

    build: Build
    args: tuple[Expr, Expr]

    def __new__(cls, build: Build, args: tuple[Expr, Expr]) -> Derived:
        """Write the symbol down, and keep what it stands for."""
        made = super().__new__(cls, _FORMS[build.__name__].format(*map(_unspaced, args)))
        made.build, made.args = build, args
        return made

    def __getnewargs__(self) -> tuple[Build, tuple[Expr, Expr]]:  # type: ignore[override]
        """Return what a copy is made of."""
        return self.build, self.args

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that the value follows from."""
        return self.args[0].symbols | self.args[1].symbols

    def value(self, env: Mapping[str, Num]) -> Num:
        """Return the value; numbers or arrays."""
        a, b = (arg.evaluate(env) for arg in self.args)
        if self.build.__name__ == "floor_div":
            return a // b
        is_larger = self.build.__name__ == "larger"
        if isinstance(a, float) and isinstance(b, float):
            return max(a, b) if is_larger else min(a, b)
        import numpy as np  # of plans in a table alone, which have loaded it

        return np.maximum(a, b) if is_larger else np.minimum(a, b)


# How each is written, by the name of what builds it; `ir/sizes/expr_text.py` reads it back.
_FORMS = {"floor_div": "floor({}/{})", "larger": "max({};{})", "smaller": "min({};{})"}


def _unspaced(arg: Expr) -> str:
    text = str(arg).replace(" ", "")
    return f"({text})" if any(sign in text for sign in "+/") else text
