"""The update of parameters: Adam over master weights and two moments, each kept in a type of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ..records import dataclass
from ..sizes.expr import total
from ..types import DType
from .base import Attrs, OpCall, OpClass, OpDef, Work, same_dims
from .traits import Trait

# Bytes a value of a state, scales included. Of fp16 and fp8 one scale a tensor (TransformerEngine `FusedAdam`), of int8
# 4 bytes for 256 values (bitsandbytes, 8-bit optimizers).
STATE_BYTES: Mapping[str, float] = MappingProxyType(
    {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1 + 4 / 256, "none": 0}
)
_FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class OptimizerAttrs(Attrs):
    """Types of what Adam keeps: the master weight, `none` where weights themselves are updated, and both moments."""

    main: str = _FP32
    exp_avg: str = _FP32
    exp_avg_sq: str = _FP32


def attrs_of(attrs: Attrs) -> OptimizerAttrs:
    """Return the types that an update names, else those of mixed-precision Adam."""
    return attrs if isinstance(attrs, OptimizerAttrs) else OptimizerAttrs()


def optimizer_state_bytes(dtype: DType, kept: OptimizerAttrs | None = None) -> float:
    """Bytes a parameter that Adam keeps: two moments, and a master weight unless the weight is one.

    >>> optimizer_state_bytes(DType.BF16), optimizer_state_bytes(DType.FP32)
    (12, 8)
    >>> optimizer_state_bytes(DType.BF16, OptimizerAttrs("none", "int8", "int8"))
    2.03125
    """
    kept = kept or OptimizerAttrs()
    main = 0 if dtype is DType.FP32 else STATE_BYTES[kept.main]
    return main + STATE_BYTES[kept.exp_avg] + STATE_BYTES[kept.exp_avg_sq]


def check_optimizer(call: OpCall) -> Iterator[str]:
    """Complain unless each parameter has a gradient of its shape."""
    half, odd = divmod(len(call.inputs), 2)
    if odd:
        yield f"takes as many gradients as parameters, has {len(call.inputs)} inputs"
        return
    for param, grad in zip(call.inputs[:half], call.inputs[half:], strict=True):
        yield from same_dims(grad.dims, param.dims, "gradient and parameter")


def work_optimizer(call: OpCall) -> Work:
    """Adam on one shard: per element 14 FLOPs, its states read and written, plus gradient and weight.

    Inputs are the parameters, then their gradients. Read: gradient, both moments, the master weight or else the weight
    itself; write: both moments, master weight, parameter.
    """
    kept = attrs_of(call.attrs)
    half = len(call.inputs) // 2
    params, grads = call.inputs[:half], call.inputs[half:]
    numel = total(p.numel for p in params)
    states = total(p.numel * optimizer_state_bytes(p.dtype, kept) for p in params)
    weights = total(p.num_bytes for p in params)
    masters = total(p.num_bytes for p in params if p.dtype is DType.FP32 or kept.main == "none")
    return Work(
        vector_flops=numel * 14,
        read_bytes=total(g.num_bytes for g in grads) + states + masters,
        write_bytes=weights + states,
    )


OPS = (
    OpDef(
        "optimizer_step",
        OpClass.OPTIMIZER,
        work_optimizer,
        "update of parameters; inputs: parameters, then their gradients",
        check_optimizer,
        OptimizerAttrs,
        min_inputs=2,
        num_outputs=None,
        traits=frozenset({Trait.UPDATES}),
    ),
)
