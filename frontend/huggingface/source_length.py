"""How many tokens an encoder reads: a symbol in a recording, afterwards a number or the length of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from ...ir.errors import UsageError
from ...ir.graph import Attrs, Graph, Node, Region, Workload
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
    changed = _in_attrs(node.attrs, env)
    return node if changed is node.attrs else replace(node, attrs=changed)


def _in_attrs(attrs: Attrs, env: Mapping[str, Dim]) -> Attrs:
    given = {f.name: getattr(attrs, f.name) for f in fields(attrs)}
    new = {n: as_dim(v.substitute(env)) for n, v in given.items() if isinstance(v, Expr) and SOURCE in v.symbols}
    return replace(attrs, **new) if new else attrs


__all__ = ["SOURCE", "with_source"]
