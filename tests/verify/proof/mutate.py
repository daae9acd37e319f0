"""Seeded faults in sharded graphs: each makes another function of the graph, or another one of what a rank holds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from slipstick.ir.graph import Graph, Node, Phase, Port, Region, Role, Value
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.ops.tensors.layout import PermuteAttrs, SliceAttrs
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.ops.tensors.normalize import DimAttrs, ReduceAttrs
from slipstick.ir.ops.tensors.pointwise import ElementwiseAttrs
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement, Shard, group_axes
from slipstick.ir.sizes.expr import as_dim, as_expr
from slipstick.verify.proof.numbering import Numbers, parts

Mutator = Callable[[Region], Iterator[tuple[str, Region]]]
_COMMUTES = {"add", "mul", "max", "min", "and", "or", "compare"}


def with_node(region: Region, old: Node, *new: Node, values: tuple[Value, ...] = ()) -> Region:
    """The region with other nodes in the place of one."""
    nodes = tuple(n for m in region.nodes for n in (new if m is old else (m,)))
    return replace(region, nodes=nodes, values=(*region.values, *values))


def with_values(region: Region, changed: Mapping[int, Value]) -> Region:
    """The region with other types or placements of some values."""
    return replace(region, values=tuple(changed.get(v.id, v) for v in region.values))


def rewired(region: Region, old: int, new: int) -> Region:
    """The region in which everybody reads another value."""
    nodes = tuple(replace(n, inputs=tuple(new if i == old else i for i in n.inputs)) for n in region.nodes)
    outputs = tuple(Port(p.name, new if p.value == old else p.value) for p in region.outputs)
    grads = tuple((p, new if g == old else g) for p, g in region.grads)
    return replace(region, nodes=nodes, outputs=outputs, grads=grads)


def collectives(region: Region) -> Iterator[tuple[Node, CollectiveAttrs]]:
    """Messages inside of a stage, those that carry one tensor."""
    for n in region.nodes:
        if isinstance(n.attrs, CollectiveAttrs) and n.op not in ("send", "recv") and len(parts(n)) == 1:
            yield n, n.attrs


def dropped_message(region: Region) -> Iterator[tuple[str, Region]]:
    """Readers take what went into a collective."""
    for node, attrs in collectives(region):
        if node.phase is not Phase.OPTIMIZER:
            made = rewired(region, node.key, node.inputs[0])
            nodes = tuple(n for n in made.nodes if n.key != node.key)
            yield f"drop {node.op} over {attrs.axis} at {node.scope}", replace(made, nodes=nodes)


def copies_not_summed(region: Region) -> Iterator[tuple[str, Region]]:
    """Gradients of copied heads that stay each rank's own, or are summed over other ranks, or in another range."""
    for node in region.nodes:
        attrs = node.attrs
        if not isinstance(attrs, CollectiveAttrs) or not attrs.axis.pieces:
            continue
        for given, made in zip(node.inputs, node.outputs, strict=True):
            yield f"no sum over {attrs.axis} at {node.scope}", rewired(region, made, given)
        wrong = [replace(attrs, axis=group_axes(attrs.axis.axes, 10 * attrs.axis.pieces))]
        wrong += [replace(attrs, tail=as_dim(as_expr(attrs.tail) * 2))] if attrs.tail != 0 else []
        for other in wrong:
            told = f"sum over {other.axis}, last {other.tail}, at {node.scope}"
            yield told, with_node(region, node, replace(node, attrs=other))


def other_dim(region: Region) -> Iterator[tuple[str, Region]]:
    """A shard or a gather along another dim."""
    for node, attrs in collectives(region):
        rank = region.by_id[node.key].type.rank
        if attrs.dim >= 0 and rank > 1:
            wrong = replace(node, attrs=replace(attrs, dim=(attrs.dim + 1) % rank))
            yield f"{node.op} along dim {(attrs.dim + 1) % rank} at {node.scope}", with_node(region, node, wrong)


def other_axis(region: Region) -> Iterator[tuple[str, Region]]:
    """A message over another axis, or over some of its axes."""
    axes = [a for a, _ in region.values[0].placements]
    for node, attrs in collectives(region):
        for axis in axes:
            if axis not in attrs.axes and not attrs.axis.pieces:
                yield (
                    f"{node.op} over {axis} for {attrs.axis} at {node.scope}",
                    with_node(region, node, replace(node, attrs=replace(attrs, axis=axis.group))),
                )
        if len(attrs.axes) > 1:
            fewer = replace(node, attrs=replace(attrs, axis=attrs.axes[0].group))
            yield f"{node.op} over {attrs.axes[0]} alone at {node.scope}", with_node(region, node, fewer)


