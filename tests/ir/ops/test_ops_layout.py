"""Views, lookups and collectives: what moves, what is free, and the size of a message."""

import pytest

from slipstick.ir.graph import NO_ATTRS, Attrs
from slipstick.ir.ops import OPS, OpClass, op_def
from slipstick.ir.ops.base import OpCall
from slipstick.ir.ops.collectives import CollectiveAttrs, message_bytes
from slipstick.ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from slipstick.ir.ops.tensors.lookup import LookupAttrs
from slipstick.ir.ops.tensors.matmul import MatmulAttrs
from slipstick.ir.placement import AxisGroup
from slipstick.ir.sizes.expr import Dim, as_expr, symbol
from slipstick.ir.types import DType, TensorType

B, S, TP = symbol("batch"), symbol("seq"), symbol("tp")


def t(*dims: Dim, dtype: str = "bf16") -> TensorType:
    return TensorType(dims, DType(dtype))


def call(op: str, attrs: Attrs, inputs: tuple[TensorType, ...], *outputs: TensorType) -> OpCall:
    return OpCall(op, attrs, inputs, outputs)


X, IDS, TABLE = t(3, 8), t(3, dtype="int64"), t(1000, 8)
SCATTERED, WHOLE = t(B, S / TP, 8), t(B, S, 8)


@pytest.mark.parametrize(
    ("made", "vector_flops", "read_bytes", "write_bytes"),
    [
        (call("reshape", NO_ATTRS, (X,), t(24)), 0, 0, 0),
        (call("permute", PermuteAttrs((1, 0)), (X,), t(8, 3)), 0, 0, 0),
        (call("expand", NO_ATTRS, (t(3, 1),), t(2, 3, 8)), 0, 0, 0),
        (call("slice", SliceAttrs(1, 2), (X,), t(3, 4)), 0, 0, 0),
        (call("slice", SliceAttrs(0, 2, drop=True), (X,), t(8)), 0, 0, 0),
        (call("pad", SliceAttrs(1, 2), (t(3, 4),), X), 0, 24, 48),
        (call("concat", ConcatAttrs(1), (X, t(3, 2)), t(3, 10)), 0, 60, 60),
        (call("copy", NO_ATTRS, (X,), X), 0, 48, 48),
        # 3 rows of 8 are gathered out of 1000: the table itself is not read.
        (call("embedding", NO_ATTRS, (IDS, TABLE), X), 0, 48 + 24, 48),
        # The whole gradient is zeroed, then 3 rows are read (with what is there), added and written.
        (call("embedding_bwd", NO_ATTRS, (X, IDS), TABLE), 24, 48 * 2 + 24, 48 + 16000),
        (call("gather", LookupAttrs("ab,c->cb"), (TABLE, IDS), X), 0, 48 + 24, 48),
        (call("scatter", LookupAttrs("ab,c,cb->ab"), (TABLE, IDS, X), TABLE), 0, 16000 + 24 + 48, 16000),
    ],
)
def test_work(made: OpCall, vector_flops: int, read_bytes: int, write_bytes: int) -> None:
    assert list(op_def(made.op).complaints(made)) == []
    found = op_def(made.op).work(made)
    assert found.tensor_flops == 0
    assert found.vector_flops == vector_flops
    assert found.read_bytes == read_bytes
    assert found.write_bytes == write_bytes


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (call("reshape", NO_ATTRS, (X,), t(25)), "reshape: bf16[3, 8] and bf16[25] differ in the number of elements"),
        (call("permute", PermuteAttrs((0, 0)), (X,), X), "permute (0, 0) does not name each dim of bf16[3, 8] once"),
        (call("permute", PermuteAttrs((1, 0)), (X,), X), "permute: [3, 8] is not [8, 3]"),
        (call("expand", NO_ATTRS, (X,), t(3, 16)), "bf16[3, 8] does not expand to bf16[3, 16]"),
        (call("slice", SliceAttrs(1, 0), (X,), t(4, 4)), "slice of dim 1: [4] is not [3]"),
        (call("slice", SliceAttrs(2, 0), (X,), X), "dim 2 is not a dim of bf16[3, 8]"),
        (call("pad", SliceAttrs(1, 0), (t(4, 4),), X), "slice of dim 1: [4] is not [3]"),
        (call("concat", ConcatAttrs(1), (X, X), t(3, 17)), "concat along dim 1 gives 16, has 17"),
        (call("concat", ConcatAttrs(1), (X, t(4, 8)), t(3, 16)), "other dims: [4] is not [3]"),
        (call("concat", ConcatAttrs(2), (X, X), X), "dim 2 is not a dim of every tensor"),
        (call("copy", NO_ATTRS, (X, X), X), "takes 1 inputs, has 2"),
        (call("embedding", NO_ATTRS, (IDS, TABLE), t(3, 9)), "embedding [.., hidden]: [3, 9] is not [3, 8]"),
        (call("embedding", NO_ATTRS, (IDS, t(8)), X), "the table must be [rows, hidden], is bf16[8]"),
        (call("embedding_bwd", NO_ATTRS, (X,), TABLE), "takes 2 inputs, has 1"),
        (call("gather", LookupAttrs(), (), X), "takes at least 1 inputs, has 0"),
        (call("gather", NO_ATTRS, (X,), X), "needs LookupAttrs, has Attrs"),
        (call("gather", LookupAttrs("ab->ab"), (X,), t(3, 9)), "spec ab->ab: letter b is 8 and 9"),
        (call("gather", LookupAttrs("ab->abc"), (X,), X), "spec ab->abc wants ranks [2, 3], has [2, 2]"),
        (call("gather", LookupAttrs("ab"), (X,), X),
         "spec 'ab' is not letters for 1 inputs and, behind '->', for the result"),
        (call("scatter", LookupAttrs(), (), X), "takes at least 1 inputs, has 0"),
        (call("all_reduce", CollectiveAttrs(AxisGroup("tp")), (X,), t(8)),
         "results must have the dims of the inputs bf16[3, 8], are bf16[8]"),
        (call("broadcast", CollectiveAttrs(AxisGroup("tp")), (X,), t(8)),
         "results must have the dims of the inputs bf16[3, 8], are bf16[8]"),
        (call("all_gather", CollectiveAttrs(AxisGroup("tp"), 1), (WHOLE,), SCATTERED),
         "bf16[batch, seq, 8] is not bf16[batch, seq/tp, 8] with dim 1 divided by tp"),
        (call("all_gather", CollectiveAttrs(AxisGroup("dp"), 1), (SCATTERED,), WHOLE),
         "bf16[batch, seq/tp, 8] is not bf16[batch, seq, 8] with dim 1 divided by dp"),
        (call("reduce_scatter", CollectiveAttrs(AxisGroup("tp")), (WHOLE,), SCATTERED),
         "bf16[batch, seq/tp, 8] is not bf16[batch, seq, 8] with dim -1 divided by tp"),
        (call("reduce_scatter", CollectiveAttrs(AxisGroup("tp"), 0), (WHOLE, WHOLE), SCATTERED),
         "makes one result an input, has 2 inputs and 1 results"),
        (call("all_to_all", NO_ATTRS, (X,), X), "needs CollectiveAttrs, has Attrs"),
        (call("send", CollectiveAttrs(AxisGroup("pp")), (), X), "takes at least 1 inputs, has 0"),
        (call("recv", CollectiveAttrs(AxisGroup("pp")), (X,)), "makes 1 outputs, has 0"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_named(made: OpCall, message: str) -> None:
    assert message in list(op_def(made.op).complaints(made))


@pytest.mark.parametrize(
    ("op", "inputs", "outputs"),
    [
        # S is the full logical vector, batch * seq * 8 elements of 2 bytes, whoever holds it.
        ("all_reduce", (WHOLE,), (WHOLE,)),
        ("all_gather", (SCATTERED,), (WHOLE,)),
        ("reduce_scatter", (WHOLE,), (SCATTERED,)),
        ("all_to_all", (WHOLE,), (t(B * TP, S / TP, 8),)),
        ("broadcast", (WHOLE,), (WHOLE,)),
        ("send", (WHOLE,), (WHOLE,)),
        ("recv", (WHOLE,), (WHOLE,)),
    ],
)
def test_message_bytes(op: str, inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...]) -> None:
    made = OpCall(op, CollectiveAttrs(AxisGroup("tp"), 1), inputs, outputs)
    assert list(op_def(op).complaints(made)) == []
    assert message_bytes(made) == B * S * 16
    assert op_def(op).work(made).num_bytes == 0  # the network's time is a backend's to say


