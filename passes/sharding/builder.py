"""The sharded version of one region under construction: local types, and a collective wherever placements disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from ...ir.graph import NO_ATTRS, Attrs, Constraint, Node, Phase, Port, Region, Role, Value
from ...ir.ops import Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.tensors.layout import ConcatAttrs, SliceAttrs
from ...ir.placement import CP, REPLICATE, TP, Partial, Replicate, Shard, conversion_of, goes_through_whole, group_axes
from ...ir.plan import CAPACITY
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr, symbol, total
from ...ir.sizes.rounding import ceil_div
from ...ir.types import DType, TensorType
from .annotate import MeshAxis, Placement, Placements
from .ask import SAMPLE_AXES, SEQUENCE_AXES, has_batch, is_alike
from .cuts import Cuts
from .exchange import ExchangeOptions, is_routed

# The type of a rank's part of a value, and what degrees must divide for it.
LocalType: TypeAlias = tuple[TensorType, tuple[Constraint, ...]]


@dataclass
class RegionBuilder:
    """New values and nodes of a region; `now` maps old values to new ones, `where` new values to placements.

    `cuts_length` says that `tp` cuts sequences, evenly. `banks` are the dims of experts' parameters that `tp` does not
    split inside: to those, it is an axis like `dp`. `known` are types of parts, which runs with the same options share.
    """

    old: Region
    axes: tuple[MeshAxis, ...]
    regather: bool = False
    sharded_at_rest: bool = False
    cuts_length: bool = False
    cuts: Cuts = field(default_factory=Cuts)
    exchange: ExchangeOptions = field(default_factory=ExchangeOptions)
    banks: frozenset[tuple[Dim, ...]] = frozenset()
    known: dict[tuple[object, ...], LocalType] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    now: dict[int, int] = field(default_factory=dict)
    where: dict[int, Placements] = field(default_factory=dict)
    world: dict[int, Value] = field(default_factory=dict)
    constraints: dict[tuple[str, str], Constraint] = field(default_factory=dict)
    asked: dict[int, tuple[Placements, ...]] = field(default_factory=dict)
    gathered: dict[int, Placement] = field(default_factory=dict)
    _converted: dict[tuple[object, ...], int] = field(default_factory=dict)
    _origin: dict[int, int] = field(default_factory=dict)
    _links: dict[int, int] = field(default_factory=dict)

    def add_source(self, v: Value, placements: Placements) -> None:
        """Take over a parameter, input, constant or port with its placements."""
        self.now[v.id] = self._value(v, placements, v.role, v.name, None, f"'{v.name}'")

    def packed(self, v: Value, placements: Placements) -> Placements:
        """Return placements of a source; where copied heads stand beside others, each tensor is cut on its own."""
        lies = placements.get(TP, REPLICATE)
        mixed = isinstance(lies, Shard) and self.cuts.tail((v.id, lies.dim)) != 0
        return {**placements, TP: replace(lies, packed=True)} if isinstance(lies, Shard) and mixed else placements

    def add_node(self, node: Node, needs: tuple[Placements, ...], gives: tuple[Placements, ...]) -> None:
        """Bring the inputs into the placements needed, then append the node with local output types."""
        self.asked[node.key] = needs
        inputs = tuple(self.lay(i, need, node) for i, need in zip(node.inputs, needs, strict=True))
        place = f"{node.op} at {node.scope or 'the top'}"
        outs: list[int] = []
        for old, placements in zip(node.outputs, gives, strict=True):
            v = self.old.by_id[old]
            storage = self._shared_storage(node, v, inputs)
            outs.append(self._value(v, placements, v.role, v.name, storage, place))
        self.now.update(zip(node.outputs, outs, strict=True))
        forward = None if node.forward is None else self._links.get(node.forward)
        self._links[node.key] = outs[0]
        attrs = self._local_attrs(node, needs)
        self.nodes.append(replace(node, inputs=inputs, outputs=tuple(outs), forward=forward, attrs=attrs))

    def _shared_storage(self, node: Node, v: Value, inputs: tuple[int, ...]) -> int | None:
        """A view shares storage with what it looks at now: the gathered copy, when its input was gathered."""
        if v.storage == v.id:
            return None
        for old, new in zip(node.inputs, inputs, strict=True):
            if self.old.by_id[old].storage == v.storage:
                return new
        return self.now.get(v.storage)

    def lay(self, old: int, need: Placements, user: Node) -> int:
        """Return a new value that holds an old one in the placements needed, converting axis by axis."""
        value = self._viewed_again(old, user) if self._shows_freed(old, user) else self.now[old]
        for candidate in self._versions(value):
            if self._is(candidate, need):
                return candidate
        key = self._key(value, need, user)
        if key not in self._converted:
            made = value
            for group in self._differing(value, need):
                made = self._convert(made, group, need, user)
            self._converted[key] = made
        return self._converted[key]

    def _shows_freed(self, old: int, user: Node) -> bool:
        """Whether a later phase reads a view of a parameter that is freed behind the forward phase."""
        v, view = self.old.by_id[old], self.old.producer.get(old)
        is_view = view is not None and view.phase is Phase.FORWARD and self.old.by_id[v.storage].role is Role.PARAM
        return is_view and self.sharded_at_rest and user.phase is not Phase.FORWARD

    def _viewed_again(self, old: int, user: Node) -> int:
        if (key := ("view", old)) not in self._converted:
            view = replace(self.old.producer[old], phase=user.phase)
            needs, now = self.asked[view.key], self.now[old]
            inputs = tuple(self.lay(i, need, view) for i, need in zip(view.inputs, needs, strict=True))
            made = self._value(self.world[now], self.where[now], Role.RESULT, "", inputs[0], view.scope)
            attrs, forward = self._local_attrs(view, needs), self._links[view.key]
            self.nodes.append(replace(view, inputs=inputs, outputs=(made,), attrs=attrs, forward=forward))
            self._converted[key] = made
        return self._converted[key]

    def ring_gather(self, olds: Sequence[int], needs: Sequence[Placements], user: Node) -> None:
        """Let values that `user` needs whole over `cp` pass by block by block, all in one exchange."""
        near: list[int] = []
        keys: list[tuple[object, ...]] = []
        for old, need in zip(olds, needs, strict=True):
            have = self.where[self.now[old]][CP]
            key = self._key(self.now[old], need, user)
            if isinstance(have, Shard) and need[CP] == REPLICATE and key not in (*keys, *self._converted):
                near.append(self.lay(old, {**need, CP: have}, user))
                keys.append(key)
        if near:
            self._converted.update(zip(keys, self._ring("ring_gather", near, REPLICATE, user), strict=True))

    def gather_together(self, olds: Sequence[int], axis: MeshAxis, user: Node) -> None:
        """Gather values that lie in shards of their first dim over an axis, all in one message."""
        whole: list[tuple[int, Placements]] = []
        for old in dict.fromkeys(olds):
            value = self.now[old]
            if self.where[value][axis] == Shard(0):
                whole.append((value, {**self.where[value], axis: REPLICATE}))
        if not whole:
            return
        place = f"all_gather for {user.op} at {user.scope}"
        made = [self._value(self.world[v], need, Role.RESULT, "", None, place) for v, need in whole]
        attrs = CollectiveAttrs(axis.group, 0, f"{Shard(0)} to {REPLICATE} for {user.op} at {user.scope or 'the top'}")
        self.nodes.append(Node("all_gather", tuple(v for v, _ in whole), tuple(made), attrs, user.scope, user.phase))
        keys = (self._key(v, need, user) for v, need in whole)
        self._converted.update(zip(keys, made, strict=True))
        self._origin.update((m, v) for m, (v, _) in zip(made, whole, strict=True))

    def ring_scatter(self, olds: Sequence[int], want: Shard, user: Node) -> None:
        """Let partial sums over `cp` go from rank to rank to where they belong, all in one exchange."""
        olds = [o for o in olds if isinstance(self.where[self.now[o]][CP], Partial)]
        if olds:
            made = self._ring("ring_scatter", [self.now[o] for o in olds], want, user)
            self.now.update(zip(olds, made, strict=True))

    def _ring(self, op: str, values: Sequence[int], want: Placement, user: Node) -> list[int]:
        have = self.where[values[0]][CP]
        dim = have.dim if isinstance(have, Shard) else want.dim if isinstance(want, Shard) else -1
        place = f"{op} for {user.op} at {user.scope}"
        made = [self._value(self.world[v], {**self.where[v], CP: want}, Role.RESULT, "", None, place) for v in values]
        attrs = CollectiveAttrs(CP.group, dim, f"{have} to {want} for {user.op} at {user.scope or 'the top'}")
        self.nodes.append(Node(op, tuple(values), tuple(made), attrs, user.scope, user.phase))
        self._origin.update(zip(made, values, strict=True))
        return made

    def _key(self, value: int, need: Placements, user: Node) -> tuple[object, ...]:
        return (value, *(str(need[a]) for a in self.axes), self._gathered_in(value, need, user))

    def _versions(self, value: int) -> Iterator[int]:
        """The value, then what it was converted from: what exists in the placement wanted is not made again."""
        yield value
        while value in self._origin:
            value = self._origin[value]
            yield value

    def sum_copies(self, param: int, grad: int, user: Node) -> None:
        """Add up the gradients of ranks that hold a copy of the same head; each has its own queries' part.

        Where copied heads are packed with others, only their entries are summed, those at the end.
        """
        lies = self.where[self.now[param]].get(TP, REPLICATE)
        spot = (param, lies.dim) if isinstance(lies, Shard) else (param, -1)
        count, tail = self.cuts.copied(spot), self.cuts.tail(spot)
        if not count:
            return
        value = self.now[grad]
        why = f"copies of {count} heads for {user.op} at {user.scope or 'the top'}"
        made = self._value(self.world[value], self.where[value], Role.RESULT, "", None, why)
        attrs = CollectiveAttrs(group_axes((TP,), count), spot[1] if tail != 0 else -1, why, tail=tail)
        self.nodes.append(Node("all_reduce", (value,), (made,), attrs, user.scope, user.phase))
        self.now[grad] = made

    def settle(self, old: int, need: Placements, user: Node) -> None:
        """Let an old value from now on be the converted one."""
        self.now[old] = self.lay(old, need, user)

    def dtype(self, old: int) -> DType:
        """Return the element type that an old value has now."""
        return self.values[self.now[old]].type.dtype

    def lies(self, old: int, need: Placements) -> bool:
        """Whether an old value is in these placements now."""
        return self._is(self.now[old], need)

    def cast(self, old: int, dtype: DType, user: Node) -> None:
        """Let an old value from now on be of another element type."""
        value = self.now[old]
        if self.dtype(old) is dtype:
            return
        world = self.world[value]
        kind, place = replace(world, type=replace(world.type, dtype=dtype)), f"cast for {user.op} at {user.scope}"
        self.now[old] = self._value(kind, self.where[value], Role.RESULT, "", None, place)
        self.nodes.append(Node("cast", (value,), (self.now[old],), NO_ATTRS, user.scope, user.phase))

    def taken(self, old: int, forward: int | None, axis: MeshAxis) -> Shard | None:
        """Return the shard of an old value that a forward node reads; None where it reads it whole or not at all."""
        node = None if forward is None else self.old.producer.get(forward)
        if node is None or old not in node.inputs:
            return None
        read = self.asked[node.key][node.inputs.index(old)][axis]
        return read if isinstance(read, Shard) else None

    def on_all(self, node: Node) -> tuple[bool, ...]:
        """Return for each tensor that a node takes out of a packed dim, or puts into it, whether all ranks hold it."""
        attrs = node.attrs
        if isinstance(attrs, SliceAttrs):
            packed = node.inputs[0] if has(node, Trait.TAKES_RANGE) else node.key
            return (self.cuts.on_all((packed, attrs.dim), attrs.start),)
        if not isinstance(attrs, ConcatAttrs):
            return ()
        sizes = [self.old.by_id[i].type.dims[attrs.dim] for i in node.inputs]
        starts = (as_dim(total(map(as_expr, sizes[:i]))) for i in range(len(sizes)))
        return tuple(self.cuts.on_all((node.key, attrs.dim), start) for start in starts)

    def _is(self, value: int, need: Placements) -> bool:
        return all(is_alike(a, self.where[value][a], need[a]) for a in self.axes)

    def _gathered_in(self, value: int, need: Placements, user: Node) -> Phase:
        """Return the phase whose gathered copy a node reads: later phases gather again what is not kept whole.

        Parameters stay gathered from what runs again to the backward phase behind it. Rows at their experts are kept as
        they are multiplied: Megatron-Core's dispatcher gathers them only once.
        """
        if any(is_routed(need[a]) for a in self.axes):
            return Phase.FORWARD
        cut = [a for a in self.axes if isinstance(self.where[value][a], Shard)]
        is_param = self.sharded_at_rest and self.values[value].role is Role.PARAM
        freed = self.regather or is_param or CP in cut
        if not freed or user.phase is Phase.FORWARD or not any(isinstance(need[a], Replicate) for a in cut):
            return Phase.FORWARD
        return Phase.BACKWARD if is_param else user.phase

    def _differing(self, value: int, need: Placements) -> list[tuple[MeshAxis, ...]]:
        """Axes to convert; data-like axes between the same two placements form one group and one message.

        Around an exchange of rows, what makes them fewer comes first and what makes them more last.
        """
        groups: dict[tuple[str, ...], list[MeshAxis]] = {}
        for axis in self.axes:
            have, want = self.where[value][axis], need[axis]
            if not is_alike(axis, have, want):
                groups.setdefault(self._message(value, axis, have, want), []).append(axis)
        found = [group_axes(tuple(g)).axes for g in groups.values()]
        if not any(key[0] == "routed" for key in groups):
            return found
        # -1 for what leaves less on each rank, 1 for what leaves more, 0 for the rest.
        return sorted(found, key=lambda g: isinstance(self.where[value][g[0]], Shard) - isinstance(need[g[0]], Shard))

    def _message(self, value: int, axis: MeshAxis, have: Placement, want: Placement) -> tuple[str, ...]:
        """What axes of one message have in common; `tp` shares one for whole experts, and for rows on their way."""
        if is_routed(have) or is_routed(want):
            return "routed", str(is_routed(want)), conversion_of(have, want)[0]
        alone = axis == TP and self.world[value].type.dims not in self.banks
        return str(have), str(want), axis if alone else ""

    def _convert(self, value: int, axes: tuple[MeshAxis, ...], need: Placements, user: Node) -> int:
        have, want = self.where[value][axes[0]], need[axes[0]]
        if goes_through_whole(have, want):
            value = self._convert(value, axes, dict.fromkeys(axes, REPLICATE), user)
            have = REPLICATE
        op, dim = conversion_of(have, want)
        attrs: Attrs = NO_ATTRS
        if op == "slice":
            attrs = SliceAttrs(dim, 0)
        elif op != "identity":
            why = f"{have} to {want} for {user.op} at {user.scope or 'the top'}"
            attrs = CollectiveAttrs(group_axes(axes), dim, why)
            if is_routed(have) or is_routed(want):
                attrs = self.exchange.attrs(attrs.axis, dim, why, want)
        placements = {**self.where[value], **{a: need[a] for a in axes}}
        storage = value if op in ("slice", "identity") else None
        made = self._value(
            self.world[value], placements, Role.RESULT, "", storage, f"{op} for {user.op} at {user.scope}"
        )
        self.nodes.append(Node(op, (value,), (made,), attrs, user.scope, user.phase))
        self._origin[made] = value
        return made

    def _value(
        self, world: Value, placements: Placements, role: Role, name: str, storage: int | None, place: str
    ) -> int:
        ident = len(self.values)
        kept = tuple((a, placements[a]) for a in self.axes)
        if (key := (world.id, world.type.dtype, kept)) not in self.known:
            self.known[key] = self._local(world, placements, place)
        local, constraints = self.known[key]
        for c in constraints:
            self.constraints.setdefault((str(c.dim), c.axis), c)
        owner = ident if storage is None else self.values[storage].storage
        self.values.append(Value(ident, local, owner, role, name, False, kept))
        self.where[ident], self.world[ident] = placements, world
        return ident

    def _local(self, world: Value, placements: Placements, place: str) -> LocalType:
        """The type of a rank's part, and what a degree must divide on the way.

        Heads count as heads; what another axis has cut before must be divided as it is then.
        """
        dims, found = list(world.type.dims), list[Constraint]()
        rest = {i: as_expr(d) for i, d in enumerate(dims)}
        for axis in self.axes:
            p = placements[axis]
            if not isinstance(p, Shard):
                continue
            if not self._cuts_evenly(axis, world.type, p.dim):
                spot, size, left = (world.id, p.dim), world.type.dims[p.dim], rest[p.dim]
                where = self.cuts.counts(spot, size) or f"dim {p.dim} of {world.type}, {place}"
                whole = axis == TP and left == size
                alone = [Constraint(as_dim(left), axis.group, where)]
                found += self.cuts.constraints(spot, size, where) if whole else alone
                rest[p.dim] = left / symbol(axis)
            dims[p.dim] = as_dim(self._share(axis, (world, p), as_expr(dims[p.dim])))
        if self.exchange.imbalance and any(is_routed(placements[a]) for a in self.axes):
            dims[0] = as_dim(as_expr(dims[0]) * symbol(self.exchange.imbalance))
        return world.type.with_dims(tuple(dims)), tuple(c for c in found if c.binds)

    def _share(self, axis: MeshAxis, at: tuple[Value, Shard], dim: Expr) -> Expr:
        """A rank's part of a dim, whatever other axes have cut before."""
        world, lies = at
        size = world.type.dims[lies.dim]
        if axis != TP or world.type.dims in self.banks:
            return dim / symbol(axis)
        if has_batch(size):
            return as_expr(ceil_div(as_dim(dim), symbol(TP))) if self._are_few(dim, lies) else dim / symbol(TP)
        share = self.cuts.share((world.id, lies.dim), size)
        return dim / symbol(axis) if share == as_expr(size) / symbol(axis) else dim / size * share

    def _are_few(self, dim: Expr, lies: Shard) -> bool:
        """Whether rows at their experts may be fewer than ranks: a rank that has some has one at least.

        A length that `tp` cuts evenly leaves each rank as many.
        """
        return lies.routed and CAPACITY not in dim.symbols and not (self.cuts_length and "seq" in dim.symbols)

    def _cuts_evenly(self, axis: MeshAxis, world: TensorType, dim: int) -> bool:
        """Whether a shard needs no divisibility: the batch has the factor, and ZeRO cuts flat buffers, not rows.

        No batch is refused: the rank with most rows is priced. Rows of a fixed capacity are rounded anyway.
        """
        size = world.dims[dim]
        rounded = has_batch(size) or (isinstance(size, Expr) and CAPACITY in size.symbols)
        over_sequence = axis in SEQUENCE_AXES and dim == 0 and isinstance(size, int)
        return axis in SAMPLE_AXES or rounded or over_sequence or (axis == TP and world.dims in self.banks)

    def constrain_experts(self, v: Value, axes: tuple[MeshAxis, ...]) -> None:
        """Experts are sharded whole."""
        self.constrain(Constraint(v.type.dims[0], group_axes(axes), f"experts of '{v.name}'"))

    def constrain(self, c: Constraint) -> None:
        """Note what degrees must keep to, each size and axis once."""
        if c.binds:
            self.constraints.setdefault((str(c.dim), c.axis), c)

    def _local_attrs(self, node: Node, needs: tuple[Placements, ...]) -> Attrs:
        """A slice of a packed dim starts where the local tensor's slice does; an index makes a dim that nobody cuts."""
        attrs = node.attrs
        if not isinstance(attrs, SliceAttrs):
            return attrs
        start = as_expr(attrs.start)
        packed = node.inputs[0] if has(node, Trait.TAKES_RANGE) else node.outputs[0]
        has_dim = has(node, Trait.TAKES_RANGE) or not attrs.drop
        for axis, p in needs[0].items():
            held = axis == TP and isinstance(p, Partial) and self.cuts.on_all((packed, attrs.dim), attrs.start)
            if held or (has_dim and isinstance(p, Shard) and p.dim == attrs.dim):
                cut = self.cuts.start((packed, attrs.dim), attrs.start) if axis == TP else None
                start = start / symbol(axis) if cut is None else as_expr(cut)
        return replace(attrs, start=as_dim(start))

    def finish(self, outputs: tuple[Port, ...], grads: tuple[tuple[int, int], ...]) -> Region:
        """Return the region; values that nothing reads any more are dropped."""
        ports = tuple(Port(p.name, self.now[p.value]) for p in outputs)
        pairs = tuple((self.now[p], self.now[g]) for p, g in grads)
        used = {i for n in self.nodes for i in (*n.inputs, *n.outputs)} | {p.value for p in ports}
        used |= {i for pair in pairs for i in pair}
        used |= {v.storage for v in self.values if v.id in used}
        return Region(self.old.name, tuple(v for v in self.values if v.id in used), tuple(self.nodes), ports, pairs)