def twice(region: Region) -> Iterator[tuple[str, Region]]:
    """A sum over ranks done twice: each summand counts as often as there are ranks."""
    for node, attrs in collectives(region):
        if node.op == "all_reduce" and not attrs.axis.pieces:
            v = region.by_id[node.key]
            again = replace(v, id=max(x.id for x in region.values) + 1)
            again = replace(again, storage=again.id)
            made = rewired(region, node.key, again.id)
            first = next(n for n in made.nodes if n.key == node.key)
            second = replace(first, inputs=(node.key,), outputs=(again.id,))
            yield (
                f"all_reduce twice over {attrs.axis} at {node.scope}",
                with_node(made, first, first, second, values=(again,)),
            )


def other_message(region: Region) -> Iterator[tuple[str, Region]]:
    """A shard taken without the sum; a sum where shards were to be joined."""
    for node, attrs in collectives(region):
        if node.op == "reduce_scatter":
            yield (
                f"slice for reduce_scatter at {node.scope}",
                with_node(region, node, replace(node, op="slice", attrs=SliceAttrs(attrs.dim, 0))),
            )
        if node.op == "all_gather":
            yield f"all_reduce for all_gather at {node.scope}", with_node(region, node, replace(node, op="all_reduce"))


def swapped_operands(region: Region) -> Iterator[tuple[str, Region]]:
    """The first two operands exchanged, where that is another function."""
    for node in region.nodes:
        fns = set(node.attrs.fns) if isinstance(node.attrs, ElementwiseAttrs) else set()
        same = len(node.inputs) < 2 or node.inputs[0] == node.inputs[1] or fns & _COMMUTES or len(fns) > 1
        if not same and not isinstance(node.attrs, CollectiveAttrs) and node.phase is not Phase.OPTIMIZER:
            turned = replace(node, inputs=(*reversed(node.inputs[:2]), *node.inputs[2:]))
            yield f"swap operands of {node.op} at {node.scope}", with_node(region, node, turned)


def wrong_operand(region: Region) -> Iterator[tuple[str, Region]]:
    """Another value of the same type and placements, made before, in the place of an operand."""
    numbers = Numbers.of(region).number
    ready = [v for v in region.values if v.role is not Role.RESULT]
    for node in region.nodes:
        for k, i in enumerate(node.inputs if node.phase is not Phase.OPTIMIZER else ()):
            mine = region.by_id[i]
            for v in ready:
                if (v.type, v.placements) == (mine.type, mine.placements) and numbers.get(v.id) != numbers.get(i):
                    inputs = (*node.inputs[:k], v.id, *node.inputs[k + 1 :])
                    yield (
                        f"%{v.id} for %{i} in {node.op} at {node.scope}",
                        with_node(region, node, replace(node, inputs=inputs)),
                    )
                    break
        ready += [region.by_id[o] for o in node.outputs]


def other_placement(region: Region) -> Iterator[tuple[str, Region]]:
    """What comes from outside, or leaves, is said to lie otherwise on one axis."""
    ends = {p.value for p in region.outputs}
    for v in region.values:
        if v.role in (Role.PORT, Role.PARAM, Role.INPUT) or v.id in ends:
            for axis, p in v.placements:
                others: tuple[Placement, ...] = (REPLICATE, PARTIAL, *(Shard(d) for d in range(v.type.rank)))
                for q in others:
                    if q != p:
                        placements = tuple((a, q if a == axis else old) for a, old in v.placements)
                        yield (
                            f"{v.role} '{v.name}' {axis}={q} for {p}",
                            with_values(region, {v.id: replace(v, placements=placements)}),
                        )


def scaled_gradient(region: Region) -> Iterator[tuple[str, Region]]:
    """A gradient times a number, such as the degree of context parallelism."""
    for param, grad in region.grads:
        v = region.by_id[grad]
        fresh = max(x.id for x in region.values) + 1
        made = rewired(region, grad, fresh)
        node = next(n for n in made.nodes if grad in n.outputs)
        scaled = Node("elementwise", (grad,), (fresh,), ElementwiseAttrs(("mul",)), node.scope, node.phase)
        value = replace(v, id=fresh, storage=fresh)
        name = region.by_id[param].name
        yield f"scale the gradient of {name}", with_node(made, node, node, scaled, values=(value,))


