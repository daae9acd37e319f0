"""A size written as text to an expression: sums and products of numbers and names, read by a grammar, never evaluated.

`torch.export.save` writes sizes as sympy prints them for machines, `Add(Symbol('s70', positive=True), Integer(1))`, and
older versions as people write them, `s70 + 1`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ....ir.errors import NotUnderstoodError
from ....ir.sizes.expr import Dim, Expr, as_dim, as_expr, product, symbol
from .json_parts import Part

_MOST_LETTERS = 2000
_MOST_POWER = 8


def read_size(part: Part) -> Dim:
    """Return the size that a text says; NotUnderstoodError for anything but a polynomial.

    >>> str(read_size(Part("Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(1))", "here")))
    '2*s0 + 1'
    >>> str(read_size(Part("4*s0 + s1**2", "here")))
    's1^2 + 4*s0'
    """
    text = part.text
    if len(text) > _MOST_LETTERS:
        raise part.wrong("a size")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise part.wrong("a size") from error
    return as_dim(_read(tree, part))


def _read(tree: ast.expr, part: Part) -> Expr:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return as_expr(tree.value)
    if isinstance(tree, ast.Name):
        return symbol(tree.id)
    if isinstance(tree, ast.BinOp):
        return _binary(tree, part)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_read(tree.operand, part)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return _call(tree.func.id, tree.args, part)
    raise part.wrong("a sum of products of sizes")


def _binary(tree: ast.BinOp, part: Part) -> Expr:
    left, right = _read(tree.left, part), tree.right
    if isinstance(tree.op, ast.Pow):
        return _power(left, right, part)
    if isinstance(tree.op, ast.Add):
        return left + _read(right, part)
    if isinstance(tree.op, ast.Sub):
        return left - _read(right, part)
    if isinstance(tree.op, ast.Mult):
        return left * _read(right, part)
    raise part.wrong("a sum of products of sizes")


def _call(name: str, args: Sequence[ast.expr], part: Part) -> Expr:
    if name == "Symbol" and args and isinstance(args[0], ast.Constant) and isinstance(args[0].value, str):
        if not args[0].value.isidentifier():
            raise part.wrong("a size")
        return symbol(args[0].value)
    if name == "Integer" and len(args) == 1:
        return _read(args[0], part)
    if name == "Pow" and len(args) == 2:
        return _power(_read(args[0], part), args[1], part)
    if name in ("Add", "Mul") and args:
        parts = [_read(a, part) for a in args]
        return product(parts) if name == "Mul" else sum(parts[1:], parts[0])
    raise NotUnderstoodError(f"{part.place}: the size '{part.text[:80]}' is not a polynomial of open sizes")


def _power(base: Expr, exponent: ast.expr, part: Part) -> Expr:
    power = _read(exponent, part)
    fixed = next((n for n in range(1, _MOST_POWER + 1) if power == n), None)
    if fixed is None:
        raise part.wrong("a polynomial of open sizes")
    return product([base] * fixed)


__all__ = ["read_size"]
