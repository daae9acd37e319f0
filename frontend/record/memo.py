"""Fake operators that are remembered: the same call on the same sizes is answered without running its size rules.

Layers of a model make the same calls again and again, and fake tensors with open sizes spend milliseconds on each. What
comes out of a call is given by the operator, the layouts of its tensors, how these share storages, and its other
arguments. Calls that write, that look at numbers, or whose results are no new tensors and no views, are run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import torch
from torch import Tensor
from torch._ops import OpOverload

from ...ir.records import dataclass
from .adapter import FakeWorld, is_fake, layout_sizes, new_fake, storage_id, template_of
from .shapes import ran

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_NAMESPACES = ("aten", "slipstick")
_VARYING = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)


class _UnfitError(Exception):
    """A call that is not remembered."""


@dataclass(frozen=True, slots=True)
class _Made:
    """One result: a tensor without data like it, its device, and the tensor whose storage it shares.

    That is an argument by its number, an earlier result by -1 minus its number, or None for a storage of its own, which
    has so many bytes.
    """

    like: Tensor
    device: torch.device
    shares: int | None
    storage_bytes: int | torch.SymInt


@dataclass(frozen=True, slots=True)
class _Answer:
    """All results of a call in order, None for those that are left out; `kind` is what they come in."""

    results: tuple[_Made | None, ...]
    kind: type | None


@dataclass
class Memo:
    """The calls of one recording and what came out of them."""

    world: FakeWorld
    known: dict[object, _Answer | None] = field(default_factory=dict)

    def run(self, func: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Return what the call returns on fake tensors."""
        tensors: list[Tensor] = []
        try:
            key = self._key(func, args, kwargs, tensors)
        except _UnfitError:
            return ran(func, args, kwargs)
        if key not in self.known:
            out = ran(func, args, kwargs)
            self.known[key] = self._answer(out, tensors)
            return out
        answer = self.known[key]
        return ran(func, args, kwargs) if answer is None else self._made(answer, tensors)

    def _key(
        self, func: OpOverload, args: Sequence[object], kwargs: Mapping[str, object], tensors: list[Tensor]
    ) -> object:
        # Whether what an operator returns is given by its arguments' layouts.
        is_fit = (
            isinstance(func, OpOverload)
            and func.namespace in _NAMESPACES
            and not func._schema.is_mutable
            and not any(tag in func.tags for tag in _VARYING)
        )
        if not is_fit:
            raise _UnfitError
        storages: dict[int, int] = {}
        said = [self._said(a, tensors, storages) for a in args]
        named = [(name, self._said(a, tensors, storages)) for name, a in kwargs.items()]
        return func, torch.get_default_dtype(), tuple(said), tuple(named)

    def _said(self, arg: object, tensors: list[Tensor], storages: dict[int, int]) -> object:
        if isinstance(arg, Tensor):
            if not is_fake(arg, self.world) or arg.is_conj() or arg.is_neg():
                raise _UnfitError
            tensors.append(arg)
            shared = storages.setdefault(storage_id(arg), len(storages))
            return arg.dtype, arg.device, shared, arg.dim(), layout_sizes(arg)
        if isinstance(arg, _PLAIN):
            return type(arg), arg
        if isinstance(arg, torch.SymInt):
            return torch.SymInt, arg.node.expr
        if isinstance(arg, list | tuple):
            return tuple(self._said(a, tensors, storages) for a in arg)
        raise _UnfitError

    def _answer(self, out: object, tensors: Sequence[Tensor]) -> _Answer | None:
        """What to remember of the results; None where they cannot be made again."""
        results = [out] if isinstance(out, Tensor) else out
        if not isinstance(results, list | tuple):
            return None
        storages = {storage_id(t): k for k, t in reversed(list(enumerate(tensors)))}
        given = set(map(id, tensors))
        made: list[_Made | None] = []
        for k, result in enumerate(results):
            if result is None:
                made.append(None)
                continue
            if not isinstance(result, Tensor) or id(result) in given or not self._is_plain(result):
                return None
            size = result.untyped_storage().nbytes()
            made.append(_Made(template_of(result, self.world), result.device, storages.get(storage_id(result)), size))
            storages.setdefault(storage_id(result), -1 - k)
        return _Answer(tuple(made), None if isinstance(out, Tensor) else type(out))

    def _is_plain(self, result: Tensor) -> bool:
        """Whether a tensor is its layout and no more, of sizes that have names."""
        if not is_fake(result, self.world) or result.layout is not torch.strided:
            return False
        if result.is_conj() or result.is_neg():
            return False
        open_sizes = (s for s in layout_sizes(result) if not isinstance(s, int))
        return all(self.world.names.keys() >= s.free_symbols for s in open_sizes)  # type: ignore[attr-defined]

    def _made(self, answer: _Answer, tensors: Sequence[Tensor]) -> object:
        results = list(self._results(answer, tensors))
        if answer.kind is None:
            return results[0]
        return tuple(results) if answer.kind is tuple else results

    def _results(self, answer: _Answer, tensors: Sequence[Tensor]) -> Iterator[Tensor | None]:
        earlier: list[Tensor | None] = []
        for made in answer.results:
            if made is None:
                found = None
            else:
                shares = made.shares
                source = None if shares is None else tensors[shares] if shares >= 0 else earlier[-1 - shares]
                storage = made.storage_bytes if source is None else source
                found = new_fake(made.like, made.device, storage, self.world)
            earlier.append(found)
            yield found
