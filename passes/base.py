"""What a pass is: a frozen dataclass whose fields are its options, from a graph to a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ..ir.errors import UsageError
from ..ir.graph import Attrs, Graph, Node, Region, Workload
from ..ir.ops import OpClass, Trait, has
from ..ir.records import dataclass
from ..ir.saved import mark_saved


@dataclass(frozen=True, slots=True)
class PassResult:
    """The graph after a pass, and whether the pass changed it."""

    graph: Graph
    changed: bool


@dataclass(frozen=True, slots=True)
class Pass(Attrs):
    """A rewrite of the whole graph. Subclasses set `name` and give `apply`; options are their fields.

    `requires` raises when the graph is not ready for the pass; `ensures` raises when the result is not as promised,
    `unchanged` when what a plan asked for has no effect on the graph. The pass manager calls them in order and
    verifies the graph after each pass.
    """

    name: ClassVar[str] = ""

    def requires(self, graph: Graph) -> None:
        """Raise when the pass cannot run on this graph; by default it can."""

    def apply(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        raise NotImplementedError(self.name)

    def unchanged(self, graph: Graph) -> None:
        """Raise when a plan that asks for the pass means nothing on this graph; by default that is fine."""

    def ensures(self, graph: Graph) -> None:
        """Raise when the result breaks the pass's promise; by default it promises nothing."""


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
class LossPass(Pass):
    """A pass that makes the loss of a training graph anew; subclasses give `rewrite`."""

    def requires(self, graph: Graph) -> None:
        """Statistics over a sharded vocabulary are put in by `shard`."""
        require_sharded(self.name, graph, sharded=True)

    def apply(self, graph: Graph) -> PassResult:
        """Rewrite the region that holds the loss."""
        if graph.workload is not Workload.TRAIN:
            return PassResult(graph, changed=False)
        return rewritten(graph, self._with_loss, resave=True)

    def _with_loss(self, region: Region) -> Region:
        losses = [n for n in region.nodes if has(n, OpClass.LOSS)]
        loss, back = (next((n for n in losses if has(n, Trait.BACKWARD) is way), None) for way in (False, True))
        return region if loss is None or back is None else self.rewrite(region, loss, back)

    def rewrite(self, region: Region, loss: Node, back: Node) -> Region:
        """Return a region with its loss, forward and backward, made anew."""
        raise NotImplementedError(self.name)
