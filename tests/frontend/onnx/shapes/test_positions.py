"""What is known of tensors made from positions alone: the numbers that the ONNX reference finds for real sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from slipstick.frontend.onnx import load_onnx
from slipstick.frontend.onnx.loading import translated
from slipstick.frontend.onnx.shapes.items import Affine
from slipstick.ir.graph import Workload
from slipstick.ir.sizes.expr import as_expr

from ..conftest import Writer

BATCH, SEQ = 2, 5
Chain = Callable[[Writer, str, str], str]


def ints(w: Writer, *values: int) -> str:
    return w.ints(f"c{len(w.weights)}", values)


def number(w: Writer, value: int) -> str:
    w.weights.append(onnx.helper.make_tensor(f"n{len(w.weights)}", TensorProto.INT64, [], [value]))
    return w.weights[-1].name


def started(w: Writer) -> tuple[str, str]:
    """Positions [seq] and the same for each sequence [batch, seq]."""
    w.input("input_ids", ("batch", "seq"), TensorProto.INT64)
    shape = w.node("Shape", ["input_ids"])
    seq = w.node("Squeeze", [w.node("Slice", [shape, ints(w, 1), ints(w, 2)])])
    line = w.node("Range", [number(w, 0), seq, number(w, 1)])
    return line, w.node("Expand", [w.node("Unsqueeze", [line, ints(w, 0)]), shape])


def packed(w: Writer, line: str, each: str) -> str:
    """Whether a position does not go on from the one before, summed up: how packed sequences are told apart."""
    first = w.node("Slice", [each, ints(w, 0), ints(w, 1), ints(w, 1)])
    longer = w.node("Concat", [w.node("Sub", [first, number(w, 1)]), each], axis=-1)
    ahead = w.node("Slice", [longer, ints(w, 1), ints(w, 2**40), ints(w, 1)])
    behind = w.node("Slice", [longer, ints(w, 0), ints(w, -1), ints(w, 1)])
    ends = w.node("Not", [w.node("Equal", [w.node("Sub", [ahead, behind]), number(w, 1)])])
    return w.node("CumSum", [w.node("Cast", [ends], to=TensorProto.INT64), number(w, -1)])


def looked_up(w: Writer, line: str, each: str) -> str:
    """each[0, position] by GatherND, the places side by side."""
    at = w.node("Unsqueeze", [line, ints(w, 1)])
    places = w.node("Concat", [w.node("Mul", [at, number(w, 0)]), at], axis=-1)
    return w.node("GatherND", [w.node("Mul", [each, number(w, 3)]), places])


def between(w: Writer, line: str, each: str) -> str:
    """Distances of queries and keys."""
    return w.node("Sub", [w.node("Unsqueeze", [line, ints(w, 1)]), w.node("Unsqueeze", [line, ints(w, 0)])])


CHAINS: Mapping[str, Chain] = MappingProxyType(
    {
        "range": lambda w, line, each: line,
        "expand": lambda w, line, each: each,
        "packed": packed,
        "looked up": looked_up,
        "between": between,
        "later": lambda w, line, each: w.node("Slice", [line, ints(w, 2), ints(w, 2**40)]),
        "turned": lambda w, line, each: w.node("Transpose", [w.node("Add", [each, number(w, 7)])]),
        "gathered": lambda w, line, each: w.node("Gather", [each, line], axis=1),
        "ones summed": lambda w, line, each: w.node(
            "CumSum", [w.node("Add", [w.node("Mul", [each, number(w, 0)]), number(w, 2)]), number(w, 1)]
        ),
        "reshaped": lambda w, line, each: w.node("Reshape", [line, ints(w, 1, -1, 1)]),
    }
)


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_known_of_positions_is_what_the_reference_computes(name: str) -> None:
    w = Writer()
    model = w.model(made := CHAINS[name](w, *started(w)))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    (expected,) = ReferenceEvaluator(model).run(None, {"input_ids": np.zeros((BATCH, SEQ), dtype=np.int64)})
    item = translated(model, Workload.PREFILL, {})[0].find(made)
    assert item is not None
    assert isinstance(item.pattern, Affine)
    sizes = {"batch": BATCH, "seq": SEQ}
    dims = [int(as_expr(d).evaluate(sizes)) for d in item.dims]
    steps = [float(as_expr(s).evaluate(sizes)) for s in item.pattern.steps]
    start = item.pattern.start
    assert not isinstance(start, float)
    grid = np.indices(dims)
    found = float(as_expr(start).evaluate(sizes)) + sum(s * i for s, i in zip(steps, grid, strict=True))
    np.testing.assert_array_equal(np.broadcast_to(found, dims), expected)


@pytest.mark.parametrize(("op", "kinds"), [("Equal", ["neg"]), ("LessOrEqual", [])])
def test_a_choice_that_is_the_same_everywhere_is_not_computed(
    op: str, kinds: Sequence[str], saved: Callable[[onnx.ModelProto], Path]
) -> None:
    w = Writer()
    line, _ = started(w)
    further = w.node("Add", [line, number(w, 1)])
    scores = w.input("scores", ("batch", "seq"))
    chosen = w.node("Where", [w.node(op, [line, further]), scores, w.node("Neg", [scores])])
    graph = load_onnx(saved(w.model(w.node("Exp", [chosen]))))
    fns = [fn for r in graph.regions for n in r.nodes if n.op == "elementwise" for fn in getattr(n.attrs, "fns", ())]
    assert fns == [*kinds, "exp"]
