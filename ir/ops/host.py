"""Tensors that leave the device for its host and come back, and the update that runs there."""

from __future__ import annotations

from collections.abc import Iterator

from ..sizes.expr import total
from .base import OpCall, OpClass, OpDef, Work, same_dims
from .optimizer import OptimizerAttrs, check_optimizer, work_optimizer
from .traits import Trait

DOWN, UP, UPDATE = "offload", "fetch", "host_optimizer_step"


def _check_copies(call: OpCall) -> Iterator[str]:
    if len(call.inputs) != len(call.outputs):
        yield f"makes one copy an input, has {len(call.inputs)} inputs and {len(call.outputs)} copies"
        return
    for source, copy in zip(call.inputs, call.outputs, strict=True):
        yield from same_dims(copy.dims, source.dims, "copy")


def _work_down(call: OpCall) -> Work:
    """Every tensor is read on the device and sent over the link once."""
    return Work(read_bytes=total(t.num_bytes for t in call.inputs))


def _work_up(call: OpCall) -> Work:
    """Every tensor comes over the link once and is written on the device."""
    return Work(write_bytes=total(t.num_bytes for t in call.outputs))


OPS = (
    OpDef(DOWN, OpClass.HOST, _work_down, "copies in host memory of tensors of the device, made together",
          _check_copies, num_outputs=None, traits=frozenset({Trait.SAME_VALUES, Trait.TO_HOST})),
    OpDef(UP, OpClass.HOST, _work_up, "copies on the device of tensors in host memory, made together",
          _check_copies, num_outputs=None, traits=frozenset({Trait.SAME_VALUES, Trait.FROM_HOST})),
    OpDef(UPDATE, OpClass.HOST, work_optimizer,
          "update of parameters by the host; inputs: parameters, then their gradients in host memory", check_optimizer,
          OptimizerAttrs, min_inputs=2, num_outputs=None, traits=frozenset({Trait.UPDATES})),
)  # fmt: skip
