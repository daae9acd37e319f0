"""Collectives on simulated ranks: what each rank of a group has afterwards, from what all of them had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...ir.graph import Node, Region, Value
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.placement import Partial, Replicate, Shard
from .call import NotComputedError
from .layout import Layout
from .tensors import Axis, LayoutMismatchError, Local, Rows, axis_of


@dataclass(frozen=True)
class Exchange:
    """One collective: the node, the place of every rank, and who holds which expert (rank to places of experts)."""

    layout: Layout
    region: Region
    node: Node
    experts: Callable[[int], Tensor]

    @property
    def attrs(self) -> CollectiveAttrs:
        """The attributes of the collective."""
        assert isinstance(self.node.attrs, CollectiveAttrs)
        return self.node.attrs

    @property
    def axes(self) -> tuple[str, ...]:
        """Mesh axes of the group; a part of an axis counts as the axis."""
        return tuple(a.partition("/")[0] for a in self.attrs.axes)

    def run(self, given: Sequence[Sequence[Local]]) -> list[list[Local]]:
        """Return results by output and rank, from inputs by input and rank."""
        act = _COLLECTIVES.get(self.node.op)
        if act is None:
            raise NotComputedError(f"the collective '{self.node.op}' has no reference implementation")
        made: list[list[Local]] = []
        for source, out in zip(given, self.node.outputs, strict=True):
            result: list[Local | None] = [None] * len(source)
            for group in self.layout.mesh.groups(self.attrs.axis):
                parts = act(self, [source[r] for r in group], group, self.region.by_id[out])
                for rank, part in zip(group, parts, strict=True):
                    result[rank] = part
            made.append([r for r in result if r is not None])
        return made

    def mismatch(self, what: str) -> LayoutMismatchError:
        """Return the error that names the node."""
        place = f"'{self.node.op}' over {self.attrs.axis} at '{self.node.scope or 'the top'}'"
        return LayoutMismatchError(f"{place} ({self.region.name}, {self.node.phase}): {what}")


def _summed(x: Exchange, given: Sequence[Local]) -> Tensor:
    """The sum of what ranks hold of the same entries."""
    first = given[0]
    for other in given[1:]:
        if any(not a.same(b) for a, b in zip(first.axes, other.axes, strict=True)):
            held = [[a.held.tolist()[:9] for a in g.axes] for g in (first, other)]
            raise x.mismatch(f"ranks add up other entries of the tensor: {held[0]} and {held[1]}")
    return torch.stack([g.tensor for g in given]).sum(0)


def _all_reduce(x: Exchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
    if x.attrs.tail != 0:
        return _all_reduce_tail(x, given)
    total = _summed(x, given)
    return [Local(total, g.axes, g.rows) for g in given]


def _all_reduce_tail(x: Exchange, given: Sequence[Local]) -> list[Local]:
    """Sum the last entries of a dim; those before them stay each rank's own."""
    dim, count = x.attrs.dim, x.layout.number(x.attrs.tail)
    first = given[0].axes[dim].length - count
    tails = []
    for g in given:
        axes = list(g.axes)
        axes[dim] = axes[dim].taken(torch.arange(first, first + count))
        tails.append(Local(g.tensor.narrow(dim, first, count), tuple(axes)))
    total = _summed(x, tails)
    return [Local(torch.cat([g.tensor.narrow(dim, 0, first), total], dim), g.axes, g.rows) for g in given]


def joined(given: Sequence[Local], dim: int) -> Local | None:
    """Parts of one dim put together in the order of the whole; None where entries are there twice."""
    held = torch.cat([g.axes[dim].held for g in given])
    order = torch.argsort(held, stable=True)
    held = held[order]
    if held.numel() > 1 and bool((held[1:] == held[:-1]).any()):
        return None
    tensor = torch.cat([g.tensor for g in given], dim).index_select(dim, order)
    axes = list(given[0].axes)
    axes[dim] = axis_of(axes[dim].size, held)
    return Local(tensor, tuple(axes))


