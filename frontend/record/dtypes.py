"""Element types and calls of torch in our words: one table of types, arguments by the names of the schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor, fx, nn

from ...ir.errors import TraceError, UnknownNameError
from ...ir.meaning import Argument, In, Meaning, OperatorCall, Out
from ...ir.sizes.expr import Expr
from ...ir.types import DType

_DTYPES = {
    torch.float32: DType.FP32,
    torch.bfloat16: DType.BF16,
    torch.float16: DType.FP16,
    torch.float64: DType.FP64,
    torch.int64: DType.INT64,
    torch.int32: DType.INT32,
    torch.int16: DType.INT16,
    torch.int8: DType.INT8,
    torch.uint8: DType.UINT8,
    torch.bool: DType.BOOL,
    torch.float8_e4m3fn: DType.FP8,
    torch.float8_e5m2: DType.FP8,
    torch.complex64: DType.COMPLEX64,
}


def dtype_of(tensor: Tensor) -> DType:
    """Return the element type of a torch tensor; TraceError for one we do not know."""
    if tensor.dtype not in _DTYPES:
        raise TraceError(f"tensors of type {tensor.dtype} are not understood; known: {sorted(map(str, _DTYPES))}")
    return _DTYPES[tensor.dtype]


def main_dtype(sizes: Iterable[tuple[torch.dtype, int]]) -> DType:
    """Return the floating type that most is in; fp32, torch's own default, where nothing is."""
    totals: Counter[torch.dtype] = Counter()
    for dtype, size in sizes:
        totals[dtype] += size if dtype.is_floating_point else 0
    found, size = max(totals.items(), key=lambda pair: pair[1], default=(torch.float32, 0))
    return dtype_of(torch.empty(0, dtype=found if size else torch.float32, device="meta"))


def known_dtype(dtype: torch.dtype) -> DType | None:
    """Return the element type of a torch type; None for one that we do not know."""
    return _DTYPES.get(dtype)


def torch_type(dtype: DType) -> torch.dtype:
    """Return the torch type of an element type that tensors can be handed over in."""
    known = {ours: theirs for theirs, ours in reversed(_DTYPES.items())}
    if dtype not in known:
        raise UnknownNameError.of("type of an input", dtype, known)
    return known[dtype]


def torch_dtype(dtype: DType) -> torch.dtype:
    """Return the torch type that models are built in; computing types only."""
    known = {DType.BF16: torch.bfloat16, DType.FP16: torch.float16, DType.FP32: torch.float32}
    if dtype not in known:
        raise TraceError(f"models are built in {', '.join(known)}, not in {dtype}")
    return known[dtype]


def seen_as(module: nn.Module, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """`self.gate.to(torch.float32)` in a forward pass: its parameters stay, and what is made of them is read."""
    for part in module.modules() if recurse else (module,):
        for name, param in part._parameters.items():
            if param is not None:
                vars(part)[name] = change(param)
        for name, buffer in part._buffers.items():
            part._buffers[name] = buffer if buffer is None else change(buffer)
    return module


@lru_cache(maxsize=1024)
def _names(target: torch._ops.OpOverload) -> tuple[str, ...]:
    return tuple(a.name for a in target._schema.arguments)


def meaning_of(node: fx.Node, ids: Mapping[fx.Node, int], inputs: Sequence[int], num_outputs: int) -> Meaning | None:
    """Return the call of a node whose tensor arguments are, by id, among the inputs; others are left out.

    Where a call makes several tensors its outputs are its parts, those that are empty left out. None for what is no
    operator of torch.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    place = {i: k for k, i in reversed(list(enumerate(inputs)))}

    def taken(given: object) -> Argument:
        if isinstance(given, fx.Node):
            return _tensor(given, ids, place)
        if isinstance(given, list | tuple):
            return tuple(taken(g) for g in given)
        if isinstance(given, torch.dtype):
            return known_dtype(given)
        return given if isinstance(given, bool | int | float | str | Expr) else None

    named = (*zip(_names(target), node.args, strict=False), *node.kwargs.items())
    arguments = tuple((name, found) for name, given in named if (found := taken(given)) is not None)
    step = OperatorCall(str(target).removesuffix(".default"), arguments)
    val = node.meta["val"]
    return Meaning((step,), _outputs(node.meta["val"], num_outputs), isinstance(val, Tensor) and val.is_complex())


def _tensor(given: fx.Node, ids: Mapping[fx.Node, int], place: Mapping[int, int]) -> Argument:
    val = given.meta.get("val")
    if isinstance(val, bool | int | float):
        return val  # read off a constant while recording
    found = place.get(ids[given]) if given in ids else None
    return None if found is None else In(found, isinstance(val, Tensor) and val.is_complex())


def _outputs(val: object, count: int) -> tuple[In | Out, ...]:
    if isinstance(val, Tensor) or not isinstance(val, list | tuple):
        return (Out(0),)
    made = [k for k, v in enumerate(val) if isinstance(v, Tensor) and not (v.dim() == 1 and v.shape[0] == 0)]
    return tuple(Out(0, k) for k in made[:count])
