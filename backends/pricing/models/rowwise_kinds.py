"""Which kind of row-wise kernel an op is, and how often it asks the special function units."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# What has no kind of its own: a chain of pointwise functions, which a compiler makes one kernel.
DEFAULT = "default"

_BY_OP: Mapping[str, str] = MappingProxyType(
    {
        "accumulate": "accumulate", "cast": "cast", "channel_norm": "layernorm",
        "channel_norm_bwd": "layernorm_bwd", "combine": "combine", "combine_bwd": "combine_bwd",
        "concat": "copy", "copy": "copy", "cross_entropy": "loss", "cross_entropy_bwd": "loss_bwd", "cumsum": "scan",
        "dispatch": "dispatch", "dispatch_bwd": "dispatch_bwd", "embedding": "embedding",
        "embedding_bwd": "embedding_bwd", "fill": "fill", "gather": "gather", "optimizer_step": "optimizer",
        "pad": "copy", "quantise": "cast", "reduce": "reduce", "rope": "rope", "rope_bwd": "rope_bwd",
        "scatter": "scatter", "softmax": "softmax", "softmax_bwd": "softmax_bwd", "sort": "sort", "topk": "topk",
        "window": "gather", "window_bwd": "gather",
    }
)  # fmt: skip
_NORMS: Mapping[str, str] = MappingProxyType({"rms": "rmsnorm", "layer": "layernorm"})
# Of a chain: the first of these that it has all functions of.
_BY_FUNCTIONS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"silu", "mul"}), "silu_mul"),
    (frozenset({"silu_bwd", "mul"}), "silu_mul_bwd"),
    (frozenset({"silu"}), "silu"),
    (frozenset({"silu_bwd"}), "silu_bwd"),
    (frozenset({"gelu"}), "gelu"),
    (frozenset({"gelu_bwd"}), "gelu_bwd"),
    (frozenset({"dropout"}), "dropout"),
    (frozenset({"dropout_bwd"}), "dropout_bwd"),
)
_PLAIN = ("add", "mul")
# Functions whose kernels are those of another.
_ALIKE: Mapping[str, str] = MappingProxyType({"square": "mul", "addcmul": "mul"})
# Calls of exp2, log2, sin, cos, tanh, rsqrt and reciprocal in the usual form of each function.
_SPECIALS: Mapping[str, int] = MappingProxyType(
    {
        "cos": 1, "div": 1, "erf": 1, "exp": 1, "floor_div": 1, "gelu": 2, "gelu_bwd": 2, "log": 1, "pow": 2,
        "reciprocal": 1, "remainder": 1, "rsqrt": 1, "sigmoid": 2, "softsign": 1,
        "silu": 2, "silu_bwd": 2, "sin": 1, "softplus": 2, "softplus_bwd": 2, "sqrt": 1, "tanh": 1,
    }
)  # fmt: skip
# The same of an element of other ops; of a norm, one root a row is nothing.
_SPECIALS_OF_OP: Mapping[str, int] = MappingProxyType(
    {"softmax": 1, "cross_entropy": 1, "cross_entropy_bwd": 1, "optimizer_step": 2}
)


def kind_of_op(op: str, fns: tuple[str, ...] = ()) -> str:
    """Return the kind of kernel of an op; `fns` are the functions of a chain, or the kind of a norm.

    >>> kind_of_op("elementwise", ("silu", "mul")), kind_of_op("norm_bwd", ("rms",)), kind_of_op("cumsum")
    ('silu_mul', 'rmsnorm_bwd', 'scan')
    >>> kind_of_op("elementwise", ("add", "add")), kind_of_op("elementwise", ("neg", "exp"))
    ('add', 'default')
    """
    if op in ("norm", "norm_bwd"):
        return _NORMS.get("".join(fns), "rmsnorm") + op.removeprefix("norm")
    if op != "elementwise":
        return _BY_OP.get(op, DEFAULT)
    given = frozenset(_ALIKE.get(fn, fn) for fn in fns)
    found = next((kind for needed, kind in _BY_FUNCTIONS if needed <= given), None)
    return found or next((fn for fn in _PLAIN if given == {fn}), DEFAULT)


def specials_per_element(op: str, fns: tuple[str, ...] = ()) -> int:
    """Return how many results of the special function units an element takes.

    >>> specials_per_element("elementwise", ("silu", "mul")), specials_per_element("softmax")
    (2, 1)
    """
    if op == "elementwise":
        return sum(_SPECIALS.get(fn, 0) for fn in fns)
    return _SPECIALS_OF_OP.get(op, 0)
