"""Row-wise kernels: elementwise ops, norms, softmax, rotary embedding, lookups and the loss, in both directions.

What a traced graph holds as one node runs as several kernels here: a norm as HuggingFace's LlamaRMSNorm writes it, the
rotary embedding as its `apply_rotary_pos_emb`. So one row is one node, with the bytes that the graph counts for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from ....frontend.record.dtypes import torch_dtype
from ....ir.ops import OpCall, op_def
from ....ir.records import dataclass
from ....ir.sizes.expr import as_expr
from ....ir.types import DType
from ..device import Device
from . import eager, nodes
from .cold import cold
from .ground import VOCABULARY, Ground
from .probe import Call, Probe

FULL = tuple((rows, cols) for rows in (64, 192, 384, 768, 1536) for cols in (384, 768, 1536, 3072))
QUICK = ((8, 64), (64, 256), (128, 768), (384, 1536))
LARGE = tuple((rows, cols) for rows in (64, 512, 2048, 8192) for cols in (2048, 4096, 8192, 14336))
# Rows of the loss are longer: a vocabulary each.
LOSS_FULL = tuple((rows, cols) for rows in (64, 192, 384, 768) for cols in (4096, 12288, 24576))
LOSS_QUICK = ((64, 1024), (128, 4096))
LOSS_LARGE = tuple((rows, cols) for rows in (512, 2048, 8192) for cols in (32000, 128256))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kind of node: how eager code runs it, and the nodes that a graph has for both directions.

    `looks_up` says that it holds a table of which it reads a few rows.
    """

    build: eager.Build
    forward: nodes.Node
    backward: nodes.Node | None = None
    looks_up: bool = False

    def held_bytes(self, at: Ground, moved: float) -> float:
        """Bytes that the operands of one call take."""
        return moved + (VOCABULARY * at.cols * torch_dtype(at.dtype).itemsize if self.looks_up else 0.0)


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def _column_sums(x: Tensor) -> Tensor:
    return x.sum(dim=0)


def _plain(build: eager.Build, fn: str, num_inputs: int = 1, backward: str = "") -> Kernel:
    again = nodes.pointwise(backward, 2) if backward else None
    return Kernel(build, nodes.pointwise(fn, num_inputs), again)


KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        "add": _plain(eager.binary(torch.add), "add", 2),
        "mul": _plain(eager.binary(torch.mul), "mul", 2),
        "silu": _plain(eager.unary(F.silu), "silu", 1, "silu_bwd"),
        "gelu": _plain(eager.unary(F.gelu), "gelu", 1, "gelu_bwd"),
        "rmsnorm": Kernel(eager.rms, *nodes.norm("rms")),
        "layernorm": Kernel(eager.layer, *nodes.norm("layer")),
        "rope": Kernel(eager.rope, nodes.rope("rope"), nodes.rope("rope_bwd")),
        "softmax": Kernel(eager.unary(_softmax), nodes.softmax("softmax", 1), nodes.softmax("softmax_bwd", 2)),
        "embedding": Kernel(eager.embedding, nodes.embedding, nodes.embedding_bwd, looks_up=True),
        "loss": Kernel(eager.loss, nodes.loss, nodes.loss_bwd),
        "reduce": Kernel(eager.unary(_column_sums), nodes.reduce),
        "copy": Kernel(eager.unary(torch.clone), nodes.copy),
    }
)


def rowwise_probes(device: Device, dtype: DType, quick: bool) -> Iterator[Probe]:
    """Yield every kind in both directions over a grid of rows and columns."""
    for name, kernel in KERNELS.items():
        few, full, large = (LOSS_QUICK, LOSS_FULL, LOSS_LARGE) if name == "loss" else (QUICK, FULL, LARGE)
        for rows, cols in device.sizes(quick, few, full, large):
            at = Ground(device, dtype, rows, cols)
            yield _forward(name, kernel, at)
            if kernel.backward is not None:
                yield _backward(name, kernel, kernel.backward(at), at)


def _forward(name: str, kernel: Kernel, at: Ground) -> Probe:
    def one() -> Call:
        call, _ = kernel.build(at)
        return call

    return _probe(name, kernel, at, kernel.forward(at), one)


def _backward(name: str, kernel: Kernel, node: OpCall, at: Ground) -> Probe:
    def one() -> Call:
        call, leaves = kernel.build(at)
        out = call()
        dy = torch.ones_like(out)
        return lambda: torch.autograd.grad(out, leaves, dy, retain_graph=True)

    return _probe(f"{name}_bwd", kernel, at, node, one)


def _probe(name: str, kernel: Kernel, at: Ground, node: OpCall, one: Callable[[], Call]) -> Probe:
    moved = float(as_expr(op_def(node.op).work(node).num_bytes).evaluate({}))
    held = kernel.held_bytes(at, moved)
    cells: dict[str, str | int | float] = {
        "op": name,
        "dtype": at.dtype.value,
        "rows": at.rows,
        "cols": at.cols,
        "n_elements": at.rows * at.cols,
        "bytes_moved_min": int(moved),
    }
    return Probe(
        "elementwise", f"{at.dtype.value}_{name}_{at.rows}_{at.cols}", cells, lambda: cold(one, held, at.device)
    )
