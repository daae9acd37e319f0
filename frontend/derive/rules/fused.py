"""Backward of operators that are one kernel each way: attention, experts, norms, rotations, the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....ir.graph import Node
from ....ir.ops.fused.scan import ScanAttrs, ScanBwdAttrs
from ....ir.ops.tensors.conv import ConvAttrs
from ..rule import Grads, Rule
from ..tape import Tape


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


def scan(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of the values and of all that is read with them; a state to begin with is no parameter."""
    attrs = node.attrs
    assert isinstance(attrs, ScanAttrs)
    given = node.inputs[:-1] if attrs.has_state else node.inputs
    back = ScanBwdAttrs(attrs.kind, attrs.chunk, attrs.has_state, tape.type(node.outputs[1]).dims[2])
    outs = tape.emit("scan_bwd", (grads.first, *node.inputs), [tape.type(i) for i in given], back)
    for value, grad in zip(given, outs, strict=True):
        tape.give(value, grad)


def conv(tape: Tape, node: Node, grads: Grads) -> None:
    """Gradients of x, weight and bias; what an activation in the kernel had before it is made again."""
    attrs = node.attrs
    assert isinstance(attrs, ConvAttrs)
    given = node.inputs[:-1] if attrs.has_state else node.inputs
    wanted = given if attrs.causal else tuple(i for i in given if i in tape.needs)
    read = given if attrs.causal else given[:2]
    outs = tape.emit("conv_bwd", (grads.first, *read), [tape.type(i) for i in wanted], replace(attrs, has_state=False))
    for value, grad in zip(wanted, outs, strict=True):
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
    "attention": attention, "experts": experts, "norm": norm, "scan": scan, "conv": conv, "rope": rope,
    "cross_entropy": cross_entropy,
}  # fmt: skip
