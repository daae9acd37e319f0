"""What follows from numbers alone is worked out while a model is recorded: sizes of pictures, places, masks of ones.

Code that packs pictures asks for values: how many patches each has, where windows begin. Where these were given as
numbers, all integers made of them and of nothing else are real; tensors with sizes only stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..record.adapter import DispatchMode, undisturbed

_MAKERS = ("arange", "empty", "eye", "full", "ones", "scalar_tensor", "tril_indices", "triu_indices", "zeros")
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
# Above so many elements a result is not worth its time.
_MOST = 1 << 22


class Known(DispatchMode):
    """Runs for real what reads and makes known numbers alone; all else goes on to the modes below."""

    def __init__(self) -> None:
        super().__init__()
        self._overwritten: set[int] = set()

    def run(self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run one call."""
        leaves = list(_leaves([*args, *kwargs.values()]))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        open_ = any(isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool) for leaf in leaves)
        if not open_ and (all(map(self._is_known, tensors)) if tensors else _makes_whole(func, args, kwargs)):
            with undisturbed():
                return _made(func, args, kwargs)
        if func._schema.is_mutable and tensors and self._is_known(tensors[0]):
            self._overwritten.add(tensors[0].untyped_storage()._cdata)
        return func(*self._places(func, args), **kwargs)

    def _is_known(self, tensor: Tensor) -> bool:
        is_fake = isinstance(tensor, FakeTensor) or tensor.device.type == "meta"
        return not is_fake and tensor.untyped_storage()._cdata not in self._overwritten

    def _places(self, func: torch._ops.OpOverload, args: Sequence[object]) -> Sequence[object]:
        """The arguments with known masks among indices as the places of what they hold."""
        if func.overloadpacket not in (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_):
            return args
        places: list[object] = []
        for index in args[1]:  # type: ignore[attr-defined]
            if isinstance(index, Tensor) and index.dtype is torch.bool and self._is_known(index):
                with undisturbed():
                    places += index.nonzero().unbind(-1)
            else:
                places.append(index)
        return [args[0], places, *args[2:]]


def _leaves(values: Sequence[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value


def _makes_whole(func: torch._ops.OpOverload, args: Sequence[object], given: Mapping[str, object]) -> bool:
    """Whether a call makes a tensor of whole numbers from numbers."""
    name = func._schema.name.partition("::")[2]
    if name not in _MAKERS or str(given.get("device") or "cpu") != "cpu":
        return False
    numbers = [v for v in _leaves(args) if isinstance(v, int | float)]
    size = 1
    for number in numbers if name != "arange" else ():
        size *= max(number, 1) if isinstance(number, int) else 1  # what it is filled with may be infinite
    dtype = given.get("dtype")
    counted = dtype is None and (name in ("arange", "full") and all(isinstance(n, int) for n in numbers))
    return size <= _MOST and (dtype in _WHOLE or counted or name.endswith("_indices"))


def _made(func: torch._ops.OpOverload, args: Sequence[object], given: Mapping[str, object]) -> object:
    out = func(*args, **given)
    if func._schema.name == "aten::empty" and isinstance(out, Tensor):
        out.zero_()
    return out


__all__ = ["Known"]
