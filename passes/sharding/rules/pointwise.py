"""Sharding of pointwise ops: operands lie alike; a partial sum stays partial through linear functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.graph import Phase
from ....ir.ops.tensors.pointwise import ElementwiseAttrs
from ....ir.sizes.expr import Expr
from ....ir.types import DType
from ..ask import (
    DATA_AXES,
    PARTIAL,
    REPLICATE,
    Answer,
    Ask,
    Partial,
    Placement,
    Replicate,
    Rule,
    Shard,
    replicate_all,
)

_SUMS = frozenset({"add", "sub", "neg"})
_SCALINGS = frozenset({"mul", "div", "dropout_bwd", "cast"})


def elementwise(ask: Ask) -> Answer:
    """Put all operands where the widest sharded one lies; sums of partial sums stay partial.

    In the forward phase a partial sum added to something whole is reduced first, as row-parallel layers do; in the
    backward phase the whole operand joins the sum on one rank, so that gradients are reduced once.
    """
    fns = set(ask.call.attrs_as(ElementwiseAttrs).fns)
    partial = [i for i, p in enumerate(ask.given) if isinstance(p, Partial)]
    linear = _linear_operands(ask) if partial and _is_of_parameters(ask) else set()
    if partial and linear.issuperset(partial) and all(p in (PARTIAL, REPLICATE) for p in ask.given):
        lain = tuple(PARTIAL if i in linear else REPLICATE for i in range(len(ask.given)))
        return Answer(lain, (PARTIAL,) * ask.num_outputs)
    if partial and _stays_partial(ask, fns, partial):
        return Answer(_partial_inputs(ask, fns), (PARTIAL,) * ask.num_outputs)
    return _aligned(ask)


def _is_of_parameters(ask: Ask) -> bool:
    """Whether this is the gradient of something made of parameters alone, without samples and, over `tp`, tokens."""
    dims = ask.call.outputs[0].dims
    return ask.phase is Phase.BACKWARD and (ask.axis in DATA_AXES or all(isinstance(d, int) for d in dims))


def _linear_operands(ask: Ask) -> set[int]:
    """Return operands in which a function is linear together, the others being fixed; nothing where it is not known.

    A backward function is linear in the gradient, its first operand; a choice in all but the condition; a product in
    one factor.
    """
    (fn, *more), count = ask.call.attrs_as(ElementwiseAttrs).fns, len(ask.given)
    if more:
        return set()
    if fn == "where":
        return {i for i, t in enumerate(ask.call.inputs) if t.dtype is not DType.BOOL}
    if fn == "mul" and count == 2 and sum(isinstance(p, Partial) for p in ask.given) == 1:
        return {i for i, p in enumerate(ask.given) if isinstance(p, Partial)}
    return {0} if fn.endswith("_bwd") else set()


def _stays_partial(ask: Ask, fns: set[str], partial: list[int]) -> bool:
    others = [p for i, p in enumerate(ask.given) if i not in partial]
    if any(isinstance(p, Shard) for p in others) or _widens(ask, partial):
        return False
    if fns <= _SUMS:
        alone = len(ask.given) == 1 and fns != {"neg"}  # a number is added, which each rank would add to its summand
        return not alone and (not others or ask.phase is Phase.BACKWARD)
    return fns <= _SCALINGS and partial == [0] and len(ask.given) < 3  # of three, one is added to a product


def _widens(ask: Ask, partial: Sequence[int]) -> bool:
    """Whether activations that are partial sums come out in a wider type: they are completed before, in the narrow one.

    Sums of parameters' gradients, which have no dim of the batch, stay partial: they are reduced once a step.
    """
    made = ask.call.outputs[0]
    given = max((ask.call.inputs[i].dtype.num_bytes for i in partial), default=0)
    return made.dtype.num_bytes > given and any(isinstance(d, Expr) for d in made.dims)


def _partial_inputs(ask: Ask, fns: set[str]) -> tuple[Placement, ...]:
    if fns <= _SUMS:
        return (PARTIAL,) * len(ask.given)
    return (PARTIAL, *(REPLICATE for _ in ask.given[1:]))


def _aligned(ask: Ask) -> Answer:
    out = ask.call.outputs[0]
    target: Placement = REPLICATE
    widest = -1
    for i in range(len(ask.given)):
        p = ask.whole(i)
        size = ask.rank(i) - (1 if ask.is_param[i] else 0)
        if isinstance(p, Shard) and size > widest:
            target, widest = Shard(p.dim + out.rank - ask.rank(i), p.packed), size
    inputs = tuple(lay_like(target, ask, i, out.rank) for i in range(len(ask.given)))
    return Answer(inputs, tuple(_if_deep_enough(target, o.rank, out.rank) for o in ask.call.outputs))


def lay_like(target: Placement, ask: Ask, index: int, out_rank: int) -> Placement:
    """Return the placement of an operand that broadcasts to a result lying as `target`."""
    if not isinstance(target, Shard):
        return target
    dim = target.dim - (out_rank - ask.rank(index))
    if dim < 0 or ask.call.inputs[index].dims[dim] == 1:
        return REPLICATE
    return Shard(dim, target.packed)


def _if_deep_enough(target: Placement, rank: int, out_rank: int) -> Placement:
    if isinstance(target, Shard) and rank != out_rank:
        return REPLICATE
    return target


def linear_copy(ask: Ask) -> Answer:
    """Casts and copies keep what there is; in the forward phase, or to a wider type, partial sums are made whole."""
    p = ask.given[0]
    if isinstance(p, Partial) and (ask.phase is Phase.FORWARD or _widens(ask, [0])):
        p = ask.whole(0)
    if ask.call.inputs[0].dims != ask.call.outputs[0].dims and not isinstance(p, Replicate):
        return replicate_all(ask)
    return Answer((p,), (p,))


def rope(ask: Ask) -> Answer:
    """Batch, heads or sequence may be sharded; the tables follow where they have the dim."""
    p = ask.given[0] if ask.phase is Phase.BACKWARD else ask.whole(0)
    if isinstance(p, Partial):
        return Answer((PARTIAL, REPLICATE, REPLICATE), (PARTIAL,))
    if isinstance(p, Shard) and p.dim == ask.rank(0) - 1:
        return replicate_all(ask)
    return Answer((p, lay_like(p, ask, 1, ask.rank(0)), lay_like(p, ask, 2, ask.rank(0))), (p,))


def fill(ask: Ask) -> Answer:
    """Made where it is needed: over `dp`, a tensor with a batch dim is made in shards."""
    out = ask.call.outputs[0]
    dims = [i for i, d in enumerate(out.dims) if isinstance(d, Expr) and ask.axis in d.symbols]
    return Answer((REPLICATE,) * len(ask.given), (Shard(dims[0]) if dims else REPLICATE,))


def accumulate(ask: Ask) -> Answer:
    """A running sum lies as the gradients do, partial ones included: it is reduced once a step."""
    return Answer(ask.given, ask.given)


RULES: Mapping[str, Rule] = {
    "accumulate": accumulate,
    "elementwise": elementwise,
    "cast": linear_copy,
    "copy": linear_copy,
    "identity": linear_copy,
    "rope": rope,
    "rope_bwd": rope,
    "fill": fill,
}
