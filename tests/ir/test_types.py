"""Element types, tensor types, placements and what error messages say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.ir.errors import (
    InfeasibleError,
    InternalError,
    NotUnderstoodError,
    ParseError,
    PlanError,
    SlipstickError,
    UnknownNameError,
    UsageError,
    VerifyError,
)
from slipstick.ir.placement import PARTIAL, REPLICATE, Placement, Shard, parse_placement
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.types import DType, TensorType

BATCH, TP = symbol("batch"), symbol("tp")


@pytest.mark.parametrize("dtype", DType)
def test_a_dtype_parses_by_its_name_and_prints_as_it(dtype: DType) -> None:
    assert DType.parse(str(dtype)) is dtype


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("fp64", 64), ("complex64", 64), ("int64", 64), ("fp32", 32), ("tf32", 32), ("int32", 32), ("bf16", 16),
     ("fp16", 16), ("int16", 16), ("fp8", 8), ("int8", 8), ("uint8", 8), ("bool", 8), ("fp4", 4), ("int4", 4),
     ("fp8_row", 8),
     # A scale of 32 bits for 128 elements, of 8 bits for 32, of 8 bits for 16.
     ("fp8_block", 8.25), ("mxfp8", 8.25), ("nvfp4", 4.5), ("mxfp4", 4.25),
     # A scale of 32 bits for a square of 128 x 128, of 16 bits for 128.
     ("fp8_tile", 8 + 32 / 16384), ("int4_group", 4.125)],
)  # fmt: skip
def test_sizes(dtype: str, bits: float) -> None:
    assert DType(dtype).num_bytes * 8 == bits


def test_every_size_is_tested_above() -> None:
    assert len(DType) == 22


@pytest.mark.parametrize(("alias", "dtype"), [("bfloat16", "bf16"), ("half", "fp16"), ("float", "fp32")])
def test_names_of_pytorch(alias: str, dtype: str) -> None:
    assert DType.parse(alias) == dtype


def test_an_unknown_dtype_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown dtype 'bf17'; did you mean 'bf16'\\? allowed: bf16, bool"):
        DType.parse("bf17")


def test_floating_types_carry_gradients() -> None:
    floating = {d.value for d in DType if d.is_floating}
    scaled = {"fp8_row", "fp8_block", "fp8_tile", "mxfp8", "nvfp4", "mxfp4"}
    assert floating == {"fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "fp64", "complex64"} | scaled


def test_a_symbolic_tensor() -> None:
    t = TensorType((BATCH, 3, 8 * symbol("seq") / TP), DType.FP4)
    assert t.rank == 3
    assert str(t) == "fp4[batch, 3, 8*seq/tp]"
    assert str(t.numel) == "24*batch*seq/tp"
    assert str(t.num_bytes) == "12*batch*seq/tp"  # half a byte an element
    assert t.with_dims((2,)) == TensorType((2,), DType.FP4)


def test_substitution_makes_whole_dims_ints() -> None:
    t = TensorType((BATCH, 4096 * BATCH / TP), DType.BF16).substitute({"batch": 2, "tp": 8})
    assert t == TensorType((2, 1024), DType.BF16)
    assert all(isinstance(d, int) for d in t.dims)


def test_equal_types_hash_alike() -> None:
    folded = TensorType((BATCH * 4 / BATCH,), DType.BF16)
    assert folded == TensorType((4,), DType.BF16)
    assert hash(folded) == hash(TensorType((4,), DType.BF16))


placements: st.SearchStrategy[Placement] = st.one_of(
    st.just(REPLICATE), st.just(PARTIAL), st.builds(Shard, st.integers(0, 12), st.booleans())
)


@given(placements)
def test_placements_round_trip(placement: Placement) -> None:
    assert parse_placement(str(placement)) == placement


@pytest.mark.parametrize("text", ["", "S", "S()", "S(p)", "S(-1)", "Shard(0)", "r", "R "])
def test_what_is_no_placement_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="is not a placement; allowed: R, P, S\\(dim\\)"):
        parse_placement(text)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(UsageError, 2), (UnknownNameError, 2), (PlanError, 2), (InfeasibleError, 3), (NotUnderstoodError, 4),
     (ParseError, 4), (InternalError, 1), (VerifyError, 1)],
)  # fmt: skip
def test_exit_codes(kind: type[SlipstickError], code: int) -> None:
    assert kind.exit_code == code
    assert issubclass(kind, SlipstickError)


def test_without_a_near_name_only_the_allowed_ones_are_listed() -> None:
    assert str(UnknownNameError.of("op", "zzz", ["b", "a"])) == "unknown op 'zzz'; allowed: a, b"
