"""Backward of operators that are one kernel each way: attention, experts, norms, rotations, the loss."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.graph import Node
from .rule import Grads, Rule
from .tape import Tape


def attention(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of queries, keys and values, then of what else the scores were made with and can be learned."""
    q, k, v, *extras = node.inputs
    learned = [i for i in extras if i in tape.needs]
    inputs = (grads.first, q, k, v, *node.outputs, *extras)
    given = (q, k, v, *learned)
    outs = tape.emit("attention_bwd", inputs, [tape.type(i) for i in given], node.attrs)
    for value, grad in zip(given, outs, strict=True):
        tape.give(value, grad)


def experts(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of tokens, routing weights, both banks and their biases."""
    x, idx, weights, up, down, *biases = node.inputs
    inputs = (grads.first, x, idx, weights, up, down, *node.outputs[1:])
    given = (x, weights, up, down, *biases)
    outs = tape.emit("experts_bwd", inputs, [tape.type(i) for i in given], node.attrs)
    for value, grad in zip(given, outs, strict=True):
        tape.give(value, grad)


def norm(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of x, weight and bias from the row statistics that the forward node kept."""
    x, *weights = node.inputs
    inputs = (grads.first, x, *node.outputs[1:], *weights[:1])
    outs = tape.emit("norm_bwd", inputs, [tape.type(i) for i in node.inputs], node.attrs)
    for value, grad in zip(node.inputs, outs, strict=True):
        tape.give(value, grad)


def rope(tape: Tape, node: Node, grads: Grads) -> None:
    """The turn back; tables are no parameters."""
    x, cos, sin = node.inputs
    tape.give(x, tape.emit("rope_bwd", (grads.first, cos, sin), [tape.type(x)])[0])


def cross_entropy(tape: Tape, node: Node, grads: Grads) -> None:
    """The gradient of logits from the row statistics that the forward node kept."""
    logits, target = node.inputs
    inputs = (grads.first, logits, target, node.outputs[1])
    tape.give(logits, tape.emit("cross_entropy_bwd", inputs, [tape.type(logits)])[0])


RULES: Mapping[str, Rule] = {
    "attention": attention, "experts": experts, "norm": norm, "rope": rope, "cross_entropy": cross_entropy,
}  # fmt: skip
