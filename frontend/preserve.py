"""A module that someone else holds: whatever a recording or the module's own forward changes is put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch._functorch._aot_autograd.subclass_parametrization import unwrap_tensor_subclass_parameters
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .adapter import FakeWorld

_TABLES = ("_parameters", "_buffers", "_modules")


@contextmanager
def preserved(module: nn.Module) -> Iterator[None]:
    """Put every attribute, parameter, buffer and part back as it was, by identity: nothing is copied.

    A forward may keep what it computes (tables of positions, counters, caches): those would be left fake.
    """
    before = [(part, dict(vars(part)), {t: dict(vars(part)[t]) for t in _TABLES}) for part in module.modules()]
    try:
        yield
    finally:
        for part, attributes, tables in before:
            vars(part).clear()
            vars(part).update(attributes)
            for name, table in tables.items():
                held = vars(part)[name]
                held.clear()
                held.update(table)


@contextmanager
def desugared(module: nn.Module) -> Iterator[None]:
    """Make parameters that are made of other tensors (quantised weights) those tensors for a while.

    The forward puts them together again, so that what it does with the parts is seen. Call it under `preserved`.
    """
    before = [(part, type(part)) for part in module.modules()]
    if any(is_traceable_wrapper_subclass(p) for p in module.parameters()):
        unwrap_tensor_subclass_parameters(module)
    try:
        yield
    finally:
        for part, kind in before:
            part.__class__ = kind


def fake_loose_tensors(module: nn.Module, world: FakeWorld) -> None:
    """Give parts fakes in place of the plain tensors they hold as attributes; call it under `preserved`."""
    for part in module.modules():
        for name, held in list(vars(part).items()):
            if isinstance(held, Tensor):
                with world.mode:
                    vars(part)[name] = torch.empty(held.shape, dtype=held.dtype, device="cpu")


__all__ = ["desugared", "fake_loose_tensors", "preserved"]
