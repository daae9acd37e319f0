"""ATen kernels over pictures and volumes to the IR: pools, resampling, patches, padding, norms over channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from torch import Tensor, fx

from ...ir.graph import Phase
from ...ir.ops.tensors.images import ChannelNormAttrs, WindowAttrs
from ...ir.ops.tensors.lookup import Labels, spec_of
from .fx_import import Handler, Importer, argument, op_name
from .lookup import diagonal_labels

# FLOPs of a window along one dim: a weighted sum of its taps takes two a tap.
_RESAMPLED = {"nearest": 0, "linear": 4, "bilinear": 4, "trilinear": 4, "bicubic": 8}
_GRID_FLOPS = 4  # between two neighbours along a dim; the places and their weights are worked out in registers


def _operand(im: Importer, node: fx.Node, *names: str) -> list[int]:
    """Return the values of those arguments of these names that are given, in this order."""
    found = (argument(node, name) for name in names)
    return [im.ids[given] for given in found if isinstance(given, fx.Node)]


def _made(node: fx.Node) -> list[Tensor]:
    """Return the tensors that a call makes; one that is left out is empty or None."""
    val = node.meta["val"]
    parts = [val] if isinstance(val, Tensor) else val
    return [t for t in parts if isinstance(t, Tensor) and not (t.dim() == 1 and t.shape[0] == 0)]


def _window(fn: str, over: int, flops: Callable[[Importer, fx.Node, int], int]) -> Handler:
    """A kernel that hands on all dims but the last `over`, in which it looks at windows."""

    def handler(im: Importer, node: fx.Node) -> None:
        (x,) = inputs = im.inputs(node)
        rank = im.flat.values[x].type.rank
        lead = tuple(range(rank - over))
        outs = [(*lead, *(("y", k) for k in range(t.dim() - len(lead)))) for t in _made(node)]
        spec = spec_of([(*lead, *(None,) * over)], outs)
        im.emit(node, "window", inputs, WindowAttrs(fn, spec, flops(im, node, over)))

    return handler


def _window_bwd(fn: str, over: int, flops: Callable[[Importer, fx.Node, int], int]) -> Handler:
    """The way back: dy and indices lie alike, x is held, dx lies as x does."""

    def handler(im: Importer, node: fx.Node) -> None:
        grad, indices, held = (
            _operand(im, node, *names) for names in (("grad_output",), ("indices",), ("self", "input"))
        )
        rank = im.flat.values[grad[0]].type.rank
        lead = tuple(range(rank - over))
        y: Labels = (*lead, *(("y", k) for k in range(over)))
        x: Labels = (*lead, *(None,) * over)
        spec = spec_of([y, *(y for _ in indices), *(x for _ in held)], [x])
        attrs = WindowAttrs(fn, spec, flops(im, node, over), len(held))
        im.emit(node, "window_bwd", (*grad, *indices, *held), attrs)

    return handler


def _taps(im: Importer, node: fx.Node, over: int) -> int:
    """One FLOP a tap: those of the kernel, or of an adaptive pool as many as a result takes on average."""
    kernel = argument(node, "kernel_size")
    if isinstance(kernel, list | tuple | int):
        given = [kernel] if isinstance(kernel, int) else [int(str(k)) for k in kernel]
        return math.prod(given * over if len(given) == 1 else given)
    tensors = [im.type_of(t.meta["val"]).dims[-over:] for t in im.tensors(node)]
    tensors += [im.type_of(t).dims[-over:] for t in _made(node)]
    sizes = [math.prod(d for d in dims if isinstance(d, int)) for dims in tensors]
    return max(-(-max(sizes) // max(min(sizes), 1)), 1)


def _weights(fn: str) -> Callable[[Importer, fx.Node, int], int]:
    def flops(im: Importer, node: fx.Node, over: int) -> int:
        del im, node
        return (_RESAMPLED[fn] // 2) ** over * 2 if _RESAMPLED[fn] else 0

    return flops


def _nothing(im: Importer, node: fx.Node, over: int) -> int:
    del im, node, over
    return 0


def _unfold(im: Importer, node: fx.Node) -> None:
    """`unfold(x, dim, size, step)`: windows along one dim, their entries in a new last one."""
    (x,) = im.inputs(node)
    rank = im.flat.values[x].type.rank
    dim = int(str(argument(node, "dimension"))) % rank
    kept = tuple(None if k == dim else k for k in range(rank))
    im.emit(node, "window", (x,), WindowAttrs("unfold", spec_of([kept], [(*kept, None)])))


def _unfold_bwd(im: Importer, node: fx.Node) -> None:
    """`unfold_backward(dy, sizes, dim, size, step)`: entries of all windows are added where they came from."""
    (grad,) = im.inputs(node)
    rank = im.rank(node) - 1
    dim = int(str(argument(node, "dim"))) % rank
    kept = tuple(None if k == dim else k for k in range(rank))
    im.emit(node, "window_bwd", (grad,), WindowAttrs("unfold", spec_of([(*kept, None)], [kept]), 1))


def _patches(im: Importer, node: fx.Node) -> None:
    """`im2col` and `col2im`: [batch, channels, ..] and [batch, channels x kernel, patches], each the other's way back.

    The batch is handed on.
    """
    (x,) = im.inputs(node)
    rank, made = im.flat.values[x].type.rank, node.meta["val"].dim()
    fn, adds = op_name(node).removeprefix("aten."), op_name(node) == "aten.col2im"
    batch = rank - (2 if adds else 3)
    lead = tuple(range(batch))
    spec = spec_of([(*lead, *(None,) * (rank - batch))], [(*lead, *(None,) * (made - batch))])
    forward = im.origin(node).phase is Phase.FORWARD
    im.emit(node, "window" if forward else "window_bwd", (x,), WindowAttrs(fn, spec, int(adds)))


def _grid(im: Importer, node: fx.Node) -> None:
    """`grid_sampler(x [batch, channels, ..], grid [batch, .., dims])`: results lie as the grid does."""
    x, grid = im.inputs(node)
    over = im.flat.values[x].type.rank - 2
    y: Labels = ("n", "c", *(("y", k) for k in range(over)))
    given: Labels = ("n", *(("y", k) for k in range(over)), None)
    spec = spec_of([("n", "c", *(None,) * over), given], [y])
    im.emit(node, "window", (x, grid), WindowAttrs("grid", spec, _GRID_FLOPS**over))


def _grid_bwd(im: Importer, node: fx.Node) -> None:
    inputs = _operand(im, node, "grad_output", "input", "grid")
    over = im.flat.values[inputs[1]].type.rank - 2
    y: Labels = ("n", "c", *(("y", k) for k in range(over)))
    x: Labels = ("n", "c", *(None,) * over)
    grid: Labels = ("n", *(("y", k) for k in range(over)), None)
    asked = [labels for labels, t in zip((x, grid), node.meta["val"], strict=True) if isinstance(t, Tensor)]
    attrs = WindowAttrs("grid", spec_of([y, x, grid], asked), 2 * _GRID_FLOPS**over)
    im.emit(node, "window_bwd", inputs, attrs)


def _fractional(over: int) -> Handler:
    """`fractional_max_pool(x, kernel, sizes, samples)`: where windows begin is drawn for each sample and channel."""

    def handler(im: Importer, node: fx.Node) -> None:
        x, samples = im.inputs(node)
        rank = im.flat.values[x].type.rank
        lead = tuple(range(rank - over))
        drawn: Labels = (*(None for _ in range(2 - len(lead))), *lead, None)
        outs = [(*lead, *(("y", k) for k in range(over))) for _ in _made(node)]
        spec = spec_of([(*lead, *(None,) * over), drawn], outs)
        im.emit(node, "window", (x, samples), WindowAttrs("max", spec, _taps(im, node, over)))

    return handler


def _diagonal_bwd(im: Importer, node: fx.Node) -> None:
    """`diagonal_backward(dy, sizes, offset, dim1, dim2)`: the entries of a diagonal among zeros."""
    (grad,) = im.inputs(node)
    labels = diagonal_labels(node.meta["val"].dim(), argument(node, "dim1"), argument(node, "dim2"))
    im.emit(node, "window_bwd", (grad,), WindowAttrs("diagonal", spec_of(labels[1:], labels[:1])))


def _batch_norm(im: Importer, node: fx.Node) -> None:
    """Y, and in training mean and 1 / deviation of each channel over batch and positions; running ones else."""
    given = argument(node, "running_mean") is not None and not _is_training(node)
    statistics = ("running_mean", "running_var") if given else ()
    inputs = _operand(im, node, "input", "weight", "bias", *statistics)
    x = _places(im, inputs[0])
    spec = spec_of([x, *(("c",) for _ in inputs[1:])], _by_channel(im, node, inputs[0]))
    im.emit(node, "channel_norm", inputs, ChannelNormAttrs("batch", spec, given))


def _batch_norm_bwd(im: Importer, node: fx.Node) -> None:
    given = not _is_training(node)
    statistics = ("running_mean", "running_var") if given else ("save_mean", "save_invstd", "save_var")
    inputs = _operand(im, node, "grad_output", "grad_out", "input", "weight", *statistics)
    x = _places(im, inputs[0])
    spec = spec_of([x, x, *(("c",) for _ in inputs[2:])], _by_channel(im, node, inputs[0]))
    im.emit(node, "channel_norm_bwd", inputs, ChannelNormAttrs("batch", spec, given))


def _is_training(node: fx.Node) -> bool:
    """Whether statistics are those of the batch; an operator that has no say in it says so by its name."""
    if "no_training" in str(node.target):
        return False
    said = [argument(node, name) for name in ("training", "train", "update")]
    return next((bool(s) for s in said if s is not None), True)


def _group_norm(im: Importer, node: fx.Node) -> None:
    """Y, and mean and 1 / deviation of each sample's groups of channels over these and positions.

    Channels are handed on by whole groups alone: those of x are another letter than those of the weight.
    """
    inputs = _operand(im, node, "input", "weight", "bias")
    x, statistic = _places(im, inputs[0]), ("n", "g")
    made: list[Labels] = [x, *(statistic for _ in _made(node)[1:])]
    spec = spec_of([x, *(("w",) for _ in inputs[1:])], made)
    im.emit(node, "channel_norm", inputs, ChannelNormAttrs("group", spec))


def _group_norm_bwd(im: Importer, node: fx.Node) -> None:
    inputs = _operand(im, node, "grad_out", "input", "weight", "mean", "rstd")
    x, num_statistics = _places(im, inputs[0]), len(_operand(im, node, "mean", "rstd"))
    weights: list[Labels] = [("w",)] * (len(inputs) - 2 - num_statistics)
    made = [labels if len(labels) > 1 else ("w",) for labels in _by_channel(im, node, inputs[0])]
    spec = spec_of([x, x, *weights, *[("n", "g")] * num_statistics], made)
    im.emit(node, "channel_norm_bwd", inputs, ChannelNormAttrs("group", spec))


def _by_channel(im: Importer, node: fx.Node, x: int) -> list[Labels]:
    """Labels of results: those as large as x, and those of one entry a channel; others, a kernel's own, have none."""
    whole, made = _places(im, x), [im.type_of(t) for t in _made(node)]
    channels = im.flat.values[x].type.dims[1]
    return [whole if t.rank == len(whole) else ("c",) if t.dims == (channels,) else (None,) * t.rank for t in made]


