"""A module that someone else holds: what a recording or its own forward changes is put back; modes that see calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import ParamSpec, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch._functorch._aot_autograd.subclass_parametrization import unwrap_tensor_subclass_parameters
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ...ir.errors import TraceError
from .adapter import FakeWorld

P = ParamSpec("P")
Contexts: TypeAlias = Iterator[AbstractContextManager[object]]


def one_context(contexts: Callable[P, Contexts]) -> Callable[P, AbstractContextManager[None]]:
    """Make one context of those that a function yields: each is entered before the next one is asked for."""

    @contextmanager
    @wraps(contexts)
    def entered(*args: P.args, **kwargs: P.kwargs) -> Iterator[None]:
        with ExitStack() as stack:
            for context in contexts(*args, **kwargs):
                stack.enter_context(context)
            yield

    return entered


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


# In the place of a GPU that this machine need not have.
_GPU = "cuda"
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


def refuse_unreadable(module: nn.Module) -> None:
    """Refuse parts whose code is no Python, and parameters whose sizes are not known yet."""
    for path, part in module.named_modules():
        what = f"module '{path}'" if path else f"the module ({type(part).__name__})"
        if isinstance(part, torch.jit.ScriptModule):
            raise TraceError(f"{what} is TorchScript, which has no Python code to record: give the nn.Module it is of")
        if _is_sharded(part):
            raise TraceError(
                f"{what} ({type(part).__name__}) is sharded already, and a rank holds its part alone: give the module "
                "before it is wrapped (FullyShardedDataParallel, fully_shard, parallelize_module); the plan says how "
                "it is sharded, as --dp 8 --zero 3 or --tp 8"
            )
        lazy = [name for name, p in part.named_parameters(recurse=False) if is_lazy(p)]
        if lazy:
            raise TraceError(
                f"'{lazy[0]}' of {what} ({type(part).__name__}) has no size yet: write its in_features, or run the "
                "module once in the factory"
            )


def _is_sharded(part: nn.Module) -> bool:
    """Whether a part's parameters are laid over ranks; what does that is loaded where there is such a part."""
    wrapping, tensors = (sys.modules.get(f"torch.distributed.{name}") for name in ("fsdp", "tensor"))
    if wrapping is not None and isinstance(part, wrapping.FullyShardedDataParallel):
        return True
    own = part.parameters(recurse=False)
    return tensors is not None and any(isinstance(p, tensors.DTensor) for p in own)


class OneDevice(FunctionMode):
    """Puts on one device what code puts on a GPU: `x.cuda()`, `x.to("cuda:0")`, `torch.ones(8, device="cuda")`.

    Where a tensor lies says nothing of what is computed, and a GPU need not be here.
    """

    def __init__(self, device: str) -> None:
        """Know the device."""
        super().__init__()
        self._device = torch.device(device)

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run the call with devices replaced."""
        given = {name: self._placed(value) for name, value in kwargs.items()}
        if func is Tensor.cuda:
            return cast(Tensor, args[0]).to(self._device)
        return func(*(self._placed(a) for a in args), **given)

    def _placed(self, given: object) -> object:
        if isinstance(given, torch.device):
            return self._device if given.type == _GPU else given
        is_name = isinstance(given, str) and given.partition(":")[0] == _GPU
        return self._device if is_name else given


def fake_loose_tensors(module: nn.Module, world: FakeWorld) -> None:
    """Give parts fakes in place of the plain tensors they hold as attributes; call it under `preserved`."""
    for part in module.modules():
        for name, held in list(vars(part).items()):
            if isinstance(held, Tensor):
                with world.mode:
                    vars(part)[name] = torch.empty(held.shape, dtype=held.dtype, device="cpu")
