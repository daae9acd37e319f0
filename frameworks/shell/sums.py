"""Sums of a shell over whole numbers, `$((NODES * GPUS))`, with the precedence, bases and assignments of bash."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import add, and_, eq, ge, gt, le, lshift, lt, mul, ne, or_, rshift, sub, xor
from types import MappingProxyType
from typing import NoReturn

from ...ir.records import dataclass
from ...ir.units import is_digits

# What a shell counts with, and where the text of a sum is not known.
_MOST, HOLE = 2**63, "@"
_TOKEN = re.compile(r"[0-9][\w#@]*|[A-Za-z_]\w*|<<=|>>=|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&^|]=|\S")
_NAME = re.compile(r"[A-Za-z_]\w*")
_LEVELS: Mapping[str, int] = MappingProxyType(
    {
        op: level
        for level, ops in enumerate(
            ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %", "**"), start=1
        )
        for op in ops.split()
    }
)
_SUMS: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {"+": add, "-": sub, "*": mul, "&": and_, "|": or_, "^": xor, "==": eq, "!=": ne, "<": lt, ">": gt}
    | {"<=": le, ">=": ge}
)
_SIGNS: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"-": lambda n: -n, "+": lambda n: n, "!": lambda n: int(not n), "~": lambda n: ~n}
)
_ASSIGNS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "^=", "|=", "<<=", ">>=")


class _NoSumError(Exception):
    """Text that is no sum."""


def work_out(text: str, told: Callable[[str], str | None], assign: Callable[[str, int | None], None]) -> int | None:
    """Work a sum out; None where a part is not known, or a shell would stop.

    Args:
        text: of the sum, with its expansions filled in; `HOLE` for one that is not known.
        told: the text of a variable; None for one that nobody set.
        assign: sets a variable, as `N += 1` does.

    >>> [work_out(text, {"N": "010"}.get, print) for text in ("-7/2+8", "2**3**2/64", "N", "!0+3", "0x10-N", "2*-1+4")]
    [5, 8, 8, 4, 8, 2]
    """
    sum_ = _Sum(_TOKEN.findall(text), told, assign)
    try:
        value = sum_.comma(True) if sum_.tokens else 0
        return value if sum_.at == len(sum_.tokens) else None
    except _NoSumError:
        return None


def literal(text: str) -> int | None:
    """Read a number in a base of bash: 0x of 16, 0 of 8, BASE# of any to 36; None for what is none.

    >>> [literal(text) for text in ("12", "010", "0x1F", "2#101", "08", "-3", "")]
    [12, 8, 31, 5, None, -3, 0]
    """
    match = re.fullmatch(r"\s*([-+]?)(0[xX]|0|([0-9]{1,2})#)?([0-9a-zA-Z]{0,20})\s*", text)
    if match is None:
        return None
    sign, prefix, base, digits = match.groups()
    try:
        value = int(digits or "0", int(base) if base else {"0x": 16, "0": 8}.get((prefix or "").lower(), 10))
    except ValueError:
        return None
    return None if value >= _MOST else -value if sign == "-" else value


@dataclass(slots=True)
class _Sum:
    """Tokens of a sum, read from left to right; parts that `runs` says are passed over assign nothing."""

    tokens: list[str]
    told: Callable[[str], str | None]
    assign: Callable[[str, int | None], None]
    at: int = 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        """Take the next token where it is one of these."""
        found = self.peek()
        if found not in wanted:
            return ""
        self.at += 1
        return found

    def comma(self, runs: bool) -> int | None:
        value = self.choice(runs)
        while self.take(","):
            value = self.choice(runs)
        return value

    def choice(self, runs: bool) -> int | None:
        """Read an assignment, or `a ? b : c`."""
        if _NAME.fullmatch(self.peek()) and self.peek(1) in _ASSIGNS:
            name, operator = self.peek(), self.peek(1)
            self.at += 2
            value = self.choice(runs)
            return self.set(name, value if operator == "=" else _worked_out(self.of(name), operator[:-1], value), runs)
        met = self.binary(1, runs)
        if not self.take("?"):
            return met
        one = self.comma(runs and met not in (0, None))
        if not self.take(":"):
            self.stop()
        two = self.choice(runs and met == 0)
        return None if met is None else one if met else two

    def binary(self, least: int, runs: bool) -> int | None:
        left = self.unary(runs)
        while (level := _LEVELS.get(self.peek(), 0)) >= least:
            operator = self.take(self.peek())
            decided = operator in ("&&", "||") and left is not None and bool(left) == (operator == "||")
            # Powers alone are read from the right.
            right = self.binary(level + (operator != "**"), runs and not decided)
            left = int(bool(left)) if decided else _worked_out(left, operator, right)
        return left

    def unary(self, runs: bool) -> int | None:
        if self.peek() in ("++", "--") and _NAME.fullmatch(self.peek(1)):
            step, name = self.take("++", "--"), self.peek(0)
            self.at += 1
            return self.set(name, _worked_out(self.of(name), step[0], 1), runs)
        if signs := self.take("-", "+", "!", "~", "++", "--"):
            value = self.unary(runs)
            return None if value is None else _SIGNS[signs[0]](value) if len(signs) == 1 else value
        if self.take("("):
            value = self.comma(runs)
            if not self.take(")"):
                self.stop()
            return value
        token = self.peek()
        self.at += 1
        if _NAME.fullmatch(token):
            value = self.of(token)
            if step := self.take("++", "--"):
                self.set(token, _worked_out(value, step[0], 1), runs)
            return value
        if not is_digits(token[:1]) and token != HOLE:
            self.stop()
        return literal(token)

    def of(self, name: str) -> int | None:
        text = self.told(name)
        return None if text is None else literal(text)

    def set(self, name: str, value: int | None, runs: bool) -> int | None:
        if runs:
            self.assign(name, value)
        return value

    def stop(self) -> NoReturn:
        raise _NoSumError


def _worked_out(left: int | None, operator: str, right: int | None) -> int | None:
    """Return the value of an operator; division is cut towards zero, a comparison is 1 or 0."""
    if left is None or right is None:
        return None
    if operator in ("&&", "||"):
        return int(bool(left and right) if operator == "&&" else bool(left or right))
    if operator in ("/", "%") and right:
        cut = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return cut if operator == "/" else left - cut * right
    if operator in ("**", "<<", ">>") and 0 <= right < 64:
        found = rshift(left, right) if operator == ">>" else lshift(left, right) if operator == "<<" else left**right
    else:
        found = int(_SUMS[operator](left, right)) if operator in _SUMS else None
    return None if found is None or abs(found) >= _MOST else found
