"""Sizes of results that torch itself works out for fixed sizes alone, or slowly for open ones.

Some kernels look at the sizes of a tensor as plain numbers, which fixes a batch to the example's; others take
milliseconds to see that a result is as large as x. What they make is as large as their arguments say: they are not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the field's name for it

Arguments = Mapping[str, object]
Made = Tensor | tuple[Tensor | None, ...]
_PER_DIM = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def ran(func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Run a call, or return what it makes as tensors of their sizes where it does not take open sizes itself."""
    made = _made_without_running(func, args, kwargs)
    return func(*args, **kwargs) if made is None else made


def _made_without_running(
    func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]
) -> Made | None:
    name = func._schema.name.replace("::", ".")
    shape = _RESULTS.get(name.removesuffix("_"))
    if shape is None:
        return None
    if name.endswith("_"):  # writes into its first operand
        return _tensor(args[0])
    names = [a.name for a in func._schema.arguments]
    return shape({**dict(zip(names, args, strict=False)), **kwargs})


def _broadcast(given: Arguments) -> Tensor:
    """As large, and in the type, as the sum of all operands."""
    first, *others = (t for t in given.values() if isinstance(t, Tensor))
    for other in others:
        first = first + other
    return first


def _like(name: str) -> Callable[[Arguments], Tensor]:
    def shape(given: Arguments) -> Tensor:
        return torch.empty_like(_tensor(given[name]))

    return shape


def _as_told(given: Arguments) -> Tensor:
    """The gradient of what was resampled has the sizes that the call names."""
    sizes = given["input_size"]
    assert isinstance(sizes, list | tuple)
    return _tensor(given["grad_output"]).new_empty(list(sizes))


def _columns(given: Arguments) -> Tensor:
    """`im2col`: [.., channels x kernel, patches]."""
    x = _tensor(given["self"])
    kernel, stride, padding, dilation = (_pair(given[n]) for n in ("kernel_size", "stride", "padding", "dilation"))
    patches = 1
    for size, k, s, p, d in zip(x.shape[-2:], kernel, stride, padding, dilation, strict=True):
        patches = patches * ((size + 2 * p - d * (k - 1) - 1) // s + 1)
    return x.new_empty([*x.shape[:-3], x.shape[-3] * kernel[0] * kernel[1], patches])


def _picture(given: Arguments) -> Tensor:
    """`col2im`: [.., channels, height, width]."""
    x, kernel, sizes = _tensor(given["self"]), _pair(given["kernel_size"]), given["output_size"]
    assert isinstance(sizes, list | tuple)
    return x.new_empty([*x.shape[:-2], x.shape[-2] // (kernel[0] * kernel[1]), *sizes])


def _normed(given: Arguments) -> Made:
    """A norm over channels keeps the sizes of x; its statistics are a number a channel, none where they are given."""
    x = _tensor(given["input"])
    count = x.shape[1] if given.get("training") or given.get("running_mean") is None else 0
    return torch.empty_like(x), x.new_empty([count]), x.new_empty([count])


def _normed_back(given: Arguments) -> Made:
    x, mask = _tensor(given["input"]), given["output_mask"]
    assert isinstance(mask, list | tuple)
    made = (torch.empty_like(x), x.new_empty([x.shape[1]]), x.new_empty([x.shape[1]]))
    return tuple(t if asked else None for t, asked in zip(made, mask, strict=True))


def _tensor(given: object) -> Tensor:
    assert isinstance(given, Tensor)
    return given


def _pair(given: object) -> tuple[int, int]:
    found = [int(str(g)) for g in given] if isinstance(given, list | tuple) else [int(str(given))]
    return found[0], found[-1]


# Torch's own, which `interpolate` stands in place of while a model is recorded.
_OF_TORCH = F.interpolate


def interpolate(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Resample as torch does, by the operator that is told the sizes of its result instead of working them out."""
    over = input.dim() - 2
    sizes = _resampled(input, size, scale_factor)
    if sizes is None or mode == "area":
        return _OF_TORCH(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    own = scale_factor is not None and not recompute_scale_factor
    scales = list(_each(scale_factor, over)) if own and scale_factor is not None else [None] * over
    name = {"nearest": "upsample_nearest", "nearest-exact": "_upsample_nearest_exact"}.get(mode, f"upsample_{mode}")
    operator = getattr(torch.ops.aten, f"{'_' if antialias else ''}{name}{over}d{'_aa' if antialias else ''}").default
    told = [] if mode.startswith("nearest") else [bool(align_corners)]
    made = operator(input, sizes, *told, *scales)
    return _tensor(made)


def adaptive_avg_pool(pool: Callable[..., Tensor], over: int) -> Callable[..., Tensor]:
    """An adaptive pool to one result a channel is a mean, as torch has it, without a view of strides behind it."""

    def pooled(input: Tensor, output_size: object) -> Tensor:
        sizes = output_size if isinstance(output_size, list | tuple) else [output_size]
        if all(s == 1 for s in sizes):
            return input.mean(tuple(range(-over, 0)), keepdim=True)
        return pool(input, output_size)

    return pooled


def _resampled(x: Tensor, size: int | Sequence[int] | None, factor: float | Sequence[float] | None) -> list[int] | None:
    """Sizes of positions of the result, whole numbers in tensors too; None where those of x are open."""
    positions = x.shape[2:]
    if size is not None:
        sides: list[object] = list(size) if isinstance(size, list | tuple) else [size] * len(positions)
        given = [index(s) if isinstance(s, Tensor) else s for s in sides]
        known = [s for s in given if isinstance(s, int)]
        return known if len(known) == len(given) else None
    if factor is None or not all(isinstance(p, int) for p in positions):
        return None
    return [int(p * f) for p, f in zip(positions, _each(factor, len(positions)), strict=True)]


def _each(factor: float | Sequence[float], over: int) -> list[float]:
    return [float(f) for f in factor] if isinstance(factor, list | tuple) else [float(str(factor))] * over


_BACKWARDS = [f"upsample_{mode}{n}d_backward" for mode, n in _PER_DIM.items()]
_BACKWARDS += [f"{name}{n}d_backward" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)]
_BACKWARDS += [f"_upsample_{mode}2d_aa_backward" for mode in ("bilinear", "bicubic")]
_RESULTS: Mapping[str, Callable[[Arguments], Made]] = {
    **{f"aten.{name}": _as_told for name in _BACKWARDS},
    "aten.native_batch_norm": _normed, "aten.native_batch_norm_backward": _normed_back,
    "aten.im2col": _columns, "aten.col2im": _picture,
    "aten.addcmul": _broadcast, "aten.addcdiv": _broadcast, "aten.lerp": _broadcast,
    "aten.hardshrink_backward": _like("grad_out"), "aten.softshrink_backward": _like("grad_output"),
}  # fmt: skip

__all__ = ["adaptive_avg_pool", "interpolate", "ran"]
