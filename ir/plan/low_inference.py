"""Recipes of low precision in inference: how weights rest, in which type products run, how keys and values are kept."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..records import dataclass
from ..types import DType

SAME = "same"
# The recipe that a model was published in, which depends on its config and on the chip.
AS_PUBLISHED = "as-published"
# What makes the operand of a product and can write it in low precision. Of attention only kernels for scales that are
# known before, or that hold for 16 elements, are in use (vLLM, `compilation/fusion_attn.py`).
_ROWS = frozenset(("norm", "elementwise", "dispatch"))
_ALL = _ROWS | {"attention"}


@dataclass(frozen=True, slots=True)
class ServingRecipe:
    """How one recipe keeps weights and multiplies.

    Attributes:
        weights: the type in which weights rest and are read.
        operands: the type to which activations are cast; None where they stay, and weights are widened in the product.
        unit: dtype of the matrix units that a chip must have; empty where those of the model's type do.
        makers: ops whose kernels can write their result cast.
        static: scales are known before, and those kernels always do so; else only hand-fused ones do.
        experts: only banks of experts are quantised.
        doc: whose recipe it is.
    """

    weights: DType
    operands: DType | None
    unit: str = ""
    makers: frozenset[str] = _ROWS
    static: bool = False
    experts: bool = False
    doc: str = ""

    def makers_of(self, fused: bool) -> frozenset[str]:
        """Name the ops that write their result cast where kernels are fused, or are not."""
        return self.makers if fused or self.static else frozenset()


INFERENCE: Mapping[str, ServingRecipe] = MappingProxyType(
    {
        "fp8": ServingRecipe(
            DType.FP8, DType.FP8, "fp8", _ALL, static=True, doc="one scale a tensor, of activations too"
        ),
        "fp8-rowwise": ServingRecipe(
            DType.FP8_ROW, DType.FP8_ROW, "fp8", doc="one scale a token and an output channel"
        ),
        "fp8-block": ServingRecipe(DType.FP8_TILE, DType.FP8_BLOCK, "fp8", doc="scales of 1 x 128, weights 128 x 128"),
        "mxfp8": ServingRecipe(DType.MXFP8, DType.MXFP8, "fp8", doc="scales of 32 elements"),
        "nvfp4": ServingRecipe(DType.NVFP4, DType.NVFP4, "fp4", _ALL, doc="scales of 16 elements and one a tensor"),
        "int8": ServingRecipe(
            DType.INT8, DType.INT8, "int8", doc="weights and activations, one scale a channel or token"
        ),
        "w8a16": ServingRecipe(DType.INT8, None, doc="int8 or fp8 weights alone, one scale a channel"),
        "w4a16": ServingRecipe(DType.INT4_GROUP, None, doc="int4 weights alone, groups of 128: AWQ, GPTQ"),
        "mxfp4": ServingRecipe(DType.MXFP4, None, experts=True, doc="MXFP4 weights of experts alone: gpt-oss"),
        "mxfp4-mxfp8": ServingRecipe(
            DType.MXFP4, DType.MXFP8, "fp4", experts=True, doc="the same, activations in MXFP8"
        ),
    }
)
# Types of the KV cache: one scale a tensor, as vLLM and TensorRT-LLM have it; fp4 in blocks of 16, as TensorRT-LLM.
KV_DTYPES: Mapping[str, DType] = MappingProxyType({"fp8": DType.FP8, "int8": DType.INT8, "fp4": DType.NVFP4})
KV_WORDS = (SAME, *KV_DTYPES)
