"""The graph under construction: one flat list of nodes over values, before it is tidied and folded into regions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from ...ir.graph import NO_ATTRS, Attrs, Node, Phase, Role, Value
from ...ir.meaning import Argument, Meaning, OperatorCall, Out
from ...ir.ops.tensors.layout import SliceAttrs
from ...ir.records import dataclass
from ...ir.types import TensorType


@dataclass(frozen=True, slots=True)
class NodeOrigin:
    """Where a node comes from: module path, phase and the forward node it belongs to."""

    scope: str = ""
    phase: Phase = Phase.FORWARD
    forward: int | None = None


def clean_scope(scope: str) -> str:
    """Return the module path of a scope, without the number of the call.

    >>> clean_scope("layers.3.mlp@18")
    'layers.3.mlp'
    """
    return scope.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Said:
    """What the source says of a call and the op does not keep: the operator's name there and its plain numbers."""

    name: str
    numbers: tuple[float, ...] = ()


@dataclass
class Flat:
    """Values by id and nodes in running order; `results` leave the graph, `grads` map parameters to gradients.

    `renamed` says which node took the place of one that was rewritten. `said` is by node key, for those who look for
    patterns; it may be empty. `constants` are the numbers of tensors that the model keeps under no name. Where calls of
    modules were noted, a scope is the path and the number of the call, as `layers.3.mlp@18`, and `calls` say in which
    scope each call was made.
    """

    values: dict[int, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    grads: dict[int, int] = field(default_factory=dict)
    renamed: dict[int, int] = field(default_factory=dict)
    said: dict[int, Said] = field(default_factory=dict)
    constants: dict[str, Argument] = field(default_factory=dict)
    calls: Mapping[int, str] = field(default_factory=dict)

    def value(self, kind: TensorType, storage: int | None = None, role: Role = Role.RESULT, name: str = "") -> int:
        """Add a value and return its id."""
        ident = len(self.values)
        self.values[ident] = Value(ident, kind, ident if storage is None else storage, role, name)
        return ident

    @cached_property
    def phases(self) -> Mapping[int, Phase]:
        """The phase of each value that a node makes; read it when the graph is complete."""
        return {o: n.phase for n in self.nodes for o in n.outputs}

    def emit(
        self,
        op: str,
        inputs: Sequence[int],
        outputs: Iterable[tuple[TensorType, int | None]],
        origin: NodeOrigin,
        attrs: Attrs = NO_ATTRS,
        meaning: Meaning | None = None,
    ) -> tuple[int, ...]:
        """Append a node whose outputs have the given types and storages; return the ids of its outputs.

        A slice says where it starts in the whole tensor, for once sharded its attributes say where in a rank's part.
        """
        outs = tuple(self.value(kind, storage) for kind, storage in outputs)
        if isinstance(attrs, SliceAttrs):
            meaning = Meaning((OperatorCall(op, (("start", attrs.start),)),), (Out(0),))
        node = Node(op, tuple(inputs), outs, attrs, origin.scope, origin.phase, origin.forward, meaning=meaning)
        self.nodes.append(node)
        return outs
