"""Nets over pictures from ONNX files train: their backward pass has the products that autograd has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.flop_counter import FlopCounterMode

from slipstick.frontend.onnx import load_onnx
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import work_of

from .conftest import Writer

BATCH, SIDE, WIDE, CLASSES = 2, 32, 8, 10
Saved = Callable[[onnx.ModelProto], Path]


class Block(nn.Module):
    """What the file holds, in torch: a stem, a pool, a block with a skip, a way up, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, WIDE, 7, 2, 3), nn.BatchNorm2d(WIDE)
        self.first = nn.Conv2d(WIDE, WIDE, 3, padding=1, bias=False)
        self.apart = nn.Conv2d(WIDE, WIDE, 3, padding=1, groups=WIDE, bias=False)
        self.up = nn.ConvTranspose2d(WIDE, WIDE, 2, 2)
        self.head = nn.Linear(WIDE, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        x = F.relu(x + self.apart(F.relu(self.first(x))))
        x = F.interpolate(self.up(x), scale_factor=2.0)
        logits: torch.Tensor = self.head(F.avg_pool2d(x, 2).mean((2, 3)))
        return logits


def test_a_residual_net_trains_with_the_flops_of_autograd(writer: Writer, saved: Saved) -> None:
    graph = load_onnx(saved(_file(writer)), "train", {"batch": "batch"})
    with FlopCounterMode(display=False) as counter:
        net = Block()
        logits = net(torch.zeros(BATCH, 3, SIDE, SIDE))
        loss: torch.Tensor = F.cross_entropy(logits, torch.zeros(BATCH, dtype=torch.int64))
        torch.autograd.backward(loss)
    # The counter takes the gradient of a grouped weight for that of one group, here eight times its products.
    apart = 2 * BATCH * WIDE * (SIDE // 4) ** 2 * 9
    counted = counter.get_total_flops() - (WIDE - 1) * apart
    assert _flops(graph, Phase.FORWARD) + _flops(graph, Phase.BACKWARD) == pytest.approx(counted)
    region = graph.regions[0]
    shapes = {str(region.values[v].type) for n in region.nodes if n.phase is Phase.BACKWARD for v in n.outputs}
    assert f"fp32[batch, {WIDE}, 16, 16]" in shapes  # in front of the pool
    assert float(graph.num_parameters.evaluate({})) == sum(p.numel() for p in net.parameters()) + 2 * WIDE


def _flops(graph: Graph, phase: Phase) -> float:
    """Of products and convolutions, those of one channel each too, which run on the vector unit."""
    found = 0.0
    for region in graph.regions:
        for node in region.nodes:
            if node.phase is phase and node.op in ("matmul", "conv", "conv_bwd"):
                work = work_of(region, node)
                depthwise = work.vector_flops if not work.gemms else 0
                found += float((work.tensor_flops + depthwise).evaluate({"batch": BATCH}))
    return found


def _file(w: Writer) -> onnx.ModelProto:
    x = w.input("x", ("batch", 3, SIDE, SIDE))
    x = w.node(
        "Conv", [x, w.weight("stem", (WIDE, 3, 7, 7)), w.weight("stem_bias", (WIDE,))], strides=[2, 2], pads=[3] * 4
    )
    x = w.node("BatchNormalization", [x, *(w.weight(f"norm{i}", (WIDE,)) for i in range(4))])
    x = w.node("MaxPool", [w.node("Relu", [x])], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = w.node("Relu", [w.node("Conv", [x, w.weight("first", (WIDE, WIDE, 3, 3))], pads=[1] * 4)])
    y = w.node("Conv", [y, w.weight("apart", (WIDE, 1, 3, 3))], pads=[1] * 4, group=WIDE)
    x = w.node("Relu", [w.node("Add", [x, y])])
    x = w.node("ConvTranspose", [x, w.weight("up", (WIDE, WIDE, 2, 2)), w.weight("up_bias", (WIDE,))], strides=[2, 2])
    x = w.node("Resize", [x, "", w.floats("factors", (1, 1, 2, 2))])
    x = w.node("AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = w.node("Flatten", [w.node("GlobalAveragePool", [x])])
    return w.model(w.node("Gemm", [x, w.weight("head", (CLASSES, WIDE)), w.weight("bias", (CLASSES,))], transB=1))
