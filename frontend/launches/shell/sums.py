"""Sums of a shell over whole numbers, `$((NODES * GPUS))`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import add, eq, ge, gt, le, lt, mul, ne, sub
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

# Beyond what a shell counts with.
_MOST = 2**63
_SUMS: Mapping[str, Callable[[int, int], int]] = MappingProxyType({"+": add, "-": sub, "*": mul})
_ORDERS: Mapping[str, Callable[[int, int], bool]] = MappingProxyType(
    {"==": eq, "!=": ne, "<": lt, ">": gt, "<=": le, ">=": ge}
)
BRACKETS = ("[", "[[", "((", "$((", "(", ")", "))", "]]", "]", ";")


def number(node: Node, told: Callable[[Node], str]) -> int | None:
    """Work a sum out; None where a part is not known.

    Digits behind a 0 are not known, as a shell counts them by eights.
    Division is cut towards zero; a comparison is 1 or 0, of a choice `a ? b : c` the side that holds counts.

    Args:
        node: of the sum, or of a part of it.
        told: what a variable, or another part that is no sum, stands for.
    """
    parts = node.children
    match node.type:
        case "arithmetic_expansion" | "parenthesized_expression":
            inner = [child for child in parts if child.type not in BRACKETS]
            return number(inner[0], told) if len(inner) == 1 else None
        case "binary_expression" | "unary_expression" if _is_bound_otherwise(node):
            return None
        case "binary_expression" if len(parts) == 3:
            return _worked_out(number(parts[0], told), parts[1].type, number(parts[2], told))
        case "ternary_expression" if len(parts) == 5:
            met = number(parts[0], told)
            return None if met is None else number(parts[2 if met else 4], told)
        case "unary_expression" if len(parts) == 2:
            value = number(parts[1], told)
            signed = {} if value is None else {"-": -value, "+": value, "!": int(not value)}
            return signed.get(parts[0].type)
        case _:
            written = told(node).strip()
            return int(written) if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", written) else None


def _is_bound_otherwise(node: Node) -> bool:
    """Whether a shell may read a sum in another order: the grammar has powers from the left, and signs bind loosely."""
    first, last = node.children[0], node.children[-1]
    if node.type == "binary_expression":
        return node.children[1].type == "**" and first.type in ("binary_expression", "unary_expression")
    if last.type == "binary_expression" and first.type in "+-" and last.children[1].type in ("*", "/", "%"):
        # -(a/b) is (-a)/b, but not behind another operator.
        return node.parent is not None and node.parent.type == "binary_expression"
    return last.type in ("binary_expression", "ternary_expression")


def _worked_out(left: int | None, operator: str, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    if operator in _ORDERS:
        return int(_ORDERS[operator](left, right))
    if operator in ("&&", "||"):
        return int(bool(left and right) if operator == "&&" else bool(left or right))
    if operator in ("/", "%") and right:
        cut = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return cut if operator == "/" else left - cut * right
    if operator == "**" and 0 <= right < 63 and abs(left) ** right < _MOST:
        return int(left**right)
    found = _SUMS[operator](left, right) if operator in _SUMS else None
    return None if found is None or abs(found) >= _MOST else found
