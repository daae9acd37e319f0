"""Graphs that hold their backward pass already: which nodes are backward, and whose gradient comes out where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, fx, nn

from ...ir.errors import TraceError
from ...ir.graph import Phase
from ..adapter import FakeWorld
from ..record import Recorder, Tensors
from .program import HeldInput, Program, TensorInput


def is_backward(node: fx.Node) -> bool:
    """Whether a tracer marked a node as part of the backward pass."""
    tag = node.meta.get("partitioner_tag")
    return bool(node.meta.get("autograd_backward")) or tag == "is_backward"


def is_joint(graph: fx.GraphModule) -> bool:
    """Whether a graph holds a backward pass."""
    return any(is_backward(n) for n in graph.graph.nodes)


class JointRecorder(Recorder):
    """Records a graph with its backward pass: phases and forward links are those that the tracer noted."""

    def __init__(self, module: nn.Module, inputs: Mapping[str, Tensor], world: FakeWorld) -> None:
        """As any recorder."""
        super().__init__(module, inputs, world)
        self._forward: dict[int, fx.Node] = {}
        self._sequence: int | None = None

    def enter(self, source: fx.Node) -> None:
        """Say which node of the graph runs next."""
        self.phase = Phase.BACKWARD if is_backward(source) else Phase.FORWARD
        found = source.meta.get("seq_nr")
        self._sequence = found if isinstance(found, int) else None

    def _link(self, node: fx.Node) -> None:
        if self._sequence is None:
            return
        if self.phase is Phase.FORWARD:
            self._forward.setdefault(self._sequence, node)
        elif (origin := self._forward.get(self._sequence)) is not None:
            node.meta["forward"] = origin
            node.meta["scope"] = node.meta["scope"] or origin.meta["scope"]


def split_outputs(
    program: Program, found: Sequence[Tensor], recorder: Recorder
) -> tuple[Tensors, Mapping[str, Tensor]]:
    """Return the results and, by name, the gradients of parameters among the outputs of a joint graph.

    Gradients come in the order of the parameters; those of inputs count as results. TraceError when shapes contradict.
    """
    made = {id(t): recorder.node_of(t).meta["phase"] for t in found}
    grads = [t for t in found if made[id(t)] is Phase.BACKWARD]
    results = [t for t in found if made[id(t)] is not Phase.BACKWARD]
    wanted = _wanting(program)
    if len(grads) != len(wanted):
        wanted = [(n, p) for n, p in wanted if n]
    if len(grads) != len(wanted) or any(n and g.shape != p for g, (n, p) in zip(grads, wanted, strict=True)):
        raise TraceError(
            f"'{program.name}' gives {len(grads)} gradients for {len(wanted)} parameters, or in another order: return "
            "one gradient a parameter, in the order of the parameters"
        )
    named = {n: g for g, (n, _) in zip(grads, wanted, strict=True) if n}
    rest = [g for g, (n, _) in zip(grads, wanted, strict=True) if not n]
    return (*results, *rest), named


def _wanting(program: Program) -> list[tuple[str, tuple[int, ...]]]:
    """What may have a gradient, in the order of inputs: parameters by name, and floating inputs without."""
    held = dict(program.root.named_parameters(remove_duplicate=False))
    found: list[tuple[str, tuple[int, ...]]] = []
    for source in program.sources:
        if isinstance(source, HeldInput) and source.path in held and held[source.path].requires_grad:
            found.append((source.path, tuple(held[source.path].shape)))
        elif isinstance(source, TensorInput) and source.dtype.is_floating_point:
            found.append(("", ()))
    if not any(name for name, _ in found):
        found += [(n, tuple(p.shape)) for n, p in program.root.named_parameters()]
    return found


__all__ = ["JointRecorder", "is_backward", "is_joint", "split_outputs"]
