"""Formulas over the whole numbers in the cells of a row: `(n_gpus + 7) // 8 * tp`; empty cells are 1."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from ...ir.errors import UsageError

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__, ast.FloorDiv: int.__floordiv__,
}  # fmt: skip


def columns_of(formula: str) -> Iterator[str]:
    """Yield the columns of a formula; UsageError for a text that is none."""
    tree = _parsed(formula)
    return (one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id != min.__name__)


def count_of(formula: str, cells: Mapping[str, str]) -> int:
    """Return the number that a formula comes to; UsageError for cells that are no numbers, and division by zero.

    >>> count_of("min(ep // 8, 4)", {"ep": "64"}), count_of("2 * tp", {})
    (4, 2)
    """
    return _count(_parsed(formula), cells)


@cache
def _parsed(formula: str) -> ast.expr:
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Constant(None)
    if not all(map(_allowed, ast.walk(tree))):
        raise UsageError(
            f"'{formula}' is no formula: whole numbers and columns with + - * // and min(a, b) are allowed"
        )
    return tree


def _allowed(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="min"), args=[_, _], keywords=[]) | ast.Name() | ast.Load() | ast.BinOp():
            return True
        case ast.Constant(value=number):
            return type(number) is int
    return type(node) in _OPERATORS


def _count(node: ast.expr, cells: Mapping[str, str]) -> int:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=column):
            return _cell(cells, column)
        case ast.Call(args=[left, right]):
            return min(_count(left, cells), _count(right, cells))
        case ast.BinOp(left=left, op=op, right=right):
            try:
                return _OPERATORS[type(op)](_count(left, cells), _count(right, cells))
            except ZeroDivisionError:
                raise _fault(cells, ast.unparse(right), "nothing is divided by 0") from None
    raise AssertionError(ast.dump(node))


def _cell(cells: Mapping[str, str], column: str) -> int:
    text = cells.get(column, "").strip()
    try:
        return int(float(text)) if text else 1
    except (ValueError, OverflowError):
        raise _fault(cells, column, f"'{text}' is not a number") from None


def _fault(cells: Mapping[str, str], column: str, what: str) -> UsageError:
    return UsageError(f"row '{cells.get('id', '')}', column '{column}': {what}")