def _all_gather(x: Exchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
    if given[0].rows is not None:
        whole = _all_rows(given)
        return [whole] * len(group)
    dim = x.attrs.dim
    for other in given[1:]:
        if any(d != dim and not a.same(b) for d, (a, b) in enumerate(zip(given[0].axes, other.axes, strict=True))):
            raise x.mismatch("ranks gather parts of other entries")
    found = joined(given, dim)
    if found is None:
        raise x.mismatch(f"ranks hold the same entries of dim {dim} twice")
    return [found] * len(group)


def _all_rows(given: Sequence[Local]) -> Local:
    rows = [g.rows for g in given if g.rows is not None]
    every = Rows(*(torch.cat([getattr(r, name) for r in rows]) for name in ("expert", "origin", "home")))
    order = every.order
    tensor = torch.cat([g.tensor for g in given])[order]
    return Local(tensor, (Axis(len(order)), *given[0].axes[1:]), every.taken(order))


def _reduce_scatter(x: Exchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
    total = _summed(x, given)
    if given[0].rows is not None:
        return [_home_rows(x, Local(total, given[0].axes, given[0].rows), rank) for rank in group]
    return [cut(x, Local(total, g.axes), rank, out, x.attrs.dim) for g, rank in zip(given, group, strict=True)]


def cut(x: Exchange, whole: Local, rank: int, out: Value, dim: int, names: Sequence[str] | None = None) -> Local:
    """Return a rank's own part of a dim, cut by one axis after the other: those of the group, or those named."""
    axis, tensor = whole.axes[dim], whole.tensor
    over = [a for a in x.layout.cutting(out, dim) if a in (x.axes if names is None else names)]
    place = x.layout.mesh.ranks[rank]
    for k, name in enumerate(over):
        rest = [x.layout.mesh.degrees.get(a, 1) for a in over[k + 1 :]]
        told = (name, x.layout.mesh.degrees.get(name, 1), place.get(name, 0))
        places = x.layout.taken(x.region, out, dim, axis, told, rest)
        tensor, axis = tensor.index_select(dim, places), axis_of(axis.size, axis.held[places])
    axes = (*whole.axes[:dim], axis, *whole.axes[dim + 1 :])
    return Local(tensor, axes, whole.rows)


def _all_to_all(x: Exchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
    lies, source = out.placement(x.axes[0]), x.region.by_id[x.node.inputs[0]].placement(x.axes[0])
    if isinstance(lies, Shard) and lies.routed:
        return [_expert_rows(x, given, rank) for rank in group]
    if isinstance(source, Shard) and source.routed:
        whole = _all_rows(given)
        return [_home_rows(x, whole, rank) for rank in group]
    if not isinstance(source, Shard) or not isinstance(lies, Shard):
        raise x.mismatch(f"an exchange from {source} to {lies}")
    found = joined(given, source.dim)
    if found is None:
        raise x.mismatch(f"ranks hold the same entries of dim {source.dim} twice")
    return [cut(x, found, rank, out, lies.dim) for rank in group]


def _expert_rows(x: Exchange, given: Sequence[Local], rank: int) -> Local:
    """The rows of a group that go to the experts of one rank, in the order in which its bank takes them."""
    whole = _all_rows(given)
    assert whole.rows is not None
    mine = torch.isin(whole.rows.expert, x.experts(rank)).nonzero().flatten()
    return Local(whole.tensor[mine], (Axis(len(mine)), *whole.axes[1:]), whole.rows.taken(mine))


def _home_rows(x: Exchange, whole: Local, rank: int) -> Local:
    """The rows that come back to one rank: those that it sent."""
    assert whole.rows is not None
    ranks = x.layout.mesh.ranks
    key = tuple(ranks[rank].get(a, 0) for a in x.axes)
    homes = [k for k, place in enumerate(ranks) if tuple(place.get(a, 0) for a in x.axes) == key]
    mine = torch.isin(whole.rows.home, torch.tensor(homes)).nonzero().flatten()
    return Local(whole.tensor[mine], (Axis(len(mine)), *whole.axes[1:]), whole.rows.taken(mine))


def _passed_on(x: Exchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
    return list(given)


def converted(x: Exchange, given: Sequence[Local], out: int) -> list[Local]:
    """What `slice` and `identity` make where they change placements: a rank's own part, or a summand on one rank."""
    before, after = x.region.by_id[x.node.inputs[0]], x.region.by_id[out]
    changed = [a for a, p in after.placements if p != before.placement(a)]
    made = list(given)
    for axis in changed:
        lies, lay = after.placement(axis), before.placement(axis)
        for rank, place in enumerate(x.layout.mesh.ranks):
            if isinstance(lies, Partial) and isinstance(lay, Replicate) and place.get(axis, 0):
                made[rank] = Local(torch.zeros_like(made[rank].tensor), made[rank].axes, made[rank].rows)
    if any(isinstance(p := after.placement(a), Shard) and p.routed for a in changed):
        raise NotComputedError(
            "rows of experts that ranks take out of tokens that all have, and send to where a part is"
        )
    for dim in range(after.type.rank):
        if set(changed).intersection(x.layout.cutting(after, dim)):
            made = [cut(x, part, rank, after, dim, changed) for rank, part in enumerate(made)]
    return made


_COLLECTIVES: Mapping[str, Callable[[Exchange, Sequence[Local], Sequence[int], Value], list[Local]]] = {
    "all_reduce": _all_reduce, "all_gather": _all_gather, "ring_gather": _all_gather,
    "reduce_scatter": _reduce_scatter, "ring_scatter": _reduce_scatter, "all_to_all": _all_to_all,
    "broadcast": _passed_on, "send": _passed_on, "recv": _passed_on,
}  # fmt: skip

__all__ = ["Exchange", "converted", "joined"]
