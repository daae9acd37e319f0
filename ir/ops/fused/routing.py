"""A bank of experts taken apart: rows to their experts, the products, rows back to their tokens."""

from __future__ import annotations

from collections.abc import Iterator

from ...placement import NO_AXES, AxisGroup
from ...plan import CAPACITY
from ...records import dataclass
from ...sizes.expr import Dim, Expr, as_expr, product, symbol, total
from ...sizes.shares import evened, is_imbalance
from ..base import Attrs, ExpertsRead, GemmShape, OpCall, OpClass, OpDef, ShardChoice, Work, same_dims, traffic
from ..index_map import IndexMap, lacking, spec
from ..traits import Trait
from .experts import ACTIVATION_BACKWARD_FLOPS, ACTIVATION_FLOPS, ExpertsAttrs, bank_factors


@dataclass(frozen=True, slots=True)
class RoutedAttrs(Attrs):
    """`capacity` says that every expert takes a fixed number of rows: capacity factor x top-k x tokens in all.

    `own` has the mesh axes (`tp`, `ep`) whose ranks all have the tokens: each takes the rows of its own experts out of
    them, and its results are a part of the sum.
    """

    capacity: bool = False
    own: AxisGroup = NO_AXES

    @property
    def ranks(self) -> Expr:
        """Ranks that share the rows of the same tokens."""
        return product(symbol(a) for a in self.own.axes)


def _same_rows(call: OpCall, given: Dim, tokens: Dim, top_k: Dim) -> Iterator[str]:
    """Of its own experts' rows the busiest rank has more than the mean."""
    # Rows of all experts: every copy of a token, or what the experts have room for, padded where that is more.
    attrs = call.attrs_as(RoutedAttrs)
    copies = as_expr(tokens) * top_k / attrs.ranks
    want = copies * symbol(CAPACITY) if attrs.capacity else copies
    rows = as_expr(evened(given))
    busy = next(filter(is_imbalance, rows.factors), "") if attrs.own else ""
    if evened(want) not in (rows, rows / symbol(busy) if busy else rows):
        yield f"rows of tokens x k: {given} is not {want}"


def _check_dispatch(call: OpCall) -> Iterator[str]:
    x, idx = call.inputs
    rows = call.outputs[0]
    yield from same_dims(rows.dims[1:], x.dims[1:], "hidden")
    yield from _same_rows(call, rows.dims[0], x.dims[0], idx.dims[1])


def _check_combine(call: OpCall) -> Iterator[str]:
    rows, weights, _ = call.inputs
    out = call.outputs[0]
    yield from same_dims(rows.dims[1:], out.dims[1:], "hidden")
    yield from _same_rows(call, rows.dims[0], weights.dims[0], weights.dims[1])


def _check_back(call: OpCall) -> Iterator[str]:
    """The gradient of the rows is as large as the rows."""
    if not call.inputs or not call.outputs:
        yield "needs inputs and outputs"


def _work_combine(call: OpCall) -> Work:
    """A weighted sum of k rows a token."""
    return traffic(call, call.inputs[0].numel * 2)


def _widths(call: OpCall) -> tuple[Expr, Expr, Expr, Expr, Dim]:
    """Rows, hidden, up width, inner size and number of experts of a bank, forward or backward."""
    first = 1 if call.op == "expert_bank" else 2
    rows, up, down = call.inputs[first - 1], call.inputs[first], call.inputs[first + 1]
    transposed = call.attrs_as(ExpertsAttrs).transposed
    ffn = as_expr(down.dims[1] if transposed else down.dims[2])
    width = as_expr(up.dims[2] if transposed else up.dims[1])
    return as_expr(rows.dims[0]), as_expr(rows.dims[1]), width, ffn, up.dims[0]


def _check_bank(call: OpCall) -> Iterator[str]:
    rows, hidden, width, ffn, _ = _widths(call)
    for name, out, want in zip(
        ("result", "up projection", "activation"), call.outputs, (hidden, width, ffn), strict=True
    ):
        yield from same_dims(tuple(as_expr(d) for d in out.dims), (rows, want), name)


def _work_bank(call: OpCall) -> Work:
    """Two grouped products over the rows; the weights of every expert move once."""
    rows, hidden, width, ffn, groups = _widths(call)
    one = as_expr(1)
    return Work(
        tensor_flops=rows * hidden * 2 * (width + ffn),
        vector_flops=rows * ffn * ACTIVATION_FLOPS,
        read_bytes=total(t.num_bytes for t in call.inputs) + call.outputs[1].num_bytes + call.outputs[2].num_bytes,
        write_bytes=total(t.num_bytes for t in call.outputs),
        gemms=(GemmShape(one, rows, width, hidden, groups), GemmShape(one, rows, hidden, ffn, groups)),
        experts=ExpertsRead(total(t.num_bytes for t in call.inputs[1:3]), rows, as_expr(groups)),
    )


def _work_bank_bwd(call: OpCall) -> Work:
    """Four grouped products: input and weight gradients of both projections; of a frozen bank those of inputs."""
    rows, hidden, width, ffn, groups = _widths(call)
    one = as_expr(1)
    inner = rows * (width + ffn) * call.inputs[0].dtype.num_bytes
    frozen = len(call.outputs) == 1
    of_inputs = GemmShape(one, rows, ffn, hidden, groups), GemmShape(one, rows, hidden, width, groups)
    of_weights = GemmShape(one, hidden, ffn, rows, groups), GemmShape(one, width, hidden, rows, groups)
    return Work(
        tensor_flops=rows * hidden * (2 if frozen else 4) * (width + ffn),
        vector_flops=rows * ffn * ACTIVATION_BACKWARD_FLOPS,
        read_bytes=total(t.num_bytes for t in call.inputs) + inner,
        write_bytes=total(t.num_bytes for t in call.outputs) + inner,
        gemms=of_inputs if frozen else (of_inputs[0], of_weights[0], of_inputs[1], of_weights[1]),
    )


