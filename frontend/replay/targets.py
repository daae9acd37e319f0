"""What may stand in an exported file: JSON of the kind that is wanted, sizes as text, names of operators and types.

`torch.export.save` writes sizes as sympy prints them for machines, `Add(Symbol('s70', positive=True), Integer(1))`, and
older versions as people write them, `s70 + 1`.

An operator is one of the dispatcher (not of TorchScript, whose built-ins read and write files), takes and returns
tensors and plain numbers, and takes no text but the named options of tensor operators. A call names its arguments as
the operator's schema does.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx.node import Argument

from ...ir.errors import NotUnderstoodError, UnsupportedOpError
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr, product, symbol

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_LONGEST_KEY = 200  # letters of a key that an error shows as they are


@dataclass(frozen=True, slots=True)
class JsonPart:
    """A value in a JSON document and where it stands."""

    value: Json
    place: str

    def __getitem__(self, key: str) -> JsonPart:
        """Return a field; NotUnderstoodError when there is none."""
        if not isinstance(self.value, dict) or key not in self.value:
            raise NotUnderstoodError(f"{self.place} has no '{key}'")
        return JsonPart(self.value[key], f"{self.place}.{key}")

    def get(self, key: str) -> JsonPart | None:
        """Return a field, None where there is none or it is null."""
        found = self.value.get(key) if isinstance(self.value, dict) else None
        return None if found is None else JsonPart(found, f"{self.place}.{key}")

    def items(self) -> Iterator[tuple[str, JsonPart]]:
        """Yield the fields of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        for key, value in self.value.items():
            plain = key if key.isprintable() and len(key) <= _LONGEST_KEY else ascii(key[:40])
            yield key, JsonPart(value, f"{self.place}.{plain}")

    def each(self) -> Iterator[JsonPart]:
        """Yield the elements of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        for index, value in enumerate(self.value):
            yield JsonPart(value, f"{self.place}[{index}]")

    def only(self) -> tuple[str, JsonPart]:
        """Return the one field of a union: its kind and its value."""
        fields = list(self.items())
        if len(fields) != 1:
            raise self.wrong("an object with one field")
        return fields[0]

    @property
    def text(self) -> str:
        """The value as a text."""
        if not isinstance(self.value, str):
            raise self.wrong("a text")
        return self.value

    @property
    def number(self) -> int:
        """The value as a whole number."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.wrong("a whole number")
        return self.value

    def wrong(self, wanted: str) -> NotUnderstoodError:
        """Return the error of a value of another kind."""
        shown = str(self.value)
        return NotUnderstoodError(f"{self.place} is {shown[:40]!r}, not {wanted}")


_MOST_LETTERS = 2000
_MOST_POWER = 8