def _places(im: Importer, x: int) -> Labels:
    """Labels of [batch, channels, positions..]."""
    return ("n", "c", *range(im.flat.values[x].type.rank - 2))


def _pools() -> dict[str, Handler]:
    found: dict[str, Handler] = {}
    for over in (1, 2, 3):
        for fn, names in (
            ("max", (f"max_pool{over}d_with_indices", f"adaptive_max_pool{over}d")),
            ("avg", (f"avg_pool{over}d", f"_adaptive_avg_pool{over}d", f"adaptive_avg_pool{over}d")),
        ):
            found |= {f"aten.{name}": _window(fn, over, _taps) for name in names}
            found |= {f"aten.{name}_backward": _window_bwd(fn, over, _back(fn)) for name in names}
        for mode in ("reflection", "replication"):
            found[f"aten.{mode}_pad{over}d"] = _window("pad", over, _nothing)
            found[f"aten.{mode}_pad{over}d_backward"] = _window_bwd("pad", over, _nothing)
    return found


def _back(fn: str) -> Callable[[Importer, fx.Node, int], int]:
    """A maximum goes back to one place, an average to all taps."""
    return _taps if fn == "avg" else lambda im, node, over: 1


def _resampling() -> dict[str, Handler]:
    kinds = [("nearest", f"{exact}nearest", n) for exact in ("", "_") for n in (1, 2, 3)]
    names = [
        (fn, f"upsample_nearest{n}d" if name == "nearest" else f"_upsample_nearest_exact{n}d", n)
        for fn, name, n in kinds
    ]
    for n, fn in ((1, "linear"), (2, "bilinear"), (3, "trilinear"), (2, "bicubic")):
        names.append((fn, f"upsample_{fn}{n}d", n))
    names += [("bilinear", "_upsample_bilinear2d_aa", 2), ("bicubic", "_upsample_bicubic2d_aa", 2)]
    forward = {f"aten.{name}": _window(fn, n, _weights(fn)) for fn, name, n in names}
    return forward | {f"aten.{name}_backward": _window_bwd(fn, n, _weights(fn)) for fn, name, n in names}


