"""Pictures read at places that data say, and signals: samples of a grid, of regions, of moved windows; transforms.

What is read at places of its own is a gather: entries handed on keep their letters, the places looked up have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.errors import NotUnderstoodError, UnsupportedOpError
from ....ir.ops.tensors.conv import ConvAttrs
from ....ir.ops.tensors.lookup import LookupAttrs, lookup_of
from ....ir.ops.tensors.normalize import DimAttrs
from ....ir.sizes.expr import Dim, as_dim, as_expr, product
from ....ir.types import DType, TensorType
from ..call import Call, Rule, axis_of, numel
from ..shapes.items import Item, dtype_of
from .images import windows
from .pointwise import fill
from .rows import reduced
from .views import known_dims, quotient


def _grid_sample(call: Call) -> Sequence[Item]:
    """GridSample(x [n, c, sizes], grid [n, sizes', 2 or 3]): every result at a place of the grid."""
    x, grid = call.item(0), call.item(1)
    if x.type.rank < 3 or grid.type.rank != x.type.rank or x.dims[0] != grid.dims[0]:
        raise NotUnderstoodError(f"GridSample of {x.type} at {grid.type}")
    places = grid.dims[1:-1]
    at = tuple(("at", k) for k in range(len(places)))
    labels = [("n", "c", *(None for _ in places)), ("n", *at, None), ("n", "c", *at)]
    return call.emit("gather", [x, grid], [x.type.with_dims((*x.dims[:2], *places))], lookup_of(labels))


def _regions(call: Call) -> Sequence[Item]:
    """RoiAlign(x [n, c, h, w], regions [r, 4], pictures [r]): samples of each cell, then their mean or maximum."""
    x, regions = call.item(0), call.item(1)
    if x.type.rank != 4 or regions.type.rank != 2:
        raise NotUnderstoodError(f"{call.op} of {x.type} at {regions.type}")
    if call.op == "MaxRoiPool":
        height, width = call.ints("pooled_shape") or (1, 1)
        samples = 1
    else:
        height, width = call.int_("output_height", 1), call.int_("output_width", 1)
        samples = max(1, call.int_("sampling_ratio", 0) ** 2)
    dims = (regions.dims[0], x.dims[1], height, width)
    if min(height, width) < 1 or max(height, width, samples) > 2**20:
        raise NotUnderstoodError(f"{call.op} to {height} x {width} with {samples} samples")
    labels = [(None, "c", None, None), ("r", None), ("r", "c", None, None, None)]
    kind = x.type.with_dims((*dims, samples))
    (taken,) = call.emit("gather", [x, regions], [kind], lookup_of(labels))
    return (reduced(call, taken, "amax" if call.text("mode", "avg") == "max" else "mean", (4,), False),)


def _deformed(call: Call) -> Sequence[Item]:
    """DeformConv(x, weight, offsets, bias, mask): each tap at a place of its own, then the product with the weight."""
    x, weight, offsets = call.item(0), call.item(1), call.item(2)
    rank = x.type.rank - 2
    kernel = tuple(d for d in weight.dims[2:] if isinstance(d, int))
    if rank < 1 or weight.type.rank != x.type.rank or len(kernel) != rank:
        raise NotUnderstoodError(f"DeformConv of {x.type} with {weight.type}")
    sizes = windows(call, x.dims[2:], kernel)
    taps = product(kernel)
    wide = (x.dims[0], as_dim(as_expr(x.dims[1]) * taps), *sizes)
    labels = [
        ("n", *(None for _ in x.dims[1:])),
        ("n", *(None for _ in offsets.dims[1:])),
        ("n", *(None for _ in sizes), None),
    ]
    (taken,) = call.emit("gather", [x, offsets], [x.type.with_dims(wide)], lookup_of(labels))
    flat = (weight.dims[0], as_dim(as_expr(weight.dims[1]) * taps), *(1 for _ in sizes))
    ones = (1,) * rank
    given = [taken, call.reshape(weight, flat), *([i] if (i := call.optional(3)) is not None else [])]
    made = x.type.with_dims((x.dims[0], weight.dims[0], *sizes))
    return call.emit("conv", given, [made], ConvAttrs(ones, (0,) * rank, ones))


def _unfolded(call: Call) -> Sequence[Item]:
    """Col2Im(columns [n, c x block, l], sizes, block): columns added up where they lie."""
    x, sizes, block = call.item(0), known_dims(call, 1), known_dims(call, 2)
    channels = quotient(x.dims[1], numel(block)) if x.type.rank == 3 else None
    if channels is None:
        raise NotUnderstoodError(f"Col2Im of {x.type} with blocks of {block}")
    kind = x.type.with_dims((x.dims[0], channels, *sizes))
    labels = [("n", None, None), ("n", None, *(None for _ in sizes))]
    return call.emit("scatter", [x], [kind], lookup_of(labels))


def _unpooled(call: Call) -> Sequence[Item]:
    """MaxUnpool(x, places, sizes): entries put back where the pool took them from."""
    x, places = call.item(0), call.item(1)
    kernel = call.ints("kernel_shape") or ()
    rank = x.type.rank - 2
    if rank < 1 or len(kernel) != rank:
        raise NotUnderstoodError(f"MaxUnpool of {x.type} by {list(kernel)}")
    strides, pads = call.ints("strides") or (1,) * rank, call.ints("pads") or (0,) * (2 * rank)
    if len(strides) != rank or len(pads) != 2 * rank:
        raise NotUnderstoodError(f"MaxUnpool of {x.type} with strides {list(strides)} and pads {list(pads)}")
    grown = (
        as_dim((as_expr(d) - 1) * s + k - pads[i] - pads[i + rank])
        for i, (d, s, k) in enumerate(zip(x.dims[2:], strides, kernel, strict=True))
    )
    dims = tuple(known_dims(call, 2)) if call.has(2) else (*x.dims[:2], *grown)
    labels = [("n", "c", *(None for _ in kernel))] * 2 + [("n", "c", *(None for _ in kernel))]
    return call.emit("scatter", [x, places], [x.type.with_dims(dims)], lookup_of(labels))


def _reversed(call: Call) -> Sequence[Item]:
    """ReverseSequence(x, lengths): each sample backwards as far as it goes."""
    x = call.item(0)
    return (call.regrown(x, x.dims, changed=(axis_of(call.int_("time_axis", 0), x.type.rank),)),)


def _fourier(call: Call) -> Sequence[Item]:
    """DFT(x [.., length, 1 or 2], length, axis): a fast transform passes through memory; its FLOPs hide behind that."""
    x = call.item(0)
    rank = x.type.rank
    given = int(str(known_dims(call, 2)[0])) if call.has(2) else call.int_("axis", 1 if call.opset < 20 else -2)
    axis = axis_of(given, rank)
    if rank < 2 or axis == rank - 1:
        raise NotUnderstoodError(f"DFT of {x.type} along dim {axis}")
    length = known_dims(call, 1)[0] if call.has(1) else x.dims[axis]
    half, back = bool(call.int_("onesided", 0)), bool(call.int_("inverse", 0))
    if half and back and not call.has(1):
        length = as_dim((as_expr(length) - 1) * 2)
    made = _half(length) if half and not back else length
    dims = (*x.dims[:axis], made, *x.dims[axis + 1 : -1], 1 if half and back else 2)
    return (call.regrown(x, dims, changed=(axis,)),)


def _half(length: Dim) -> Dim:
    """floor(length / 2) + 1 frequencies tell a real signal."""
    found = quotient(length, 2) if not isinstance(length, int) else length // 2
    if found is None:
        raise UnsupportedOpError(f"half of a transform of {length}: not a whole number for all sizes")
    return as_dim(as_expr(found) + 1)


def _short_time(call: Call) -> Sequence[Item]:
    """STFT(signal [b, length, 1 or 2], step, window, length of a frame): frames cut out, then their transforms."""
    x, step = call.item(0), known_dims(call, 1)[0]
    frame = known_dims(call, 3)[0] if call.has(3) else call.dims(2)[0]
    if x.type.rank not in (2, 3):
        raise NotUnderstoodError(f"STFT of {x.type}")
    frames = quotient(as_dim(as_expr(x.dims[1]) - frame), step)
    if isinstance(x.dims[1], int) and isinstance(frame, int) and isinstance(step, int) and step > 0:
        frames = (x.dims[1] - frame) // step
    if frames is None:
        raise UnsupportedOpError(f"STFT of {x.dims[1]} samples in steps of {step}: not a whole number for all sizes")
    last = x.dims[2] if x.type.rank == 3 else 1
    number = as_dim(as_expr(frames) + 1)
    cut = call.regrown(
        call.reshape(x, (x.dims[0], x.dims[1], 1, last)), (x.dims[0], number, frame, last), changed=(1, 2)
    )
    made = _half(frame) if call.int_("onesided", 1) else frame
    return (call.regrown(cut, (x.dims[0], number, made, 2), changed=(2,)),)


def _mel(call: Call) -> Sequence[Item]:
    """MelWeightMatrix(bands, length of the transform, ...): a table made once."""
    bands, length = known_dims(call, 0)[0], known_dims(call, 1)[0]
    return (fill(call, (_half(length), bands), dtype_of(call.int_("output_datatype", 1), call.op), "constant"),)


def _determinant(call: Call) -> Sequence[Item]:
    x = call.item(0)
    if x.type.rank < 2:
        raise NotUnderstoodError(f"Det of {x.type}")
    return (reduced(call, x, "prod", (x.type.rank - 2, x.type.rank - 1), False),)


def _across_channels(call: Call) -> Sequence[Item]:
    """LRN(x): each entry over the sum of squares of its neighbours in other channels, which must be there."""
    x = call.item(0)
    if x.type.rank < 2:
        raise NotUnderstoodError(f"LRN of {x.type}")
    return call.emit("softmax", [x], [x.type], DimAttrs(1))


def _lp_norm(call: Call) -> Sequence[Item]:
    x = call.item(0)
    axis = call.axis(x.type.rank, -1)
    size = reduced(call, x, "sum", (axis,), True)
    return (call.pointwise("div", [x, size], x.dims, x.type.dtype),)


def _drawn(call: Call) -> Sequence[Item]:
    """Multinomial(x [b, classes]): running sums of probabilities, and a draw in each."""
    x, number = call.item(0), call.int_("sample_size", 1)
    sums = call.emit("cumsum", [x], [x.type], DimAttrs(x.type.rank - 1))[0]
    kind = TensorType((x.dims[0], number), dtype_of(call.int_("dtype", 6), call.op))
    return call.emit("gather", [sums], [kind], lookup_of([("b", None), ("b", None)]))


def _counted(call: Call) -> Sequence[Item]:
    """TfIdfVectorizer(x [.., length]): n-grams of numbers looked up in a pool, and counted."""
    x, places = call.item(0), call.ints("ngram_indexes")
    if "pool_strings" in call.attributes:
        raise NotUnderstoodError("TfIdfVectorizer of texts: an estimate is of numbers, which a tokenizer makes of them")
    if not places or not 1 <= x.type.rank <= 2:
        raise NotUnderstoodError(f"TfIdfVectorizer of {x.type}")
    kind = TensorType((*x.dims[:-1], max(places) + 1), DType.FP32)
    return call.emit("scatter", [x], [kind], LookupAttrs())


RULES: Mapping[str, Rule] = {
    "GridSample": _grid_sample, "RoiAlign": _regions, "MaxRoiPool": _regions, "DeformConv": _deformed,
    "Col2Im": _unfolded, "MaxUnpool": _unpooled, "ReverseSequence": _reversed, "DFT": _fourier, "STFT": _short_time,
    "MelWeightMatrix": _mel, "Det": _determinant, "LRN": _across_channels, "LpNormalization": _lp_norm,
    "Multinomial": _drawn, "TfIdfVectorizer": _counted,
}  # fmt: skip
