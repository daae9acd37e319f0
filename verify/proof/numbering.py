"""Values of a region by what they are: nodes that compute the same of the same share a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TypeAlias

from ...ir.graph import Attrs, Node, Region, Role, Value
from ...ir.ops import Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.fused.routing import RoutedAttrs
from ...ir.ops.tensors.layout import SliceAttrs
from ...ir.ops.tensors.pointwise import AccumulateAttrs, FillAttrs
from ...ir.placement import NO_AXES
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, as_dim, as_expr
from ...ir.sizes.shares import is_imbalance
from .conversions import global_dims

Key: TypeAlias = tuple[object, ...]
Dims: TypeAlias = tuple[tuple[Dim, ...], ...]
_RANDOM = ("random",)


def attrs_key(attrs: Attrs) -> Attrs:
    """Return what attributes say of the model: not how a rank's part is distributed, nor why a message was sent."""
    if isinstance(attrs, AttentionAttrs):
        return replace(attrs, balanced=False)
    if isinstance(attrs, RoutedAttrs):
        return replace(attrs, own=NO_AXES)
    if isinstance(attrs, CollectiveAttrs):
        return replace(attrs, why="", wire="", across=1.0)
    if isinstance(attrs, AccumulateAttrs):
        return replace(attrs, fused=False)
    return replace(attrs, start=0) if isinstance(attrs, SliceAttrs) else attrs


def key_of(region: Region, node: Node, inputs: Sequence[int], dims: Dims, whole: bool) -> Key:
    """Return all that decides what a node computes; `whole` counts a slice's start in the tensor of all ranks."""
    start = _start(region, node, whole)
    # Random numbers, and what drops entries at random, are never the same twice.
    random = isinstance(node.attrs, FillAttrs) and node.attrs.kind in _RANDOM
    return (node.op, attrs_key(node.attrs), tuple(inputs), dims, start, *((node.key,) if random else ()))


def _start(region: Region, node: Node, whole: bool) -> str:
    """Where a slice starts; its place in a packed tensor of all ranks is as many times further in."""
    if not isinstance(node.attrs, SliceAttrs):
        return ""
    start = as_expr(node.attrs.start)
    if whole:
        v = region.by_id[node.inputs[0] if has(node, Trait.TAKES_RANGE) else node.key]
        made = replace(v, type=v.type.with_dims((as_dim(start),) * v.type.rank))
        start = as_expr(global_dims(made)[node.attrs.dim])
    return str(start)


def dims_of(region: Region, node: Node, whole: bool) -> Dims:
    """Return the dims of what a node makes: of all ranks together, or of one rank."""
    found = [region.by_id[o] for o in node.outputs]
    return tuple(balanced(global_dims(v) if whole else v.type.dims) for v in found)


def balanced(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return dims as if no rank had more rows than the mean."""
    return tuple(as_dim(d.substitute(dict.fromkeys(filter(is_imbalance, d.factors), 1))) for d in map(as_expr, dims))


def source_key(v: Value) -> Key:
    """Return what a value from outside is known by."""
    return v.role, v.name


@dataclass
class Numbers:
    """A region whose nodes are found by what they compute; `number` maps each value to the first that is the same."""

    region: Region
    number: dict[int, int] = field(default_factory=dict)
    nodes: dict[Key, Node] = field(default_factory=dict)
    sources: dict[Key, int] = field(default_factory=dict)

    @classmethod
    def of(cls, region: Region) -> Numbers:
        """Number all values of a region, results of a collective of several tensors one by one."""
        made = cls(region)
        for v in region.values:
            if v.role is not Role.RESULT:
                made.sources.setdefault(source_key(v), v.id)
                made.number[v.id] = made.sources[source_key(v)]
        for node in region.nodes:
            for part in parts(node):
                made._add(part)
        return made

    def _add(self, node: Node) -> None:
        inputs = [self.number[i] for i in node.inputs]
        first = self.nodes.setdefault(
            key_of(self.region, node, inputs, dims_of(self.region, node, whole=False), whole=False), node
        )
        self.number.update(zip(node.outputs, (self.number.get(o, o) for o in first.outputs), strict=True))

    def find(self, key: Key) -> Node | None:
        """Return the first node that computes this."""
        return self.nodes.get(key)


def parts(node: Node) -> tuple[Node, ...]:
    """Return a collective of several tensors as one for each; other nodes as they are."""
    if not isinstance(node.attrs, CollectiveAttrs) or len(node.inputs) == 1 or len(node.inputs) != len(node.outputs):
        return (node,)
    pairs = zip(node.inputs, node.outputs, strict=True)
    return tuple(replace(node, inputs=(i,), outputs=(o,)) for i, o in pairs)
