"""What a pass is: a frozen dataclass whose fields are its options, from a graph to a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, TypeVar

from ..ir.editing.rewriter import RegionRewriter
from ..ir.errors import UsageError
from ..ir.graph import Attrs, Graph, Node, Region, Workload
from ..ir.ops import OpClass, Trait, has
from ..ir.records import dataclass
from ..ir.saved import mark_saved

Match = TypeVar("Match")


@dataclass(frozen=True, slots=True)
class PassResult:
    """The graph after a pass, and whether the pass changed it."""

    graph: Graph
    changed: bool


@dataclass(frozen=True, slots=True)
class Pass(Attrs):
    """A rewrite of the whole graph. Subclasses set `name` and give `apply`; options are their fields.

    `sharded` says whether it belongs behind `shard` in a pipeline or before it; None for anywhere. Graphs of other
    `workloads` than these stay as they are. `requires` raises when the graph is not ready for the pass; `ensures`
    raises when the result is not as promised, `unchanged` when what a plan asked for has no effect on the graph. The
    pass manager calls them in order and verifies the graph after each pass.
    """

    name: ClassVar[str] = ""
    sharded: ClassVar[bool | None] = None
    workloads: ClassVar[tuple[Workload, ...]] = tuple(Workload)

    def requires(self, graph: Graph) -> None:
        """Raise when the pass cannot run on this graph."""
        if self.sharded is not None:
            require_sharded(self.name, graph, self.sharded)

    def apply(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        raise NotImplementedError(self.name)

    def unchanged(self, graph: Graph) -> None:
        """Raise when a plan that asks for the pass means nothing on this graph; by default that is fine."""

    def ensures(self, graph: Graph) -> None:
        """Raise when the result breaks the pass's promise; by default it promises nothing."""


@dataclass(frozen=True, slots=True)
class RegionPass(Pass, Generic[Match]):
    """A pass that rewrites regions one by one: `matches` is the pattern, `rewrite` is what a place becomes.

    `resaves` reads off anew what the forward phase keeps.
    """

    resaves: ClassVar[bool] = False

    def matches(self, region: Region) -> Iterable[Match]:
        """Yield the places of a region that are to be rewritten."""
        raise NotImplementedError(self.name)

    def rewrite(self, region: RegionRewriter, match: Match) -> None:
        """Rewrite one place."""
        raise NotImplementedError(self.name)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the regions that have such places."""
        return rewritten(graph, self._rewritten, self.resaves)

    def _rewritten(self, region: Region) -> Region:
        found = tuple(self.matches(region))
        rewriter = RegionRewriter(region)
        for match in found:
            self.rewrite(rewriter, match)
        return rewriter.finish() if found else region


def rewritten(graph: Graph, rewrite: Callable[[Region], Region], resave: bool = False) -> PassResult:
    """Rewrite every region; changed is the graph when some region came back as another one.

    `resave` reads off anew what the forward phase keeps.
    """
    regions = tuple(rewrite(r) for r in graph.regions)
    if all(a is b for a, b in zip(regions, graph.regions, strict=True)):
        return PassResult(graph, changed=False)
    made = graph.with_regions(regions)
    return PassResult(mark_saved(made) if resave else made, changed=True)


def require(condition: bool, message: str) -> None:
    """Raise UsageError when a pass stands where it must not in a pipeline."""
    if not condition:
        raise UsageError(message)


def require_sharded(name: str, graph: Graph, sharded: bool) -> None:
    """Raise UsageError when a pass that belongs before (or behind) `shard` stands on the wrong side of it."""
    side = "behind" if sharded else "before"
    require(bool(graph.axes) == sharded, f"pass '{name}' belongs {side} 'shard' in a pipeline")


@dataclass(frozen=True, slots=True)
class LossPass(RegionPass[tuple[Node, Node]]):
    """A pass that makes the loss of a training graph, forward and backward, anew."""

    sharded: ClassVar[bool | None] = True  # statistics over a sharded vocabulary are put in by `shard`
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.TRAIN,)
    resaves: ClassVar[bool] = True

    def matches(self, region: Region) -> Iterable[tuple[Node, Node]]:
        """Yield the loss and its backward."""
        losses = [n for n in region.nodes if has(n, OpClass.LOSS)]
        loss, back = (next((n for n in losses if has(n, Trait.BACKWARD) is way), None) for way in (False, True))
        if loss is not None and back is not None:
            yield loss, back
