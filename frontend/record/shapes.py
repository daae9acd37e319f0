"""Torch's sizes as ours, rounded quotients included, and sizes of results that torch works out slowly or not at all.

A division that leaves no rest is carried out: torch writes `s*(2*s - 1)//s` where a view deals elements out to rows.

Some kernels look at the sizes of a tensor as plain numbers, which fixes a batch to the example's; others take
milliseconds to see that a result is as large as x. What they make is as large as their arguments say: they are not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import index
from typing import Protocol, cast

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the field's name for it
from torch.utils._sympy.functions import CeilToInt, FloorDiv, FloorToInt, IntTrueDiv, Max, Min, Mod, PythonMod

from ...ir.errors import DataSizeError, TraceError
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr, product
from ...ir.sizes.rounding import ceil_div, floor_div, larger, modulo, smaller


class SizeExpr(Protocol):
    """What we read of a sympy expression."""

    is_Integer: bool  # noqa: N815 - sympy's name
    is_Symbol: bool  # noqa: N815 - sympy's name
    is_Add: bool  # noqa: N815 - sympy's name
    is_Mul: bool  # noqa: N815 - sympy's name
    is_Pow: bool  # noqa: N815 - sympy's name

    @property
    def args(self) -> tuple[SizeExpr, ...]:
        """What a sum, a product or a function is made of."""
        ...

    def xreplace(self, rule: Mapping[SizeExpr, SizeExpr]) -> SizeExpr:
        """Put other symbols in for some."""
        ...

    def __int__(self) -> int: ...

    def __hash__(self) -> int: ...


def converted(expr: SizeExpr, names: Mapping[SizeExpr, Expr]) -> Expr:
    """Return a size of torch as an expression over named symbols; TraceError for one that is known at run time only."""
    if expr.is_Integer:
        return as_expr(int(expr))
    if expr.is_Symbol:
        if expr not in names:
            raise DataSizeError(
                f"the size '{expr}' is only known at run time (it depends on data, not on batch or length)"
            )
        return names[expr]
    if expr.is_Add:
        parts = [converted(a, names) for a in expr.args]
        return sum(parts[1:], parts[0])
    if expr.is_Mul:
        return product(converted(a, names) for a in expr.args)
    if expr.is_Pow and expr.args[1].is_Integer and int(expr.args[1]) > 0:
        return product([converted(expr.args[0], names)] * int(expr.args[1]))
    if isinstance(expr, FloorDiv) and (quotient := exact_quotient(_one_a_name(expr, names))) is not None:
        return converted(cast(SizeExpr, quotient), names)
    return as_expr(_rounded(expr, names))


def _one_a_name(size: SizeExpr, names: Mapping[SizeExpr, Expr]) -> FloorDiv:
    """A division with one symbol for all sizes of one name, so that those of several inputs cancel."""
    first: dict[Expr, SizeExpr] = {}
    return cast("FloorDiv", size.xreplace({one: first.setdefault(name, one) for one, name in names.items()}))


def _rounded(expr: SizeExpr, names: Mapping[SizeExpr, Expr]) -> Dim:
    """A size that is no polynomial."""
    if isinstance(expr, FloorToInt | CeilToInt) and isinstance(expr.args[0], IntTrueDiv):
        return (floor_div if isinstance(expr, FloorToInt) else ceil_div)(*_sizes(expr.args[0].args, names))
    sizes = _sizes(expr.args, names)
    if isinstance(expr, FloorDiv):
        return floor_div(*sizes)
    if isinstance(expr, Mod | PythonMod):
        return modulo(*sizes)
    if isinstance(expr, Max | Min):
        return reduce(larger if isinstance(expr, Max) else smaller, sizes)
    raise TraceError(f"the size '{expr}' is no whole number that follows from batch and sequence length")


def _sizes(exprs: Sequence[SizeExpr], names: Mapping[SizeExpr, Expr]) -> list[Dim]:
    return [as_dim(converted(a, names)) for a in exprs]


def exact_quotient(division: sympy.Expr) -> sympy.Expr | None:
    """Return the polynomial with whole coefficients that a floor division is, for all sizes; None if it has a rest.

    >>> s = sympy.Symbol("s", positive=True, integer=True)
    >>> exact_quotient(FloorDiv(2 * s**2 - s, s))
    2*s - 1
    >>> exact_quotient(FloorDiv(s**2 + 1, s)) is None
    True
    """
    if not isinstance(division, FloorDiv):  # what is left of one whose parts cancel
        return _without_divisions(division)
    above, below = (_without_divisions(part) for part in division.args)
    if above is None or below is None:
        return None
    found = sympy.cancel(above / below)
    sizes = sorted(found.free_symbols, key=str)
    if not sizes:
        return found if found.is_Integer else None
    polynomial = sympy.Poly(found, *sizes) if found.is_polynomial(*sizes) else None
    is_whole = polynomial is not None and all(c.is_Integer for c in polynomial.coeffs())
    return sympy.expand(found) if is_whole else None


def _without_divisions(size: sympy.Basic) -> sympy.Expr | None:
    """A size with the divisions inside it carried out; None where one has a rest."""
    inside = {division: exact_quotient(division) for division in size.atoms(FloorDiv)}
    if None in inside.values():
        return None
    return cast(sympy.Expr, size.xreplace(inside))


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
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
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
    "aten.native_batch_norm": _normed,
    "aten.native_batch_norm_backward": _normed_back,
    "aten.im2col": _columns,
    "aten.col2im": _picture,
    "aten.addcmul": _broadcast,
    "aten.addcdiv": _broadcast,
    "aten.lerp": _broadcast,
    "aten.hardshrink_backward": _like("grad_out"),
    "aten.softshrink_backward": _like("grad_output"),
}
