"""Lengths of a graph's tokens: how many an encoder reads, and a decode step without a past, which is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from ...ir.errors import NotUnderstoodError, UsageError
from ...ir.graph import Graph, Node, Region, Role, Workload
from ...ir.ops import Trait, has
from ...ir.sizes.expr import Dim, Expr, as_dim, symbol

SOURCE = "src"
# What a plan's lengths are to an encoder: the tokens of a training step, a prompt, the context of a decode step.
_BY_DEFAULT: Mapping[Workload, str] = {Workload.TRAIN: "seq", Workload.PREFILL: "seq", Workload.DECODE: "kv"}


def with_source(graph: Graph, num_tokens: int | None = None) -> Graph:
    """Return the graph of an encoder-decoder with a source of so many tokens; other graphs come back as they are.

    UsageError for a number of tokens that no encoder reads, or for which the recording does not hold.

    Without a number the encoder reads as many tokens as the plan says of the decoder: `seq` in training and prefill,
    `kv` in decode. A note on the graph says so.
    """
    if not any(
        SOURCE in d.symbols for r in graph.regions for v in r.values for d in v.type.dims if isinstance(d, Expr)
    ):
        if num_tokens is not None:
            raise UsageError(
                f"source_tokens={num_tokens}: '{graph.name}' has no encoder that reads tokens; leave it out"
            )
        return graph
    name = _BY_DEFAULT[graph.workload]
    env: Mapping[str, Dim] = {SOURCE: symbol(name) if num_tokens is None else num_tokens}
    said = f"the encoder reads {name} tokens" if num_tokens is None else f"the encoder reads {num_tokens} tokens"
    regions = tuple(_substituted(r, env) for r in graph.regions)
    own = [b for b in graph.bounds if b.name == SOURCE]
    if broken := [b for b in own if num_tokens is not None and not b.holds(num_tokens)]:
        raise UsageError(
            f"source_tokens={num_tokens}: '{graph.name}' is recorded for a source of {broken[0].legal} tokens"
        )
    bounds = [*(b for b in graph.bounds if b not in own), *(replace(b, name=name) for b in own if num_tokens is None)]
    return replace(graph, regions=regions, bounds=tuple(bounds), notes=(*graph.notes, said))


def _substituted(region: Region, env: Mapping[str, Dim]) -> Region:
    values = tuple(replace(v, type=v.type.substitute(env)) for v in region.values)
    return replace(region, values=values, nodes=tuple(_in_node(n, env) for n in region.nodes))


def _in_node(node: Node, env: Mapping[str, Dim]) -> Node:
    given = {f.name: getattr(node.attrs, f.name) for f in fields(node.attrs)}
    new = {n: as_dim(v.substitute(env)) for n, v in given.items() if isinstance(v, Expr) and SOURCE in v.symbols}
    changed = replace(node.attrs, **new) if new else node.attrs
    return node if changed is node.attrs else replace(node, attrs=changed)


def require_past(graph: Graph) -> None:
    """Refuse a decode graph with attention when nothing in it lives on between steps.

    Keys that are more than queries are taken for a past that comes as a plain input.
    """
    if graph.workload is not Workload.DECODE or any(r.of_role(Role.CACHE) for r in graph.regions):
        return
    lengths = list(_lengths(graph))
    if lengths and all(queries == keys for queries, keys in lengths):
        raise NotUnderstoodError(
            f"'{graph.name}' has attention but no KV cache among its inputs, so a decode step would attend to new "
            "tokens alone; name the inputs that are caches (caches=[..] of slipstick.trace, past_key and past_value "
            "inputs of .pt2, fx and ONNX), or ask for prefill"
        )


def _lengths(graph: Graph) -> Iterator[tuple[Dim, Dim]]:
    for region in graph.regions:
        for node in region.nodes:
            if has(node, Trait.ATTENDS, backward=False):
                queries, keys = (region.by_id[i].type.dims[-2] for i in node.inputs[:2])
                yield queries, keys
