"""The sharded version of one region under construction: local types, and a collective wherever placements disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...ir.expr import as_dim, as_expr, symbol
from ...ir.graph import NO_ATTRS, Attrs, Constraint, Node, Phase, Port, Region, Role, Value
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.layout import SliceAttrs
from ...ir.placement import REPLICATE, Partial, Placement, Replicate, Shard
from ...ir.types import TensorType

Placements = Mapping[str, Placement]


@dataclass
class RegionBuilder:
    """New values and nodes of a region; `now` maps old values to new ones, `where` new values to placements."""

    old: Region
    axes: tuple[str, ...]
    regather: bool = False
    sharded_at_rest: bool = False
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    now: dict[int, int] = field(default_factory=dict)
    where: dict[int, Placements] = field(default_factory=dict)
    world: dict[int, TensorType] = field(default_factory=dict)
    constraints: dict[tuple[str, str], Constraint] = field(default_factory=dict)
    asked: dict[int, tuple[Placements, ...]] = field(default_factory=dict)
    gathered: dict[int, Placement] = field(default_factory=dict)
    _converted: dict[tuple[object, ...], int] = field(default_factory=dict)
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
        if self._is(value, need):
            return value
        key = (value, *(str(need[a]) for a in self.axes), self._again(value, need, user))
        if key not in self._converted:
            made = value
            for axis in self.axes:
                made = self._convert(made, axis, need[axis], user)
            self._converted[key] = made
        return self._converted[key]

    def settle(self, old: int, need: Placements, user: Node) -> None:
        """Let an old value from now on be the converted one."""
        self.now[old] = self.lay(old, need, user)

    def _is(self, value: int, need: Placements) -> bool:
        return all(_alike(self.where[value][a], need[a]) for a in self.axes)

    def _again(self, value: int, need: Placements, user: Node) -> bool:
        """Whether the backward phase gathers anew what the forward phase gathered, instead of keeping it."""
        gathers = any(isinstance(self.where[value][a], Shard) and isinstance(need[a], Replicate) for a in self.axes)
        freed = self.regather or (self.sharded_at_rest and self.values[value].role is Role.PARAM)
        return freed and gathers and user.phase is Phase.BACKWARD

    def _convert(self, value: int, axis: str, want: Placement, user: Node) -> int:
        have = self.where[value][axis]
        if _alike(have, want):
            return value
        if isinstance(want, Partial) and isinstance(have, Shard):
            value = self._convert(value, axis, REPLICATE, user)
            have = REPLICATE
        op, dim = _conversion(have, want)
        attrs: Attrs = NO_ATTRS
        if op == "slice":
            attrs = SliceAttrs(dim, 0)
        elif op != "identity":
            why = f"{have} to {want} for {user.op} at {user.scope or 'the top'}"
            attrs = CollectiveAttrs(axis, dim, why)
        placements = {**self.where[value], axis: want}
        storage = value if op in ("slice", "identity") else None
        made = self._value(
            self.world[value], placements, Role.RESULT, "", storage, f"{op} for {user.op} at {user.scope}"
        )
        self.nodes.append(Node(op, (value,), (made,), attrs, user.scope, user.phase))
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
        dims = list(world.dims)
        for axis in self.axes:
            p = placements[axis]
            if isinstance(p, Shard):
                self._constrain(Constraint(dims[p.dim], axis, f"dim {p.dim} of {world}, {place}"))
                dims[p.dim] = as_dim(as_expr(dims[p.dim]) / symbol(axis))
        return world.with_dims(tuple(dims))

    def _constrain(self, c: Constraint) -> None:
        """A shard over `dp` is of the batch, which has that factor, or ZeRO's, which cuts flat buffers."""
        quotient = as_expr(c.dim) / symbol(c.axis)
        if c.axis == "dp" or c.axis not in quotient.symbols:
            return
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
        return have.dim == want.dim
    return have == want


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


def both_phases(nodes: tuple[Node, ...]) -> Iterator[tuple[bool, tuple[Node, ...]]]:
    """Yield the forward nodes, then the others."""
    yield True, tuple(n for n in nodes if n.phase is Phase.FORWARD)
    yield False, tuple(n for n in nodes if n.phase is not Phase.FORWARD)
