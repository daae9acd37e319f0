"""What tensor parallelism does not divide: parameters that every rank holds, and products that every rank computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..ir.graph import Graph
from ..ir.ops import work_of
from ..ir.placement import TP
from ..ir.records import dataclass
from ..ir.sizes.expr import Expr

# Shares that are worth a line, and a warning.
NOTABLE, LARGE = 0.01, 0.05
# Most names that a line holds, and the least part of what is replicated that is worth a name.
_MOST_NAMES, _LEAST_PART = 3, 0.05

Parts = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Replicated:
    """Shares, 0 to 1, of a model that are the same on all ranks of a tensor-parallel group.

    With x the bytes (or FLOPs) of one of tp ranks and X those of the whole, (tp x - X) / ((tp - 1) X): 0 where each
    rank has its part, 1 where each has everything, between where some ranks hold copies of the same heads.

    Attributes:
        bytes_share: of the bytes of all parameters.
        flops_share: of the FLOPs of products and attention in a micro-batch.
        parameters: what the first consists of, by parameter, largest first.
        modules: what the second consists of, by module, largest first.
    """

    bytes_share: float
    flops_share: float
    parameters: Parts
    modules: Parts

    @classmethod
    def of(cls, graph: Graph, sizes: Mapping[str, float]) -> Replicated:
        """Compare a rank's part of a lowered graph with the whole, at a plan's degrees and lengths, by symbol."""
        counts = graph.counts
        held = ((name, kind.num_bytes, count) for name, kind, count in graph.distinct_parameters())
        nodes = ((n.scope, work_of(r, n).tensor_flops, counts[r.name]) for r in graph.regions for n in r.nodes)
        # Other axes divide both sides alike.
        alone = {**sizes, **{str(axis): 1.0 for axis in graph.axes}}
        parameters, modules = _shares(held, alone, sizes[TP]), _shares(nodes, alone, sizes[TP])
        return cls(sum(p for _, p in parameters), sum(p for _, p in modules), parameters, modules)

    @property
    def largest(self) -> float:
        """The larger share."""
        return max(self.bytes_share, self.flops_share)

    @property
    def line(self) -> str:
        """Both shares, and what they consist of."""
        held = f"{self.bytes_share:.1%} of parameter bytes{_named(self.parameters, self.bytes_share)}"
        return f"replicated over tp: {held}, {self.flops_share:.1%} of FLOPs{_named(self.modules, self.flops_share)}"


def _shares(quantities: Iterable[tuple[str, Expr, int]], alone: Mapping[str, float], tp: float) -> Parts:
    """Each name's replicated part of the sum of all, largest first."""
    whole, excess, known = 0.0, dict[str, float](), dict[Expr, tuple[float, float]]()
    for name, quantity, count in quantities:
        if not quantity.terms:
            continue
        if quantity not in known:
            known[quantity] = float(quantity.evaluate(alone)), float(quantity.evaluate({**alone, TP: tp}))
        all_of_it, mine = known[quantity]
        whole += count * all_of_it
        part = count * max(tp * mine - all_of_it, 0.0) / (tp - 1)
        excess[name or "the top"] = excess.get(name or "the top", 0.0) + part
    found = sorted(excess.items(), key=lambda named: -named[1])
    return tuple((name, part / whole) for name, part in found if part)


def _named(parts: Parts, share: float) -> str:
    """The names that make up most of a notable share."""
    if share < NOTABLE:
        return ""
    large = [f"{name} {part:.1%}" for name, part in parts if part >= _LEAST_PART * share]
    more = f" and {len(large) - _MOST_NAMES} more" if len(large) > _MOST_NAMES else ""
    return f" ({', '.join(large[:_MOST_NAMES])}{more})"
