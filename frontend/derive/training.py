"""A forward graph to the training graph: the loss on its logits, then the rules of its nodes in reverse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.errors import TraceError, UnsupportedOpError
from ...ir.graph import NO_ATTRS, Node, Phase, Role, Value
from ...ir.ops import Trait, has
from ...ir.ops.tensors.pointwise import FillAttrs
from ...ir.types import DType, TensorType
from ..aten.flat import Flat
from ..aten.tidy import tidy
from . import kernels, pointwise, views
from .tape import Grads, Rule, Tape

RULES: Mapping[str, Rule] = {**views.RULES, **pointwise.RULES, **kernels.RULES}


def forward_of(flat: Flat) -> Flat:
    """Return the forward nodes of a graph alone, with the results they make."""
    nodes = [n for n in flat.nodes if n.phase is Phase.FORWARD]
    made = {o for n in nodes for o in n.outputs}
    values = {i: v for i, v in flat.values.items() if v.role is not Role.RESULT or i in made}
    results = [i for i in flat.results if i in values]
    return Flat(values, nodes, results, {}, dict(flat.renamed), flat.said)


def training(flat: Flat) -> Flat:
    """Return the tidy training graph of a forward graph: the loss, its gradients, and those of every parameter.

    The first result is the loss when it is a scalar, else logits [.., vocab] whose mean cross-entropy with `labels`
    (an input) is the loss; further results are dropped. UnsupportedOpError names an op that has no backward rule.
    """
    if any(n.phase is not Phase.FORWARD for n in flat.nodes):
        raise TraceError("the graph has backward nodes already")
    flat = tidy(_without_cache(replace(flat, results=flat.results[:1])))
    flat = _with_loss(replace(flat, values=_own_storages(flat), nodes=list(flat.nodes)))
    (loss,) = flat.results
    tape = Tape.over(flat, views.partitions(flat.nodes, {i: v.type for i, v in flat.values.items()}))
    if loss not in tape.needs:
        raise TraceError("no parameter leads to the loss: there is nothing to train")
    forward = list(flat.nodes)
    (tape.grads[loss],) = tape.emit("fill", (), [tape.type(loss)], FillAttrs("ones"))
    for node in reversed(forward):
        _backward(tape, node)
    params = (v.id for v in flat.values.values() if v.role is Role.PARAM)
    flat.grads = {p: tape.grads[p] for p in params if p in tape.grads}
    return tidy(flat)


def _backward(tape: Tape, node: Node) -> None:
    given = tuple(tape.grads.get(o) for o in node.outputs)
    if all(g is None for g in given) and not _is_first_of_parts(tape, node):
        return
    if not tape.needs.intersection(node.inputs):
        return
    if node.op not in RULES:
        known = ", ".join(sorted(RULES))
        raise UnsupportedOpError(f"no backward rule for '{node.op}' (in '{node.scope}'); there is one for {known}")
    tape.stand_at(node)
    RULES[node.op](tape, node, Grads(node, given))


def _is_first_of_parts(tape: Tape, node: Node) -> bool:
    """Whether other parts of the same tensor wait for this one, the first, though it has no gradient itself."""
    parts = tape.siblings.get(node.key, ())
    return bool(parts) and parts[0].key == node.key and any(p.key in tape.grads for p in parts)


def _with_loss(flat: Flat) -> Flat:
    """Put the mean cross-entropy, in fp32, behind logits; a scalar is the loss itself."""
    if not flat.results:
        raise TraceError("the graph has no result to train on")
    kind = flat.values[flat.results[0]].type
    if kind.rank == 0:
        return flat
    if kind.rank < 2 or not kind.dtype.is_floating:
        raise TraceError(f"the first result is {kind}; logits are [.., vocab] in a floating type, a loss has no dims")
    tape = Tape.over(flat, {})
    logits = flat.results[0]
    if kind.dtype is not DType.FP32:
        (logits,) = tape.emit("cast", (logits,), [TensorType(kind.dims, DType.FP32)])
    labels = tape.input(TensorType(kind.dims[:-1], DType.INT64), "labels")
    kinds = [TensorType((), DType.FP32), TensorType((*kind.dims[:-1], 3), DType.FP32)]
    loss, _ = tape.emit("cross_entropy", (logits, labels), kinds)
    nodes = [replace(n, phase=Phase.FORWARD) for n in flat.nodes]
    return replace(flat, nodes=nodes, results=[loss])


def _without_cache(flat: Flat) -> Flat:
    """Training keeps no cache: what is written behind an empty one is read as it is, and no state stays."""
    nodes: list[Node] = []
    for node in flat.nodes:
        if has(node, Trait.APPENDS) and len(node.inputs) > 1:
            raise TraceError(f"training has no cache, '{node.scope}' appends to one: take a graph without past inputs")
        if has(node, Trait.APPENDS):
            nodes.append(replace(node, op="identity", attrs=NO_ATTRS))
        elif not has(node, Trait.WRITES_CACHE):
            nodes.append(node)
    return replace(flat, nodes=nodes)


def _own_storages(flat: Flat) -> dict[int, Value]:
    """Only views share storage: what was written in place is a tensor of its own when backward reads the old one."""
    values = dict(flat.values)
    for node in flat.nodes:
        for o in node.outputs:
            storage = values[node.inputs[0]].storage if has(node, Trait.VIEW, Trait.RENAMES) else o
            values[o] = replace(values[o], storage=storage)
    return values