def _map_bank(call: OpCall, _axis: str) -> IndexMap:
    """Rows; rows with their experts; or the inner size, over which results are summed."""
    attrs = call.attrs_as(ExpertsAttrs)
    up, down, bias, wide = bank_factors(attrs)
    biases = (f", e {bias}", ", e .")[: len(call.inputs) - 3] if attrs.bias else ()
    tensors = spec(f"(r e@) ., e {up}, e {down}{''.join(biases)} -> (r e@) ., (r e@) {wide}, (r e@) f")
    return IndexMap(*tensors, sums=(("f", 0),), added=(4,))


def _map_bank_bwd(call: OpCall, _axis: str) -> IndexMap:
    """As forward; gradients of weights are sums over rows, those of rows over the inner size. Linear in the gradient.

    A copy of the gradient in columns lies as the gradient.
    """
    up, down, bias, wide = bank_factors(call.attrs_as(ExpertsAttrs))
    copies = len(call.inputs) - 6
    made = ["(r e@) .", f"e {up}", f"e {down}", f"e {bias}", "e ."][: len(call.outputs)]
    given = ["(r e@) ."] * 2 + [f"e {up}", f"e {down}", f"(r e@) {wide}", "(r e@) f"] + ["(r e@) ."] * copies
    sums = (("f", 0), *(("r", i) for i in range(1, len(made))))
    return IndexMap(
        *spec(f"{', '.join(given)} -> {', '.join(made)}"),
        sums=sums,
        same=tuple(("f", i) for i in range(4, len(made))),
        linear=((0, *range(6, 6 + copies)),),
    )


# Rows of tokens by their experts, e, and by token, t; groups of inputs in which the op is linear.
_ROUTED = {
    "dispatch": ("t ., t . -> (t e@) .", ((0,),)),
    "dispatch_bwd": ("(t e@) ., t . -> t .", ((0,),)),
    "combine": ("(t e@) ., t ., t . -> t .", ((0,), (1,))),
    "combine_bwd": ("t ., (t e@) ., t ., t . -> (t e@) ., t .", ((0,), (1,))),
}


def _map_routed(call: OpCall, axis: str) -> IndexMap:
    """Tokens; where all ranks have all, each takes the rows of its own experts, which make a part of the sum.

    Linear in rows and in weights; the gradient of the rows does not depend on them.
    """
    text, linear = _ROUTED[call.op]
    if axis in call.attrs_as(RoutedAttrs).own.axes:
        inputs, outputs = spec(text.replace("(t e@)", "e@").replace("t ", ". "))
        return IndexMap(inputs, outputs, lacking(outputs, "e"), only="e")
    untouched = ((1, 0),) if call.op == "combine_bwd" else ()
    return IndexMap(*spec(text.replace("(t e@)", "t")), linear=linear, untouched=untouched)


OPS = (
    OpDef("dispatch", OpClass.MEMORY, traffic, "tokens copied once an expert they go to; inputs: x, expert ids",
          _check_dispatch, RoutedAttrs, min_inputs=2, max_inputs=2, traits=frozenset({Trait.DISPATCHES}),
          index_map=_map_routed, by_axis=True),
    OpDef("dispatch_bwd", OpClass.MEMORY, traffic, "sum over a token's copies; inputs: row gradients, expert ids",
          _check_back, RoutedAttrs, min_inputs=2, max_inputs=2, traits=frozenset({Trait.DISPATCHES, Trait.BACKWARD}),
          index_map=_map_routed, by_axis=True,
          shard=ShardChoice(names=(1, 0), sums="always")),
    OpDef("expert_bank", OpClass.EXPERTS, _work_bank,
          "experts on their rows; inputs: rows, up, down, biases; outputs: result, up projection, activation",
          _check_bank, ExpertsAttrs, min_inputs=3, max_inputs=5, num_outputs=3,
          traits=frozenset({Trait.HOLDS_EXPERTS, Trait.BANK}), index_map=_map_bank),
    OpDef("expert_bank_bwd", OpClass.EXPERTS, _work_bank_bwd,
          "backward of the bank; inputs: gradient, rows, up, down, up projection, activation; outputs: gradients of "
          "rows, up, down and biases; a gradient that is quantised may come in columns too, last",
          _check_back, ExpertsAttrs, min_inputs=6, max_inputs=7, num_outputs=None,
          traits=frozenset({Trait.HOLDS_EXPERTS, Trait.BANK, Trait.BACKWARD}), index_map=_map_bank_bwd,
          shard=ShardChoice(names=(2, 3, 1, 0))),
    OpDef("combine", OpClass.MEMORY, _work_combine, "weighted sum of a token's rows; inputs: rows, weights, expert ids",
          _check_combine, RoutedAttrs, min_inputs=3, max_inputs=3, traits=frozenset({Trait.COMBINES}),
          index_map=_map_routed, by_axis=True,
          shard=ShardChoice(names=(1, 2, 0), sums="always")),
    OpDef("combine_bwd", OpClass.MEMORY, _work_combine,
          "backward of combine; inputs: gradient, rows, weights, expert ids; outputs: gradients of rows and weights",
          _check_back, RoutedAttrs, min_inputs=4, max_inputs=4, num_outputs=2,
          traits=frozenset({Trait.COMBINES, Trait.BACKWARD}), index_map=_map_routed, by_axis=True,
          shard=ShardChoice(names=(2, 3, 0), sums="always")),
)  # fmt: skip
