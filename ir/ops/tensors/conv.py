"""Convolutions, forward and backward: of signals and pictures, and the short causal ones in front of scans."""

from __future__ import annotations

from collections.abc import Iterator

from ...records import dataclass
from ...sizes.expr import Dim, Expr, as_expr, product, total
from ...types import TensorType
from ..base import ZERO, Attrs, GemmShape, OpCall, OpClass, OpDef, ShardChoice, Work, same_dims
from ..index_map import SEQUENCE_AXES, IndexMap, lacking, tensor
from ..traits import Trait
from .pointwise import FLOPS_PER_ELEMENT


@dataclass(frozen=True, slots=True)
class ConvAttrs(Attrs):
    """Settings of a convolution; `stride`, `padding` and `dilation` have one entry a spatial dim.

    How many groups there are is said by the weight: the channels of the input over those of one of its rows.
    `causal` pads with the past alone. With `has_state` the last input holds the positions before, and a second output
    is the same behind. `activation` is applied by the same kernel.
    """

    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    transposed: bool = False
    causal: bool = False
    activation: str = ""
    has_state: bool = False


@dataclass(frozen=True, slots=True)
class _Conv:
    """Operands of a convolution; of a transposed one `source` is what each weight is applied to."""

    x: TensorType
    weight: TensorType
    y: TensorType
    attrs: ConvAttrs

    @classmethod
    def of(cls, call: OpCall) -> _Conv:
        attrs = call.attrs_as(ConvAttrs)
        if call.op == "conv":
            return cls(call.inputs[0], call.inputs[1], call.outputs[0], attrs)
        return cls(call.inputs[1], call.inputs[2], call.inputs[0], attrs)

    @property
    def taps(self) -> Expr:
        """Products a result takes, or, transposed, an input gives: channels of its group times the kernel."""
        return product(self.weight.dims[1:])

    @property
    def points(self) -> Expr:
        """Elements that have so many products."""
        return (self.x if self.attrs.transposed else self.y).numel

    @property
    def flops(self) -> Expr:
        return self.points * self.taps * 2

    @property
    def groups(self) -> Expr:
        """Groups of channels that do not meet."""
        return as_expr((self.y if self.attrs.transposed else self.x).dims[1]) / as_expr(self.weight.dims[1])

    @property
    def is_depthwise(self) -> bool:
        """Whether no channels are summed over, so that there is no matrix product."""
        return self.weight.dims[1] == 1 and self.groups != 1

    @property
    def gemm(self) -> GemmShape:
        """The product that an implicit GEMM runs: positions x channels of a group, summed over its taps."""
        channels = as_expr(self.weight.dims[0]) / self.groups
        return GemmShape(self.groups, self.points / (channels * self.groups), channels, self.taps)


def _check(call: OpCall) -> Iterator[str]:
    c = _Conv.of(call)
    if c.x.rank != c.weight.rank or c.x.rank < 3 or c.y.rank != c.x.rank:
        yield f"input, weight and result must have the dims [.., channels, positions..], are {c.x}, {c.weight}, {c.y}"
        return
    yield from same_dims(c.x.dims[:1], c.y.dims[:1], "batch of input and result")
    outer, inner = (c.x, c.y) if c.attrs.transposed else (c.y, c.x)
    yield from same_dims((outer.dims[1],), (c.weight.dims[0],), "channels and rows of the weight")
    if isinstance(inner.dims[1], int) and isinstance(c.weight.dims[1], int) and inner.dims[1] % c.weight.dims[1]:
        yield f"{inner.dims[1]} channels are no whole number of groups of {c.weight.dims[1]}"
    if not c.attrs.transposed:
        for i, (size, taps, made) in enumerate(zip(c.x.dims[2:], c.weight.dims[2:], c.y.dims[2:], strict=True)):
            want = size if c.attrs.causal else _positions(c.attrs, i, size, taps)
            if want is not None and as_expr(want) != as_expr(made):
                yield f"{made} positions along dim {i + 2}, {want} come out of {size}"
    if call.op == "conv" and (c.attrs.has_state or len(call.outputs) > 1):
        yield from _check_state(call, c)


def _positions(attrs: ConvAttrs, i: int, size: Dim, taps: Dim) -> Dim | None:
    """floor((size + 2 padding - dilation (taps - 1) - 1) / stride) + 1; None where that is no polynomial."""
    stride, padding, dilation = (x[i] for x in (attrs.stride, attrs.padding, attrs.dilation))
    span = as_expr(size) + 2 * padding - (as_expr(taps) - 1) * dilation - 1
    if stride == 1:
        return span + 1
    return int(span.evaluate({})) // stride + 1 if not span.symbols else None


def _check_state(call: OpCall, c: _Conv) -> Iterator[str]:
    if not (c.attrs.causal and c.attrs.has_state and len(call.outputs) == 2):
        yield "a state is read and made by a causal convolution, as its last input and second output"
        return
    state = call.outputs[1]
    yield from same_dims(state.dims[:2], c.x.dims[:2], "batch and channels of the state")
    yield from same_dims(call.inputs[-1].dims, state.dims, "state before and behind")