def read_size(part: JsonPart) -> Dim:
    """Return the size that a text says; NotUnderstoodError for anything but a polynomial.

    >>> str(read_size(JsonPart("Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(1))", "here")))
    '2*s0 + 1'
    >>> str(read_size(JsonPart("4*s0 + s1**2", "here")))
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


def _read(tree: ast.expr, part: JsonPart) -> Expr:
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


def _binary(tree: ast.BinOp, part: JsonPart) -> Expr:
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


def _call(name: str, args: Sequence[ast.expr], part: JsonPart) -> Expr:
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


def _power(base: Expr, exponent: ast.expr, part: JsonPart) -> Expr:
    power = _read(exponent, part)
    fixed = next((n for n in range(1, _MOST_POWER + 1) if power == n), None)
    if fixed is None:
        raise part.wrong("a polynomial of open sizes")
    return product([base] * fixed)


# Namespaces whose operators only compute; others may talk to files, processes or devices.
_NAMESPACES = ("aten", "prims", "slipstick", "transformers", "torchvision", "torchao", "quantized_decomposed")
# What operators that only compute take and return; storages, streams, dicts and objects of classes are none of it.
_VALUE = r"(?:Tensor|int|float|bool|number|complex|Device|Generator|str)"
_TYPE = re.compile(rf"^(?:{_VALUE}|Optional\[{_VALUE}\]|(?:Optional\[)?List\[(?:{_VALUE}|Optional\[Tensor\])\]\]?)$")
# Options of operators that are texts: how to round, pad, reduce. A file name is none.
_WORDS = frozenset({
    "UPLO", "activation", "algorithm", "approximate", "driver", "equation", "indexing", "interpolation", "mode", "msg",
    "assert_msg", "norm", "ord", "p", "pad_mode", "padding", "padding_mode", "padding_side", "reduce", "rounding_mode",
    "side", "kind",
})  # fmt: skip
# These make a tensor of memory that is not theirs, or of another size.
_REFUSED = re.compile(r"^(?:set|set_|set_data|resize\w*|_resize\w*|_reinterpret\w*|_print|record_stream)$")
# Operators whose names begin with `_` trust their caller; only these are run on real memory.
_CHECKED = ("_to_copy", "_unsafe_view", "_unsafe_index")
_NAME = re.compile(r"^torch\.ops\.([A-Za-z]\w*)\.(\w+)(?:\.(\w+))?", re.ASCII)
_LONGEST = 1000
_FUNCTIONS: Mapping[str, Callable[..., object]] = MappingProxyType({
    **{f"_operator.{name}": getattr(operator, name) for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "eq", "ne", "lt", "le", "gt", "ge",
        "and_", "or_", "lshift", "rshift", "getitem")},
    **{f"torch.{name}": getattr(torch, name) for name in (
        "sym_not", "sym_int", "sym_float", "sym_ite", "sym_max", "sym_min", "sym_sqrt")},
    "torch.sym_sum": torch.sym_sum, "math.trunc": math.trunc,
})  # fmt: skip

# Numbers of torch/_export/serde/schema.py.
_DTYPES: Mapping[int, torch.dtype] = MappingProxyType({
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16, 7: torch.float32,
    8: torch.float64, 9: torch.complex32, 10: torch.complex64, 11: torch.complex128, 12: torch.bool, 13: torch.bfloat16,
    28: torch.uint16, 29: torch.float8_e4m3fn, 30: torch.float8_e5m2, 31: torch.float8_e4m3fnuz,
    32: torch.float8_e5m2fnuz, 33: torch.float8_e8m0fnu, 34: torch.uint32, 35: torch.uint64,
})  # fmt: skip
_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)


def identifier(part: JsonPart) -> str:
    """Return a text that names a value or an argument: a plain identifier of at most 1,000 letters."""
    if not part.text.isidentifier() or len(part.text) > _LONGEST:
        raise part.wrong("a name: letters, digits and '_'")
    return part.text


def target_named(part: JsonPart) -> Callable[..., object]:
    """Return what a node of the file calls; UnsupportedOpError names an operator that is not registered here."""
    name = part.text
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    found = _NAME.fullmatch(name)
    if found is None:
        raise UnsupportedOpError(f"{part.place}: {name[:80]!r} is no operator of torch")
    space, op, overload = found.groups()
    registry = HigherOrderOperator if space == "higher_order" else OpOverload
    if space != "higher_order" and space not in _NAMESPACES:
        raise UnsupportedOpError(f"{part.place}: operator '{name[:80]}' has no rule; operators of aten are known")
    packet = getattr(getattr(torch.ops, space), op, None)
    target = packet if registry is HigherOrderOperator else getattr(packet, overload or "default", None)
    if not isinstance(target, registry) or (overload and registry is HigherOrderOperator):
        raise UnsupportedOpError(f"{part.place}: operator '{name[:80]}' is not registered in torch {torch.__version__}")
    if isinstance(target, OpOverload) and not _only_computes(op, target):
        raise UnsupportedOpError(f"{part.place}: operator '{name[:80]}' has no rule: it does more than compute tensors")
    return target


def _only_computes(name: str, target: OpOverload) -> bool:
    """Whether an operator makes tensors and numbers of tensors and numbers, as its schema says."""
    schema = target._schema
    types = [str(a.type) for a in (*schema.arguments, *schema.returns)]
    texts = [a.name for a in schema.arguments if "str" in str(a.type)]
    return (
        _REFUSED.match(name) is None
        and torch._C._dispatch_has_kernel(f"{schema.name}.{schema.overload_name}".rstrip("."))
        and all(_TYPE.match(t) for t in types)
        and all(t in _WORDS for t in texts)
    )


def check_call(target: Callable[..., object], positional: Sequence[JsonPart], named: Mapping[str, JsonPart]) -> None:
    """Check the names of a call against the operator's schema; parts of graphs and functions have positions alone."""
    if not isinstance(target, OpOverload):
        if named and not isinstance(target, HigherOrderOperator):
            first = next(iter(named.values()))
            raise NotUnderstoodError(f"{first.place}: {getattr(target, '__name__', '')} takes no arguments by name")
        return
    known = target._schema.arguments
    if len(positional) > len(known):
        raise NotUnderstoodError(
            f"{positional[-1].place}: {target} takes {len(known)} arguments, {len(positional)} are given"
        )
    wrong = next((p for p, a in zip(positional, known, strict=False) if p.text not in ("", a.name)), None)
    open_names = {a.name for a in known[len(positional) :]}
    wrong = wrong or next((p for name, p in named.items() if name not in open_names), None)
    if wrong is not None:
        legal = ", ".join(a.name for a in known)
        raise NotUnderstoodError(f"{wrong.place}: {target} has no argument {wrong.text[:40]!r} here; it takes: {legal}")


def is_checked(target: object) -> bool:
    """Whether a call may run on real memory: a listed function, or an operator that checks what it is given."""
    if isinstance(target, OpOverload):
        name = target._schema.name.rpartition("::")[2]
        return not name.startswith("_") or name in _CHECKED
    return callable(target) and not isinstance(target, HigherOrderOperator)


def dtype_named(part: JsonPart) -> torch.dtype:
    """Return an element type by its number in the file."""
    if part.number not in _DTYPES:
        raise NotUnderstoodError(f"{part.place}: element type {part.number} is not known")
    return _DTYPES[part.number]


def _memory_format(part: JsonPart) -> Argument:
    if not 1 <= part.number <= len(_FORMATS):
        raise part.wrong("a memory format")
    return _FORMATS[part.number - 1]


ENUMS: Mapping[str, Callable[[JsonPart], Argument]] = MappingProxyType(
    {
        "as_scalar_type": dtype_named,
        "as_memory_format": _memory_format,
        "as_layout": lambda part: torch.strided,
        "as_device": lambda part: torch.device("cpu"),
    }
)
