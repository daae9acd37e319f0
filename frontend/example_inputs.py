"""Example inputs of a module to fake ones: which dims stand for batch, sequence and cache, which are fixed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor, nn

from ..ir.errors import UnknownNameError, UsageError
from .adapter import FakeWorld
from .workloads import HINTS

# A name a dim, None where the dim is fixed; by the name of the argument.
Dynamic: TypeAlias = Mapping[str, Sequence[str | None]]
# What a caller may hand over: one tensor, arguments in order, or arguments by name.
Inputs: TypeAlias = "Tensor | Sequence[object] | Mapping[str, object]"


# Fake tensors by name, and the call of a module on them.
Made: TypeAlias = "tuple[dict[str, Tensor], Callable[[nn.Module], object]]"


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call by name, and which dims of which of them are symbolic."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    names: Mapping[str, Sequence[str | None]]
    tensors: frozenset[str]

    def made(self, world: FakeWorld, caches: Sequence[str]) -> Made:
        """Return fake tensors by name, and the call of a module on them."""
        fakes: dict[str, Tensor] = {}

        def fake(name: str, given: object) -> object:
            if isinstance(given, Tensor):
                key = f"cache.{name}" if name in caches else name
                fakes[key] = _fake(world, given, self.names.get(name, ()))
                return fakes[key]
            if isinstance(given, list | tuple):
                return type(given)(fake(f"{name}.{i}", g) for i, g in enumerate(given))
            return {k: fake(f"{name}.{k}", g) for k, g in given.items()} if isinstance(given, dict) else given

        names = list(self.names_of_args())
        args = [fake(n, a) for n, a in zip(names, self.args, strict=True)]
        kwargs = {n: fake(n, a) for n, a in self.kwargs.items()}
        return fakes, lambda module: module(*args, **kwargs)

    def names_of_args(self) -> Sequence[str]:
        """The names of the arguments given in order."""
        return list(self.names)[: len(self.args)]


def arguments(module: nn.Module, inputs: Inputs, dynamic: Dynamic | None) -> Arguments:
    """Read what a caller gave; UsageError when it does not fit the module's forward.

    Without `dynamic`, the first dim of the first tensor is `batch` and its second dim `seq`, and so are the first two
    dims of other tensors that are as long there.
    """
    args, kwargs = _split(inputs)
    named = _named(module, args, kwargs)
    tensors = dict(_tensors(named))
    if not tensors:
        raise UsageError("inputs hold no tensor; give one example tensor at least, such as token ids [batch, seq]")
    chosen = _guessed(tensors) if dynamic is None else _checked(dynamic, tensors)
    return Arguments(args, kwargs, {**dict.fromkeys(named, ()), **chosen}, frozenset(tensors))


def _split(inputs: Inputs) -> tuple[tuple[object, ...], Mapping[str, object]]:
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    return ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})


def _named(module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> Mapping[str, object]:
    """Arguments by the names that `forward` gives them, those in order first."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise UsageError(f"the inputs do not fit {type(module).__name__}.forward: {error}") from error
    names = [name for name in bound if name not in kwargs]
    spread = [f"args.{i}" for i in range(len(args) - len(names) + 1)]
    in_order = names if len(names) == len(args) else [*names[:-1], *spread]
    return {**dict(zip(in_order, args, strict=True)), **kwargs}


def _tensors(given: Mapping[str, object], under: str = "") -> list[tuple[str, Tensor]]:
    found: list[tuple[str, Tensor]] = []
    for name, value in given.items():
        path = f"{under}{name}"
        if isinstance(value, Tensor):
            found.append((path, value))
        elif isinstance(value, list | tuple):
            found += _tensors({str(i): v for i, v in enumerate(value)}, f"{path}.")
        elif isinstance(value, dict):
            found += _tensors(value, f"{path}.")
    return found


def _guessed(tensors: Mapping[str, Tensor]) -> Dynamic:
    first = next((t for t in tensors.values() if t.dim()), None)
    if first is None:
        return {}
    sizes = tuple(first.shape[:2])
    words = ("batch", "seq")
    return {
        name: tuple(w if t.shape[i] == sizes[i] else None for i, w in enumerate(words[: min(len(sizes), t.dim())]))
        for name, t in tensors.items()
    }


def _checked(dynamic: Dynamic, tensors: Mapping[str, Tensor]) -> Dynamic:
    for name, words in dynamic.items():
        if name not in tensors:
            raise UnknownNameError.of("input in dynamic", name, list(tensors))
        if len(words) > tensors[name].dim():
            raise UsageError(f"dynamic names {len(words)} dims of '{name}', which has {tensors[name].dim()}")
        for word in words:
            if word is not None and word not in HINTS:
                raise UnknownNameError.of(f"dim of '{name}' in dynamic", word, list(HINTS))
    return dynamic


def _fake(world: FakeWorld, given: Tensor, words: Sequence[str | None]) -> Tensor:
    padded = (*words, *(None,) * (given.dim() - len(words)))
    dims = tuple(size if word is None else word for size, word in zip(given.shape, padded, strict=True))
    return world.tensor(dims, given.dtype, HINTS)


__all__ = ["Arguments", "Dynamic", "Inputs", "arguments"]
