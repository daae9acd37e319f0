"""What may run beside a message: the work of its region that neither makes it nor needs it, found once in the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from ...backends.pricing.program import PricedEntry
from ...ir.graph import Graph, Node, Phase, Region
from ...ir.ops import OpClass, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.placement import EP, TP, group_axes
from ...ir.records import dataclass

_IN_A_PASS = (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE)
_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)
Labels = Callable[[PricedEntry], "tuple[str, str, str] | None"]
# Axes whose messages stand between products of one layer.
AXES = (TP, EP)
# A message over an axis, and what may hide those over some axes, in labels.
MESSAGE, WINDOW = "message ", "beside "


@dataclass(frozen=True, slots=True)
class HiddenMessages:
    """Messages that something may hide, and what may hide them, both by axis: region and key of the node."""

    messages: Mapping[str, frozenset[tuple[str, int]]]
    windows: Mapping[str, frozenset[tuple[str, int]]]

    @classmethod
    def of(cls, graph: Graph) -> HiddenMessages:
        """Find them in every region.

        A node may run beside a message when neither depends on the other, both are of one phase, and every message
        that the node waits for comes before this one: such as the gradients of weights beside the exchange of the
        gradients of activations, or shared experts beside the exchange of the routed ones.
        """
        messages: dict[str, set[tuple[str, int]]] = {axis: set() for axis in AXES}
        windows: dict[str, set[tuple[str, int]]] = {axis: set() for axis in AXES}
        for region in graph.regions:
            for axis, message, nodes in _found(region):
                messages[axis].add((region.name, message))
                windows[axis].update((region.name, key) for key in nodes)
        return cls({k: frozenset(v) for k, v in messages.items()}, {k: frozenset(v) for k, v in windows.items()})

    def labels(self, phase: Callable[[PricedEntry], str], taken: frozenset[tuple[str, int]] = frozenset()) -> Labels:
        """Return what books these nodes by region, phase and what they are: see `MESSAGE` and `WINDOW`.

        What may hide messages of several axes is booked as one that may hide each; nodes that are `taken` hide none.
        """

        def label(entry: PricedEntry) -> tuple[str, str, str] | None:
            name, axis = (entry.region, entry.key), axis_of(entry)
            if axis in AXES and name in self.messages[axis]:
                return entry.region, phase(entry), f"{MESSAGE}{axis}"
            hides = [] if name in taken else [axis for axis in AXES if name in self.windows[axis]]
            return (entry.region, phase(entry), f"{WINDOW}{group_axes(tuple(hides))}") if hides else None

        return label


def phase_of(entry: PricedEntry) -> str:
    """The phase of a micro-batch that a node runs in; recomputation belongs to the backward phase."""
    return "backward" if entry.phase in _BACKWARD else "forward"


def axis_of(entry: PricedEntry) -> str:
    """The axis a message is booked on: a group over several data axes counts as `dp`, `up` as `cp`."""
    return entry.axis.booked_on


# Families of plans share most of their regions: each is looked at once.
@lru_cache(maxsize=512)
def _found(region: Region) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    """Axis and key of each message that something may hide, with the keys of what may."""
    nodes = [n for n in region.nodes if n.phase in _IN_A_PASS]
    wanted = [n for n in nodes if _axis(n) in AXES]
    if not wanted:
        return ()
    above = _ancestors(region)
    talks = {n.key for n in nodes if isinstance(n.attrs, CollectiveAttrs)}
    place = {n.key: k for k, n in enumerate(region.nodes)}
    work = [n for n in nodes if (not has(n, OpClass.FREE, OpClass.COMMUNICATION, OpClass.HOST))]
    may = ((m, tuple(n.key for n in work if _may(n, m, above, talks, place))) for m in wanted)
    return tuple((_axis(message), message.key, keys) for message, keys in may if keys)


def _may(
    node: Node, message: Node, above: Mapping[int, frozenset[int]], talks: set[int], place: Mapping[int, int]
) -> bool:
    if (node.phase is Phase.FORWARD) is not (message.phase is Phase.FORWARD):
        return False
    if node.key in above[message.key] or message.key in above[node.key]:
        return False
    before = above[message.key] & talks
    # Whether a node could not have run before the message that the present one follows.
    return all(place[k] < place[message.key] for k in (above[node.key] & talks) - before) and (
        not before or bool(above[node.key] & before)
    )


def _ancestors(region: Region) -> dict[int, frozenset[int]]:
    above: dict[int, frozenset[int]] = {}
    for node in region.nodes:
        made: set[int] = set()
        for source in _sources(region, node.inputs):
            made.add(source.key)
            made |= above.get(source.key, frozenset())
        above[node.key] = frozenset(made)
    return above


def _sources(region: Region, inputs: Sequence[int]) -> Iterator[Node]:
    for value in inputs:
        if value in region.producer:
            yield region.producer[value]


def _axis(node: Node) -> str:
    return node.attrs.axis.booked_on if isinstance(node.attrs, CollectiveAttrs) else ""
