"""Operators without a rule taken apart by ATen's own decompositions, while they are recorded.

An operator whose steps are all pointwise is one pointwise kernel, as a library has it: it stays one call, marked with
its steps. Any other is replaced by its steps, which run in its place and so have its module and its phase.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache
from string import ascii_letters

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table

from ...ir.records import dataclass
from ..aten.data import DECOMPOSITIONS
from ..aten.fx_import import plain_name
from .adapter import DispatchMode, is_noise

Operator = torch._ops.OpOverload
Decomposition = Callable[..., object]
# What takes no time in a chain of pointwise steps: numbers and element types of its operands, and where it writes.
_SILENT = frozenset(
    f"aten.{name}"
    for name in ("_to_copy", "copy", "clone", "alias", "scalar_tensor", "full", "new_full", "expand", "detach")
)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call; of a chain of pointwise steps that is one kernel, `names` are those of the steps."""

    operator: Operator
    args: Sequence[object]
    kwargs: Mapping[str, object]
    out: object
    names: tuple[str, ...] = ()


class CallParts(DispatchMode):
    """Lists the calls that run under it, those without a rule taken apart; `pointwise` are the rules of such steps."""

    def __init__(self, known: Container[str], pointwise: Container[str]) -> None:
        """Know which operators have a rule."""
        super().__init__()
        self.known, self.pointwise, self.steps = known, pointwise, list[RecordedCall]()

    def call(self, func: Operator, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run a call and look at it, or at its steps where it has no rule."""
        whole = plain_name(func) in self.known or is_noise(func)
        decomposition = None if whole else decomposition_of(func)
        if decomposition is not None:
            inner = CallParts(self.known, self.pointwise)
            with inner:
                out = decomposition(*args, **kwargs)
            if out is not NotImplemented:
                one = RecordedCall(func, args, kwargs, out, self._chain(func, inner.steps, out))
                for step in (one,) if one.names else inner.steps:
                    self.step(step)
                return out
        return super().call(func, args, kwargs)

    def note(self, func: Operator, args: Sequence[object], kwargs: Mapping[str, object], out: object) -> None:
        """Look at one call that has a rule, or cannot be taken apart."""
        self.step(RecordedCall(func, args, kwargs, out))

    def step(self, step: RecordedCall) -> None:
        """List a call that makes something."""
        if not is_noise(step.operator):
            self.steps.append(step)

    def _chain(self, func: Operator, steps: Sequence[RecordedCall], out: object) -> tuple[str, ...]:
        """The names of the steps of an operator that is pointwise, by torch's word or because they all are."""
        own = [(s, plain_name(s.operator)) for s in steps if plain_name(s.operator) not in _SILENT]
        names = tuple(name for s, n in own for name in s.names or (n,))
        one = all(s.names or n in self.pointwise for s, n in own) or is_pointwise(func)
        return names if one and isinstance(out, Tensor) else ()


def is_pointwise(operator: object) -> bool:
    """Whether torch itself says that each entry of the result comes of the operands' entries at its place."""
    return isinstance(operator, Operator) and torch.Tag.pointwise in operator.tags


@lru_cache(maxsize=1024)
def decomposition_of(func: Operator) -> Decomposition | None:
    """Return how an operator is taken apart, one that writes in place as its result and a copy; None where it cannot.

    Ours come first, then ATen's, then what torch itself runs where gradients are recorded.
    """
    found = _OWN.get(str(func)) or _decompositions().get(func)
    space, name, overload = (*str(func).split("."), "default")[:3]
    if found is None and space == "aten" and name.endswith("_") and not name.endswith("__"):
        packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
        functional = getattr(packet, overload, None) if packet is not None else None
        made = _decompositions().get(functional) if isinstance(functional, Operator) else None
        found = _written_back(made) if made is not None else None
    return found or (func.decompose if space == "aten" else None)


def _written_back(made: Decomposition) -> Decomposition:
    def write(target: Tensor, *args: object, **kwargs: object) -> object:
        result = made(target, *args, **kwargs)
        return target.copy_(result) if isinstance(result, Tensor) else NotImplemented

    return write


def _moments(of: Callable[..., Tensor]) -> Decomposition:
    """`var_mean` and `std_mean` as their two halves."""

    def apart(x: Tensor, *args: object, **kwargs: object) -> object:
        dims = args[0] if args else kwargs.get("dim")
        every = list(range(x.dim())) if dims is None else dims
        keep = bool(kwargs.get("keepdim", False))
        return of(x, *args, **kwargs), torch.mean(x, every, keepdim=keep)  # type: ignore[call-overload]

    return apart


def _padded(x: Tensor, amounts: Sequence[int], value: float = 0) -> Tensor:
    """Constant padding as pieces side by side; what is negative is cut off."""
    for i in range(len(amounts) // 2):
        dim, before, behind = x.dim() - 1 - i, amounts[2 * i], amounts[2 * i + 1]
        size = x.shape[dim] + min(before, 0) + min(behind, 0)
        kept = x.narrow(dim, max(-before, 0), size) if min(before, behind) < 0 else x
        sizes = [[n if d == dim else s for d, s in enumerate(x.shape)] for n in (before, behind)]
        sides = [x.new_full(s, value) if s[dim] > 0 else None for s in sizes]
        parts = [p for p in (sides[0], kept, sides[1]) if p is not None]
        x = torch.cat(parts, dim) if len(parts) > 1 else kept
    return x


def _trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    out_a: Sequence[int],
    out_b: Sequence[int],
    out_c: Sequence[int],
    summed: Sequence[int],
    unrolled: int = 1,
) -> Tensor:
    """Products of three tensors summed over dims; each lacks the dims that it is said to be repeated along."""
    del unrolled
    rank = a.dim() + len(out_a)
    words = ("".join(ascii_letters[d] for d in range(rank) if d not in out) for out in (out_a, out_b, out_c, summed))
    return torch.einsum("{},{},{}->{}".format(*words), a, b, c)


def _fractional_bwd(grad: Tensor, x: Tensor, kernel: object, sizes: object, indices: Tensor) -> Tensor:
    """The way back of a fractional pool: gradients are added where the maxima were, in positions laid out flat."""
    del kernel
    assert isinstance(sizes, list | tuple)
    flat = torch.zeros_like(x).flatten(-len(sizes))
    flat = flat.scatter_add(-1, indices.flatten(-len(sizes)), grad.flatten(-len(sizes)))
    return flat.reshape(x.shape)


_OWN: Mapping[str, Decomposition] = {
    "aten.var_mean.correction": _moments(torch.var),
    "aten.std_mean.correction": _moments(torch.std),
    "aten.constant_pad_nd.default": _padded,
    "aten._trilinear.default": _trilinear,
    "aten.fractional_max_pool2d_backward.default": _fractional_bwd,
    "aten.fractional_max_pool3d_backward.default": _fractional_bwd,
    **DECOMPOSITIONS,
}


@lru_cache(maxsize=1)
def _decompositions() -> Mapping[Operator, Decomposition]:
    """ATen's decompositions, those into its core before all others."""
    return {
        op: how
        for table in (decomposition_table, core_aten_decompositions())
        for op, how in table.items()
        if isinstance(op, Operator)
    }
