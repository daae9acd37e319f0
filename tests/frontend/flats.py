"""Flat graphs of recorded modules, and what two of them must share to be the same computation."""

from __future__ import annotations

from collections import Counter

from torch import nn

from slipstick.frontend.aten.flat import Flat
from slipstick.frontend.aten.fx_import import import_fx
from slipstick.frontend.aten.table import HANDLERS
from slipstick.frontend.aten.tidy import tidy
from slipstick.frontend.fold.blocks import Identity
from slipstick.frontend.fold.trace import _language_model, _prepared, _Subject
from slipstick.frontend.record.adapter import FakeWorld
from slipstick.frontend.record.record import record
from slipstick.ir.graph import Node, Phase, Workload
from slipstick.ir.ops import OpClass, op_def
from slipstick.ir.types import DType


def recorded(module: nn.Module, workload: Workload = Workload.PREFILL, is_transformers: bool = False) -> Flat:
    """Record all of a module and return its tidy flat graph."""
    world = FakeWorld()
    plan = _language_model(workload, is_transformers)
    subject = _Subject(module, Identity("m", workload, DType.BF16), is_transformers, plan, HANDLERS)
    with _prepared(subject, world) as run:
        recording = record(module, run.inputs, run.call, world, workload is Workload.TRAIN)
        return tidy(import_fx(recording.graph, world, recording.results, recording.grads, HANDLERS))


def line(flat: Flat, node: Node) -> str:
    """Say what a node does to which types."""
    inputs = ", ".join(str(flat.values[i].type) for i in node.inputs)
    outputs = ", ".join(str(flat.values[o].type) for o in node.outputs)
    return f"{node.phase} {node.scope} {node.op} {node.attrs} ({inputs}) -> {outputs}"


def lines(flat: Flat) -> Counter[str]:
    """Count the calls of a graph: equal for equal work on equal types."""
    return Counter(line(flat, node) for node in flat.nodes)


def backward_calls(flat: Flat) -> Counter[str]:
    """Count the backward calls that do work: views and where they stand apart."""
    nodes = (n for n in flat.nodes if n.phase is Phase.BACKWARD and op_def(n.op).kind is not OpClass.FREE)
    return Counter(line(flat, n) for n in nodes)
