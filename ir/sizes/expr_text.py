"""Expressions read from text: what `str(Expr)` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import ParseError
from ..records import dataclass
from .expr import Coefficient, Dim, Expr, Monomial, as_expr
from .rounding import KINDS, named

_FACTOR = re.compile(
    r"\s*(?P<op>[*/])?\s*(?:(?P<num>[0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?)|(?P<sym>[A-Za-z_]\w*(?P<call>\()?))"
)
_POWER = re.compile(r"\^(?P<exp>[0-9]+)")
# What stands between the arguments of a derived symbol with brackets, and what makes it of them.
_CALLS = {name: (kind.form[-4], kind.build) for name, kind in KINDS.items() if kind.form.endswith(")")}


@dataclass(frozen=True, slots=True)
class _Factor:
    """A number, or an expression to a power, that a term is multiplied or divided by."""

    base: Expr
    exponent: int
    divides: bool


def parse_expr(text: str) -> Expr:
    """Read what `str(Expr)` prints; ParseError says where reading stopped.

    >>> from slipstick.ir.sizes.expr import symbol
    >>> parse_expr("2*batch^2*seq/tp + 1") == symbol("batch") * symbol("batch") * symbol("seq") * 2 / symbol("tp") + 1
    True
    >>> parse_expr("4*floor((seq+127)/128)*batch").evaluate({"seq": 129.0, "batch": 3.0})
    24.0
    """
    out: dict[Monomial, Coefficient] = {}
    for term in text.split(" + "):
        for m, c in _parse_term(term).terms:
            out[m] = out.get(m, 0) + c
    return Expr(out)


def _parse_term(text: str) -> Expr:
    body = text.strip()
    term = as_expr(-1 if body.startswith("-") else 1)
    for factor in _factors(body.removeprefix("-")):
        for _ in range(factor.exponent):
            term = term / factor.base if factor.divides else term * factor.base
    return term


def _factors(text: str) -> Iterator[_Factor]:
    """Yield the factors of a term; every one but the first brings its operator."""
    pos = 0
    while pos < len(text) or pos == 0:
        match = _FACTOR.match(text, pos)
        if match is None or (match["op"] is None) != (pos == 0):
            raise ParseError(f"'{text}' is not an expression: cannot read '{text[pos:]}'")
        base, pos = _base(text, match)
        power = _POWER.match(text, pos) if match["num"] is None else None
        pos = len(text) - len(text[power.end() if power else pos :].lstrip())
        yield _Factor(base, int(power["exp"]) if power else 1, match["op"] == "/")


def _base(text: str, match: re.Match[str]) -> tuple[Expr, int]:
    """The number, symbol or derived symbol that a factor is, and where it ends."""
    if match["num"] is not None:
        return as_expr(_number(match["num"])), match.end()
    if match["call"] is None:
        return named(match["sym"]), match.end()
    end = _closing(text, match.end())
    name = match["sym"][:-1]
    if name not in _CALLS or end < 0:
        raise ParseError(f"'{text}' is not an expression: cannot read '{text[match.start() :]}'")
    sign, build = _CALLS[name]
    return as_expr(build(*_arguments(text[match.end() : end], sign))), end + 1


def _closing(text: str, start: int) -> int:
    """Where the bracket that was opened before `start` closes; -1 if nowhere."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return -1


def _arguments(text: str, sign: str) -> tuple[Dim, Dim]:
    """The two arguments of a derived symbol, written without spaces, each in brackets if it is no single product."""
    between = next((i for i, c in enumerate(text) if c == sign and _outside(text[:i])), None)
    if between is None:
        raise ParseError(f"'{text}' are not two sizes with '{sign}' between them")
    first, second = (_spaced(part) for part in (text[:between], text[between + 1 :]))
    return parse_expr(first), parse_expr(second)


def _outside(before: str) -> bool:
    return before.count("(") == before.count(")")


def _spaced(text: str) -> str:
    """An argument as it is printed outside a derived symbol: without its brackets, with spaces around plus signs."""
    inner = text[1:-1] if text.startswith("(") and _closing(text, 1) == len(text) - 1 else text
    return "".join(" + " if c == "+" and _outside(inner[:i]) else c for i, c in enumerate(inner))


def _number(text: str) -> Coefficient:
    return float(text) if "." in text or "e" in text else int(text)


__all__ = ["parse_expr"]
