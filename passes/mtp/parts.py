"""Where a recorded model can take modules of multi-token prediction: its table, last layer, head, and their ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ...ir.errors import NotBuiltError
from ...ir.graph import Graph, Node, Phase, Region, Role, Value
from ...ir.layers import layer_row
from ...ir.ops import OpClass, Trait, has
from ...ir.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MtpParts:
    """The regions of a model that a module of multi-token prediction is made of, and the values that link them.

    Attributes:
        first: the region that looks tokens up.
        lookup: the node that does; its table is shared with modules.
        lookup_back: the node that makes the gradient of that table.
        layer: the last layer, whose form each module repeats.
        entry: the value in `layer` that its predecessor hands on, of shape [batch, seq, hidden].
        leaving: the value in `layer` that is the gradient of `entry`.
        head: the last norm, the head and the loss.
        stream: name of the port through which the last layer hands its result on.
        gradient: name of the port through which the gradient of that comes back.
    """

    first: Region
    lookup: Node
    lookup_back: Node
    layer: Region
    entry: int
    leaving: int
    head: Region
    stream: str
    gradient: str

    @property
    def table_grad(self) -> int:
        """The gradient of the table, in `first`."""
        return dict(self.first.grads)[self.lookup.inputs[1]]

    @property
    def head_grad(self) -> int:
        """The gradient that the head hands back, in `head`."""
        return next(p.value for p in self.head.outputs if p.name == self.gradient)

    @property
    def shared_grads(self) -> Mapping[int, str]:
        """Gradients in `head` of weights that modules share, by the port through which these hand theirs on."""
        head = self.head
        through = {p.value for p in head.outputs if head.phase_of(p.value) is Phase.BACKWARD} - {self.head_grad}
        grads = [grad for param, grad in head.grads if not self.is_own(head.by_id[param])]
        return {value: f"mtp_head_grad{k}" for k, value in enumerate((*grads, *sorted(through)))}

    def is_own(self, weight: Value) -> bool:
        """Whether modules have a weight of the head each for themselves, as that of its norm."""
        return weight.type.dims == self.layer.by_id[self.entry].type.dims[-1:]


def mtp_parts(graph: Graph) -> MtpParts:
    """Find them; NotBuiltError where a model is not a row of layers between one table and one head with a loss."""
    row = layer_row(graph)
    if not row.units or len(row.tail) != 1:
        raise NotBuiltError(_refusal(graph, "it is not a row of layers with one head behind them"))
    head, layer = graph.region(row.tail[0]), graph.region(row.units[-1][0])
    if not any(has(n, OpClass.LOSS) for n in head.nodes):
        raise NotBuiltError(_refusal(graph, "what stands behind its layers makes no loss"))
    stream = _only(graph, head.of_role(Role.PORT), "tensor that its head reads")
    back = {p.name: head.by_id[p.value] for p in head.outputs if head.phase_of(p.value) is Phase.BACKWARD}
    gradient = _only(graph, (n for n, v in back.items() if v.type == stream.type), "gradient that its head hands back")
    if not all(isinstance(d, int) for name, v in back.items() if name != gradient for d in v.type.dims):
        raise NotBuiltError(_refusal(graph, "its head hands back gradients of more than one activation"))
    alike = (v for v in layer.of_role(Role.PORT) if v.type == stream.type and v.name != gradient)
    entry = _only(graph, alike, "tensor that its last layer reads of the layer before")
    out = [p for p in layer.outputs if p.name != stream.name]
    leaving = _only(graph, (p.value for p in out), "gradient that its last layer hands back")
    if layer.by_id[leaving].type != stream.type:
        raise NotBuiltError(_refusal(graph, "its last layer hands on more than one tensor"))
    regions = [graph.region(name) for name in row.head]
    reads = [(r, n, r.by_id[n.inputs[0]]) for r in regions for n in r.nodes if has(n, Trait.READS_TABLE)]
    tables = ((r, n) for r, n, ids in reads if n.phase is Phase.FORWARD and ids.role is Role.INPUT)
    first, lookup = _only(graph, tables, "table of tokens")
    if lookup.inputs[1] not in dict(first.grads):
        raise NotBuiltError(_refusal(graph, "the region that looks tokens up does not own the gradient of their table"))
    backs = (n for n in first.nodes if n.forward == lookup.key and n.inputs[1:] == lookup.inputs[:1])
    lookup_back = _only(graph, backs, "gradient of its table of tokens")
    return MtpParts(first, lookup, lookup_back, layer, entry.id, leaving, head, stream.name, gradient)


def _only(graph: Graph, found: Iterable[T], what: str) -> T:
    every = list(found)
    if len(every) != 1:
        raise NotBuiltError(_refusal(graph, f"there are {len(every)} of what should be one: the {what}"))
    return every[0]


def _refusal(graph: Graph, why: str) -> str:
    return (
        f"mtp-num-layers: modules of multi-token prediction are built for causal language models that are one row of "
        f"layers between a table of tokens and a head; of {graph.name}, {why}: leave it out"
    )
