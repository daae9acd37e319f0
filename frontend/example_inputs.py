"""Example inputs of a module to fake ones: which dims stand for batch, sequence and cache, which are fixed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ..ir.errors import UnknownNameError, UsageError
from ..ir.records import dataclass
from .record.adapter import FakeWorld
from .workloads import HINTS

# A name a dim, None where the dim is fixed; by the name of the argument.
Dynamic: TypeAlias = Mapping[str, Sequence[str | None]]
# What a caller may hand over: one tensor, arguments in order, or arguments by name.
Inputs: TypeAlias = "Tensor | Sequence[object] | Mapping[str, object]"


# A tensor by its name in the graph, its example, and a name or None a dim.
TensorMaker: TypeAlias = "Callable[[str, Tensor, Sequence[str | None]], Tensor]"
# Tensors by name, and the call of a module on them.
Made: TypeAlias = "tuple[dict[str, Tensor], Callable[[nn.Module], object]]"

# What token ids are called in a graph where nobody named them.
IDS = "input_ids"
_WHOLE = ("id", "token", "label", "target", "position", "index", "segment", "src", "tgt")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call by name, and which dims of which of them are symbolic."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    names: Mapping[str, Sequence[str | None]]
    tensors: Mapping[str, Tensor]

    def made(self, world: FakeWorld, caches: Sequence[str]) -> Made:
        """Return fake tensors by name, and the call of a module on them."""
        return self.filled(lambda _, given, words: _fake(world, given, words), caches)

    def filled(self, make: TensorMaker, caches: Sequence[str]) -> Made:
        """Return a tensor for each example by the name that a graph gives it, and the call of a module on them."""
        tensors: dict[str, Tensor] = {}

        def put(name: str, given: object) -> object:
            if isinstance(given, Tensor):
                key = f"cache.{name}" if name in caches else name
                tensors[key] = make(key, given, self.names.get(name, ()))
                return tensors[key]
            if isinstance(given, list | tuple):
                return type(given)(put(f"{name}.{i}", g) for i, g in enumerate(given))
            return {k: put(f"{name}.{k}", g) for k, g in given.items()} if isinstance(given, dict) else given

        names = list(self.names_of_args())
        args = [put(n, a) for n, a in zip(names, self.args, strict=True)]
        kwargs = {n: put(n, a) for n, a in self.kwargs.items()}
        return tensors, lambda module: module(*args, **kwargs)

    def names_of_args(self) -> Sequence[str]:
        """The names of the arguments given in order."""
        return list(self.names)[: len(self.args)]

    @property
    def examples(self) -> Mapping[str, int]:
        """The sizes that the examples have of the dims that are open."""
        dims = ((w, t.shape[i]) for n, t in self.tensors.items() for i, w in enumerate(self.names.get(n, ())))
        return {word: size for word, size in dims if word is not None}


def arguments(module: nn.Module, inputs: Inputs | None, dynamic: Dynamic | None) -> Arguments:
    """Read what a caller gave; UsageError when it does not fit the module's forward.

    Without `dynamic`, the first dim of the first tensor is `batch` and its second dim `seq` (not of real numbers with
    more than three dims, such as images), and so are the first two dims of other tensors that are as long there.
    Without `inputs` the only argument of forward gets token ids.
    """
    if inputs is None:
        return _token_ids(module)
    args, kwargs = _split(inputs)
    named = _named(module, args, kwargs)
    tensors = dict(_tensors(named))
    if not tensors:
        raise UsageError("inputs hold no tensor; give one example tensor at least, such as token ids [batch, seq]")
    chosen = _guessed(tensors) if dynamic is None else _checked(dynamic, tensors)
    return Arguments(args, kwargs, {**dict.fromkeys(named, ()), **chosen}, tensors)


def _token_ids(module: nn.Module) -> Arguments:
    needed = needed_arguments(module)
    if len(needed) > 1:
        raise UsageError(
            f"{type(module).__name__}.forward takes {len(needed)} arguments ({', '.join(needed)}), and it is not known "
            f"what they are: give {flags_for(needed)} with the types and dims that they have; in Python inputs={{..}} "
            "of slipstick.trace, or a factory that returns (module, inputs)"
        )
    ids = torch.empty((HINTS["batch"], HINTS["seq"]), dtype=torch.int64, device="meta")
    if (name := _by_name_alone(module)) is None:
        return Arguments((ids,), {}, {IDS: ("batch", "seq")}, {IDS: ids})
    return Arguments((), {name: ids}, {name: ("batch", "seq")}, {name: ids})


def _by_name_alone(module: nn.Module) -> str | None:
    """The one argument of a forward that takes none by place; UsageError where it says no name."""
    known = inspect.signature(module.forward).parameters.values()
    if any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in known):
        return None
    name = next((p.name for p in known if p.kind is p.KEYWORD_ONLY), None)
    if name is None:
        raise UsageError(
            f"{type(module).__name__}.forward says no name of an argument: say what it reads, as --input "
            "'ids:int64[batch,seq]', in Python inputs={'ids': tensor}"
        )
    return name


def needed_arguments(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the arguments that a module's forward must be given."""
    try:
        known = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in known if p.kind in kinds and p.default is inspect.Parameter.empty)


def flags_for(names: Sequence[str]) -> str:
    """Return flags of the command line that describe inputs of these names, with dims that are likely.

    >>> flags_for(["ids", "image"])
    "--input 'ids:int64[batch,seq]' --input 'image:bf16[batch,seq]'"
    """
    kinds = ("int64" if any(w in name.lower() for w in _WHOLE) else "bf16" for name in names)
    return " ".join(f"--input '{name}:{kind}[batch,seq]'" for name, kind in zip(names, kinds, strict=True))


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
    # Images and maps of features have channels behind the batch, no sequence.
    words = ("batch",) if first.is_floating_point() and first.dim() > 3 else ("batch", "seq")
    sizes = tuple(first.shape[: len(words)])
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
