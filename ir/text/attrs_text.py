"""Attributes of an op to text and back, by the declared type of each field."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from typing import TypeAlias

from ..errors import ParseError
from ..graph import Attrs
from ..placement import AxisGroup
from ..sizes.expr import Expr, as_dim
from ..sizes.expr_text import parse_expr

Scalar: TypeAlias = bool | int | float | str | Expr
Plain: TypeAlias = Scalar | tuple[Scalar, ...]

_STRING = r'"(?:[^"\\]|\\.)*"'
_LIST = rf'\[(?:{_STRING}|[^"\]])*\]'
_ITEM = re.compile(rf"\s*(\w+)=({_STRING}|{_LIST}|[^,]+?)\s*(?:,|$)")
_ELEMENT = re.compile(rf"\s*({_STRING}|[^,]+?)\s*(?:,|$)")


def print_attrs(attrs: Attrs) -> str:
    """Print the fields that differ from their defaults as ` {a=1, b="x"}`, or nothing.

    >>> from slipstick.ir.ops.tensors.matmul import MatmulAttrs
    >>> print_attrs(MatmulAttrs("mk,nk->mn"))
    ' {spec="mk,nk->mn"}'
    """
    shown = [f"{f.name}={_print(getattr(attrs, f.name))}" for f in fields(attrs) if getattr(attrs, f.name) != f.default]
    return f" {{{', '.join(shown)}}}" if shown else ""


def parse_attrs(kind: type[Attrs], text: str) -> Attrs:
    """Read the inside of the braces; ParseError names an unknown, an unreadable or a missing field."""
    # The declared types as they are written, which needs no evaluation of annotations.
    types = {f.name: str(f.type) for f in fields(kind)}
    given: dict[str, Plain] = {}
    pos = 0
    while pos < len(text):
        match = _ITEM.match(text, pos)
        if match is None or match.group(1) not in types:
            rest, allowed = text[pos:].strip(), ", ".join(types) or "none"
            raise ParseError(f"cannot read '{rest}' as a field of {kind.__name__}; allowed: {allowed}")
        name, value = match.groups()
        if name in given:
            raise ParseError(f"{kind.__name__} is given {name} twice")
        given[name] = _parse(value, types[name], f"{name} of {kind.__name__}")
        pos = match.end()
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in given]
    if missing:
        raise ParseError(f"{kind.__name__} needs {', '.join(missing)}")
    return kind(**given)


def _print(value: Plain) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(_print(v) for v in value)}]"
    if isinstance(value, str):
        return json.dumps(value)
    return str(value)


def _parse(text: str, kind: str, field: str) -> Plain:
    item = kind.removeprefix("tuple[").removesuffix(", ...]")
    if item not in ("bool", "int", "float", "str", "AxisGroup", "Dim"):
        raise ParseError(f"{field}: fields of type {kind} have no textual form")
    try:
        return _scalar(text, kind) if item == kind else tuple(_scalar(t, item) for t in _elements(text))
    except ValueError as error:
        raise ParseError(f"{field} is {kind}, '{text}' is not: {error}") from error


def _elements(text: str) -> list[str]:
    if not (text.startswith("[") and text.endswith("]")):
        raise ParseError("a list is written [a, b]")
    return _ELEMENT.findall(text[1:-1])


def _scalar(text: str, kind: str) -> Scalar:
    if kind == "bool":
        if text not in ("true", "false"):
            raise ParseError("allowed: true, false")
        return text == "true"
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    if kind == "Dim":
        return as_dim(parse_expr(text))
    value = json.loads(text)
    if not isinstance(value, str):
        raise ParseError("a string is written in double quotes")
    return AxisGroup(value) if kind == "AxisGroup" else value
