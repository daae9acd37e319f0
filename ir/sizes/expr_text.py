"""Expressions read from text: what `str(Expr)` prints."""

from __future__ import annotations

import re

from ..errors import ParseError
from .expr import Coefficient, Expr, as_dim, as_expr, product
from .rounding import KINDS, named

_NUMBER = re.compile(r"[0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_POWER = re.compile(r"\^([0-9]+)")
# What stands between the arguments of a derived symbol with brackets, and what makes it of them.
_CALLS = {name: (kind.form[-4], kind.build) for name, kind in KINDS.items() if kind.form.endswith(")")}


def parse_expr(text: str) -> Expr:
    """Read what `str(Expr)` prints; ParseError says where reading stopped.

    >>> from slipstick.ir.sizes.expr import symbol
    >>> parse_expr("2*batch^2*seq/tp + 1") == symbol("batch") * symbol("batch") * symbol("seq") * 2 / symbol("tp") + 1
    True
    >>> parse_expr("4*floor((seq+127)/128)*batch").evaluate({"seq": 129.0, "batch": 3.0})
    24.0
    """
    reader = _Reader(text)
    expr = reader.sum()
    if reader.rest:
        raise reader.error()
    return expr


class _Reader:
    """Read a text from its start: `rest` is what has not been read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rest = text.strip()

    def sum(self) -> Expr:
        total = self.term("*/")
        while self.skip("+"):
            total = total + self.term("*/")
        return total

    def term(self, signs: str) -> Expr:
        """Read factors with some signs between them."""
        term = self.factor() * -1 if self.skip("-") else self.factor()
        while sign := self.skip(signs):
            term = term * self.factor() if sign == "*" else term / self.factor()
        return term

    def factor(self) -> Expr:
        if number := self.match(_NUMBER):
            return as_expr(_number(number[0]))
        name = self.match(_NAME)
        if name is None:
            raise self.error()
        base = self.call(name[0]) if self.rest.startswith("(") else named(name[0])
        power = self.match(_POWER)
        return base if power is None else product([base] * int(power[1]))

    def call(self, name: str) -> Expr:
        """Read the arguments of a derived symbol, each in brackets if it is no single product."""
        if name not in _CALLS:
            raise self.error()
        sign, build = _CALLS[name]
        self.expect("(")
        first = self.argument()
        self.expect(sign)
        second = self.argument()
        self.expect(")")
        return as_expr(build(as_dim(first), as_dim(second)))

    def argument(self) -> Expr:
        if not self.skip("("):
            return self.term("*")
        inner = self.sum()
        self.expect(")")
        return inner

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what a pattern fits, with the spaces behind it."""
        match = pattern.match(self.rest)
        if match is not None:
            self.rest = self.rest[match.end() :].lstrip()
        return match

    def skip(self, signs: str) -> str:
        """Read one of some signs; empty if there is none."""
        sign = self.rest[:1]
        if not sign or sign not in signs:
            return ""
        self.rest = self.rest[1:].lstrip()
        return sign

    def expect(self, sign: str) -> None:
        if not self.skip(sign):
            raise self.error()

    def error(self) -> ParseError:
        return ParseError(f"'{self.text}' is not an expression: cannot read '{self.rest}'")


def _number(text: str) -> Coefficient:
    return float(text) if "." in text or "e" in text else int(text)
