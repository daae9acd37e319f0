"""The sharded version of one region under construction: local types, and a collective wherever placements disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...ir.expr import Dim, Expr, as_dim, as_expr, product, symbol
from ...ir.graph import NO_ATTRS, Attrs, Constraint, Node, Phase, Port, Region, Role, Value
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.layout import SliceAttrs
from ...ir.placement import REPLICATE, Partial, Placement, Replicate, Shard
from ...ir.plan import AXES, CAPACITY, IMBALANCE
from ...ir.types import TensorType
from .exchange import Exchange, is_routed

Placements = Mapping[str, Placement]


@dataclass
class RegionBuilder:
    """New values and nodes of a region; `now` maps old values to new ones, `where` new values to placements.

    `banks` are the dims of experts' parameters that `tp` does not split inside: to those, `tp` is an axis like `dp`.
    """

    old: Region
    axes: tuple[str, ...]
    regather: bool = False
    sharded_at_rest: bool = False
    exchange: Exchange = field(default_factory=Exchange)
    banks: frozenset[tuple[Dim, ...]] = frozenset()
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    now: dict[int, int] = field(default_factory=dict)
    where: dict[int, Placements] = field(default_factory=dict)
    world: dict[int, TensorType] = field(default_factory=dict)
    constraints: dict[tuple[str, str], Constraint] = field(default_factory=dict)
    asked: dict[int, tuple[Placements, ...]] = field(default_factory=dict)
    gathered: dict[int, Placement] = field(default_factory=dict)
    _converted: dict[tuple[object, ...], int] = field(default_factory=dict)
    _origin: dict[int, int] = field(default_factory=dict)
    _links: dict[int, int] = field(default_factory=dict)

    def add_source(self, v: Value, placements: Placements) -> None:
        """Take over a parameter, input, constant or port with its placements."""
        self.now[v.id] = self._value(v.type, placements, v.role, v.name, None, f"'{v.name}'")

    def add_node(self, node: Node, needs: tuple[Placements, ...], gives: tuple[Placements, ...]) -> None:
        """Bring the inputs into the placements needed, then append the node with local output types."""
        self.asked[node.key] = needs
        inputs = tuple(self.lay(i, need, node) for i, need in zip(node.inputs, needs, strict=True))
        place = f"{node.op} at {node.scope or 'the top'}"
        outs: list[int] = []
        for old, placements in zip(node.outputs, gives, strict=True):
            v = self.old.by_id[old]
            storage = self._shared_storage(node, v, inputs)
            outs.append(self._value(v.type, placements, v.role, v.name, storage, place))
        self.now.update(zip(node.outputs, outs, strict=True))
        forward = None if node.forward is None else self._links.get(node.forward)
        self._links[node.key] = outs[0]
        attrs = _local_attrs(node.attrs, needs)
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
        value = self.now[old]
        for candidate in self._versions(value):
            if self._is(candidate, need):
                return candidate
        key = (value, *(str(need[a]) for a in self.axes), self._again(value, need, user))
        if key not in self._converted:
            made = value
            for group in self._differing(value, need):
                made = self._convert(made, group, need, user)
            self._converted[key] = made
        return self._converted[key]

    def _versions(self, value: int) -> Iterator[int]:
        """The value, then what it was converted from: what exists in the placement wanted is not made again."""
        yield value
        while value in self._origin:
            value = self._origin[value]
            yield value

    def settle(self, old: int, need: Placements, user: Node) -> None:
        """Let an old value from now on be the converted one."""
        self.now[old] = self.lay(old, need, user)

    def _is(self, value: int, need: Placements) -> bool:
        return all(_alike(self.where[value][a], need[a]) for a in self.axes)

    def _again(self, value: int, need: Placements, user: Node) -> bool:
        """Whether the backward phase gathers anew what the forward phase gathered, instead of keeping it.

        Rows at their experts are kept as they are multiplied: Megatron-Core's dispatcher gathers them only once.
        """
        if any(is_routed(need[a]) for a in self.axes):
            return False
        gathers = any(isinstance(self.where[value][a], Shard) and isinstance(need[a], Replicate) for a in self.axes)
        freed = self.regather or (self.sharded_at_rest and self.values[value].role is Role.PARAM)
        freed = freed or any(isinstance(self.where[value][a], Shard) and a == "cp" for a in self.axes)
        return freed and gathers and user.phase is Phase.BACKWARD

    def _differing(self, value: int, need: Placements) -> list[tuple[str, ...]]:
        """Axes to convert; data-like axes between the same two placements form one group and one message.

        Around an exchange of rows, what makes them fewer comes first and what makes them more last.
        """
        groups: dict[tuple[str, ...], list[str]] = {}
        for axis in self.axes:
            have, want = self.where[value][axis], need[axis]
            if not _alike(have, want):
                groups.setdefault(self._message(value, axis, have, want), []).append(axis)
        found = [tuple(sorted(g, key=AXES.index)) for g in groups.values()]
        if not any(key[0] == "routed" for key in groups):
            return found
        return sorted(found, key=lambda g: _growth(self.where[value][g[0]], need[g[0]]))

    def _message(self, value: int, axis: str, have: Placement, want: Placement) -> tuple[str, ...]:
        """What axes of one message have in common; `tp` shares one for whole experts, and for rows on their way."""
        if is_routed(have) or is_routed(want):
            return "routed", str(is_routed(want))
        alone = axis == "tp" and self.world[value].dims not in self.banks
        return str(have), str(want), axis if alone else ""

    def _convert(self, value: int, axes: tuple[str, ...], need: Placements, user: Node) -> int:
        have, want = self.where[value][axes[0]], need[axes[0]]
        if isinstance(want, Partial) and isinstance(have, Shard):
            value = self._convert(value, axes, dict.fromkeys(axes, REPLICATE), user)
            have = REPLICATE
        op, dim = _conversion(have, want)
        attrs: Attrs = NO_ATTRS
        if op == "slice":
            attrs = SliceAttrs(dim, 0)
        elif op != "identity":
            why = f"{have} to {want} for {user.op} at {user.scope or 'the top'}"
            attrs = CollectiveAttrs("+".join(axes), dim, why)
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
        self, world: TensorType, placements: Placements, role: Role, name: str, storage: int | None, place: str
    ) -> int:
        ident = len(self.values)
        kept = tuple((a, placements[a]) for a in self.axes)
        local = self._local(world, placements, place)
        owner = ident if storage is None else self.values[storage].storage
        self.values.append(Value(ident, local, owner, role, name, False, kept))
        self.where[ident], self.world[ident] = placements, world
        return ident

    def _local(self, world: TensorType, placements: Placements, place: str) -> TensorType:
        dims, checked = list(world.dims), list(world.dims)
        for axis in self.axes:
            p = placements[axis]
            if not isinstance(p, Shard):
                continue
            if not self._cuts_evenly(axis, world, p.dim):
                self._constrain(Constraint(checked[p.dim], axis, f"dim {p.dim} of {world}, {place}"))
                checked[p.dim] = as_dim(as_expr(checked[p.dim]) / symbol(axis))
            dims[p.dim] = as_dim(as_expr(dims[p.dim]) / symbol(axis))
        if self.exchange.imbalance and any(is_routed(placements[a]) for a in self.axes):
            dims[0] = as_dim(as_expr(dims[0]) * symbol(IMBALANCE))
        return world.with_dims(tuple(dims))

    def _cuts_evenly(self, axis: str, world: TensorType, dim: int) -> bool:
        """Whether a shard needs no divisibility: the batch has the factor, and ZeRO cuts flat buffers, not rows.

        Rows of a fixed capacity are rounded anyway; their tokens are checked.
        """
        size = world.dims[dim]
        rounded = isinstance(size, Expr) and CAPACITY in size.symbols
        flat = (axis == "cp" and isinstance(size, int)) or (axis == "tp" and world.dims in self.banks)
        return axis in ("dp", "ep") or rounded or flat

    def constrain_experts(self, v: Value, axes: tuple[str, ...]) -> None:
        """Experts are dealt out whole."""
        self._constrain(Constraint(v.type.dims[0], "+".join(axes), f"the experts of '{v.name}'"))

    def _constrain(self, c: Constraint) -> None:
        degrees = product(symbol(a) for a in c.axes)
        if degrees.symbols & (as_expr(c.dim) / degrees).symbols:
            self.constraints.setdefault((str(c.dim), c.axis), c)

    def finish(self, outputs: tuple[Port, ...], grads: tuple[tuple[int, int], ...]) -> Region:
        """Return the region; values that nothing reads any more are dropped."""
        ports = tuple(Port(p.name, self.now[p.value]) for p in outputs)
        pairs = tuple((self.now[p], self.now[g]) for p, g in grads)
        used = {i for n in self.nodes for i in (*n.inputs, *n.outputs)} | {p.value for p in ports}
        used |= {i for pair in pairs for i in pair}
        used |= {v.storage for v in self.values if v.id in used}
        return Region(self.old.name, tuple(v for v in self.values if v.id in used), tuple(self.nodes), ports, pairs)


def _alike(have: Placement, want: Placement) -> bool:
    """Packed or not, a shard of the same dim is the same set of rows (the weights are laid out for it)."""
    if isinstance(have, Shard) and isinstance(want, Shard):
        return have.dim == want.dim and have.routed == want.routed
    return have == want


def _growth(have: Placement, want: Placement) -> int:
    """-1 for a conversion that leaves less on each rank, 1 for one that leaves more, 0 for the rest."""
    return isinstance(have, Shard) - isinstance(want, Shard)


def _conversion(have: Placement, want: Placement) -> tuple[str, int]:
    """Return the op that turns one placement into another, and the tensor dim it works on."""
    if isinstance(want, Shard):
        if isinstance(have, Partial):
            return "reduce_scatter", want.dim
        return ("all_to_all" if isinstance(have, Shard) else "slice"), want.dim
    if isinstance(want, Partial):
        return "identity", -1
    return ("all_gather", have.dim) if isinstance(have, Shard) else ("all_reduce", -1)


def _local_attrs(attrs: Attrs, needs: tuple[Placements, ...]) -> Attrs:
    """A slice of a packed dim starts where the local tensor's slice does."""
    if not isinstance(attrs, SliceAttrs):
        return attrs
    start = as_expr(attrs.start)
    for axis, p in needs[0].items():
        if isinstance(p, Shard) and p.dim == attrs.dim:
            start = start / symbol(axis)
    return replace(attrs, start=as_dim(start))
