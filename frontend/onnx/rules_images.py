"""Convolutions, pooling, resampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.errors import NotUnderstoodError, UnsupportedOpError
from ...ir.expr import Dim, Expr, as_dim, as_expr
from ...ir.ops.conv import ConvAttrs
from .call import Call, Rule
from .items import Item
from .rules_views import known_dims


def _conv(call: Call) -> Sequence[Item]:
    """Conv(x, weight, bias): pads that differ at both ends count as their mean, which gives the same positions."""
    x, weight = call.item(0), call.item(1)
    rank = x.type.rank - 2
    if rank < 1 or weight.type.rank != x.type.rank:
        raise NotUnderstoodError(f"{call.op} of {x.type} with {weight.type}")
    kernel = tuple(d if isinstance(d, int) else 0 for d in weight.dims[2:])
    strides, dilations, pads = _window(call, rank, kernel)
    groups = call.int_("group", 1)
    turned = call.op == "ConvTranspose"
    sizes = _grown(call, x.dims[2:], kernel) if turned else windows(call, x.dims[2:], kernel)
    channels = as_dim(as_expr(weight.dims[1]) * groups) if turned else weight.dims[0]
    even = tuple((pads[i] + pads[i + rank]) // 2 for i in range(rank))
    exact = all(pads[i] == pads[i + rank] for i in range(rank))
    if not exact or call.text("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return (_padded(call, x, weight, sizes, strides, dilations),)
    attrs = ConvAttrs(strides, even, dilations, turned)
    return (_written(call, x, weight, (x.dims[0], channels, *sizes), attrs),)


def _padded(
    call: Call, x: Item, weight: Item, sizes: tuple[Dim, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> Item:
    """Pads that differ at both ends: the tensor is made longer first, then nothing is padded."""
    if call.op == "ConvTranspose":
        raise UnsupportedOpError("ConvTranspose with pads that differ at both ends")
    reach = zip(sizes, strides, dilations, weight.dims[2:], strict=True)
    longer = tuple(as_dim((as_expr(n) - 1) * s + (as_expr(w) - 1) * d + 1) for n, s, d, w in reach)
    wide = call.copied("copy", x, (*x.dims[:2], *longer))
    attrs = ConvAttrs(strides, (0,) * len(sizes), dilations)
    return _written(call, wide, weight, (x.dims[0], weight.dims[0], *sizes), attrs)


def _written(call: Call, x: Item, weight: Item, dims: tuple[Dim, ...], attrs: ConvAttrs) -> Item:
    inputs = [i for i in (x, weight, call.optional(2)) if i is not None]
    return call.emit("conv", inputs, [x.type.with_dims(dims)], attrs)[0]


def _window(call: Call, rank: int, kernel: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Strides, dilations and pads; NotUnderstoodError where they do not fit the dims."""
    strides, dilations = call.ints("strides") or (1,) * rank, call.ints("dilations") or (1,) * rank
    pads = call.ints("pads") or (0,) * (2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank == len(pads) / 2:
        raise NotUnderstoodError(f"{call.op}: a window of {list(kernel)} over {rank} dims")
    if min(*strides, *dilations, *kernel, 1) < 1 or max(*strides, *dilations, *kernel, *pads) > 2**20:
        raise NotUnderstoodError(f"{call.op}: a window of {list(kernel)}, strides {list(strides)}, pads {list(pads)}")
    return strides, dilations, (0,) * (2 * rank) if call.text("auto_pad", "NOTSET") == "VALID" else pads


def windows(call: Call, sizes: Sequence[Dim], kernel: Sequence[int]) -> tuple[Dim, ...]:
    """Return how many places a window has along each dim, by strides, dilations and pads."""
    rank = len(sizes)
    strides, dilations, pads = _window(call, rank, kernel)
    if call.text("auto_pad", "NOTSET").startswith("SAME"):
        return tuple(_steps(d, s) for d, s in zip(sizes, strides, strict=True))
    round_up = bool(call.int_("ceil_mode", 0))
    made: list[Dim] = []
    for i, size in enumerate(sizes):
        reach = as_expr(size) + pads[i] + pads[i + rank] - dilations[i] * (kernel[i] - 1) - 1
        made.append(_places(as_dim(reach), strides[i], call, round_up))
    return tuple(made)


def _grown(call: Call, sizes: Sequence[Dim], kernel: Sequence[int]) -> tuple[Dim, ...]:
    """The sizes of a transposed convolution."""
    rank = len(sizes)
    strides, dilations, pads = _window(call, rank, kernel)
    more = call.ints("output_padding") or (0,) * rank
    if call.ints("output_shape") is not None or len(more) != rank:
        raise UnsupportedOpError("ConvTranspose with output_shape")
    return tuple(
        as_dim((as_expr(d) - 1) * strides[i] + more[i] + (kernel[i] - 1) * dilations[i] + 1 - pads[i] - pads[i + rank])
        for i, d in enumerate(sizes)
    )


def _steps(size: Dim, stride: int) -> Dim:
    return -(-size // stride) if isinstance(size, int) else as_dim(size / stride)


def _places(reach: Dim, stride: int, call: Call, round_up: bool = False) -> Dim:
    """(reach) / stride rounded, + 1; of symbolic sizes the stride is taken to divide what depends on them."""
    if isinstance(reach, int):
        if reach < 0:
            raise NotUnderstoodError(f"{call.op}: the window is larger than what it goes over")
        return (-(-reach // stride) if round_up else reach // stride) + 1
    constant = sum(int(c) for m, c in reach.terms if not m)
    whole = -(-constant // stride) if round_up else constant // stride
    made = as_dim((reach - constant) / stride + whole + 1)
    if isinstance(made, Expr) and not made.is_integral:
        raise UnsupportedOpError(f"{call.op} with stride {stride} over a size of {reach}: not whole for all sizes")
    return made


def _pool(call: Call) -> Sequence[Item | None]:
    x = call.item(0)
    if x.type.rank < 3:
        raise NotUnderstoodError(f"{call.op} of {x.type}")
    if call.op.startswith("Global"):
        dims: tuple[Dim, ...] = (*x.dims[:2], *(1 for _ in x.dims[2:]))
    else:
        dims = (*x.dims[:2], *windows(call, x.dims[2:], call.ints("kernel_shape") or ()))
    return (call.regrown(x, dims), *(None for _ in call.node.output[1:]))


def _resize(call: Call) -> Sequence[Item]:
    x = call.item(0)
    if call.has(3):
        dims = tuple(known_dims(call, 3))
    elif call.has(2) and (scales := call.item(2).content) is not None:
        dims = tuple(as_dim(as_expr(d) * s) for d, s in zip(x.dims, scales.reshape(-1).tolist(), strict=True))
    else:
        raise NotUnderstoodError("Resize to sizes that depend on data")
    return (call.regrown(x, dims),)


RULES: Mapping[str, Rule] = {
    "Conv": _conv, "ConvTranspose": _conv, "FusedConv": _conv,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"), _pool),
    "Resize": _resize, "Upsample": _resize,
}  # fmt: skip
