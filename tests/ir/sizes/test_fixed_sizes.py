"""The batch of a graph: rows of its first input, unless the graph is known to hold for another number of samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import slipstick
from slipstick.ir.errors import UsageError
from slipstick.ir.graph import LengthBound
from slipstick.ir.sizes.fixed_sizes import check_bounds, fixed_sizes


def test_patches_of_one_picture_are_no_batch() -> None:
    """784 rows of a packed picture belong to one sample: a plan of micro-batch 1 is legal, of 784 is not."""
    graph = slipstick.trace(nn.Linear(48, 8), torch.rand(784, 48), dynamic={}, phase="prefill")
    assert fixed_sizes(graph) == (784, None)
    packed = replace(graph, bounds=(LengthBound("batch", 1, 1),))
    assert fixed_sizes(packed) == (1, None)
    check_bounds(packed, {"batch": 1})
    with pytest.raises(UsageError, match="batch = 1, not for 784"):
        check_bounds(packed, {"batch": 784})
