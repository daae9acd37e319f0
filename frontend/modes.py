"""Modes that see the calls of torch's functions, whatever they do with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch.overrides import TorchFunctionMode


class FunctionMode(TorchFunctionMode):
    """Sees each call of a function of torch, above autograd; a subclass says in `call` what becomes of it."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        return self.call(func, args, kwargs or {})

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Return what a call gives."""
        return func(*args, **kwargs)
