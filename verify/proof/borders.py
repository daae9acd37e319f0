"""What regions hand one another, and where gradients end: alike on both sides, and nothing partial unnoticed."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.graph import Graph, Phase, Port, Region, Role, Value
from ...ir.ops import Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.placement import (
    CP,
    DP,
    EP,
    FSDP,
    TP,
    UP,
    AxisGroup,
    MeshAxis,
    Partial,
    Placement,
    Replicate,
    Shard,
    group_axes,
)
from ...ir.sizes.expr import Dim, Expr, as_dim, as_expr
from ...ir.sizes.shares import read_share
from ...passes.pipeline import is_weight
from .conversions import localised
from .refine import ProofFault

# Axes over which ZeRO keeps a gradient in shards of its first dim: those over which ranks have other samples or tokens.
_ZERO = (DP, FSDP, EP, UP, CP, TP)
_RESULT = "result"
_HANDS_ON = (Trait.CASTS, Trait.TAKES_RANGE, Trait.ACCUMULATES)


def port_faults(graph: Graph) -> Iterator[ProofFault]:
    """Yield ports that lie otherwise where they are read than where they are made, or leave as a partial sum.

    The gradient of a weight that two regions share may leave partial: it is reduced once a step, where it is read.
    """
    made: dict[str, list[tuple[Region, Value]]] = {}
    for region in graph.regions:
        for port in region.outputs:
            made.setdefault(port.name, []).append((region, region.by_id[port.value]))
            yield from _leaving(region, port)
    for region in graph.regions:
        for v in region.of_role(Role.PORT):
            for maker, given in made.get(v.name, ()):
                if given.placements != v.placements:
                    yield ProofFault(
                        region.name, f"port '{v.name}'", f"lies {_lies(v)}; {maker.name} hands on {_lies(given)}"
                    )
            if v.name not in made:
                yield ProofFault(region.name, f"port '{v.name}'", "no region hands it on")


def _leaving(region: Region, port: Port) -> Iterator[ProofFault]:
    v = region.by_id[port.value]
    partial = [a for a, p in v.placements if isinstance(p, Partial)]
    of_weight = region.phase_of(v.id) is not Phase.FORWARD and not any(isinstance(d, Expr) for d in v.type.dims)
    is_loss = port.name.startswith(_RESULT) and v.type.rank == 0
    local_weight = region.phase_of(v.id) is not Phase.FORWARD and is_weight(v)
    if partial and not (of_weight or is_loss or local_weight):
        yield ProofFault(
            region.name, f"out '{port.name}'", f"leaves as a partial sum over {', '.join(partial)}: {_lies(v)}"
        )


def _lies(v: Value) -> str:
    return f"<{', '.join(f'{a}={p}' for a, p in v.placements)}>"


def gradient_faults(region: Region) -> Iterator[ProofFault]:
    """Yield gradients that do not end as their parameters lie, or, under ZeRO, in a shard of that.

    A partial sum that ends whole was reduced on the way: that each step makes what it says is proven node by node.
    """
    for param, grad in region.grads:
        p, g = region.by_id[param], region.by_id[grad]
        wrong = [a for a, lies in g.placements if not _ends(a, p.placement(a), lies)]
        if wrong:
            yield ProofFault(
                region.name, f"gradient of '{p.name}'", f"over {', '.join(wrong)} lies {_lies(g)}, not as {_lies(p)}"
            )
        # Where the gradients of ranks that hold a copy of the same heads are not added up just once.
        made = [
            (attrs.axis, attrs.dim if attrs.tail != 0 else -1, attrs.tail) for attrs in _sums_of_copies(region, grad)
        ]
        wanted = list(_copied(p))
        if made != wanted:
            what = f"sums over copies of heads are {_told(made)}; {p.type} wants {_told(wanted)}"
            yield ProofFault(region.name, f"gradient of '{p.name}'", what)
        cut = [a for a, lies in g.placements if lies != p.placement(a)]
        if not wrong and p.type.dims and localised(p.type.dims[0], cut) != localised(g.type.dims[0], []):
            yield ProofFault(region.name, f"gradient of '{p.name}'", f"{g.type} is no shard of {p.type}")


def _ends(axis: MeshAxis, param: Placement | None, grad: Placement) -> bool:
    if isinstance(param, Replicate) and axis in _ZERO:
        return isinstance(grad, Replicate) or (isinstance(grad, Shard) and grad.dim == 0)
    return grad == param


def _told(sums: list[tuple[AxisGroup, int, Dim]]) -> str:
    return ", ".join(f"{axis} (dim {dim}, last {tail})" if dim >= 0 else axis for axis, dim, tail in sums) or "none"


def _copied(p: Value) -> Iterator[tuple[AxisGroup, int, Dim]]:
    """Yield the sum that copied heads in a dim of a parameter need: the part of an axis, the dim, the last entries.

    Of n heads shared out, several columns each, ranks hold the same ones where there are more ranks than heads; a dim
    that is just a share of its entries is cut unevenly, and held once. Without entries before them, all are summed.
    """
    for dim, size in enumerate(p.type.dims):
        for name in sorted(as_expr(size).factors):
            if (found := read_share(name)) is None:
                continue
            rest = as_expr(as_expr(size).substitute({name: 0}))
            copied = as_expr(size) - rest
            if any(c > 1 for _, c in copied.terms):
                mixed = rest != as_expr(0)
                yield group_axes((MeshAxis(found[1]),), found[0]), dim if mixed else -1, as_dim(copied) if mixed else 0


def _sums_of_copies(region: Region, grad: int) -> Iterator[CollectiveAttrs]:
    """Yield the sums over ranks that hold copies which a gradient passed on its way to where it ends."""
    value: int | None = grad
    while value is not None and (node := region.producer.get(value)) is not None:
        if isinstance(node.attrs, CollectiveAttrs) and node.attrs.axis.pieces and has(node, Trait.SUMS_EVERYWHERE):
            yield node.attrs
        carries = isinstance(node.attrs, CollectiveAttrs) or has(node, *_HANDS_ON)
        value = node.inputs[node.outputs.index(value)] if carries else None
