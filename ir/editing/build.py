"""A graph built node by node: ids are fresh, and dims of results follow from their op's type rule."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from ..errors import UnknownNameError, UsageError, VerifyError
from ..graph import Attrs, Graph, Node, Phase, Port, Region, Role, Run, Value, Workload
from ..ops import OpCall, Trait, op_def
from ..ops.base import ResultRule
from ..saved import mark_saved
from ..sizes.expr import Dim
from ..sizes.expr_text import parse_expr
from ..text.attrs_text import parse_attrs
from ..types import DType, TensorType
from .rewriter import RegionRewriter

# What a node reads: a value by its id, or the first result of a node.
Operand: TypeAlias = "int | Node"
Size: TypeAlias = "Dim | str"
_SOURCES = tuple(role for role in Role if role is not Role.RESULT)


class GraphBuilder(RegionRewriter):
    """A region under construction, and the verbs of a rewriter with it.

    >>> build = GraphBuilder("block")
    >>> x, weight = build.source("x", ["batch", "seq", 64]), build.source("up.weight", [256, 64], "param")
    >>> y = build.node("matmul", x, weight, attrs='spec="abc,dc->abd"')
    >>> z = build.node("elementwise", y, attrs='fns=["silu"]')
    >>> build.output("result0", z)
    >>> [str(v.type) for v in build.graph("two", Workload.PREFILL).regions[0].values]
    ['bf16[batch, seq, 64]', 'bf16[256, 64]', 'bf16[batch, seq, 256]', 'bf16[batch, seq, 256]']
    """

    def __init__(self, name: str = "block", dtype: DType = DType.BF16) -> None:
        """Begin an empty region; values are of this element type unless told."""
        super().__init__(Region(name, (), ()))
        self.dtype = dtype
        self.at()

    def at(self, scope: str = "", phase: Phase = Phase.FORWARD) -> None:
        """Let the nodes to come belong to a module and a phase."""
        self._scope, self._phase = scope, phase

    def source(self, name: str, dims: Sequence[Size], role: str = "input", dtype: DType | None = None) -> int:
        """Add a value that comes from outside and return its id; `role` is input, param, buffer, cache or port."""
        if role not in _SOURCES:
            raise UnknownNameError.of("role of a source", role, _SOURCES)
        return self.add(Value(0, self._type(dims, dtype), 0, Role(role), name))

    def node(
        self,
        op: str,
        *inputs: Operand,
        attrs: Attrs | str = "",
        dims: Sequence[Size] | None = None,
        dtype: DType | None = None,
        others: Sequence[tuple[Sequence[Size], DType]] = (),
        forward: Operand | None = None,
    ) -> Node:
        """Append a node and return it; `attrs` may be text as graphs have it.

        `dims` and `dtype` are of the first result, dims only where they do not follow from the inputs; `others` are
        those of further results. UsageError where dims are needed, VerifyError for what the op's rule refuses.
        """
        rule = op_def(op)
        options = parse_attrs(rule.attrs, attrs) if isinstance(attrs, str) else attrs
        ids = tuple(map(_id, inputs))
        call = OpCall(op, options, tuple(self.values[i].type for i in ids), ())
        made = _result_dims(call) if dims is None else dims
        call = replace(call, outputs=tuple(self._type(d, t) for d, t in ((made, dtype), *others)))
        if wrong := list(rule.complaints(call)):
            raise VerifyError(f"'{op}' at {self._scope or 'the top'}: {'; '.join(wrong)}")
        storage = self.values[ids[0]].storage if Trait.VIEW in rule.traits else None
        outputs = tuple(self.add(Value(0, t, 0), storage) for t in call.outputs)
        node = Node(op, ids, outputs, options, self._scope, self._phase, None if forward is None else _id(forward))
        self.append(node)
        return node

    def output(self, name: str, value: Operand) -> None:
        """Hand a value on, under the name of a port."""
        self.outputs = (*self.outputs, Port(name, _id(value)))

    def gradient(self, param: int, value: Operand) -> None:
        """Say which value is the gradient of a parameter."""
        self.grads = (*self.grads, (param, _id(value)))

    def graph(self, name: str = "graph", workload: Workload = Workload.TRAIN) -> Graph:
        """Return a graph of the region alone, which runs once."""
        region = self.finish()
        return mark_saved(Graph(name, workload, self.dtype, (region,), (Run((region.name,)),)))

    def _type(self, dims: Sequence[Size], dtype: DType | None) -> TensorType:
        sizes = tuple(parse_expr(d) if isinstance(d, str) else d for d in dims)
        return TensorType(sizes, self.dtype if dtype is None else dtype)


def _result_dims(call: OpCall) -> tuple[Dim, ...]:
    """Return the dims that follow from the inputs; none where the inputs are wrong, which the op's rule tells."""
    check = op_def(call.op).check
    if not isinstance(check, ResultRule):
        raise UsageError(f"the dims of what '{call.op}' makes do not follow from its inputs; give dims=[..]")
    with suppress(ValueError, LookupError):
        return check.dims(call)
    return ()


def _id(operand: Operand) -> int:
    return operand.key if isinstance(operand, Node) else operand
