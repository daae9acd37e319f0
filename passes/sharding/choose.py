"""The sharding rule of an op, from its index map: operands name factors, one is chosen, its entry is the answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir.graph import Phase
from ...ir.ops import IndexMap, OpCall, Trait, has, index_map_of, op_def
from ...ir.ops.base import ShardChoice
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.index_map import SEQUENCE_AXES, PlacementEntry, Tensor, name_of
from ...ir.placement import REPLICATE, UP, Partial, Placement, Shard
from ...ir.sizes.expr import Expr
from .ask import Answer, Ask, replicate_all


def choose(ask: Ask) -> Answer:
    """Return how inputs must lie, and how outputs then do.

    0. An axis that cuts one factor alone has one entry.
    1. Partial sums stay where the op is linear in them, its choice lets them, and no forward node leads; others are
       made whole.
    2. Operands name the factors that they are cut by; the first that has an entry is the answer.
    3. Without one, everything is whole.
    """
    op = op_def(ask.call.op)
    if not op.by_axis and _is_whole(ask.given) and _is_whole(ask.forward):  # most calls, on most axes
        return replicate_all(ask)
    choice, index_map = op.shard, map_of(ask)
    lead = _lead(ask, index_map, choice)
    if index_map.only:
        entry = index_map.entry(index_map.only)
    else:
        entry = _sum_entry(ask, index_map, choice) if lead is None else None
    if entry is not None:
        return Answer(entry.inputs, entry.outputs)
    lies = tuple(ask.whole(i) for i in range(len(ask.given)))
    if choice.order == "as it lies":
        found = next((entry for entry in index_map.also if entry.inputs == lies), None)
        if found is not None:
            return Answer(found.inputs, found.outputs)
    named = [*([lead] if lead else []), *_named(ask, index_map, choice)]
    for factor, _ in named:
        entry = index_map.entry(_instead(ask, index_map, choice, factor))
        if entry is not None:
            packs = [packed for name, packed in named if name == factor]
            return _answer(entry, any(packs) if choice.packs == "any" else packs[0])
    return next((Answer(e.inputs, e.outputs) for e in index_map.also if e.inputs == lies), replicate_all(ask))


def _is_whole(placements: tuple[Placement, ...]) -> bool:
    return placements.count(REPLICATE) == len(placements)


def map_of(ask: Ask) -> IndexMap:
    """Return the index map of a call; over the axes of the sequence, positions of queries are told to attention."""
    call, axis = ask.call, ask.axis
    if has(call, Trait.ATTENDS) and axis in SEQUENCE_AXES:
        attrs = replace(call.attrs_as(AttentionAttrs), balanced=True)
        call, axis = OpCall(call.op, attrs, call.inputs, call.outputs), UP
    index_map = index_map_of(call, axis)
    assert index_map is not None, call.op
    return index_map


def _sum_entry(ask: Ask, index_map: IndexMap, choice: ShardChoice) -> PlacementEntry | None:
    """Return the entry by which partial sums stay what they are; None where they are completed."""
    partial = {i for i, p in enumerate(ask.given) if isinstance(p, Partial)}
    completes = choice.sums == "never" or (choice.sums == "backward" and (_is_forward(ask) or widens(ask, partial)))
    if not partial or completes:
        return None
    for k, group in enumerate(index_map.linear):
        rest = [p for i, p in enumerate(ask.given) if i not in group]
        joins = partial.issubset(group) and (choice.joins or partial.issuperset(group))
        beside = choice.gathers or all(p == REPLICATE for p in rest)
        if joins and beside and not any(isinstance(ask.given[i], Shard) for i in group):
            return index_map.sum_entry(k)
    return None


def _is_forward(ask: Ask) -> bool:
    return ask.phase is Phase.FORWARD


def widens(ask: Ask, partial: set[int]) -> bool:
    """Whether activations that are partial sums come out in a wider type: they are completed before, in the narrow one.

    Sums of parameters' gradients, which have no dim of the batch, stay partial: they are reduced once a step.
    """
    made = ask.call.outputs[0]
    given = max((ask.call.inputs[i].dtype.num_bytes for i in partial), default=0)
    return made.dtype.num_bytes > given and any(isinstance(d, Expr) for d in made.dims)


def _lead(ask: Ask, index_map: IndexMap, choice: ShardChoice) -> tuple[str, bool] | None:
    """Return the factor by which a tensor of the forward node was cut, and whether packed, where a gradient follows."""
    leads = choice.instead is None or ask.axis in SEQUENCE_AXES  # heads or batch say themselves how they lie
    if choice.follows is None or not leads or _is_forward(ask) or len(ask.forward) <= choice.follows[0]:
        return None
    lies = ask.forward[choice.follows[0]]
    factor = factor_at(index_map.tensors[choice.follows[1]], lies) if isinstance(lies, Shard) else ""
    return (factor, isinstance(lies, Shard) and lies.packed) if factor else None


def _named(ask: Ask, index_map: IndexMap, choice: ShardChoice) -> Iterator[tuple[str, bool]]:
    """Yield the factors by which operands are cut, and whether packed, in the order in which they are tried."""
    counts = choice.names is None and choice.order not in ("widest", "last")
    result = {name_of(f) for dim in index_map.outputs[0] for f in dim} if counts else set()
    order: list[tuple[tuple[int, ...], str, bool]] = []
    for i in range(len(ask.given)) if choice.names is None else choice.names:
        lies = ask.whole(i) if i < len(ask.given) else REPLICATE
        if not isinstance(lies, Shard):
            continue
        factor = factor_at(index_map.inputs[i], lies)
        if factor and factor not in choice.deaf:
            order.append((_priority(ask, choice, i, factor in result), factor, lies.packed))
    yield from ((factor, packed) for _, factor, packed in sorted(order, key=lambda item: item[0]))


def _priority(ask: Ask, choice: ShardChoice, index: int, survives: bool) -> tuple[int, ...]:
    if choice.names is not None:
        return (choice.names.index(index),)
    if choice.order == "widest":
        return (int(ask.is_param[index]) - ask.rank(index), index)
    if choice.order == "last":
        return (-index,)
    return (not ask.is_param[index], not survives, index)


def factor_at(tensor: Tensor, lies: Shard) -> str:
    """Return the factor that a shard cuts; empty where its dim is never cut, or is packed and the shard is not."""
    dim: tuple[str, ...] = tensor[lies.dim] if lies.dim < len(tensor) else ()
    if not dim or (dim == ("x*",) and not lies.packed):
        return ""
    if lies.routed:
        return name_of(next((f for f in dim if f.endswith("@")), dim[0]))
    outer, *inner = dim
    return name_of(inner[0] if inner and lies.packed and not inner[0].endswith("@") else outer)


def _instead(ask: Ask, index_map: IndexMap, choice: ShardChoice, factor: str) -> str:
    """Return the factor that takes the place of the sequence over its axes: under Ulysses, or where it must be whole.

    Ulysses (DeepSpeed, arXiv 2309.14509): an all-to-all trades the cut of the sequence for one of heads and back, so
    that the kernel sees whole sequences.
    """
    if choice.instead is None or factor != choice.instead[0] or ask.axis not in SEQUENCE_AXES:
        return factor
    return choice.instead[1] if ask.cp == "ulysses" or index_map.entry(factor) is None else factor


def _answer(entry: PlacementEntry, packed: bool) -> Answer:
    """Return an entry as an answer, packed where operands that name its factor are, and it does not say how itself."""
    says = any(isinstance(p, Shard) and (p.packed or p.routed) for p in (*entry.inputs, *entry.outputs))
    if packed and not says and not entry.plain:
        return Answer(tuple(map(_packed, entry.inputs)), tuple(map(_packed, entry.outputs)))
    return Answer(entry.inputs, entry.outputs)


def _packed(lies: Placement) -> Placement:
    return replace(lies, packed=True) if isinstance(lies, Shard) else lies
