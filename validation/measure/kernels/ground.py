"""Where a kernel's tensors are made, and how large."""

from __future__ import annotations

import torch
from torch import Tensor

from ....ir.records import dataclass
from ....ir.types import DType, TensorType
from ..device import Device

HEAD_DIM = 64
VOCABULARY = 4096  # rows of the tables that are looked up in


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a kernel's tensors are made, and their sizes."""

    device: Device
    dtype: DType
    rows: int
    cols: int

    def leaf(self, *sizes: int) -> Tensor:
        """Return a tensor that wants a gradient: as activations and weights do in training."""
        return self.device.random(self.dtype, *sizes).requires_grad_()

    def full(self) -> Tensor:
        """Return a tensor of all rows and columns that wants a gradient."""
        return self.leaf(self.rows, self.cols)

    def indices(self, below: int) -> Tensor:
        """Return one index a row."""
        return torch.randint(below, (self.rows,), device=self.device.kind)

    def kind(self, *sizes: int, dtype: DType | None = None) -> TensorType:
        """Return the type of a tensor as a graph has it."""
        return TensorType(sizes, dtype or self.dtype)
