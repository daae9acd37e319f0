"""The certificate of a lowered graph: what was proven of it, region by region, and what was not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ...ir.graph import Graph, Region
from .borders import gradient_faults, port_faults
from .numbering import Numbers
from .refine import Fault, refine, whole_source
from .rewrites import Rewritten, follow
from .stages import exchange_faults
from .theorem import uncovered
from .updates import update_faults

SHARD, FUSE = "shard", "fuse"
# Passes behind `shard` that repeat, join and append nodes and rewrite none: behind them every node has its counterpart.
KEEPING = frozenset(("bucket", "optimizer", "pipeline", "fuse", "recompute", "remat", "inplace", "offload"))


@dataclass(frozen=True)
class Certificate:
    """What was proven.

    `sharded` and `lowered` count the nodes proven of the graph behind `shard` and of the final one; `given` names the
    passes before `shard`, whose result is what is proven against; `anew` are nodes that later passes wrote in the place
    of others, of which placements alone are proven.
    """

    name: str
    regions: tuple[str, ...]
    sharded: int
    lowered: int
    faults: tuple[Fault, ...] = ()
    given: tuple[str, ...] = ()
    anew: tuple[str, ...] = ()
    uncovered: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether nothing was left unproven that should have been proven."""
        return not self.faults

    def lines(self) -> Iterator[str]:
        """Yield the certificate for people."""
        yield f"regions    {len(self.regions)} distinct: {', '.join(self.regions)}"
        yield f"nodes      {self.sharded} of the sharded graph, {self.lowered} of the lowered one"
        if self.given:
            yield f"given      the traced graph behind {', '.join(self.given)}"
        if self.anew:
            yield f"rewritten  {len(self.anew)} nodes, of which placements alone are proven, such as {self.anew[0]}"
        listed = ", ".join(f"{op} x{n} ({why})" for (op, why), n in sorted(self.uncovered.items()))
        yield f"open       {listed or 'nothing'}"
        for fault in self.faults[:10]:
            yield f"unproven   {fault}"


def certify(
    before: Graph, sharded: Graph, lowered: Graph, passes: Sequence[str] = (), unfused: Graph | None = None
) -> Certificate:
    """Prove a sharded graph against the graph before, and the lowered one against the sharded one.

    `passes` are those that ran, in order; `unfused` is the graph in front of `fuse`, which tells the results of fused
    kernels by the names that they keep. Regions that repeat are proven once.
    """
    place = passes.index(SHARD) if SHARD in passes else -1
    lenient = not KEEPING.issuperset(passes[place + 1 :])
    faults: list[Fault] = []
    source, count = whole_source(before, sharded.axes), 0
    for region in sharded.regions:
        walk = refine(source[region.name], region)
        faults += walk.faults
        count += walk.proven
    steps = [g for g in (sharded, unfused, lowered) if g is not None]
    walks = [w for near, far in pairwise(steps) for w in _follow(near, far, lenient)]
    faults += [*_borders(sharded), *(f for w in walks for f in w.faults), *_borders(lowered), *exchange_faults(lowered)]
    return Certificate(
        lowered.name, tuple(r.name for r in lowered.regions), count,
        sum(w.proven for w in walks[-len(lowered.regions) :]), tuple(dict.fromkeys(faults)),
        tuple(passes[: max(place, 0)]), tuple(dict.fromkeys(n for w in walks for n in w.anew)),
        uncovered(sharded.regions),
    )  # fmt: skip


def _follow(near: Graph, far: Graph, lenient: bool) -> Iterator[Rewritten]:
    for region in far.regions:
        beside = near.by_name.get(region.name, Region(region.name, (), ()))
        yield follow(Numbers.of(beside), region, lenient)


def _borders(graph: Graph) -> Iterator[Fault]:
    yield from port_faults(graph)
    for region in graph.regions:
        yield from gradient_faults(region)
        yield from update_faults(region)
