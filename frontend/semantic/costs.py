"""What operators of a user's own cost: formulas by name, which the graphs carry that have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import fx

from ...ir.errors import ParseError, TraceError, UsageError
from ...ir.ops.base import OpCall
from ...ir.ops.custom import NAME, CustomAttrs, evaluated, types_of
from ...ir.records import dataclass
from ..aten.fx_import import Handler, Importer, is_inplace, op_name, tensor_names, write_back


@dataclass(frozen=True, slots=True)
class Cost:
    """Formulas of one operator, by the unit that they count for."""

    tensor_flops: str = ""
    vector_flops: str = ""
    num_bytes: str = ""


_COSTS: dict[str, Cost] = {}


def register_cost(op: object, flops: str = "0", bytes: str = "", unit: str = "tensor") -> None:
    """Register the cost of a custom operator for all modules that are traced from here on.

    Args:
        op: the operator, or its name: `"mylib::fancy"`.
        flops: a formula over the sizes of its arguments, by the names of its schema: `"2 * x.numel * w[1]"`. `x[0]` is
            a dim, `x.numel` the elements and `x.bytes` the bytes of x; `out` is the result, `out1` the second.
        bytes: a formula for what moves through memory. Left out, each argument is read once, each result written once.
        unit: `tensor` where matrix units compute it, `vector` for pointwise work.

    The operator runs on the samples of its own replica, and whole on each rank of the other axes. A backward that is an
    operator of its own is registered on its own.

    >>> register_cost("mylib::fancy", flops="2 * x.numel * w[1]")
    """
    if unit not in ("tensor", "vector"):
        raise UsageError(f"unit '{unit}': legal are tensor and vector")
    # The name of an operator, its overload dropped.
    name = str(getattr(op, "_qualname", op)).replace("::", ".")
    name = ".".join(name.split(".")[:2])
    if name.count(".") != 1:
        raise UsageError(f"'{name}' is no operator; its name is namespace::name, as in 'mylib::fancy'")
    cost = Cost(flops if unit == "tensor" else "", flops if unit == "vector" else "", bytes)
    for formula in (flops, bytes or "0"):
        try:
            evaluated(formula, {})
        except ParseError as error:
            if "is no size" not in str(error):  # what its names are is known when the operator is met
                raise UsageError(str(error)) from error
    _COSTS[name] = cost


@dataclass(frozen=True, slots=True)
class PricedHandlers(Mapping[str, Handler]):
    """Handlers beside which every operator with a formula has one."""

    known: Mapping[str, Handler]

    def __getitem__(self, name: str) -> Handler:
        return _emit if name not in self.known and name in _COSTS else self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)


def _emit(im: Importer, node: fx.Node) -> None:
    """Emit a call with the formulas of its operator; TraceError says what in them is no size of its arguments."""
    cost, inputs = _COSTS[op_name(node)], im.inputs(node)
    attrs = CustomAttrs(op_name(node), tensor_names(node), cost.tensor_flops, cost.vector_flops, cost.num_bytes)
    outs = im.emit(node, NAME, inputs, attrs)
    call = OpCall(NAME, attrs, *(tuple(im.flat.values[i].type for i in ids) for ids in (inputs, outs)))
    for formula in (cost.tensor_flops, cost.vector_flops, cost.num_bytes):
        try:
            evaluated(formula or "0", types_of(call))
        except ParseError as error:
            raise TraceError(f"the cost of '{op_name(node)}': {error}") from error
    if is_inplace(node):
        write_back(im, node, outs[0])
