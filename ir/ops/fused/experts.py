"""A bank of experts as one op: permute, grouped matrix products, activation, weighted combine."""

from __future__ import annotations

from collections.abc import Iterator

from ...records import dataclass
from ...sizes.expr import Dim, Expr, as_expr, total
from ..base import Attrs, ExpertsRead, GemmShape, OpCall, OpClass, OpDef, ShardChoice, Work, ranks, same_dims
from ..index_map import IndexMap, spec, whole
from ..traits import Trait

ACTIVATION_FLOPS = 11
ACTIVATION_BACKWARD_FLOPS = 22


@dataclass(frozen=True, slots=True)
class ExpertsAttrs(Attrs):
    """`gated` experts have two up-projections side by side; `transposed` weights are [experts, in, out].

    `products` is the type to which a whole bank casts its rows for its products; without it that of the rows.
    """

    gated: bool = True
    transposed: bool = False
    bias: bool = False
    products: str = ""


@dataclass(frozen=True, slots=True)
class GroupedAttrs(Attrs):
    """`weight_grad` marks the product whose result is one matrix a group."""

    weight_grad: bool = False


@dataclass(frozen=True, slots=True)
class ExpertsShape:
    """The sizes of a bank: rows = tokens x top_k, on `num_experts` experts of inner size `ffn`."""

    tokens: Expr
    top_k: Dim
    hidden: Dim
    ffn: Expr
    num_experts: Dim
    up_width: Dim

    @property
    def rows(self) -> Expr:
        """Token copies that are routed."""
        return self.tokens * self.top_k


def experts_shape(call: OpCall) -> ExpertsShape:
    """Read the sizes off x [tokens, hidden], idx [tokens, top_k], up [experts, .., ..], down [experts, .., ..]."""
    attrs = call.attrs_as(ExpertsAttrs)
    x, idx, _, up, down = call.inputs[:5] if call.op == "experts" else call.inputs[1:6]
    return ExpertsShape(
        tokens=as_expr(x.dims[0]),
        top_k=idx.dims[1],
        hidden=x.dims[1],
        num_experts=up.dims[0],
        ffn=as_expr(down.dims[1] if attrs.transposed else down.dims[2]),
        up_width=up.dims[2] if attrs.transposed else up.dims[1],
    )


def _gemms(s: ExpertsShape) -> tuple[GemmShape, GemmShape]:
    one, hidden, width = as_expr(1), as_expr(s.hidden), as_expr(s.up_width)
    up = GemmShape(one, s.rows, width, hidden, groups=s.num_experts)
    return up, GemmShape(one, s.rows, hidden, s.ffn, groups=s.num_experts)


def _check(call: OpCall) -> Iterator[str]:
    wrong = list(ranks(call, (2, 2, 2, 3, 3), "x, ids, routing weights, up and down"))
    if wrong:
        yield from wrong
        return
    s = experts_shape(call)
    rows = s.tokens * s.top_k
    yield from same_dims(call.outputs[0].dims, call.inputs[0].dims, "result and tokens")
    for name, out, width in zip(
        ("routed tokens", "up projection", "activation", "down projection"),
        call.outputs[1:],
        (s.hidden, s.up_width, s.ffn, s.hidden),
        strict=True,
    ):
        yield from same_dims(tuple(as_expr(d) for d in out.dims), (rows, as_expr(width)), name)


def _work(call: OpCall) -> Work:
    """Two grouped GEMMs over rows = tokens x top_k; weights of every expert and all intermediates move once."""
    s = experts_shape(call)
    up, down = _gemms(s)
    x_bytes = call.inputs[0].dtype.num_bytes
    rows = s.rows
    inner = rows * x_bytes * (as_expr(s.hidden) * 2 + as_expr(s.up_width) + s.ffn)
    weights = total(t.num_bytes for t in call.inputs[3:])
    return Work(
        tensor_flops=rows * s.hidden * 2 * (as_expr(s.up_width) + s.ffn),
        vector_flops=rows * s.ffn * ACTIVATION_FLOPS + rows * s.hidden * 2,
        read_bytes=total(t.num_bytes for t in call.inputs[:3]) + weights + inner,
        write_bytes=total(t.num_bytes for t in call.outputs),
        gemms=(up, down),
        experts=ExpertsRead(total(t.num_bytes for t in call.inputs[3:5]), rows, as_expr(call.inputs[3].dims[0])),
    )


def _check_bwd(call: OpCall) -> Iterator[str]:
    yield from ranks(call, (2, 2, 2, 2, 3, 3), "dOut, x, ids, routing weights, up and down")
    for name, given, grad in zip(("x", "w", "up", "down"), (1, 3, 4, 5), call.outputs, strict=False):
        yield from same_dims(grad.dims, call.inputs[given].dims, f"gradient of {name}")


def _work_bwd(call: OpCall) -> Work:
    """Four grouped GEMMs (dgrad and wgrad of both projections), the same rows and widths as forward.

    A frozen bank has no gradients, two outputs are all: the products that give gradients of inputs are left.
    """
    s = experts_shape(call)
    rows, width, hidden = s.rows, as_expr(s.up_width), as_expr(s.hidden)
    up, down = _gemms(s)
    x_bytes = call.inputs[0].dtype.num_bytes
    inner = rows * x_bytes * (width * 2 + s.ffn * 2 + hidden * 2)
    frozen = len(call.outputs) == 2
    return Work(
        tensor_flops=rows * s.hidden * (2 if frozen else 4) * (width + s.ffn),
        vector_flops=rows * s.ffn * ACTIVATION_BACKWARD_FLOPS + rows * hidden * 4,
        read_bytes=total(t.num_bytes for t in call.inputs) + inner,
        write_bytes=total(t.num_bytes for t in call.outputs) + inner,
        gemms=(_dgrad(down), _dgrad(up)) if frozen else (_dgrad(down), _wgrad(down), _dgrad(up), _wgrad(up)),
    )


