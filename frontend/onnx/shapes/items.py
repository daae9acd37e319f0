"""What an ONNX name stands for: a typed tensor, its numbers where they are known, and ranges of symbolic length."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from ....ir.errors import NotUnderstoodError
from ....ir.records import dataclass
from ....ir.sizes.expr import Dim, Expr, as_dim, as_expr
from ....ir.types import DType, TensorType
from .symbols import MAX_DIM

Number: TypeAlias = int | float | bool | Expr


@dataclass(frozen=True, slots=True)
class Affine:
    """start + the sum of steps[axis] * index[axis]; flags and what a dim of size one holds have no steps."""

    start: Number
    steps: tuple[Dim, ...]

    @property
    def is_uniform(self) -> bool:
        """Whether it is one number everywhere."""
        return all(s == 0 for s in self.steps)

    def widened(self, rank: int) -> Affine:
        """Return the same with dims of size one in front.

        >>> Affine(3, (1,)).widened(2).steps
        (0, 1)
        """
        return Affine(self.start, (0,) * (rank - len(self.steps)) + self.steps)

    def scaled(self, factor: Dim) -> Affine:
        """Return a multiple.

        >>> Affine(3, (0, 1)).scaled(2)
        Affine(start=6, steps=(0, 2))
        """
        return Affine(times(self.start, factor), tuple(times(s, factor) for s in self.steps))

    def plus(self, other: Affine, sign: int = 1) -> Affine:
        """Return the sum with another of the same rank, or with sign = -1 the difference.

        >>> Affine(3, (0, 1)).plus(Affine(2, (0, 1)), -1)
        Affine(start=1, steps=(0, 0))
        """
        pairs = zip(self.steps, other.steps, strict=True)
        return Affine(moved(self.start, other.start, sign), tuple(moved(a, b, sign) for a, b in pairs))

    def within(self, dims: tuple[Dim, ...]) -> Affine:
        """Return the same without steps along dims of size one."""
        return Affine(self.start, tuple(0 if d == 1 else s for d, s in zip(dims, self.steps, strict=True)))


@dataclass(frozen=True, slots=True)
class Joined:
    """Ranges side by side along a last dim, as lookups at several places are written; `parts` lack that dim."""

    parts: tuple[Affine, ...]


Pattern: TypeAlias = Affine | Joined


def whole(n: Number) -> Dim:
    """Return a number as a size; NotUnderstoodError for one with a fraction."""
    if isinstance(n, float):
        raise NotUnderstoodError(f"{n} where a whole number is needed")
    return n if isinstance(n, Expr) else int(n)


def times(a: Number, factor: Dim) -> Dim:
    """Return a product; NotUnderstoodError for one that ONNX's numbers do not hold."""
    return bounded(as_dim(as_expr(whole(a)) * factor))


def bounded(n: Dim) -> Dim:
    """Return a number; NotUnderstoodError where it needs more than 64 bits, or a symbolic one too many terms.

    >>> bounded(4096)
    4096
    """
    if (len(n.terms) > MAX_TERMS) if isinstance(n, Expr) else abs(n) >= 1 << 64:
        raise NotUnderstoodError("a size of more than 64 bits, or of more than 64 terms")
    return n


def moved(a: Number, by: Number, sign: int = 1) -> Dim:
    """Return a sum, or with sign = -1 a difference."""
    return as_dim(as_expr(whole(a)) + as_expr(whole(by)) * sign)


# Numbers, flags and symbolic sizes, kept as Python objects: an object array slices, joins and broadcasts.
Content: TypeAlias = NDArray[np.object_]
MAX_CONTENT = 4096
# Of a symbolic number: the largest of published models have a handful.
MAX_TERMS = 64
# Factors a dim and the borders of a region, of pictures and volumes: longer lists are weights.
FEW_FLOATS = 10
MAX_RANK = 12

