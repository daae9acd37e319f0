"""Tensor types: dimensions that may be symbolic, and a dtype that knows its size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from .errors import UnknownNameError
from .records import dataclass
from .sizes.expr import Dim, Expr, as_dim, as_expr, product


class DType(StrEnum):
    """Element types, named as PyTorch users write them; those of more than one word, `mx*` and `nv*` come with scales.

    `fp8_row` has one scale a row, `fp8_block` one for 128 elements, `fp8_tile` one for 128 x 128, `int4_group` one for
    128; `mxfp8` and `mxfp4` have one for 32, `nvfp4` for 16.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP8_ROW = "fp8_row"
    FP8_BLOCK = "fp8_block"
    FP8_TILE = "fp8_tile"
    MXFP8 = "mxfp8"
    FP4 = "fp4"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    FP64 = "fp64"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    INT4 = "int4"
    INT4_GROUP = "int4_group"
    BOOL = "bool"
    COMPLEX64 = "complex64"

    @property
    def num_bytes(self) -> float:
        """Bytes of one element, with its share of scales that blocks have; half a byte for the 4-bit types."""
        return _BYTES[self]

    @property
    def is_floating(self) -> bool:
        """Whether values of this type carry gradients."""
        return self.value[:2] in ("fp", "bf", "tf", "co", "mx", "nv")

    @classmethod
    def parse(cls, text: str) -> DType:
        """Read a dtype by its short or PyTorch name; UnknownNameError names the nearest.

        >>> DType.parse("bfloat16")
        <DType.BF16: 'bf16'>
        """
        name = _ALIASES.get(text, text)
        if name not in cls._value2member_map_:
            raise UnknownNameError.of("dtype", text, [d.value for d in cls])
        return cls(name)


_ALIASES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
_BYTES = {
    DType.FP64: 8, DType.INT64: 8, DType.COMPLEX64: 8, DType.FP32: 4, DType.TF32: 4, DType.INT32: 4,
    DType.BF16: 2, DType.FP16: 2, DType.INT16: 2, DType.FP8: 1, DType.INT8: 1, DType.UINT8: 1, DType.BOOL: 1,
    DType.FP4: 0.5, DType.INT4: 0.5,
    # One scale a row is nothing; 4 bytes for 128 elements or their square, 1 for 32, 1 for 16; of int4 2 bytes for 128.
    DType.FP8_ROW: 1, DType.FP8_BLOCK: 1 + 4 / 128, DType.FP8_TILE: 1 + 4 / 128**2, DType.MXFP8: 1 + 1 / 32,
    DType.NVFP4: 0.5 + 1 / 16, DType.MXFP4: 0.5 + 1 / 32, DType.INT4_GROUP: 0.5 + 2 / 128,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorType:
    """A shape and an element type.

    >>> TensorType((2, 3), DType.BF16).num_bytes
    12
    """

    dims: tuple[Dim, ...]
    dtype: DType
    _numel: Expr | None = field(default=None, init=False, repr=False, compare=False)
    _num_bytes: Expr | None = field(default=None, init=False, repr=False, compare=False)
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Hash once: what is worked out of calls is kept under their types."""
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.dims, self.dtype)))
        assert self._hash is not None
        return self._hash

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.dims)

    @property
    def numel(self) -> Expr:
        """Number of elements."""
        if self._numel is None:
            object.__setattr__(self, "_numel", product(self.dims))
        assert self._numel is not None
        return self._numel

    def power(self, name: str) -> int:
        """Return how often a symbol is a factor of the shape: samples are one of pairs of samples twice."""
        factors = ([dict(m).get(name, 0) for m, _ in d.terms] for d in self.dims if isinstance(d, Expr))
        return sum(max(powers, default=0) for powers in factors)

    @property
    def num_bytes(self) -> Expr:
        """Bytes of the dense tensor."""
        if self._num_bytes is None:
            object.__setattr__(self, "_num_bytes", self.numel * self.dtype.num_bytes)
        assert self._num_bytes is not None
        return self._num_bytes

    def with_dims(self, dims: tuple[Dim, ...]) -> TensorType:
        """Return the same element type with other dims."""
        return TensorType(dims, self.dtype)

    def substitute(self, env: Mapping[str, Dim]) -> TensorType:
        """Replace symbols in every dim."""
        return self.with_dims(tuple(as_dim(as_expr(d).substitute(env)) for d in self.dims))

    def __str__(self) -> str:
        """Print as `bf16[batch, seq, 4096]`."""
        return f"{self.dtype}[{', '.join(str(d) for d in self.dims)}]"
