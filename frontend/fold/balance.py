"""A graph against what was recorded: the same products, operators and parameters, none twice and none invented."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import TypeAlias

from torch import Tensor, fx, nn

from ...ir.errors import InternalError
from ...ir.graph import Graph, Node, Role, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.tensors.conv import ConvAttrs
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, as_expr
from ..aten.flat import Flat
from ..aten.fx_import import op_name
from ..record.adapter import FakeWorld

# Products of matrices, with the place of the left one among the arguments.
_PRODUCTS = {"aten.mm": 0, "aten.bmm": 0, "aten.addmm": 1, "aten.baddbmm": 1, "slipstick.step_product": 0}
# Attention, with the place of the queries, behind which lie keys and values; how often scores meet heads' dims of each.
_ATTENTION = {"slipstick.attention": 0, "slipstick.attention_bwd": 1, "attention": 0, "attention_bwd": 1}
_MEETINGS = {0: (1, 1), 1: (3, 2)}
# Convolutions, with the place of the input, behind which lies the weight, and of the argument that says `transposed`.
_CONVOLUTIONS = {
    "aten.convolution": (0, 6),
    "aten.convolution_backward": (1, 7),
    "slipstick.causal_conv": (0, None),
    "slipstick.causal_conv_bwd": (1, None),
}
_LENGTH = 96.0
_Dims: TypeAlias = tuple[Dim, ...]
_Run: TypeAlias = tuple[str, str, float]


def check_products(graph: fx.Graph, flat: Flat, world: FakeWorld) -> None:
    """Compare products, attention and convolutions that ran with those that were imported, before any is left out.

    Both are counted in multiplications of each call, forward and backward. Products of complex numbers are several of
    real ones, and are not compared.
    """
    nodes = [n for n in graph.nodes if n.op == "call_function" and op_name(n) in _COUNTED]
    if any(t.is_complex() for n in nodes for t in _made(n)):
        return
    sizes = _Sizes(world)
    ran = Counter(sizes.ran(n) for n in nodes)
    read = Counter(sizes.read(n, flat.values) for n in flat.nodes if has(n, *_READ))
    if ran != read:
        (phase, kind, size), times = next(iter(((ran - read) or (read - ran)).items()))
        raise InternalError(f"{times} {kind} of {size:.4g} multiplications in {phase} are not read as they ran")


_COUNTED = {*_PRODUCTS, *_ATTENTION, *_CONVOLUTIONS}
_READ = (OpClass.MATMUL, OpClass.CONV, Trait.ATTENDS)


@dataclass
class _Sizes:
    """Multiplications of calls, with some number in the place of every open size."""

    world: FakeWorld
    numbers: dict[Dim, float] = field(default_factory=dict)

    def ran(self, node: fx.Node) -> _Run:
        """Count a recorded call by its arguments in torch's order."""
        name, phase, made = op_name(node), str(node.meta["phase"]), _made(node)
        if (place := _PRODUCTS.get(name)) is not None:
            return phase, "products", self._product(self._dims(made[0]), self._given(node, place))
        if (place := _ATTENTION.get(name)) is not None:
            q, k, v = (self._given(node, place + i) for i in range(3))
            return phase, "attentions", self._attention(q, k, v, place)
        place, switch = _CONVOLUTIONS[name]
        x, weight = self._given(node, place), self._given(node, place + 1)
        y = self._given(node, 0) if place else self._dims(made[0])
        transposed = switch is not None and bool(node.args[switch])
        return phase, "convolutions", self._convolution(x, weight, y, transposed, self._gradients(node) if place else 1)

    def read(self, n: Node, values: Mapping[int, Value]) -> _Run:
        """Count an imported call by the op's inputs and results."""
        ins, outs = ([values[i].type.dims for i in ids] for ids in (n.inputs, n.outputs))
        if has(n, OpClass.MATMUL):
            return str(n.phase), "products", self._product(outs[0], ins[0])
        if (place := _ATTENTION.get(n.op)) is not None:
            q, k, v = ins[place : place + 3]
            return str(n.phase), "attentions", self._attention(q, k, v, place)
        backward, attrs = has(n, Trait.BACKWARD), n.attrs
        assert isinstance(attrs, ConvAttrs)
        x, weight = ins[backward : backward + 2]
        y, times = (ins[0], sum(len(d) == len(weight) for d in outs)) if backward else (outs[0], 1)
        return str(n.phase), "convolutions", self._convolution(x, weight, y, attrs.transposed, times)

    def _product(self, made: _Dims, left: _Dims) -> float:
        return self._numel((*made, left[-1]))

    def _attention(self, q: _Dims, k: _Dims, v: _Dims, place: int) -> float:
        """Scores, times the dims that are summed over or made of each; causal masks are not counted out."""
        of_keys, of_values = _MEETINGS[place]
        return self._numel((*q[:3], k[2])) * (of_keys * self._numel(q[3:]) + of_values * self._numel(v[3:]))

    def _convolution(self, x: _Dims, weight: _Dims, y: _Dims, transposed: bool, times: int) -> float:
        return self._numel((*(x if transposed else y), *weight[1:])) * times

    def _gradients(self, node: fx.Node) -> int:
        """Gradients of input and weight that are asked for; that of a bias is a sum."""
        val = node.meta["val"]
        return sum(isinstance(t, Tensor) for t in val[:2])

    def _given(self, node: fx.Node, place: int) -> _Dims:
        given = node.args[place]
        assert isinstance(given, fx.Node)
        return self._dims(given.meta["val"])

    def _dims(self, tensor: Tensor) -> _Dims:
        return tuple(self.world.dim(s) for s in tensor.shape)

    def _numel(self, dims: Sequence[Dim]) -> float:
        return prod(map(self._number, dims))

    def _number(self, dim: Dim) -> float:
        if dim not in self.numbers:
            size = as_expr(dim)
            self.numbers[dim] = float(size.evaluate(dict.fromkeys(size.symbols, _LENGTH)))
        return self.numbers[dim]