def _dgrad(g: GemmShape) -> GemmShape:
    return GemmShape(g.batch, g.m, g.k, g.n, g.groups)


def _wgrad(g: GemmShape) -> GemmShape:
    return GemmShape(g.batch, g.n, g.k, g.m, g.groups)


def _check_grouped(call: OpCall) -> Iterator[str]:
    a, b, out = call.inputs[0], call.inputs[1], call.outputs[0]
    if a.rank not in (2, 3) or b.rank not in (2, 3) or out.rank not in (2, 3):
        yield "operands must be [rows, k] and [groups, k, n], or [k, rows] and [rows, n] for a weight gradient"
        return
    yield from same_dims((a.dims[-1], b.dims[-1]), (b.dims[-2], out.dims[-1]), "inner dim of a and columns of b")


def _work_grouped(call: OpCall) -> Work:
    """2 rows k n FLOPs: each row meets the matrix (or, for a weight gradient, the row) of its own group only.

    A weight gradient is [k, rows] x [rows, n] -> [groups, k, n]: its m is k and its k the rows of all groups.
    """
    a, b, out = call.inputs[0], call.inputs[1], call.outputs[0]
    last = b.dims[-1]
    flops = a.numel * last * 2
    return Work(
        tensor_flops=flops, read_bytes=a.num_bytes + b.num_bytes, write_bytes=out.num_bytes, gemms=(_grouped(call),)
    )


def _grouped(call: OpCall) -> GemmShape:
    a, b = call.inputs[0], call.inputs[1]
    groups: Dim = next((t.dims[0] for t in (b, a, call.outputs[0]) if t.rank == 3), 1)
    m, k, n = as_expr(a.dims[-2]), as_expr(a.dims[-1]), as_expr(b.dims[-1])
    return GemmShape(as_expr(1), m, n, k, groups=groups)


def bank_factors(attrs: ExpertsAttrs) -> tuple[str, str, str, str]:
    """Return the factors of an expert's up and down projections, of the first's bias, and of its result in a row."""
    inner = "f*" if attrs.gated else "f"
    up, down = (f". {inner}", "f .") if attrs.transposed else (f"{inner} .", ". f")
    return up, down, inner, inner


def _index_map(call: OpCall, _axis: str) -> IndexMap:
    """Tokens; or the inner size, over which results are summed."""
    attrs = call.attrs_as(ExpertsAttrs)
    up, down, bias, wide = bank_factors(attrs)
    biases = (f", . {bias}", ", . .")[: len(call.inputs) - 5] if attrs.bias else ()
    tensors = spec(f"t ., t ., t ., . {up}, . {down}{''.join(biases)} -> t ., t ., t {wide}, t f, t .")
    return IndexMap(*tensors, sums=(("f", 0), ("f", 4)), same=(("f", 1),), added=(6,))


def _index_map_bwd(call: OpCall, _axis: str) -> IndexMap:
    """Weights' gradients are sums over tokens, those of tokens and routing weights over the inner size."""
    up, down, bias, wide = bank_factors(call.attrs_as(ExpertsAttrs))
    made = ["t .", "t .", f". {up}", f". {down}", f". {bias}", ". ."][: len(call.outputs)]
    tensors = spec(f"t ., t ., t ., t ., . {up}, . {down}, t ., t {wide}, t f, t . -> {', '.join(made)}")
    sums = (("f", 0), ("f", 1), *(("t", i) for i in range(2, len(made))))
    return IndexMap(*tensors, sums, same=tuple(("f", i) for i in range(5, len(made))), added=(9,), linear=((0,),))


def _map_grouped(call: OpCall, _axis: str) -> IndexMap:
    """[rows, k] x [groups, k, n]: rows stay, k is summed; [k, rows] x [rows, n] -> [groups, k, n] sums over rows."""
    weight_grad = call.attrs_as(GroupedAttrs).weight_grad
    inputs, outputs = spec("k r, r n -> . k n" if weight_grad else "r k, . k n -> r n")
    sums = (("r" if weight_grad else "k", 0),)
    return IndexMap((*inputs, *whole(call.inputs[2:])), outputs, sums, linear=((0,), (1,)), exact=True)


OPS = (
    OpDef(
        "experts", OpClass.EXPERTS, _work,
        "expert bank; inputs: x, expert ids, routing weights, up, down, biases; outputs: result, routed tokens, up, "
        "activation, down (what the backward phase needs)",
        _check, ExpertsAttrs, min_inputs=5, max_inputs=7, num_outputs=5,
        traits=frozenset({Trait.HOLDS_EXPERTS, Trait.ROUTES}), index_map=_index_map,
    ),
    OpDef(
        "experts_bwd", OpClass.EXPERTS, _work_bwd,
        "backward of an expert bank; inputs: dOut, x, ids, weights, up, down, saved tensors; outputs: dx, dw, dup, "
        "ddown and bias gradients",
        _check_bwd, ExpertsAttrs, min_inputs=10, max_inputs=10, num_outputs=None,
        traits=frozenset({Trait.HOLDS_EXPERTS, Trait.ROUTES, Trait.BACKWARD}), index_map=_index_map_bwd,
        shard=ShardChoice(names=(4, 5, 0, 1, 2, 3)),
    ),
    OpDef(
        "grouped_matmul", OpClass.EXPERTS, _work_grouped, "one matrix product a group of rows; inputs: a, b, offsets",
        _check_grouped, GroupedAttrs, min_inputs=2, max_inputs=4, traits=frozenset({Trait.PRODUCT}),
        index_map=_map_grouped,
    ),
)  # fmt: skip