DTYPES = {
    TensorProto.FLOAT: DType.FP32, TensorProto.FLOAT16: DType.FP16, TensorProto.BFLOAT16: DType.BF16,
    TensorProto.DOUBLE: DType.FP64, TensorProto.INT64: DType.INT64, TensorProto.INT32: DType.INT32,
    TensorProto.INT16: DType.INT16, TensorProto.INT8: DType.INT8, TensorProto.UINT8: DType.UINT8,
    TensorProto.UINT16: DType.INT16, TensorProto.UINT32: DType.INT32, TensorProto.UINT64: DType.INT64,
    TensorProto.BOOL: DType.BOOL, TensorProto.FLOAT8E4M3FN: DType.FP8, TensorProto.FLOAT8E4M3FNUZ: DType.FP8,
    TensorProto.FLOAT8E5M2: DType.FP8, TensorProto.FLOAT8E5M2FNUZ: DType.FP8, TensorProto.INT4: DType.INT4,
    TensorProto.UINT4: DType.INT4, TensorProto.FLOAT4E2M1: DType.FP4, TensorProto.COMPLEX64: DType.COMPLEX64,
    TensorProto.FLOAT8E8M0: DType.UINT8,
}  # fmt: skip
# An element type of ONNX for each of ours; of several that we do not tell apart the first.
ELEMENTS = {dtype: element for element, dtype in reversed(DTYPES.items())}


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight that rests in low precision: where its numbers are, and its scales and zero points.

    `dims` and `dtype` are what the weight holds, whatever its bytes look like; `turned`: it is seen transposed.
    """

    weight: Item
    scales: tuple[Item, ...]
    dims: tuple[Dim, ...]
    dtype: DType
    turned: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A tensor. `value` is its place in the flat graph; None for what is only known, or not used yet.

    `content` are its numbers; `stored` names the initializer it is; `packed` says that it is a weight widened;
    `pattern` says what is known of its numbers though its size is a symbol; `parts` are the tensors of a sequence.
    """

    type: TensorType
    value: int | None = None
    content: Content | None = None
    stored: str = ""
    packed: Packed | None = None
    pattern: Pattern | None = None
    parts: tuple[Item, ...] | None = None

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dims."""
        return self.type.dims

    @property
    def is_scalar(self) -> bool:
        """Whether it is one known number."""
        return self.content is not None and self.content.size == 1


def dtype_of(code: int, what: str) -> DType:
    """Return the dtype of an ONNX element type; NotUnderstoodError for strings and what is not known."""
    found = DTYPES.get(code)  # type: ignore[call-overload]
    if not isinstance(found, DType):
        names = {v: k for k, v in TensorProto.DataType.items()}
        raise NotUnderstoodError(f"{what} has the element type {names.get(code, code)}, which is not a number's")
    return found


def checked_dims(dims: tuple[Dim, ...], what: str) -> tuple[Dim, ...]:
    """Return the dims; NotUnderstoodError for negative or absurd ones."""
    if len(dims) > MAX_RANK:
        raise NotUnderstoodError(f"{what} has {len(dims)} dims; {MAX_RANK} at most")
    for d in dims:
        if isinstance(d, int) and not 0 <= d <= MAX_DIM:
            raise NotUnderstoodError(f"{what} has a dim of {d}; 0 to {MAX_DIM}")
    return dims


def stored_item(tensor: onnx.TensorProto, most_floats: int = FEW_FLOATS) -> Item:
    """Return an initializer, its numbers read only where they are few: integers, flags, factors of a resize."""
    what = f"initializer '{tensor.name}'"
    kind = TensorType(checked_dims(tuple(tensor.dims), what), dtype_of(tensor.data_type, what))
    return Item(kind, content=_content(tensor, kind, most_floats), stored=tensor.name)


def constant(values: Content | list[Dim], dtype: DType = DType.INT64) -> Item:
    """Return a tensor of known numbers."""
    content = np.array(values, dtype=object)
    return Item(TensorType(tuple(content.shape), dtype), content=content)


def _content(tensor: onnx.TensorProto, kind: TensorType, most_floats: int) -> Content | None:
    most = most_floats if kind.dtype.is_floating else MAX_CONTENT
    if tensor.external_data or tensor.data_location == TensorProto.EXTERNAL or not _is_small(kind, most):
        return None
    if kind.dtype in (DType.FP8, DType.FP4, DType.INT4, DType.COMPLEX64):
        return None
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise NotUnderstoodError(f"the numbers of '{tensor.name}' are not {kind}") from error
    if array.size and not np.issubdtype(array.dtype, np.integer) and array.dtype != np.bool_:
        array = array.astype(np.float64)
    return np.array(array.tolist(), dtype=object).reshape(array.shape)


def _is_small(kind: TensorType, most: int) -> bool:
    numel = 1
    for d in kind.dims:
        numel *= d if isinstance(d, int) else most + 1
    return numel <= most