HANDLERS: Mapping[str, Handler] = {
    **_pools(),
    **_resampling(),
    "aten.unfold": _unfold, "aten.unfold_backward": _unfold_bwd,
    "aten.diagonal_backward": _diagonal_bwd,
    **{f"aten.fractional_max_pool{n}d": _fractional(n) for n in (2, 3)},
    "aten.im2col": _patches, "aten.col2im": _patches,
    **dict.fromkeys(("aten.grid_sampler_2d", "aten.grid_sampler_3d", "aten.cudnn_grid_sampler"), _grid),
    **dict.fromkeys(("aten.grid_sampler_2d_backward", "aten.grid_sampler_3d_backward"), _grid_bwd),
    **dict.fromkeys(
        ("aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_no_training",
         "aten._native_batch_norm_legit_functional", "aten.cudnn_batch_norm", "aten.miopen_batch_norm",
         "aten._batch_norm_with_update", "aten._batch_norm_no_update", "aten._batch_norm_with_update_functional"),
        _batch_norm,
    ),
    **dict.fromkeys(
        ("aten.native_batch_norm_backward", "aten.cudnn_batch_norm_backward", "aten.batch_norm_backward"),
        _batch_norm_bwd,
    ),
    "aten.native_group_norm": _group_norm, "aten.native_group_norm_backward": _group_norm_bwd,
}  # fmt: skip
