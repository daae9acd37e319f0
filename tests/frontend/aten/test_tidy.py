"""What eager PyTorch runs is in the graph, whether anybody reads it or not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import slipstick
from slipstick.frontend.aten.flat import Flat, NodeOrigin
from slipstick.frontend.aten.tidy import tidy
from slipstick.ir.graph import Phase, Role
from slipstick.ir.ops.tensors.layout import PermuteAttrs
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.sizes.expr import Dim, symbol
from slipstick.ir.types import DType, TensorType
from tests.frontend.sums import flops

BATCH, SEQ = symbol("batch"), symbol("seq")
Dims = tuple[Dim, ...]


def tensor(*dims: Dim) -> TensorType:
    return TensorType(dims, DType.BF16)


def linear(given: Dims, rows: Dims, out: Dims) -> tuple[str, list[str]]:
    """A linear layer as torch runs it: flatten, transpose the weight, multiply, unflatten; tidied."""
    flat = Flat()
    x = flat.value(tensor(*given), role=Role.INPUT, name="x")
    weight = flat.value(tensor(out[-1], given[-1]), role=Role.PARAM, name="w")
    (left,) = flat.emit("reshape", (x,), [(tensor(*rows), x)], NodeOrigin())
    (right,) = flat.emit(
        "permute", (weight,), [(tensor(given[-1], out[-1]), weight)], NodeOrigin(), PermuteAttrs((1, 0))
    )
    made = (*rows[:-1], out[-1])
    (y,) = flat.emit("matmul", (left, right), [(tensor(*made), None)], NodeOrigin(), MatmulAttrs("mk,kn->mn"))
    (z,) = flat.emit("reshape", (y,), [(tensor(*out), y)], NodeOrigin())
    flat.results = [z]
    tidied = tidy(flat)
    (product,) = (n for n in tidied.nodes if n.op == "matmul")
    assert isinstance(product.attrs, MatmulAttrs)
    assert tidied.values[tidied.results[0]].type == tensor(*out)
    return product.attrs.spec, [n.op for n in tidied.nodes]


@pytest.mark.parametrize(
    ("given", "rows", "out", "spec"),
    [
        ((BATCH, SEQ, 8), (BATCH * SEQ, 8), (BATCH, SEQ, 6), "abc,dc->abd"),
        # one token a sequence: the dim of size 1 stays where it was
        ((BATCH, 1, 8), (BATCH, 8), (BATCH, 1, 6), "abc,dc->abd"),
        ((1, SEQ, 8), (SEQ, 8), (1, SEQ, 6), "abc,dc->abd"),
        ((1, 1, 8), (1, 8), (1, 1, 6), "abc,dc->abd"),
    ],
)
def test_a_linear_layer_names_its_dims(given: Dims, rows: Dims, out: Dims, spec: str) -> None:
    assert linear(given, rows, out) == (spec, ["matmul"])


def weight_gradient(left: Dims, right: Dims) -> str:
    """`dy.T @ x` over flattened rows; tidied."""
    flat = Flat()
    dy = flat.value(tensor(*left), role=Role.INPUT, name="dy")
    x = flat.value(tensor(*right), role=Role.INPUT, name="x")
    rows = BATCH * SEQ
    (a,) = flat.emit("reshape", (dy,), [(tensor(rows, left[-1]), dy)], NodeOrigin())
    (b,) = flat.emit("reshape", (x,), [(tensor(rows, right[-1]), x)], NodeOrigin())
    (at,) = flat.emit("permute", (a,), [(tensor(left[-1], rows), dy)], NodeOrigin(), PermuteAttrs((1, 0)))
    (y,) = flat.emit("matmul", (at, b), [(tensor(left[-1], right[-1]), None)], NodeOrigin(), MatmulAttrs("mk,kn->mn"))
    flat.results = [y]
    (product,) = (n for n in tidy(flat).nodes if n.op == "matmul")
    assert isinstance(product.attrs, MatmulAttrs)
    return product.attrs.spec


def test_a_weight_gradient_sums_over_batch_and_sequence() -> None:
    assert weight_gradient((BATCH, SEQ, 6), (BATCH, SEQ, 8)) == "abc,abd->cd"


def test_operands_flattened_from_other_dims_stay_flat() -> None:
    # the same number of rows in another order of dims: they may not be named one by one
    assert weight_gradient((SEQ, BATCH, 6), (BATCH, SEQ, 8)) in ("ab,ac->bc", "ab,bc->ac")


WIDTH = 16


class Unread(nn.Module):
    """A layer whose result goes nowhere, as that of the last layer of a tower whose features come from before it."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.inner, self.unread = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return what one of three layers makes."""
        self.norm(self.unread(torch.relu(self.inner(x))))
        made: Tensor = self.read(x)
        return made


def test_products_that_nobody_reads_are_counted() -> None:
    graph = slipstick.trace(Unread(), torch.rand(4, WIDTH), dynamic={"x": ("batch",)}, phase="train")
    product = symbol("batch") * (2 * WIDTH * WIDTH)
    assert flops(graph) == 3 * product
    # Autograd sees one of them: its weight alone has a gradient, and the input needs none.
    assert flops(graph, Phase.BACKWARD) == product
    # The norm behind them is no product and goes, with its weight and bias.
    assert graph.num_parameters == 3 * WIDTH * WIDTH