def _work(call: OpCall) -> Work:
    """2 x results x (channels of a group x kernel) FLOPs; everything moves once."""
    c = _Conv.of(call)
    acting = c.y.numel * FLOPS_PER_ELEMENT.get(c.attrs.activation, 1) if c.attrs.activation else ZERO
    depthwise = c.is_depthwise
    return Work(
        tensor_flops=ZERO if depthwise else c.flops,
        vector_flops=acting + (c.flops if depthwise else ZERO),
        read_bytes=total(t.num_bytes for t in call.inputs),
        write_bytes=total(t.num_bytes for t in call.outputs),
        gemms=() if depthwise else (c.gemm,),
    )


def _check_bwd(call: OpCall) -> Iterator[str]:
    c = _Conv.of(call)
    for grad in call.outputs:
        if grad.dims not in (c.x.dims, c.weight.dims, c.y.dims[1:2]):
            yield f"{grad} is a gradient neither of {c.x} nor of {c.weight} nor of a bias"


def _work_bwd(call: OpCall) -> Work:
    """As many FLOPs as forward for each gradient: of the input and of the weight; that of a bias is a sum.

    An activation's derivative needs what was put into it, which the kernel computes again.
    """
    c = _Conv.of(call)
    wanted = sum(t.rank == c.weight.rank for t in call.outputs)
    acting = ZERO
    if c.attrs.activation:
        acting = c.y.numel * FLOPS_PER_ELEMENT.get(f"{c.attrs.activation}_bwd", 1) + c.flops
    bias = total(c.y.numel for t in call.outputs if t.rank == 1)
    flops, depthwise = c.flops * wanted, c.is_depthwise
    return Work(
        tensor_flops=ZERO if depthwise else flops,
        vector_flops=acting + bias + (flops if depthwise else ZERO),
        read_bytes=total(t.num_bytes for t in call.inputs),
        write_bytes=total(t.num_bytes for t in call.outputs),
        gemms=() if depthwise else tuple(_gradients(call, c)),
    )


def _gradients(call: OpCall, c: _Conv) -> Iterator[GemmShape]:
    g, made = c.gemm, [t.dims for t in call.outputs]
    if c.x.dims in made:
        yield GemmShape(g.batch, g.m, g.k, g.n)
    if c.weight.dims in made:
        yield GemmShape(g.batch, g.n, g.k, g.m)


def _index_map(call: OpCall, axis: str) -> IndexMap:
    """Batch; channels of their own; output channels; input channels, which are summed.

    Along a split sequence a causal one reads a few positions of its neighbour, whose message the graph leaves out.
    """
    attrs, (x, weight) = call.attrs_as(ConvAttrs), call.inputs[:2]
    own, dense = _has_own_channels(x, weight), weight.dims[1] == x.dims[1]
    given, made = ("c", "c") if own else ("i", "o") if dense else (None, None)
    across = _across(call, axis, x)
    kernel = tensor((made, None if own else given, *(None,) * (x.rank - 2)))
    num_bias = sum(t.rank == 1 for t in call.inputs[2:])
    state = tensor(("b", given, None))
    inputs = (tensor(("b", given, *across)), kernel, *(tensor((made,)),) * num_bias, *(state,) * attrs.has_state)
    outputs = (tensor(("b", made, *across)), state)[: len(call.outputs)]
    sums = (("i", 0),) if not attrs.activation and dense and not own else ()
    return IndexMap(inputs, outputs, sums, same=(("s", 1),), added=tuple(range(2, 2 + num_bias)))


def _index_map_bwd(call: OpCall, axis: str) -> IndexMap:
    """Batch, channels of their own, and positions as forward; gradients of weights sum over batch and positions."""
    x, weight = call.inputs[1:3]
    channel = "c" if _has_own_channels(x, weight) else None
    rows = tensor(("b", channel, *_across(call, axis, x)))
    kernel, bias = tensor((channel, *(None,) * (weight.rank - 1))), tensor((channel,))
    outputs = tuple(rows if t.dims == x.dims else kernel if t.rank > 1 else bias for t in call.outputs)
    inputs = (rows, rows, kernel, *(bias,) * (len(call.inputs) - 3))
    return IndexMap(inputs, outputs, lacking(outputs, "bs"), linear=((0,),))


def _across(call: OpCall, axis: str, x: TensorType) -> tuple[str | None, ...]:
    position = "s" if call.attrs_as(ConvAttrs).causal and axis in SEQUENCE_AXES else None
    return (position, *(None,) * (x.rank - 3))


def _has_own_channels(x: TensorType, weight: TensorType) -> bool:
    return weight.dims[1] == 1 and weight.dims[0] == x.dims[1]


OPS = (
    OpDef(
        "conv", OpClass.CONV, _work,
        "convolution; inputs: x [batch, channels, positions..], weight [out, in / groups, kernel..], bias, state; "
        "outputs: y, and where there is a state that behind [batch, channels, positions kept]",
        _check, ConvAttrs, min_inputs=2, max_inputs=4, num_outputs=None, index_map=_index_map, by_axis=True,
        shard=ShardChoice(names=(0, 1), deaf=("i",)),
    ),
    OpDef(
        "conv_bwd", OpClass.CONV, _work_bwd,
        "backward of a convolution; inputs: dy, x, weight, bias; outputs: what is asked of dx, dweight and dbias",
        _check_bwd, ConvAttrs, min_inputs=3, max_inputs=4, num_outputs=None, traits=frozenset({Trait.BACKWARD}),
        index_map=_index_map_bwd, by_axis=True,
        shard=ShardChoice(names=(1, 0, 2, 3)),
    ),
)  # fmt: skip