def swapped_gradients(region: Region) -> Iterator[tuple[str, Region]]:
    """Two parameters of one shape with each other's gradients."""
    for k, (p, g) in enumerate(region.grads):
        for q, h in region.grads[k + 1 :]:
            a, b, c, d = (region.by_id[i] for i in (p, q, g, h))
            if a.type == b.type and c.placements == d.placements:
                pairs = tuple((x, {g: h, h: g}.get(y, y)) for x, y in region.grads)
                yield f"gradients of {a.name} and {b.name}", replace(region, grads=pairs)


def dropped_sum(region: Region) -> Iterator[tuple[str, Region]]:
    """A gradient of the last micro-batch alone."""
    for node in region.nodes:
        if node.op == "accumulate":
            made = rewired(region, node.key, node.inputs[0])
            yield (
                f"no accumulate at {node.scope}",
                replace(made, nodes=tuple(n for n in made.nodes if n.key != node.key)),
            )


def other_options(region: Region) -> Iterator[tuple[str, Region]]:
    """An op with other attributes that its types allow."""
    for node in region.nodes:
        a = node.attrs
        made: list[Node] = []
        if isinstance(a, AttentionAttrs):
            made = [replace(node, attrs=replace(a, causal=not a.causal)), replace(node, attrs=replace(a, window=7))]
        elif isinstance(a, SliceAttrs) and node.op == "slice":
            made = [replace(node, attrs=replace(a, start=1))] if a.start == 0 else []
        elif isinstance(a, PermuteAttrs) and len(a.dims) > 2:
            made = [replace(node, attrs=PermuteAttrs((*a.dims[:-2], a.dims[-1], a.dims[-2])))]
        elif isinstance(a, DimAttrs) and a.dim:
            made = [replace(node, attrs=DimAttrs(0))]
        elif isinstance(a, ReduceAttrs):
            made = [replace(node, attrs=replace(a, fn="max" if a.fn != "max" else "sum"))]
        elif isinstance(a, MatmulAttrs):
            left, right, out = a.letters
            made = [replace(node, attrs=replace(a, spec=f"{left},{right}->{out[::-1]}"))]
        elif isinstance(a, ElementwiseAttrs) and len(a.fns) == 1:
            made = [replace(node, attrs=ElementwiseAttrs(("sub" if a.fns != ("sub",) else "add",)))]
        for m in made:
            yield f"{node.op} {m.attrs} at {node.scope}", with_node(region, node, m)


def left_out(region: Region) -> Iterator[tuple[str, Region]]:
    """A pointwise op or a norm that hands its first operand on as it is."""
    for node in region.nodes:
        if node.op in ("elementwise", "norm", "rope", "rope_bwd", "softmax") and node.inputs:
            given, made = region.by_id[node.inputs[0]], region.by_id[node.key]
            if (given.type, given.placements) == (made.type, made.placements) and len(node.outputs) == 1:
                wired = rewired(region, node.key, given.id)
                nodes = tuple(n for n in wired.nodes if n.key != node.key)
                yield f"no {node.op} at {node.scope}", replace(wired, nodes=nodes)


MUTATORS: Mapping[str, Mutator] = {
    m.__name__: m
    for m in (
        dropped_message, other_dim, other_axis, twice, other_message, swapped_operands, wrong_operand, other_placement,
        scaled_gradient, swapped_gradients, dropped_sum, other_options, left_out,
    )
}  # fmt: skip


def mutants(graph: Graph, seed: int, count: int) -> Iterator[tuple[str, Graph]]:
    """Yield so many mutants, kind by kind in turn, each drawn at random among the places that its kind has."""
    chance = random.Random(seed)
    kinds = list(MUTATORS.items())
    made, turn = 0, 0
    while made < count:
        name, mutator = kinds[turn % len(kinds)]
        turn += 1
        found = [(r.name, what, m) for r in graph.regions for what, m in mutator(r)]
        if not found:
            continue
        where, what, region = chance.choice(found)
        made += 1
        yield (
            f"{name}: {where}: {what}",
            graph.with_regions(tuple(region if r.name == where else r for r in graph.regions)),
        )
