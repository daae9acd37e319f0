"""What an fx node calls, as a meaning of the graph: the operator and its arguments by the names of its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor, fx

from ...ir.meaning import Argument, In, Meaning, Out, Step
from ...ir.sizes.expr import Expr
from .dtypes import known_dtype


@lru_cache(maxsize=1024)
def _names(target: torch._ops.OpOverload) -> tuple[str, ...]:
    return tuple(a.name for a in target._schema.arguments)


def meaning_of(node: fx.Node, ids: Mapping[fx.Node, int], inputs: Sequence[int], num_outputs: int) -> Meaning | None:
    """Return the call of a node whose tensor arguments are, by id, among the inputs; others are left out.

    Where a call makes several tensors its outputs are its parts, those that are empty left out. None for what is no
    operator of torch.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    place = {i: k for k, i in reversed(list(enumerate(inputs)))}

    def taken(given: object) -> Argument:
        if isinstance(given, fx.Node):
            return _tensor(given, ids, place)
        if isinstance(given, list | tuple):
            return tuple(taken(g) for g in given)
        if isinstance(given, torch.dtype):
            return known_dtype(given)
        return given if isinstance(given, bool | int | float | str | Expr) else None

    named = (*zip(_names(target), node.args, strict=False), *node.kwargs.items())
    arguments = tuple((name, found) for name, given in named if (found := taken(given)) is not None)
    step = Step(str(target).removesuffix(".default"), arguments)
    return Meaning((step,), _outputs(node.meta["val"], num_outputs), _is_complex(node.meta["val"]))


def _tensor(given: fx.Node, ids: Mapping[fx.Node, int], place: Mapping[int, int]) -> Argument:
    val = given.meta.get("val")
    if isinstance(val, bool | int | float):
        return val  # read off a constant while recording
    found = place.get(ids[given]) if given in ids else None
    return None if found is None else In(found, isinstance(val, Tensor) and val.is_complex())


def _outputs(val: object, count: int) -> tuple[In | Out, ...]:
    if isinstance(val, Tensor) or not isinstance(val, list | tuple):
        return (Out(0),)
    made = [k for k, v in enumerate(val) if isinstance(v, Tensor) and not (v.dim() == 1 and v.shape[0] == 0)]
    return tuple(Out(0, k) for k in made[:count])


def _is_complex(val: object) -> bool:
    return isinstance(val, Tensor) and val.is_complex()


__all__ = ["meaning_of"]
