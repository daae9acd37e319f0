"""Modules of multi-token prediction behind a model that is trained: one more layer and one more loss each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.errors import PlanError
from ...ir.graph import Graph, Node, Phase, Port, Region, Role, Run, Value, Workload
from ...ir.layers import MTP_LAYER
from ...ir.ops.tensors.layout import ConcatAttrs, SliceAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import NormAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.records import dataclass
from ...ir.saved import mark_saved
from ...ir.types import DType, TensorType
from ..base import Pass, PassResult
from .parts import MtpParts, mtp_parts

# Published models have one to four; the work of lowering grows with each.
MOST_MODULES = 1000
# Names of what modules have of their own, and of the ports that lead to and from their embedding. Their products lie
# outside of all modules of a layer, and their norms inside of one: recomputation of `mlp` or `layernorm` means neither.
_OWN = "mtp.*"
_EMBEDDING, _EMBEDDING_GRAD, _TABLE_GRAD = "mtp_embedding", "mtp_embedding_grad", "mtp_table_grad"


@dataclass(frozen=True, slots=True)
class Mtp(Pass):
    """Let a model predict further tokens while it is trained, as DeepSeek-V3 (arXiv 2412.19437, section 2.2).

    Module k takes h, what module k-1 or the last layer hands on, and e, the embedding of the token k places on. It
    norms both, projects them joined (2 x hidden -> hidden) and runs a layer of the form of the last one. Behind it
    stand a norm of its own and the model's head with another loss. Table and head are the model's own, whose
    gradients are added up. Modules stand behind the head: with pipeline stages, on the last one.

    | option | meaning                                                                            |
    |--------|------------------------------------------------------------------------------------|
    | layers | modules, each with weights of its own: how many further tokens a position predicts |
    """

    name: ClassVar[str] = "mtp"
    sharded: ClassVar[bool | None] = False  # modules are sharded as the layer that they repeat
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.TRAIN,)
    layers: int = 1

    def apply(self, graph: Graph) -> PassResult:
        """Append the modules; NotBuiltError for a model that cannot take them."""
        if not 1 <= self.layers <= MOST_MODULES:
            raise PlanError(f"mtp layers={self.layers}: 1 to {MOST_MODULES}")
        parts = mtp_parts(graph)
        shared = parts.shared_grads
        incoming = {parts.head_grad: parts.gradient, **shared}
        own = {
            parts.first.name: _receiving(parts.first, {parts.table_grad: _TABLE_GRAD}),
            parts.head.name: _receiving(parts.head, incoming),
        }
        lookup, module, head = _lookup(parts), _module(parts), _module_head(parts, shared)
        made = [lookup, module, head]
        runs = [Run((lookup.name, module.name, head.name))]
        if self.layers > 1:
            # All modules but the last one also get gradients of those behind them.
            inner = (_receiving(lookup, {parts.lookup_back.key: _TABLE_GRAD}), _receiving(head, incoming))
            made += [replace(r, name=f"{r.name}_inner") for r in inner]
            runs.insert(0, Run((made[-2].name, module.name, made[-1].name), self.layers - 1))
        regions = (*(own.get(r.name, r) for r in graph.regions), *made)
        return PassResult(mark_saved(replace(graph, regions=regions, schedule=(*graph.schedule, *runs))), changed=True)


def _receiving(region: Region, incoming: Mapping[int, str]) -> Region:
    """Add what comes through ports to gradients that a region owns or hands on."""
    at, total = RegionRewriter(region), dict[int, int]()
    for value, port in incoming.items():
        kind, scope = region.by_id[value].type, region.producer[value].scope
        came, total[value] = at.add(Value(0, kind, 0, Role.PORT, port)), at.add(Value(0, kind, 0))
        adds = ElementwiseAttrs(("add",))
        at.append(Node("elementwise", (value, came), (total[value],), adds, scope, Phase.BACKWARD))
    at.outputs = tuple(replace(p, value=total.get(p.value, p.value)) for p in region.outputs)
    at.grads = tuple((param, total.get(grad, grad)) for param, grad in region.grads)
    return at.finish()


def _lookup(parts: MtpParts) -> Region:
    """The region that looks up the tokens further on, in the table of the model."""
    ids, table = (parts.first.by_id[i] for i in parts.lookup.inputs)
    ends = (parts.lookup.key, parts.lookup_back.inputs[0], parts.lookup_back.key)
    found, given, grad = (parts.first.by_id[i] for i in ends)
    came = Value(given.id, given.type, given.id, Role.PORT, _EMBEDDING_GRAD)
    outputs = (Port(_EMBEDDING, found.id), Port(_TABLE_GRAD, grad.id))
    return Region(_EMBEDDING, (ids, table, came, found, grad), (parts.lookup, parts.lookup_back), outputs)


def _module(parts: MtpParts) -> Region:
    """Norms of h and e, the projection of both together, and a layer; forward and backward."""
    draft = _Draft(parts.layer)
    stream, embedded = parts.layer.by_id[parts.entry].type, parts.first.by_id[parts.lookup.key].type
    hidden, extra = stream.dims[-1], embedded.dims[-1]
    assert isinstance(hidden, int)
    assert isinstance(extra, int)
    joined = stream.with_dims((*stream.dims[:-1], extra + hidden))
    h, e = draft.value(stream, Role.PORT, parts.stream), draft.value(embedded, Role.PORT, _EMBEDDING)
    weight = draft.value(stream.with_dims((hidden, extra + hidden)), Role.PARAM, f"{_OWN}.eh_proj.weight")
    of_e, of_h = draft.norm(e, "enorm"), draft.norm(h, "hnorm")
    both, entry, leaving = draft.value(joined), parts.entry, parts.leaving
    draft.prepend(Node("concat", (of_e.result, of_h.result), (both,), ConcatAttrs(2), _OWN))
    draft.prepend(Node("matmul", (both, weight), (entry,), MatmulAttrs("abc,dc->abd"), _OWN))
    weight_grad, both_grad = draft.value(draft.kind(weight)), draft.value(joined)
    products = ((both, weight_grad, "abc,abd->cd"), (weight, both_grad, "abc,cd->abd"))
    for factor, made, spec in products:
        draft.append(Node("matmul", (leaving, factor), (made,), MatmulAttrs(spec), _OWN, Phase.BACKWARD, forward=entry))
    draft.grads += ((weight, weight_grad),)
    grads = {}
    for name, norm, start in (("e", of_e, 0), ("h", of_h, extra)):
        part = draft.view(both_grad, draft.kind(norm.given), SliceAttrs(2, start), both)
        grads[name] = draft.norm_grad(norm, part)
    outputs = [p for p in parts.layer.outputs if p.name == parts.stream]
    outputs += [Port(parts.gradient, grads["h"]), Port(_EMBEDDING_GRAD, grads["e"])]
    return draft.named(MTP_LAYER, entry, outputs)


@dataclass(frozen=True, slots=True)
class _Norm:
    """An RMS norm in the making: its input, weight, result and what the backward phase reads of it."""

    given: int
    weight: int
    result: int
    rows: int
    scope: str


class _Draft(RegionRewriter):
    """A layer with nodes in front of it and behind its backward phase."""

    def value(self, kind: TensorType, role: Role = Role.RESULT, name: str = "", storage: int | None = None) -> int:
        """Add a value, in a storage of its own unless another one is given."""
        return self.add(Value(0, kind, 0, role, name), storage)

    def kind(self, value: int) -> TensorType:
        """Return the type of a value."""
        return self.values[value].type

    def norm(self, given: int, name: str) -> _Norm:
        """Norm the rows of a value, as DeepSeek-V3 whatever the norm of the model's own layers."""
        kind, scope = self.kind(given), f"{_OWN}.entry.{name}"
        weight = self.value(kind.with_dims(kind.dims[-1:]), Role.PARAM, f"{_OWN}.{name}.weight")
        rows = self.value(TensorType((*kind.dims[:-1], 1), DType.FP32))
        made = _Norm(given, weight, self.value(kind), rows, scope)
        self.prepend(Node("norm", (given, weight), (made.result, rows), NormAttrs("rms"), scope))
        return made

    def norm_grad(self, norm: _Norm, grad: int) -> int:
        """Return the gradient of what was normed; that of the weight is kept as such."""
        given, weight = self.value(self.kind(norm.given)), self.value(self.kind(norm.weight))
        inputs = (grad, norm.given, norm.rows, norm.weight)
        rms = NormAttrs("rms")
        self.append(Node("norm_bwd", inputs, (given, weight), rms, norm.scope, Phase.BACKWARD, norm.result))
        self.grads += ((norm.weight, weight),)
        return given

    def view(self, whole: int, kind: TensorType, attrs: SliceAttrs, forward: int) -> int:
        """Take a range of a value of the backward phase."""
        part = self.value(kind, storage=whole)
        self.append(Node("slice", (whole,), (part,), attrs, _OWN, Phase.BACKWARD, forward))
        return part

    def named(self, name: str, entry: int, outputs: Sequence[Port]) -> Region:
        """Return the region, in which what the layer was handed is made by the nodes in front."""
        v = self.values[entry]
        self.values[entry], self.outputs = Value(v.id, v.type, v.storage), tuple(outputs)
        return replace(self.finish(), name=name)


def _module_head(parts: MtpParts, shared: Mapping[int, str]) -> Region:
    """The last norm, anew, and the head and loss of the model, whose gradients of shared weights are handed on."""
    head = parts.head
    own = {v.id: replace(v, name=f"{_OWN}.{v.name}") for v in head.of_role(Role.PARAM) if parts.is_own(v)}
    outputs = [Port(parts.gradient, parts.head_grad), *(Port(port, value) for value, port in shared.items())]
    outputs += [Port(f"{p.name}_mtp", p.value) for p in head.outputs if head.phase_of(p.value) is Phase.FORWARD]
    grads = tuple(pair for pair in head.grads if pair[0] in own)
    return Region("mtp_head", tuple(own.get(v.id, v) for v in head.values), head.nodes, tuple(outputs), grads)
