"""What names in an exported file may mean: operators that torch registers, a list of functions, element types."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx.node import Argument

from ...ir.errors import NotUnderstoodError, UnsupportedOpError
from .json_parts import Part

# Namespaces whose operators only compute; others may talk to files, processes or devices.
_NAMESPACES = ("aten", "prims", "slipstick", "transformers", "torchvision", "torchao", "quantized_decomposed")
_REFUSED = ("from_file",)
_NAME = re.compile(r"^torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?$")
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


def target_named(part: Part) -> Callable[..., object]:
    """Return what a node of the file calls; UnsupportedOpError names an operator that is not registered here."""
    name = part.text
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    found = _NAME.match(name)
    if found is None:
        raise UnsupportedOpError(f"{part.place}: '{name[:80]}' is no operator of torch")
    space, op, overload = found.groups()
    if space == "higher_order":
        return _higher_order(op, part)
    if space not in _NAMESPACES or op in _REFUSED:
        raise UnsupportedOpError(f"{part.place}: operator '{name[:80]}' has no rule; operators of aten are known")
    packet = getattr(getattr(torch.ops, space), op, None)
    target = getattr(packet, overload or "default", None)
    if not isinstance(target, OpOverload):
        raise UnsupportedOpError(f"{part.place}: operator '{name[:80]}' is not registered in torch {torch.__version__}")
    return target


def _higher_order(name: str, part: Part) -> Callable[..., object]:
    found = getattr(torch.ops.higher_order, name, None)
    if not isinstance(found, HigherOrderOperator):
        raise UnsupportedOpError(f"{part.place}: operator '{name[:80]}' is not registered in torch {torch.__version__}")
    return found


def dtype_named(part: Part) -> torch.dtype:
    """Return an element type by its number in the file."""
    if part.number not in _DTYPES:
        raise NotUnderstoodError(f"{part.place}: element type {part.number} is not known")
    return _DTYPES[part.number]


def _memory_format(part: Part) -> Argument:
    if not 1 <= part.number <= len(_FORMATS):
        raise part.wrong("a memory format")
    return _FORMATS[part.number - 1]


ENUMS: Mapping[str, Callable[[Part], Argument]] = MappingProxyType({
    "as_scalar_type": dtype_named,
    "as_memory_format": _memory_format,
    "as_layout": lambda part: torch.strided,
    "as_device": lambda part: torch.device("cpu"),
})  # fmt: skip


__all__ = ["ENUMS", "dtype_named", "target_named"]
