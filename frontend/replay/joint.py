"""The two ends of a run of a program, and graphs that hold their backward pass already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ...ir.errors import TraceError
from ...ir.graph import Phase
from ..loss import loss_of
from ..record.adapter import FakeWorld
from ..record.record import Recorder, Tensors
from .program import FixedInput, HeldInput, ReplayProgram, SizeInput, TensorInput
from .sizes import KV, Naming

_FEWEST = 2  # so many results must have the shapes of all parameters, to be taken for their gradients


def backward_nodes(program: ReplayProgram) -> frozenset[fx.Node]:
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
    program: ReplayProgram, found: Sequence[Tensor], recorder: Recorder
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


def _wanting(program: ReplayProgram) -> list[tuple[str, tuple[int, ...]]]:
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


LABELS = "labels"


def arguments(
    program: ReplayProgram, world: FakeWorld, naming: Naming, hints: Mapping[str, int]
) -> tuple[list[object], dict[str, Tensor]]:
    """Return what the graph is called with, in order, and the tensors among it that are inputs, by name."""
    held = {
        **dict(program.root.named_parameters(remove_duplicate=False)),
        **dict(program.root.named_buffers(remove_duplicate=False)),
    }
    # Inputs [batch, heads, kv, dim] are the cache, keys and values of one layer after the other.
    found = [t.name for t in program.tensors if len(t.dims) == 4 and _is_cache(t, naming)]
    sides = ("keys", "values")
    if len(found) > 1 and all("value" in n or n.startswith("v") for n in found[len(found) // 2 :]):
        half = len(found) // 2
        found = [n for pair in zip(found[:half], found[half:], strict=True) for n in pair]
    caches = {name: f"cache.{k // 2}.{sides[k % 2]}" for k, name in enumerate(found)}
    args: list[object] = []
    inputs: dict[str, Tensor] = {}
    for source in program.sources:
        if isinstance(source, HeldInput):
            args.append(held[source.path])
        elif isinstance(source, SizeInput):
            args.append(world.evaluated(naming.dim(source.value), hints))
        elif isinstance(source, FixedInput):
            args.append(source.value)
        else:
            made = world.sized(naming.dims(source), source.dtype, hints)
            inputs[caches.get(source.name, source.name)] = made
            args.append(made)
    return args, inputs


def _is_cache(given: TensorInput, naming: Naming) -> bool:
    length = naming.dims(given)[2]
    return given.dtype.is_floating_point and not isinstance(length, int) and KV in length.symbols


def labels_for(program: ReplayProgram, world: FakeWorld, naming: Naming, hints: Mapping[str, int]) -> Tensor:
    """Return the labels of a training step: one for each position of the first input of two dims."""
    first = next((t for t in program.tensors if len(t.dims) > 1), None)
    if first is None:
        raise TraceError(f"'{program.name}' is given no tensor of two dims, so there is nothing to train on")
    return world.sized(naming.dims(first)[:2], torch.int64, hints)


def tensors_of(out: object, program: ReplayProgram) -> Tensors:
    """Return the tensors among what the caller gets, each once; TraceError when there is none."""
    leaves = pytree.tree_leaves(out)
    chosen = leaves if program.outputs is None else [leaves[i] for i in program.outputs]
    found = tuple(dict.fromkeys(t for t in chosen if isinstance(t, Tensor)))
    if not found:
        raise TraceError(f"'{program.name}' returns no tensor")
    return found


def loss_among(found: Tensors, labels: Tensor) -> Tensor:
    """Return the scalar among the results that can be trained on, else the loss of the first one as logits."""
    scalar = next((t for t in found if t.dim() == 0 and t.requires_grad), None)
    return loss_of(found[0] if scalar is None else scalar, labels)


def of_results(root: nn.Module, results: Tensors, inputs: Tensors) -> tuple[Tensors, Mapping[str, Tensor]]:
    """Take the gradients for all parameters and for inputs, which leave the graph, given those of the results."""
    trained = [t for t in results if t.requires_grad]
    named = {n: p for n, p in root.named_parameters() if p.requires_grad}
    if not trained:
        return results, {}
    seeds = [torch.empty_like(t) for t in trained]
    grads = torch.autograd.grad(trained, [*named.values(), *inputs], seeds, allow_unused=True)
    passed_on = tuple(g for g in grads[len(named) :] if g is not None)
    return (*results, *passed_on), {n: g for n, g in zip(named, grads, strict=False) if g is not None}
