"""Caches of layers with an attention window: they hold the tokens that the window leaves, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, TypeGuard

from ..ir.editing.rewriter import RegionRewriter
from ..ir.graph import Attrs, Graph, Node, Region, Role, Value, Workload
from ..ir.meaning import In, Meaning, OperatorCall, Out
from ..ir.ops import Trait, has
from ..ir.ops.collectives import CollectiveAttrs
from ..ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from ..ir.ops.tensors.layout import SliceAttrs
from ..ir.placement import Shard
from ..ir.records import dataclass
from ..ir.sizes.expr import Dim, as_dim, as_expr, symbol
from ..ir.sizes.rounding import smaller
from .base import Pass, PassResult, rewritten

_CACHED, _PROMPT = "kv", "seq"  # symbols of the tokens in the cache of a decode step, and of those of a prompt


@dataclass(frozen=True, slots=True)
class Window(Pass):
    """Let the cache of a layer with a window of W tokens hold min(W, tokens): decode reads that, prefill leaves that.

    Serving engines free what no later token sees, or overwrite it: the hybrid cache manager of vLLM
    (`vllm/v1/core/single_type_kv_cache_manager.py`, SlidingWindowManager), rolling caches of TensorRT-LLM
    (`max_attention_window_size`), the sliding layers of transformers' caches (`SlidingWindowLayer`).
    """

    name: ClassVar[str] = "window"
    sharded: ClassVar[bool | None] = True  # lengths of a cache are those of a rank
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.PREFILL, Workload.DECODE)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that append to a cache and look at a window of it."""
        return rewritten(graph, _shortened if graph.workload is Workload.DECODE else _left)


def _windowed(region: Region) -> dict[int, int]:
    """The window of each call of attention that has one, by its key."""
    found = ((n.key, n.attrs) for n in region.nodes if has(n, Trait.ATTENDS, backward=False))
    return {key: attrs.window for key, attrs in found if _is_windowed(attrs)}


def _is_windowed(attrs: Attrs) -> TypeGuard[AttentionAttrs]:
    """Whether keys before a window are of no use; a bias is as long as all keys, and keeps them."""
    return isinstance(attrs, AttentionAttrs) and attrs.window > 0 and not attrs.bias


def _shortened(region: Region) -> Region:
    """A decode step: caches and what attention reads of them are as long as the window at most."""
    limits: dict[int, int] = {}
    for key, window in _windowed(region).items():
        cached = set(_upstream(region, region.producer[key]))
        readers = {n.key for i in cached for n in region.users.get(i, ()) if not cached & set(n.outputs)}
        if readers <= {key} and not any(p.value in cached for p in region.outputs):
            limits |= dict.fromkeys(cached, window)
    values = tuple(_limited(v, limits[v.id]) if v.id in limits else v for v in region.values)
    return replace(region, values=values) if limits else region


def _upstream(region: Region, node: Node) -> Iterator[int]:
    """Values with the length of the cache out of which keys and values are made."""
    todo = list(node.inputs[1:3])
    while todo:
        value = todo.pop()
        if any(_CACHED in as_expr(d).symbols for d in region.by_id[value].type.dims):
            yield value
            todo += region.producer[value].inputs if value in region.producer else ()


def _limited(v: Value, window: int) -> Value:
    """With the new token there are `window` of them."""
    return replace(v, type=v.type.substitute({_CACHED: smaller(symbol(_CACHED), window - 1)}))


def _left(region: Region) -> Region:
    """A prompt: attention reads all of it, and its last tokens are left in the cache."""
    windows = {a.key: w for key, w in _windowed(region).items() for a in _appends(region, region.producer[key])}
    if not windows:
        return region
    at = RegionRewriter(region)
    for node in (n for n in region.nodes if n.key in windows):
        # Of what is appended, a view of the part that the window leaves.
        key, given = node.key, region.by_id[node.inputs[0]]
        kind = given.type.substitute({_PROMPT: smaller(symbol(_PROMPT), windows[key])})
        last = at.add(replace(given, type=kind, role=Role.RESULT, name=""), given.storage)
        at.values[key] = replace(at.values[key], type=kind)
        for user in at.users(key):
            at.rewire(user, {key: given.id})
        at.replace(node, _cut(region, node, at.values[last]), replace(node, inputs=(last,)))
    return at.finish()


def _appends(region: Region, attention: Node) -> Iterator[Node]:
    """What puts the keys and values of a prompt into an empty cache, on this rank."""
    todo = list(attention.inputs[1:3])
    while todo:
        node = region.producer.get(todo.pop())
        if node is not None and isinstance(node.attrs, CollectiveAttrs):
            todo += node.inputs
        elif node is not None and has(node, Trait.APPENDS) and len(node.inputs) == 1:
            yield node


def _cut(region: Region, append: Node, last: Value) -> Node:
    """The slice in front of an append; ranks that share a sequence hold the tokens of its cache in turn.

    So do vLLM's context-parallel caches (`cp_kv_cache_interleave_size`): each rank has its share of the window.
    """
    assert isinstance(append.attrs, KvAppendAttrs)
    dim, given = append.attrs.dim, append.inputs[0]
    start: Dim = as_dim(as_expr(region.by_id[given].type.dims[dim]) - last.type.dims[dim])
    begins = OperatorCall("aten.slice.Tensor", (("self", In(0)), ("dim", dim), ("start", start)))
    dealt = any(isinstance(p, Shard) and p.dim == dim for _, p in last.placements)
    attrs = SliceAttrs(dim, start, dealt=dealt)
    made = replace(append, op="slice", inputs=(given,), outputs=(last.id,), attrs=attrs)
    return replace(made, meaning=Meaning((begins,), (Out(0),)))
