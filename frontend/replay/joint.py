"""Graphs that hold their backward pass already: which nodes are backward, and whose gradient comes out where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ...ir.errors import TraceError
from ...ir.graph import Phase
from ..record.adapter import FakeWorld
from ..record.record import Recorder, Tensors
from .program import HeldInput, Program, TensorInput

_FEWEST = 2  # so many results must have the shapes of all parameters, to be taken for their gradients


def backward_nodes(program: Program) -> frozenset[fx.Node]:
    """Return the nodes of the backward pass, none in a forward graph.

    They are those that the tracer tagged. Where it tagged none and the last results have the shapes of all parameters
    in order, these are gradients, and backward is what only they need.
    """
    nodes = program.graph.graph.nodes
    tagged = frozenset(n for n in nodes if _is_tagged(n))
    if tagged:
        return tagged
    outputs = [n for n in pytree.tree_leaves(_output(program.graph.graph).args) if isinstance(n, fx.Node)]
    wanted = [shape for name, shape in _wanting(program) if name]
    if len(wanted) < _FEWEST or [_shape(n) for n in outputs[-len(wanted) :]] != wanted:
        return frozenset()
    forward = _ancestors(outputs[: -len(wanted)])
    return frozenset(n for n in nodes if n.op in ("call_function", "call_method") and n not in forward)


def _is_tagged(node: fx.Node) -> bool:
    return bool(node.meta.get("autograd_backward")) or node.meta.get("partitioner_tag") == "is_backward"


def _output(graph: fx.Graph) -> fx.Node:
    found: fx.Node = next(n for n in reversed(graph.nodes) if n.op == "output")
    return found


def _shape(node: fx.Node) -> tuple[int | torch.SymInt, ...]:
    val = node.meta.get("val")
    return tuple(val.shape) if isinstance(val, Tensor) else ()


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    found, stack = set(nodes), list(nodes)
    while stack:
        for source in stack.pop().all_input_nodes:
            if source not in found:
                found.add(source)
                stack.append(source)
    return found


class JointRecorder(Recorder):
    """Records a graph with its backward pass: phases and forward links are those that the tracer noted."""

    def __init__(
        self, module: nn.Module, inputs: Mapping[str, Tensor], world: FakeWorld, backward: frozenset[fx.Node]
    ) -> None:
        """Know which nodes are backward."""
        super().__init__(module, inputs, world)
        self._backward = backward
        self._forward: dict[int, fx.Node] = {}
        self._sequence: int | None = None

    def enter(self, source: fx.Node) -> None:
        """Say which node of the graph runs next."""
        self.phase = Phase.BACKWARD if source in self._backward else Phase.FORWARD
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


__all__ = ["JointRecorder", "backward_nodes", "split_outputs"]
