"""What regions hand one another, and where gradients end: alike on both sides, and nothing partial unnoticed."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.expr import Expr
from ...ir.graph import Graph, Phase, Port, Region, Role, Value
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.placement import Partial, Placement, Replicate, Shard
from ...ir.shares import read_share
from .conversions import COPIES, localised
from .refine import Fault

# Axes over which ZeRO keeps a gradient in shards of its first dim: those over which ranks have other samples or tokens.
_ZERO = ("dp", "fsdp", "ep", "up", "cp", "tp")
_RESULT = "result"


def port_faults(graph: Graph) -> Iterator[Fault]:
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
                    yield Fault(
                        region.name, f"port '{v.name}'", f"lies {_lies(v)}; {maker.name} hands on {_lies(given)}"
                    )
            if v.name not in made:
                yield Fault(region.name, f"port '{v.name}'", "no region hands it on")


def _leaving(region: Region, port: Port) -> Iterator[Fault]:
    v = region.by_id[port.value]
    partial = [a for a, p in v.placements if isinstance(p, Partial)]
    of_weight = region.phase_of(v.id) is not Phase.FORWARD and not any(isinstance(d, Expr) for d in v.type.dims)
    is_loss = port.name.startswith(_RESULT) and v.type.rank == 0
    local_weight = region.phase_of(v.id) is not Phase.FORWARD and is_weight(v)
    if partial and not (of_weight or is_loss or local_weight):
        yield Fault(region.name, f"out '{port.name}'", f"leaves as a partial sum over {', '.join(partial)}: {_lies(v)}")


def is_weight(v: Value) -> bool:
    """Whether no dim counts tokens: the sizes of a weight depend on degrees alone."""
    symbols = {s for d in v.type.dims if isinstance(d, Expr) for s in d.symbols}
    return not symbols & {"mbs", "seq", "kv", "batch"}


def _lies(v: Value) -> str:
    return f"<{', '.join(f'{a}={p}' for a, p in v.placements)}>"


def gradient_faults(region: Region) -> Iterator[Fault]:
    """Yield gradients that do not end as their parameters lie, or, under ZeRO, in a shard of that.

    A partial sum that ends whole was reduced on the way: that each step makes what it says is proven node by node.
    """
    for param, grad in region.grads:
        p, g = region.by_id[param], region.by_id[grad]
        wrong = [a for a, lies in g.placements if not _ends(a, p.placement(a), lies)]
        wrong += [a for a in _copied(p) if not _sums_copies(region, grad)]
        if wrong:
            yield Fault(
                region.name, f"gradient of '{p.name}'", f"over {', '.join(wrong)} lies {_lies(g)}, not as {_lies(p)}"
            )
        cut = [a for a, lies in g.placements if lies != p.placement(a)]
        if not wrong and p.type.dims and localised(p.type.dims[0], cut) != localised(g.type.dims[0], []):
            yield Fault(region.name, f"gradient of '{p.name}'", f"{g.type} is no shard of {p.type}")


def _ends(axis: str, param: Placement | None, grad: Placement) -> bool:
    if isinstance(param, Replicate) and axis in _ZERO:
        return isinstance(grad, Replicate) or (isinstance(grad, Shard) and grad.dim == 0)
    return grad == param


def _copied(p: Value) -> list[str]:
    """The axes of which several ranks may hold a copy of the same heads of a parameter."""
    shares = (read_share(s) for d in p.type.dims if isinstance(d, Expr) for s in d.symbols)
    return [found[1] for found in shares if found is not None and _counts_heads(p, found[0])]


def _counts_heads(p: Value, count: int) -> bool:
    """Whether a dim is a multiple of what is shared out: heads, which may be copied; else rows, cut unevenly."""
    return any(isinstance(d, Expr) and any(c > 1 for _, c in d.terms) and count > 0 for d in p.type.dims)


def _sums_copies(region: Region, grad: int) -> bool:
    """Whether a gradient passed a sum over ranks that hold copies, on its way to where it ends."""
    value: int | None = grad
    while value is not None and (node := region.producer.get(value)) is not None:
        if isinstance(node.attrs, CollectiveAttrs) and COPIES in node.attrs.axis:
            return True
        carries = isinstance(node.attrs, CollectiveAttrs) or node.op in ("cast", "slice", "accumulate")
        value = node.inputs[node.outputs.index(value)] if carries else None
    return False