def _made(node: fx.Node) -> list[Tensor]:
    val = node.meta["val"]
    return [t for t in (val if isinstance(val, tuple | list) else (val,)) if isinstance(t, Tensor)]


def check_folding(graph: Graph, flat: Flat) -> None:
    """Compare operators and their result types, with how often each runs, and elements of parameters."""
    recorded = Counter(_said(n, flat.values) for n in flat.nodes)
    folded: Counter[tuple[object, ...]] = Counter()
    for region in graph.regions:
        for n in region.nodes:
            folded[_said(n, region.by_id)] += graph.counts[region.name]
    if recorded != folded:
        (phase, op, kind), times = next(iter(((recorded - folded) or (folded - recorded)).items()))
        raise InternalError(f"folding '{graph.name}' changes how often '{op}' to {kind} runs in {phase}, by {times}")
    held = {v.name: round(float(v.type.numel.evaluate({}))) for v in flat.values.values() if v.role is Role.PARAM}
    num = round(float(graph.num_parameters.evaluate({})))
    if num != sum(held.values()):
        raise InternalError(f"folding '{graph.name}' makes {num:,} parameters of {sum(held.values()):,}")


def _said(n: Node, values: Mapping[int, Value]) -> tuple[object, ...]:
    return n.phase, n.op, ", ".join(str(values[o].type) for o in n.outputs)


_NUMBER = re.compile(r"\*\+[0-9]+|[0-9]+")
_NAMED = 3


def with_unused(graph: Graph, module: nn.Module) -> Graph:
    """Return the graph with a note on parameters that the module holds and no operator reads.

    InternalError when the graph has parameters that the module does not have, or more elements of them.
    """
    _check(graph, module)
    num, whole = round(float(graph.num_parameters.evaluate({}))), count_parameters(module)
    if num >= whole:
        return graph
    note = f"{whole - num:,} of {whole:,} parameters take no part in {graph.workload} and are not in the graph"
    return replace(graph, notes=(*graph.notes, note + _places(graph, module)))


def count_parameters(module: nn.Module) -> int:
    """Return the number of distinct parameters of a module."""
    return sum(p.numel() for p in module.parameters())


def _check(graph: Graph, module: nn.Module) -> None:
    """Compare elements name by name, with stars for numbers of layers and experts.

    Parameters that a description joins under a name of its own (experts' matrices) are no more than what is left.
    """
    held: Counter[str] = Counter()
    for name, p in module.named_parameters():
        held[_starred(name)] += p.numel()
    read: Counter[str] = Counter()
    for name, kind, count in graph.distinct_parameters():
        read[_starred(name)] += round(float(kind.numel.evaluate({}))) * count
    more = [f"{n}: {read[n]:,} elements of {held[n]:,}" for n in read if n in held and read[n] > held[n]]
    joined, left = read.keys() - held.keys(), sum((held - read).values())
    if joined and sum(read[n] for n in joined) > left:
        more.append(f"{', '.join(sorted(joined)[:3])}: {sum(read[n] for n in joined):,} elements of {left:,}")
    if more:
        raise InternalError(f"graph '{graph.name}' has parameters that its module does not have: {'; '.join(more[:3])}")


def _places(graph: Graph, module: nn.Module) -> str:
    """The paths that hold most of what is not read, with stars for numbers of layers and experts."""
    read = {_starred(v.name) for r in graph.regions for v in r.of_role(Role.PARAM)}
    left: Counter[str] = Counter()
    for name, p in module.named_parameters():
        if _starred(name) not in read:
            left[_starred(name).rpartition(".")[0] or name] += p.numel()
    most = [path for path, _ in left.most_common(_NAMED)]
    rest = f" and {len(left) - len(most)} more" if len(left) > len(most) else ""
    return f": {', '.join(most)}{rest}" if most else ""


def _starred(name: str) -> str:
    return _NUMBER.sub("*", name)
