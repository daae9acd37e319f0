"""`int(size)` of an open size to the size itself, in the code of a user's modules while they are recorded.

Python's `int` must return a plain number, so torch would bind the size to its example. Of all that makes a size a
number this alone changes nothing: `torch.export` keeps it open, too, where it reads the code instead of running it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from .guards import is_users_module


class _OfInt(type):
    """What `isinstance(x, int)` asks: whether x is a number, as it would be of the class that this stands in for."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, int)


class _Int(int, metaclass=_OfInt):
    """Stands in for `int`; made of an open size it is that size, of anything else a plain number."""

    def __new__(cls, *args: object) -> int:  # type: ignore[misc]
        if len(args) == 1 and isinstance(args[0], torch.SymInt):
            return args[0]  # type: ignore[return-value]
        return int(*args)  # type: ignore[call-overload,no-any-return]


@contextmanager
def open_ints(module: nn.Module) -> Iterator[None]:
    """Let the files that define a module's classes keep open sizes open where they ask for `int` of them."""
    names = {kind.__module__ for part in module.modules() for kind in type(part).__mro__}
    with ExitStack() as undo:
        for name in names:
            space = vars(sys.modules[name]) if name in sys.modules and is_users_module(name) else None
            if space is not None and "int" not in space:
                space["int"] = _Int
                undo.callback(space.pop, "int", None)
        yield


__all__ = ["open_ints"]
