"""A module run in float64 all the way: types that its code names on the way are taken for float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ...record.preserve import FunctionMode

_NARROW = (torch.float32, torch.bfloat16, torch.float16)
_CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)


class Double(FunctionMode):
    """Turns every mention of a narrower floating type in a call into float64, so that nothing is rounded on the way."""

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run the call with the types replaced."""
        if func in _CASTS:
            (given, *_) = args
            assert isinstance(given, Tensor)
            return given.double()
        return func(*map(_widened, args), **{name: _widened(value) for name, value in kwargs.items()})


def _widened(given: object) -> object:
    return torch.float64 if isinstance(given, torch.dtype) and given in _NARROW else given


@contextmanager
def in_double() -> Iterator[None]:
    """Run under this: numbers are float64, made with one thread, for small tensors are slower with many."""
    threads, kind = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    try:
        with Double():
            yield
    finally:
        torch.set_default_dtype(kind)
        torch.set_num_threads(threads)


__all__ = ["in_double"]
