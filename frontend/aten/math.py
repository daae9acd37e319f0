"""ATen arithmetic to the IR: products, pointwise functions, norms, softmax, reductions."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor, fx

from ...ir.ops.fused.experts import GroupedAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import DimAttrs, NormAttrs, ReduceAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from .fx_import import POINTWISE, STEPS, Handler, Importer, argument, dim_of, is_inplace, op_name, plain, write_back

# `mul` and `div` of one operand are scalings by a number, of which a sharded sum is the sum: what is not linear has a
# name of its own.
POINTWISE_FUNCTIONS = {
    "add": "add", "sub": "sub", "rsub": "sub", "mul": "mul", "div": "div", "neg": "neg", "pow": "pow", "exp": "exp",
    "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "reciprocal": "reciprocal", "abs": "abs", "sign": "sign",
    "silu": "silu", "silu_backward": "silu_bwd", "gelu": "gelu", "gelu_backward": "gelu_bwd", "relu": "relu",
    "threshold_backward": "relu_bwd", "tanh": "tanh", "tanh_backward": "tanh_bwd", "sigmoid": "sigmoid",
    "sigmoid_backward": "sigmoid_bwd", "softplus": "softplus", "softplus_backward": "softplus_bwd", "sin": "sin",
    "cos": "cos", "erf": "erf", "erfinv": "erfinv", "maximum": "max", "minimum": "min", "clamp": "clamp",
    "clamp_min": "clamp", "clamp_max": "clamp", "where": "where", "masked_fill": "where", "eq": "compare",
    "ne": "compare",
    "lt": "compare", "le": "compare", "gt": "compare", "ge": "compare", "logical_not": "not", "bitwise_not": "not",
    "logical_and": "and", "bitwise_and": "and", "logical_or": "or", "bitwise_or": "or", "floor": "floor",
    "floor_divide": "floor_div", "remainder": "remainder", "fmod": "remainder", "round": "round", "isnan": "compare",
    "tril": "where", "triu": "where", "native_dropout": "dropout", "native_dropout_backward": "dropout_bwd",
    "addcmul": "addcmul", "hardtanh": "clamp", "nan_to_num": "where", "leaky_relu": "relu", "rrelu_with_noise": "relu",
    "rrelu_with_noise_backward": "relu_bwd", "square": "square",
    "hardshrink_backward": "relu_bwd", "softshrink_backward": "relu_bwd", "log1p": "log", "expm1": "exp", "sgn": "sign",
}  # fmt: skip

POINTWISE_STEPS = frozenset(f"aten.{name}" for name in POINTWISE_FUNCTIONS if "dropout" not in name)


def _pointwise(im: Importer, node: fx.Node) -> None:
    """One kernel for what torch calls pointwise: the functions of its steps, or the operator's own name.

    Complex numbers are pairs in a last dim, which real numbers do not have.
    """
    own = op_name(node)
    names = (own,) if own.removeprefix("aten.") in POINTWISE_FUNCTIONS else node.meta.get(STEPS) or (own,)
    fns = tuple(POINTWISE_FUNCTIONS.get(plain, plain) for plain in (n.partition(".")[2] for n in names))
    pairs, made = [t.meta["val"].is_complex() for t in im.tensors(node)], node.meta["val"]
    if not any(pairs) or not isinstance(made, Tensor) or (all(pairs) and made.is_complex()):
        outs = im.emit(node, "elementwise", im.inputs(node), ElementwiseAttrs(fns))
    elif len(pairs) == 1:
        # A length, an angle, one of two parts: a real number of each pair.
        outs = im.emit(node, "reduce", im.inputs(node), ReduceAttrs(fns[-1], (im.rank(node),), False))
    else:
        outs = _of_mixed(im, node, pairs, fns)
    if is_inplace(node):
        write_back(im, node, outs[0])


def _of_mixed(im: Importer, node: fx.Node, pairs: Sequence[bool], fns: tuple[str, ...]) -> tuple[int, ...]:
    """Functions of real and complex operands: a real one counts for both parts, a real result is one of each pair."""
    made, operands = node.meta["val"], list[int]()
    for value, is_pair in zip(im.inputs(node), pairs, strict=True):
        kind = im.flat.values[value].type
        if not is_pair and kind.rank:
            kind = replace(kind, dims=(*kind.dims, 1))
            (value,) = im.flat.emit("reshape", (value,), [(kind, None)], im.origin(node))
        operands.append(value)
    kind = im.type_of(made)
    if made.is_complex():
        outs = im.flat.emit("elementwise", operands, [(kind, None)], im.origin(node), ElementwiseAttrs(fns))
    else:
        both = replace(kind, dims=(*kind.dims, 2))
        between = im.flat.emit("elementwise", operands, [(both, None)], im.origin(node), ElementwiseAttrs(fns))
        attrs = ReduceAttrs("all", (len(kind.dims),), False)
        outs = im.flat.emit("reduce", between, [(kind, None)], im.origin(node), attrs)
    im.bind(node, outs, [made])
    return outs


def _addmm(im: Importer, node: fx.Node) -> None:
    bias, left, right = im.inputs(node)
    im.emit(node, "matmul", (left, right, bias), MatmulAttrs("mk,kn->mn"))


def _bmm(im: Importer, node: fx.Node) -> None:
    *bias, left, right = im.inputs(node)
    im.emit(node, "matmul", (left, right, *bias), MatmulAttrs("bmk,bkn->bmn"))


def _grouped_mm(im: Importer, node: fx.Node) -> None:
    inputs = im.inputs(node)
    weight_grad = all(im.flat.values[i].type.rank == 2 for i in inputs[:2])
    im.emit(node, "grouped_matmul", inputs, GroupedAttrs(weight_grad))


def _layer_norm_bwd(im: Importer, node: fx.Node) -> None:
    """`native_layer_norm_backward(dy, x, shape, mean, rstd, weight, bias)`; the bias itself is not read.

    The kernel makes the gradient of x though nobody asked for it.
    """
    grad, x, mean, rstd, *rest = im.inputs(node)
    inputs, (dx, *others) = (grad, x, mean, rstd, *rest[:1]), node.meta["val"]
    if isinstance(dx, Tensor):
        im.emit(node, "norm_bwd", inputs, NormAttrs("layer"))
        return
    made = [t for t in others if isinstance(t, Tensor)]
    kinds = [(im.flat.values[x].type, None), *((im.type_of(t), None) for t in made)]
    _, *outs = im.flat.emit("norm_bwd", inputs, kinds, im.origin(node), NormAttrs("layer"))
    im.bind(node, outs, made)


def _reduce(im: Importer, node: fx.Node) -> None:
    fn = op_name(node).removeprefix("aten.")
    _reduced(im, node, "norm" if fn == "linalg_vector_norm" else fn)


def _reduced(im: Importer, node: fx.Node, fn: str) -> None:
    rank, given = im.rank(node), argument(node, "dim")
    if given is None or given == []:
        dims = tuple(range(rank))
    elif isinstance(given, int):
        dims = (given % max(rank, 1),)
    else:
        assert isinstance(given, list | tuple)
        dims = tuple(sorted(int(str(d)) % max(rank, 1) for d in given))
    keep = bool(argument(node, "keepdim")) and bool(dims)
    im.emit(node, "reduce", im.inputs(node)[:1], ReduceAttrs(fn, dims, keep), keep=1)


def _extreme(im: Importer, node: fx.Node) -> None:
    """`max` and `min`: of two tensors, over all dims, or along one, with the places where it is asked for them."""
    fn = op_name(node).removeprefix("aten.")
    if len(im.inputs(node)) == 2:
        im.emit(node, "elementwise", im.inputs(node), ElementwiseAttrs((fn,)))
    elif any(u.users for u in node.users if u.target is operator.getitem and u.args[1] == 1):
        im.emit(node, "topk", im.inputs(node), DimAttrs(dim_of(node, im.rank(node))))
    else:
        _reduced(im, node, f"a{fn}")


def _along(op: str, most: int = 1) -> Handler:
    """What works along one dim of the first tensors."""

    def handler(im: Importer, node: fx.Node) -> None:
        im.emit(node, op, im.inputs(node)[:most], DimAttrs(dim_of(node, im.rank(node))))

    return handler


HANDLERS: Mapping[str, Handler] = {
    **{f"aten.{name}": _pointwise for name in POINTWISE_FUNCTIONS},
    POINTWISE: _pointwise,
    "aten.mm": plain("matmul", MatmulAttrs("mk,kn->mn")), "aten.addmm": _addmm, "aten.bmm": _bmm, "aten.baddbmm": _bmm,
    "aten._grouped_mm": _grouped_mm,
    "aten.native_layer_norm": plain("norm", NormAttrs("layer")), "aten.native_layer_norm_backward": _layer_norm_bwd,
    **dict.fromkeys(("aten._softmax", "aten._log_softmax"), _along("softmax")),
    **dict.fromkeys(("aten._softmax_backward_data", "aten._log_softmax_backward_data"), _along("softmax_bwd", 2)),
    **dict.fromkeys(("aten.sum", "aten.mean", "aten.amax", "aten.amin", "aten.argmax", "aten.argmin", "aten.any",
                     "aten.all", "aten.prod", "aten.var", "aten.std", "aten.logsumexp",
                     "aten.linalg_vector_norm"), _reduce),
    "aten.max": _extreme, "aten.min": _extreme,
    **dict.fromkeys(("aten.cumsum", "aten.cumprod", "aten.logcumsumexp"), _along("cumsum")),
    **dict.fromkeys(("aten.topk", "aten.median", "aten.kthvalue", "aten.mode"), _along("topk")),
    **dict.fromkeys(("aten.sort", "aten.argsort"), _along("sort")),
}  # fmt: skip
