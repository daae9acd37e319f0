"""The results of a model's layers as a problem: bytes to keep each, seconds to make it again, what that reads."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from ...driver.estimate import Estimates
from ...ir.graph import Graph, Node, Phase, Region, Role
from ...ir.layers import layer_names
from ...ir.ops import OpClass, has
from ...ir.records import dataclass
from ...passes.recompute.modules import result_name

_LATER = (Phase.RECOMPUTE, Phase.BACKWARD)


@dataclass(frozen=True, slots=True)
class LayerResult:
    """What one forward node of a layer makes, over all layers of its kind.

    Attributes:
        name: by which a policy keeps it; empty where none does, as of views and messages.
        seconds: of making it again.
        num_bytes: of keeping it.
        reads: the results that making it again needs, by their places.
        needed: whether the backward phase reads it.
        handed_bytes: of what the next layer is handed, which is always kept, on the device or offloaded.
    """

    name: str
    seconds: float
    num_bytes: float
    reads: tuple[int, ...]
    needed: bool
    handed_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class LayerResults:
    """All results of the layers, and what copies to the host may hide behind.

    Attributes:
        results: one a forward node of each kind of layer.
        forward_s: seconds of the forward phase of all layers.
        backward_s: seconds of their backward phase, without recomputation.
        bytes_per_s: of copies to the host, one direction; None where nothing may go there.
    """

    results: tuple[LayerResult, ...]
    forward_s: float
    backward_s: float
    bytes_per_s: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of results that may be kept, in the order of the model."""
        return tuple(dict.fromkeys(r.name for r in self.results if r.name))

    def only(self, names: Container[str]) -> LayerResults:
        """Return the same problem, where no other results may be kept."""
        return replace(self, results=tuple(r if r.name in names else replace(r, name="") for r in self.results))

    def bytes_of(self, name: str) -> float:
        """Return the bytes of all results of a name."""
        return sum(r.num_bytes for r in self.results if r.name == name)

    def handed_bytes_of(self, name: str) -> float:
        """Return the bytes of all results of a name that layers hand on."""
        return sum(r.handed_bytes for r in self.results if r.name == name)


def layer_results(table: Estimates, fused: Estimates, offload: bool = True) -> LayerResults:
    """Read the problem off two estimates of one plan that keeps everything: kernel by kernel, and as they run.

    Sizes and times are of one micro-batch on a rank that has all layers; what copies may hide behind is what runs. What
    a layer hands to the next one is always kept, and costs nothing here.
    """
    graph, plans = table.lowered.graph, table.plans
    sizes = {name: float(column[0]) for name, column in plans.columns.items()}
    seconds = {(entry.region, entry.key): time_s for entry, time_s in table.timing.rows()}
    inner, found = layer_names(graph), list[LayerResult]()
    for region in (r for r in graph.regions if r.name in inner):
        found += _of_region(graph, region, seconds, sizes, len(found))
    link = table.system.chip.host_link if offload else None
    speed = None if link is None else float(link.bytes_per_s * link.efficiency)
    return LayerResults(tuple(found), _spent(fused, Phase.FORWARD), _spent(fused, Phase.BACKWARD), speed)


def _spent(table: Estimates, phase: Phase) -> float:
    """Seconds of a phase of all layers, but for messages: copies run beside computation."""
    inner = layer_names(table.lowered.graph)
    return sum(
        time_s * entry.count
        for entry, time_s in table.timing.rows()
        if entry.region in inner and entry.phase is phase and entry.message is None
    )


def _of_region(
    graph: Graph, region: Region, seconds: Mapping[tuple[str, int], float], sizes: Mapping[str, float], start: int
) -> Iterator[LayerResult]:
    forward = [n for n in region.nodes if n.phase is Phase.FORWARD]
    place = {o: start + k for k, n in enumerate(forward) for o in n.outputs}
    count = graph.counts[region.name]
    handed = {p.value for p in region.outputs}
    read = {i for n in region.nodes for i in n.inputs}
    later = {i for n in region.nodes if n.phase in _LATER for i in n.inputs}
    for node in forward:
        own = [o for o in node.outputs if region.by_id[o].storage == o and o in read and o not in handed]
        num_bytes, on = (
            sum(float(region.by_id[o].type.num_bytes.evaluate(sizes)) for o in some)
            for some in (own, handed.intersection(node.outputs))
        )
        yield LayerResult(
            _name(region, node),
            seconds.get((region.name, node.key), 0.0) * count,
            num_bytes * count,
            tuple(dict.fromkeys(place[i] for i in node.inputs if i in place and i not in handed)),
            any(o in later and o not in handed for o in node.outputs),
            on * count,
        )


def _name(region: Region, node: Node) -> str:
    """The name that keeps a result; none of what gathers, names or rests on something else."""
    made = any(region.by_id[o].storage == o and region.by_id[o].role is Role.RESULT for o in node.outputs)
    if not made or has(node, OpClass.FREE, OpClass.COMMUNICATION):
        return ""
    return result_name(region, node)
