"""Expressions of Python read without running them: literals, what they compare, arguments of calls."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TypeAlias

from ..launch import Value

# Values of parameters and of local variables, by name.
Known: TypeAlias = Mapping[str, Value]


def literal(value: ast.expr, known: Known) -> Value:
    """Return a literal, a parameter, or a type of torch (`torch.bfloat16`); None for None and what is neither."""
    match value:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Call(func=ast.Attribute(value=inner, attr="lower"), args=[]):
            found = literal(inner, known)
            return found.lower() if isinstance(found, str) else None
        case ast.Compare() | ast.BoolOp():
            return is_met(value, known)
        case ast.Attribute(attr=name):
            # Moments in fp8 are bytes: `dtype_map` of Megatron-LM.
            return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "uint8": "fp8"}.get(name)
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, str | int | float | bool | list | tuple) else None


def parameters(function: ast.FunctionDef, call: ast.Call, known: Known) -> Known:
    """Return what is known of the parameters of a function in a call: its defaults, and what the call gives."""
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    usual: dict[str, ast.expr] = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
    only = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    usual |= {one.arg: default for one, default in only if default is not None}
    placed: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
    given = placed | {one.arg: one.value for one in call.keywords if one.arg is not None}
    return {key: value for key, value in told(usual, {}).items() if key not in given} | told(given, known)


def told(given: Mapping[str, ast.expr], known: Known) -> dict[str, Value]:
    """Return the values that are known; what is None is, what cannot be read is not."""
    read = {name: reading(value, known) for name, value in given.items()}
    return {name: value for name, (is_known, value) in read.items() if is_known}


def reading(value: ast.expr, known: Known) -> tuple[bool, Value]:
    """Return whether the value of an expression is known, None among them, and the value.

    Both at once: each asked for by itself, a condition in a condition would be read twice as often a level.
    """
    found = literal(value, known)
    match value:
        case ast.Name(id=name):
            return name in known, found
        case ast.Constant():
            return True, found
    return found is not None, found


def is_met(test: ast.expr, known: Known) -> bool | None:
    """Return whether a condition holds; None where that hangs on what is not known."""
    match test:
        case ast.BoolOp(op=op, values=values):
            decides = isinstance(op, ast.Or)
            found = [is_met(one, known) for one in values]
            return decides if decides in found else None if None in found else not decides
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            met = is_met(operand, known)
            return None if met is None else not met
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            (is_known, one), (is_other_known, other) = reading(left, known), reading(right, known)
            match op:
                case _ if not (is_known and is_other_known):
                    return None
                case ast.Is() | ast.Eq():
                    return one == other
                case ast.IsNot() | ast.NotEq():
                    return one != other
                case ast.In() | ast.NotIn() if isinstance(other, list | tuple):
                    return (one in other) is isinstance(op, ast.In)
            return None
        case ast.Compare():
            return None
    is_known, value = reading(test, known)
    return bool(value) if is_known else None
