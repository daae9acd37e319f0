"""Latent attention of a decode step over the latents: the expanding product goes into queries and outputs."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, TypeGuard

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import NO_ATTRS, Attrs, Graph, Node, Region, Role, Value, Workload
from ...ir.meaning import In, Meaning, OperatorCall, Out
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.fused.attention import AttentionAttrs
from ...ir.ops.tensors.layout import ConcatAttrs, SliceAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, as_dim, as_expr
from ..base import RegionPass

_LENGTH, _WIDTH = 2, 3  # dims of queries, keys and values [batch, heads, length, head dim]
CACHE = "latents"


@dataclass(frozen=True, slots=True)
class _Latent:
    """Values and nodes around one attention: what is cached, what expands it, what the queries are.

    Attributes:
        attention: the call itself.
        queries: its queries, the part without positions first.
        appends: of latents and of rotated keys.
        weight: the matrix [heads x (keys + values), rank].
        gone: nodes that the rewrite leaves out.
    """

    attention: Node
    queries: tuple[int, int]
    appends: tuple[Node, Node]
    weight: int
    gone: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Absorb(RegionPass[_Latent]):
    """Attend over cached latents instead of keys and values made from them, and cache one tensor for all heads.

    With W_uk and W_uv the halves of the expanding matrix by head, scores are (q_nope W_uk) c + q_rope k_rope, and
    outputs are (p c) W_uv: the same numbers, and per token and layer c and k_rope are read once instead of
    multiplied out for every head. What vLLM (`vllm/model_executor/layers/attention/mla_attention.py`), SGLang
    (`forward_absorb_core` in `sglang/srt/models/deepseek_v2.py`) and TensorRT-LLM do in decode; DeepSeek-V2, arXiv
    2405.04434, section 2.1.2. Prefill stays as it is, for there the products cost less than wider scores.
    """

    name: ClassVar[str] = "absorb"
    sharded: ClassVar[bool | None] = False  # heads get their placements from `shard`
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.DECODE,)

    def matches(self, region: Region) -> Iterable[_Latent]:
        """Yield latent attention."""
        return (found for n in region.nodes if has(n, Trait.ATTENDS) for found in _latent(region, n))

    def rewrite(self, region: RegionRewriter, match: _Latent) -> None:
        """Attend over the latents themselves."""
        for node in match.gone:
            region.erase(node)
        region.replace(match.attention, *_over_latents(_Parts(region), match))


def absorbed(graph: Graph) -> Graph:
    """Return a traced graph with its latent attention as `absorb` leaves it."""
    return Absorb().apply(graph).graph


def expands(graph: Graph) -> bool:
    """Whether some decode step makes keys and values of all cached tokens anew: multiplies a cache by a parameter."""
    return any(_expands(r, n) for r in graph.regions for n in r.nodes)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A region under reconstruction."""

    region: RegionRewriter

    def value(self, like: int, dims: Sequence[Dim], storage: int | None = None) -> int:
        """A new value of another one's element type, or a view of a third one."""
        kind = self.region.values[like].type.with_dims(tuple(dims))
        return self.region.add(Value(0, kind, 0), None if storage is None else self.region.values[storage].storage)

    def cache(self, like: int, dims: Sequence[Dim]) -> int:
        """A new cache in the place of another one."""
        v = self.region.values[like]
        name = f"{v.name.rpartition('.')[0]}.{CACHE}"
        return self.region.add(Value(0, v.type.with_dims(tuple(dims)), 0, Role.CACHE, name))

    def dims(self, value: int) -> tuple[Dim, ...]:
        """Dims of a value."""
        return self.region.values[value].type.dims


def _latent(region: Region, node: Node) -> Iterator[_Latent]:
    """Yield what is around an attention whose keys and values are made from cached latents, if that is all of it."""
    queries, keys, values = (_producer(region, i) for i in node.inputs[:3])
    if not _joins(queries) or not _joins(keys) or values is None or not has(values, Trait.TAKES_RANGE):
        return
    nope = _producer(region, keys.inputs[0])
    made = _chain(region, values.inputs[0], (Trait.PERMUTES, Trait.RESHAPES, Trait.PRODUCT))
    repeated = _chain(region, keys.inputs[1], (Trait.EXPANDS, Trait.APPENDS))
    if made is None or repeated is None or nope is None or nope.inputs != values.inputs:
        return
    if not has(nope, Trait.TAKES_RANGE):
        return
    product, appended = made[-1], repeated[-1]
    latents = _producer(region, product.inputs[0])
    if latents is None or not has(latents, Trait.APPENDS) or region.by_id[product.inputs[1]].role is not Role.PARAM:
        return
    gone = (queries, keys, values, nope, *made, *repeated, latents)
    # Whether nobody but these nodes and their reader looks at what they make.
    known = {n.key for n in (*gone, node)}
    outs = {o for n in gone for o in n.outputs}
    users = {u.key for o in outs for u in region.users.get(o, ())}
    is_theirs = users <= known and not outs & {p.value for p in region.outputs}
    if is_theirs and len(latents.inputs) == len(appended.inputs) == 2:
        yield _Latent(node, (queries.inputs[0], queries.inputs[1]), (latents, appended), product.inputs[1], gone)