def test_a_bucket_is_one_message() -> None:
    made = OpCall("all_reduce", CollectiveAttrs(AxisGroup("dp")), (X, t(5)), (X, t(5)))
    assert message_bytes(made) == 48 + 10


def test_a_shard_of_a_number() -> None:
    made = call("all_gather", CollectiveAttrs(AxisGroup("tp"), 0), (t(as_expr(8) / TP),), t(8))
    assert list(op_def("all_gather").complaints(made)) == []
    assert message_bytes(made) == 16


@pytest.mark.parametrize("op", OPS)
def test_every_op_refuses_attributes_of_another_op_and_wrong_arity(op: str) -> None:
    kind = OPS[op]
    inputs, outputs = (X,) * max(kind.min_inputs, 1), (X,) * (kind.num_outputs or 1)
    other: Attrs = ConcatAttrs(0) if kind.attrs is MatmulAttrs else MatmulAttrs("m,n->mn")
    assert any(other.__class__.__name__ in c for c in kind.complaints(OpCall(op, other, inputs, outputs)))
    assert kind.max_inputs is None or "inputs, has 99" in next(kind.complaints(OpCall(op, other, (X,) * 99, outputs)))


@pytest.mark.parametrize("op", OPS)
def test_every_op_says_what_it_is(op: str) -> None:
    kind = OPS[op]
    assert kind.name == op
    assert kind.doc
    assert isinstance(kind.kind, OpClass)
    assert op_def(op) is kind
