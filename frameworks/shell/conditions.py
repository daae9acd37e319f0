"""Tests of a shell: what holds, what does not, and what only a shell could tell (None)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType
from typing import TYPE_CHECKING

from .marks import UNKNOWN
from .words import Variables, source, sum_of, text, unset_is_empty

if TYPE_CHECKING:
    from tree_sitter import Node

_BRACKETS = ("[", "[[", "((", "$((", "(", ")", "))", "]]", "]", ";")
_TESTS: Mapping[str, Callable[[int, int], bool]] = MappingProxyType(
    {"-eq": eq, "-ne": ne, "-lt": lt, "-gt": gt, "-le": le, "-ge": ge}
)


def holds(scope: Variables, node: Node) -> bool | None:
    """Whether a condition holds; None where only a shell could know, as of any command that it would run."""
    scope.step(node)
    inner = [child for child in node.children if child.type not in _BRACKETS]
    match node.type:
        case "test_command" | "parenthesized_expression" if len(inner) == 1:
            return holds(scope, inner[0])
        case "compound_statement" if is_sum(node):
            value = sum_of(scope, [node])
            return None if value is None else value != 0
        case "negated_command":
            found = holds(scope, node.children[-1])
            return None if found is None else not found
        case "list" if len(node.children) == 3:
            return _both(scope, node.children[0], node.children[1].type, node.children[2])
        case "unary_expression" if len(node.children) == 2:
            return _unary(scope, source(node.children[0]), node.children[1])
        case "binary_expression" if len(node.children) == 3:
            return _binary(scope, *node.children)
        case "command":
            return {"true": True, ":": True, "false": False}.get(source(node))
        case "string" | "word" | "number" | "simple_expansion" | "expansion" | "concatenation" | "raw_string":
            told = _told(scope, node)
            return None if told is None else bool(told)
        case _:
            return None


def is_sum(node: Node) -> bool:
    """Whether a statement is `((...))`."""
    return source(node).startswith("((") and node.type == "compound_statement"


def _both(scope: Variables, left: Node, operator: str, right: Node) -> bool | None:
    """Hold of two conditions: either that decides is enough, known or not is the other."""
    one, two = holds(scope, left), holds(scope, right)
    decides = operator in ("||", "-o")
    if one is decides or two is decides:
        return decides
    return None if one is None or two is None else not decides


def _told(scope: Variables, node: Node) -> str | None:
    """Return a text of a test; a variable that nobody set is empty in it, what a command prints is not known."""
    found = unset_is_empty(text(scope, node))
    return None if UNKNOWN in found else found


def _unary(scope: Variables, operator: str, node: Node) -> bool | None:
    if operator == "!":
        found = holds(scope, node)
        return None if found is None else not found
    value = _told(scope, node)
    return None if value is None or operator not in ("-z", "-n") else (value == "") == (operator == "-z")


def _binary(scope: Variables, left: Node, operator: Node, right: Node) -> bool | None:
    how = source(operator)
    if how in ("&&", "||", "-a", "-o"):
        return _both(scope, left, how, right)
    one, two = _told(scope, left), _told(scope, right)
    if one is None or two is None:
        return None
    if how in ("=", "==", "!="):
        # The right side is a pattern where it stands outside of quotes.
        is_pattern = right.type not in ("string", "raw_string") and re.search(r"[*?\[]", two) is not None
        if is_pattern:
            scope.look(one, two, right)
        same = bool(re.match(translate(two), one)) if is_pattern else one == two
        return same if how != "!=" else not same
    if how in _TESTS and re.fullmatch(r"-?[0-9]{1,18}", one) and re.fullmatch(r"-?[0-9]{1,18}", two):
        return _TESTS[how](int(one), int(two))
    return None