def _producer(region: Region, value: int) -> Node | None:
    return region.producer.get(value)


def _joins(node: Node | None) -> TypeGuard[Node]:
    return node is not None and node.attrs == ConcatAttrs(_WIDTH) and len(node.inputs) == 2


def _chain(region: Region, value: int, steps: Sequence[Trait]) -> tuple[Node, ...] | None:
    """The nodes that make a value one from another, last first; None where they are others."""
    found: list[Node] = []
    for step in steps:
        node = region.producer.get(value)
        if node is None or not has(node, step):
            return None
        found.append(node)
        value = node.inputs[0]
    return tuple(found)


def _expands(region: Region, node: Node) -> bool:
    """Whether a node multiplies a whole cache by a parameter."""
    if not has(node, OpClass.MATMUL):
        return False
    maker = region.producer.get(node.inputs[0])
    return maker is not None and has(maker, Trait.APPENDS) and region.by_id[node.inputs[1]].role is Role.PARAM


def _over_latents(parts: _Parts, found: _Latent) -> Iterator[Node]:
    """The nodes in the place of one attention: queries into latents, attention, outputs out of latents."""
    node, scope = found.attention, next(n.scope for n in found.gone if has(n, OpClass.MATMUL))
    batch, heads, length, nope = parts.dims(found.queries[0])
    rank, wide = parts.dims(found.weight)[1], parts.dims(node.inputs[2])[_WIDTH]
    width = as_dim(as_expr(rank) + parts.dims(found.queries[1])[_WIDTH])
    yield from (halves := _Halves.of(parts, found, (heads, nope, wide, rank))).nodes(found.weight, node, scope)
    into = parts.value(found.queries[0], (batch, heads, length, rank))
    yield _node(node, "matmul", (found.queries[0], halves.keys), into, MatmulAttrs("abcd,bde->abce"), scope)
    query = parts.value(node.inputs[0], (batch, heads, length, width))
    yield _node(node, "concat", (into, found.queries[1]), query, ConcatAttrs(_WIDTH))
    cached = yield from _appended(parts, found, width)
    latents = parts.value(cached, (*parts.dims(cached)[:_WIDTH], rank), cached)
    yield _node(node, "slice", (cached,), latents, SliceAttrs(_WIDTH, 0))
    out = parts.value(node.key, (batch, length, heads, rank))
    assert isinstance(node.attrs, AttentionAttrs)
    attrs = replace(node.attrs, latent=True)
    yield replace(node, inputs=(query, cached, latents, *node.inputs[3:]), outputs=(out, node.outputs[1]), attrs=attrs)
    yield _node(node, "matmul", (out, halves.values), node.key, MatmulAttrs("abcd,ced->abce"), scope)


@dataclass(frozen=True, slots=True)
class _Halves:
    """The expanding matrix seen by head, and the parts of it that make keys and values."""

    whole: int
    keys: int
    values: int
    split: Dim

    @classmethod
    def of(cls, parts: _Parts, found: _Latent, sizes: tuple[Dim, Dim, Dim, Dim]) -> _Halves:
        heads, nope, wide, rank = sizes
        weight, both = found.weight, as_dim(as_expr(nope) + wide)
        whole, keys, values = (parts.value(weight, (heads, d, rank), weight) for d in (both, nope, wide))
        return cls(whole, keys, values, nope)

    def nodes(self, weight: int, like: Node, scope: str) -> Iterator[Node]:
        yield _node(like, "reshape", (weight,), self.whole, scope=scope)
        yield _node(like, "slice", (self.whole,), self.keys, SliceAttrs(1, 0), scope)
        yield _node(like, "slice", (self.whole,), self.values, SliceAttrs(1, self.split), scope)


def _appended(parts: _Parts, found: _Latent, width: Dim) -> Generator[Node, None, int]:
    """Both new entries side by side, behind one cache of both; returns that."""
    first, second = found.appends
    old = parts.cache(first.inputs[0], (*parts.dims(first.inputs[0])[:_WIDTH], width))
    new = parts.value(first.inputs[1], (*parts.dims(first.inputs[1])[:_WIDTH], width))
    cached = parts.value(first.key, (*parts.dims(first.key)[:_WIDTH], width), old)
    yield _node(first, "concat", (first.inputs[1], second.inputs[1]), new, ConcatAttrs(_WIDTH))
    yield replace(first, inputs=(old, new), outputs=(cached,))
    return cached


def _node(like: Node, op: str, inputs: tuple[int, ...], output: int, attrs: Attrs = NO_ATTRS, scope: str = "") -> Node:
    """A node in the place of others; a slice says where in the whole tensor it begins."""
    meaning = None
    if isinstance(attrs, SliceAttrs):
        begins = (("self", In(0)), ("dim", attrs.dim), ("start", attrs.start))
        meaning = Meaning((OperatorCall("aten.slice.Tensor", begins),), (Out(0),))
    made = replace(like, op=op, inputs=inputs, outputs=(output,), attrs=attrs, scope=scope or like.scope)
    return replace(made, meaning=meaning)
