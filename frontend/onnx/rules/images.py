"""Convolutions, pooling, resampling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError, UnsupportedOpError
from ....ir.ops.tensors.conv import ConvAttrs
from ....ir.sizes.expr import Dim, Expr, as_dim, as_expr
from ....ir.types import DType, TensorType
from ..call import Call, Rule, axis_of
from ..shapes.items import Item
from .rows import reduced
from .views import quotient

# From this version on a resize may take a region, and factors come third.
RESIZE_WITH_REGION = 11
MAX_FACTOR = 2**20
_PLAIN_PADS = ("NOTSET", "VALID")


def _conv(call: Call) -> Sequence[Item]:
    """Conv(x, weight, bias)."""
    x = call.item(0)
    return (convolved(call, x, call.item(1), x.type.dtype, call.optional(2)),)


def convolved(call: Call, x: Item, weight: Item, dtype: DType, bias: Item | None = None) -> Item:
    """Write a convolution with the settings of a call; where pads differ at both ends, the input is made longer first.

    A transposed one is made whole, and a range of it taken.
    """
    rank = x.type.rank - 2
    if rank < 1 or weight.type.rank != x.type.rank:
        raise NotUnderstoodError(f"{call.op} of {x.type} with {weight.type}")
    kernel = tuple(d if isinstance(d, int) else 0 for d in weight.dims[2:])
    strides, dilations, pads = _window(call, rank, kernel)
    turned = call.op == "ConvTranspose"
    _check_weight(call, x, weight, kernel, turned)
    sizes = _grown(call, x.dims[2:], kernel) if turned else windows(call, x.dims[2:], kernel)
    channels = as_dim(as_expr(weight.dims[1]) * call.int_("group", 1)) if turned else weight.dims[0]
    exact = all(pads[i] == pads[i + rank] for i in range(rank)) and call.text("auto_pad", "NOTSET") in _PLAIN_PADS
    exact = exact and call.ints("output_shape") is None
    even = tuple(pads[:rank]) if exact else (0,) * rank
    kind = TensorType((x.dims[0], channels, *sizes), dtype)
    extra = [bias] if bias is not None else []
    if exact or not turned:
        x = x if exact else call.copied("copy", x, _longer(x.dims[:2], weight, sizes, strides, dilations))
        return call.emit("conv", [x, weight, *extra], [kind], ConvAttrs(strides, even, dilations, turned))[0]
    whole = _longer((x.dims[0], channels), weight, x.dims[2:], strides, dilations)
    attrs = ConvAttrs(strides, even, dilations, turned)
    made = call.emit("conv", [x, weight, *extra], [kind.with_dims(whole)], attrs)[0]
    return made if whole == kind.dims else call.copied("copy", made, kind.dims)


def _check_weight(call: Call, x: Item, weight: Item, kernel: tuple[int, ...], turned: bool) -> None:
    """Refuse groups that do not divide the channels of a weight, and a `kernel_shape` that is not its own."""
    group, (outer, inner), channels = call.int_("group", 1), weight.dims[:2], x.dims[1]
    said = call.ints("kernel_shape")
    known = all(isinstance(d, int) for d in weight.dims)
    fits = group > 0 and (not isinstance(outer, int) or outer % group == 0)
    if fits and isinstance(channels, int) and isinstance(inner, int) and isinstance(outer, int):
        fits = channels == (outer if turned else inner * group)
    if not fits or (said is not None and known and said != kernel):
        window = "" if said is None else f", kernel_shape={list(said)}"
        raise NotUnderstoodError(
            f"{call.op} of {x.type} with {weight.type}: group={group}{window}; groups divide the channels of both, "
            "and kernel_shape is that of the weight"
        )


def _longer(
    lead: Sequence[Dim], weight: Item, places: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Dim, ...]:
    """Return the dims over which windows at so many places reach: (n - 1) stride + (taps - 1) dilation + 1."""
    reach = zip(places, strides, dilations, weight.dims[2:], strict=True)
    return (*lead, *(as_dim((as_expr(n) - 1) * s + (as_expr(w) - 1) * d + 1) for n, s, d, w in reach))


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
        return tuple((-(-d // s) if isinstance(d, int) else as_dim(d / s)) for d, s in zip(sizes, strides, strict=True))
    round_up = bool(call.int_("ceil_mode", 0))
    made: list[Dim] = []
    for i, size in enumerate(sizes):
        reach = as_expr(size) + pads[i] + pads[i + rank] - dilations[i] * (kernel[i] - 1) - 1
        places = _places(as_dim(reach), strides[i], call, round_up)
        # A window that would begin behind the input and the padding in front is left out.
        if (
            round_up
            and isinstance(places, int)
            and isinstance(size, int)
            and (places - 1) * strides[i] >= size + pads[i]
        ):
            places -= 1
        made.append(places)
    return tuple(made)


def _grown(call: Call, sizes: Sequence[Dim], kernel: Sequence[int]) -> tuple[Dim, ...]:
    """The sizes of a transposed convolution."""
    rank = len(sizes)
    strides, dilations, pads = _window(call, rank, kernel)
    more, asked = call.ints("output_padding") or (0,) * rank, call.ints("output_shape")
    if asked is not None and len(asked) >= rank:
        return tuple(asked[-rank:])
    if len(more) != rank:
        raise NotUnderstoodError(f"ConvTranspose with output_padding {list(more)} over {rank} dims")
    if call.text("auto_pad", "NOTSET").startswith("SAME"):
        return tuple(as_dim(as_expr(d) * s) for d, s in zip(sizes, strides, strict=True))
    return tuple(
        as_dim((as_expr(d) - 1) * strides[i] + more[i] + (kernel[i] - 1) * dilations[i] + 1 - pads[i] - pads[i + rank])
        for i, d in enumerate(sizes)
    )


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
        kind = "amax" if call.op == "GlobalMaxPool" else "mean"
        return (reduced(call, x, kind, tuple(range(2, x.type.rank)), True),)
    dims = (*x.dims[:2], *windows(call, x.dims[2:], call.ints("kernel_shape") or ()))
    made = call.regrown(x, dims)
    if len(call.node.output) < 2 or not call.node.output[1]:
        return (made,)
    return (made, call.regrown(x, dims, dtype=DType.INT64))


def _resize(call: Call) -> Sequence[Item]:
    """Resize(x, region, factors, sizes), in old forms (x, factors): to sizes, or by factors, rounded down."""
    x = call.item(0)
    old = call.op == "Upsample" or call.opset < RESIZE_WITH_REGION
    given = call.ints("axes")
    axes = [axis_of(a, x.type.rank) for a in given] if given is not None else list(range(x.type.rank))
    sizes, factors = _numbers(call, 3), _numbers(call, 1 if old else 2)
    dims = list(x.dims)
    for place, axis in enumerate(axes):
        found: Dim | None = None
        if sizes and place < len(sizes):
            size = sizes[place]
            found = size if isinstance(size, int | Expr) else None
        elif factors and place < len(factors):
            found = _scaled(x.dims[axis], factors[place], _part(call, place, len(axes)))
        dims[axis] = call.bound(axis) if found is None else found
    return (call.regrown(x, _kept_aspect(call, x, axes, dims)),)


def _numbers(call: Call, index: int) -> list[object]:
    """Return the numbers of an input, none where it is left out or depends on data."""
    item = call.optional(index)
    return [] if item is None or item.content is None else item.content.reshape(-1).tolist()


def _part(call: Call, place: int, number: int) -> float:
    """Return what part of a dim a region takes, whose borders are fractions of it."""
    if call.text("coordinate_transformation_mode", "") != "tf_crop_and_resize":
        return 1.0
    borders = [b for b in _numbers(call, 1) if isinstance(b, int | float)]
    return borders[place + number] - borders[place] if len(borders) == 2 * number else 1.0


def _scaled(size: Dim, factor: object, part: float) -> Dim | None:
    """floor(size x part x factor); of an open size only where the factor keeps it whole."""
    if not isinstance(factor, int | float) or not 0 < factor < MAX_FACTOR:
        return None
    if isinstance(size, int):
        return math.floor(size * part * factor)
    by = factor * part
    if by == int(by):
        return as_dim(size * int(by))
    return quotient(size, int(1 / by)) if 1 / by == int(1 / by) else None


def _kept_aspect(call: Call, x: Item, axes: Sequence[int], dims: list[Dim]) -> tuple[Dim, ...]:
    """Sizes of which one is kept and the others follow it, as `keep_aspect_ratio_policy` says."""
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" or not _numbers(call, 3):
        return tuple(dims)
    pairs = [(x.dims[a], dims[a]) for a in axes]
    ratios = [b / a for a, b in pairs if isinstance(a, int) and isinstance(b, int) and a]
    if len(ratios) < len(pairs) or not ratios:
        raise NotUnderstoodError(f"Resize with keep_aspect_ratio_policy '{policy}' of open sizes")
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    for axis, (size, _) in zip(axes, pairs, strict=True):
        dims[axis] = math.floor(ratio * float(as_expr(size).evaluate({})) + 0.5)
    return tuple(dims)


RULES: Mapping[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv,
    "FusedConv": _conv,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _pool),
    "Resize": _resize,
    "Upsample": _resize,
}
