"""Collectives and pipeline stages on simulated ranks: what a rank has afterwards, from what all of them had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from ...ir.graph import Node, Phase, Region, Role, Value
from ...ir.layers import layer_row
from ...ir.ops import Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.placement import Partial, Replicate, Shard
from ...ir.plan.layout.stages import SHARED, chunk_borders
from ...ir.records import dataclass
from .call import LayoutMismatchError, Local, LocalDim, NotComputedError, TokenRows, axis_of
from .layout import LocalSizes


@dataclass(frozen=True)
class RankExchange:
    """One collective: the node, the place of every rank, and who holds which expert (rank to places of experts)."""

    layout: LocalSizes
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
        return self.attrs.axis.axes

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


def _summed(x: RankExchange, given: Sequence[Local]) -> Tensor:
    """The sum of what ranks hold of the same entries."""
    first = given[0]
    for other in given[1:]:
        if any(not a.same(b) for a, b in zip(first.axes, other.axes, strict=True)):
            held = [[a.held.tolist()[:9] for a in g.axes] for g in (first, other)]
            raise x.mismatch(f"ranks add up other entries of the tensor: {held[0]} and {held[1]}")
    return torch.stack([g.tensor for g in given]).sum(0)


def _all_reduce(x: RankExchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
    if x.attrs.tail != 0:
        return _all_reduce_tail(x, given)
    total = _summed(x, given)
    return [Local(total, g.axes, g.rows) for g in given]


def _all_reduce_tail(x: RankExchange, given: Sequence[Local]) -> list[Local]:
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


def _all_gather(x: RankExchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
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
    every = TokenRows(*(torch.cat([getattr(r, name) for r in rows]) for name in ("expert", "origin", "home")))
    order = every.order
    tensor = torch.cat([g.tensor for g in given])[order]
    return Local(tensor, (LocalDim(len(order)), *given[0].axes[1:]), every.taken(order))


def _reduce_scatter(x: RankExchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
    total = _summed(x, given)
    if given[0].rows is not None:
        return [_home_rows(x, Local(total, given[0].axes, given[0].rows), rank) for rank in group]
    return [cut(x, Local(total, g.axes), rank, out, x.attrs.dim) for g, rank in zip(given, group, strict=True)]


def cut(x: RankExchange, whole: Local, rank: int, out: Value, dim: int, names: Sequence[str] | None = None) -> Local:
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


def _all_to_all(x: RankExchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
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


def _expert_rows(x: RankExchange, given: Sequence[Local], rank: int) -> Local:
    """The rows of a group that go to the experts of one rank, in the order in which its bank takes them."""
    whole = _all_rows(given)
    assert whole.rows is not None
    mine = torch.isin(whole.rows.expert, x.experts(rank)).nonzero().flatten()
    return Local(whole.tensor[mine], (LocalDim(len(mine)), *whole.axes[1:]), whole.rows.taken(mine))


def _home_rows(x: RankExchange, whole: Local, rank: int) -> Local:
    """The rows that come back to one rank: those that it sent."""
    assert whole.rows is not None
    ranks = x.layout.mesh.ranks
    key = tuple(ranks[rank].get(a, 0) for a in x.axes)
    homes = [k for k, place in enumerate(ranks) if tuple(place.get(a, 0) for a in x.axes) == key]
    mine = torch.isin(whole.rows.home, torch.tensor(homes)).nonzero().flatten()
    return Local(whole.tensor[mine], (LocalDim(len(mine)), *whole.axes[1:]), whole.rows.taken(mine))


def _passed_on(x: RankExchange, given: Sequence[Local], group: Sequence[int], out: Value) -> list[Local]:
    return list(given)


def converted(x: RankExchange, given: Sequence[Local], out: int) -> list[Local]:
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


_COLLECTIVES: Mapping[str, Callable[[RankExchange, Sequence[Local], Sequence[int], Value], list[Local]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "ring_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "ring_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "broadcast": _passed_on,
    "send": _passed_on,
    "recv": _passed_on,
}


@dataclass
class StagePorts:
    """What regions hand to one another: by name the parts of all ranks, and the stage where they are.

    Without `num_stages` there is one stage, and everything is there.
    """

    layout: LocalSizes
    num_stages: int = 1
    held: dict[str, tuple[list[Local], int]] = field(default_factory=dict)
    taken: dict[tuple[int, Phase, int], str] = field(default_factory=dict)

    @cached_property
    def borders(self) -> tuple[str, ...]:
        """The regions of what each stage but the last and the one behind it exchange."""
        units = layer_row(self.layout.graph).units
        stages = [self._stage(k, len(units)) for k in range(len(units))]
        return chunk_borders(self.layout.graph, [stages.count(k) for k in range(self.num_stages)])[1:]

    def stage(self, place: int) -> int:
        """Return the stage of a round: layers in even parts; what is before or behind them with the first or last."""
        row = layer_row(self.layout.graph)
        ends = list(accumulate(map(len, row.units), initial=len(row.head)))
        unit = sum(end <= place for end in ends) - 1
        return self._stage(max(0, min(unit, len(row.units) - 1)), len(row.units))

    def _stage(self, unit: int, count: int) -> int:
        return unit * self.num_stages // max(1, count)

    def put(self, name: str, parts: list[Local], stage: int) -> None:
        """Hand on a value."""
        self.held[name] = parts, stage

    def get(self, reader: Region, name: str, stage: int, phase: Phase) -> list[Local] | None:
        """Return a value where a stage needs it; LayoutMismatchError where nobody sends it there.

        Parts of the gradient of a parameter that two stages hold meet where both exchange their sums, once a step.
        """
        if name not in self.held:
            return None
        parts, home = self.held[name]
        if home == stage:
            return parts
        if phase is Phase.FORWARD and self._made_anywhere(name):
            return parts
        port = next(v for v in reader.of_role(Role.PORT) if v.name == name)
        if phase is Phase.BACKWARD and self._is_shared(reader, port):
            return parts
        sent = self._passed_on(port, home, stage, phase)
        if sent is not None:
            self.held[name] = sent, stage
            return sent
        raise LayoutMismatchError(f"stage {stage} reads '{name}' of stage {home}, which is not sent ({phase})")

    def _passed_on(self, port: Value, home: int, stage: int, phase: Phase) -> list[Local] | None:
        """Bring a value through every border on the way; None where one of them has no message for it."""
        found: list[Local] | None = self.held[port.name][0]
        crossed = range(home, stage) if home < stage else range(stage, home)[::-1]
        for border in crossed if self.borders else ():
            if found is not None:
                found = self._sent(self.layout.graph.region(self.borders[border]), port, found, border, phase)
        return found if self.borders else None

    def _sent(self, region: Region, port: Value, parts: list[Local], border: int, phase: Phase) -> list[Local] | None:
        start = self._message(region, port, border, phase)
        if start is None:
            return None
        value = region.by_id[start.inputs[0]]
        exchange = RankExchange(self.layout, region, start, _no_experts)
        for dim in range(value.type.rank):
            whole = parts[0].axes[dim].length != self.layout.share(value, dim)
            over = self.layout.cutting(value, dim) if whole else []
            if over:
                parts = [cut(exchange, part, rank, value, dim, over) for rank, part in enumerate(parts)]
        now = {start.inputs[0]: list(parts)}
        for node in region.nodes:
            if all(i in now for i in node.inputs):
                made = RankExchange(self.layout, region, node, _no_experts).run([now[i] for i in node.inputs])
                now.update(zip(node.outputs, made, strict=True))
        return now[max(now)]

    def _message(self, region: Region, port: Value, border: int, phase: Phase) -> Node | None:
        """The message that brings a value: that of its name, else one of its sizes that nothing else at this cut takes.

        Borders that are alike have one region with the names of the first of them.
        """
        name, outer = port.name, port.type.dims[:-1]
        sends = [n for n in region.nodes if has(n, Trait.SENDS) and n.phase is phase]
        sends = [n for n in sends if region.by_id[n.inputs[0]].type.dims[:-1] == outer]
        names = [region.by_id[n.inputs[0]].name for n in sends]
        free = [n for n in sends if self.taken.get((border, phase, n.key), name) == name]
        found = next((n for n in free if region.by_id[n.inputs[0]].name == name), None)
        found = found if found is not None or name in names else next(iter(free), None)
        if found is not None:
            self.taken[border, phase, found.key] = name
        return found

    def _is_shared(self, reader: Region, port: Value) -> bool:
        """Whether a port brings a part of the gradient of a parameter whose sums stages exchange."""
        if any(not isinstance(d, int) and d.symbols & {"mbs", "seq"} for d in port.type.dims):
            return False
        todo, seen = [(reader, port.id)], set[tuple[str, int]]()
        while todo:
            region, i = todo.pop()
            if (region.name, i) not in seen:
                seen.add((region.name, i))
                todo += [(region, o) for n in region.users.get(i, ()) for o in n.outputs]
                names = {p.name for p in region.outputs if p.value == i}
                todo += [(r, v.id) for r in self.layout.graph.regions for v in r.of_role(Role.PORT) if v.name in names]
        made = {r.by_id[p].name for r in self.layout.graph.regions for p, g in r.grads if (r.name, g) in seen}
        return bool(made & self._exchanged)

    @property
    def _exchanged(self) -> set[str]:
        """Parameters whose gradients stages exchange once a step."""
        shared = (r for r in self.layout.graph.regions if r.name.startswith(SHARED))
        return {v.name for r in shared for v in r.of_role(Role.INPUT)}

    def _made_anywhere(self, name: str) -> bool:
        """Whether every stage can make a value by itself: the first region makes it of no parameter."""
        first = self.layout.graph.region(self.layout.graph.sequence_once()[0])
        port = next((p for p in first.outputs if p.name == name), None)
        return port is not None and not _parameters(first, port.value)

    def check_shared(self, stages: Mapping[str, set[int]]) -> None:
        """Raise LayoutMismatchError when stages that hold one parameter never see one another's gradients of it."""
        for name, found in stages.items():
            if len(found) > 1 and name not in self._exchanged:
                raise LayoutMismatchError(f"stages {sorted(found)} hold '{name}' and do not exchange its gradients")


def _no_experts(rank: int) -> Tensor:
    raise NotImplementedError(f"stages exchange no rows of experts (rank {rank})")


def _parameters(region: Region, value: int) -> bool:
    """Whether a value depends on a parameter."""
    todo, seen = [value], set[int]()
    while todo:
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        if region.by_id[i].role is Role.PARAM:
            return True
        node: Node | None = region.producer.get(i)
        todo += list(node.inputs) if node is not None else []
    return False
