"""Index maps of attention, experts, scans and convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....ir.ops import OpCall
from ....ir.ops.fused.attention import AttentionAttrs, KvAppendAttrs
from ....ir.ops.fused.experts import ExpertsAttrs
from ....ir.ops.fused.index_keys import IndexAttrs
from ....ir.ops.fused.routing import RoutedAttrs
from ....ir.ops.fused.scan import ScanAttrs
from ....ir.ops.tensors.conv import ConvAttrs
from ....ir.placement import PARTIAL, REPLICATE, Placement, Shard
from ....ir.types import TensorType
from ..entries import IndexMap, Labels, Law, PlacementEntry

_SEQUENCE = ("up", "cp")
ROUTED = Shard(0, routed=True)


def attention(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Batch, heads, and queries where their positions do not count or are told; keys are summed in a softmax."""
    q, k, o, lse = _attention_labels(call, 0)
    yield from _dealt(call, axis, 0, IndexMap([q, k, k, *_extras(call, 3)], [o, lse]))


def attention_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """As forward; gradients are summed over what their tensor does not have. Linear in dO."""
    q, k, o, lse = _attention_labels(call, 1)
    extras = _extras(call, 6)
    learned = extras[: len(call.outputs) - 3]
    outputs: list[Labels] = [q, k, k, *learned]
    sums = {c: [i for i, labels in enumerate(outputs) if c not in labels] for c in ("b", "h", "s")}
    yield from _dealt(call, axis, 1, IndexMap([o, q, k, k, o, lse, *extras], outputs, sums, linear=[((0,), ())]))


def _dealt(call: OpCall, axis: str, queries: int, form: IndexMap) -> Iterator[PlacementEntry]:
    """Where queries are distributed evenly over `cp`, they lie there in shards and in no other way."""
    balanced = axis == "cp" and call.attrs_as(AttentionAttrs).balanced
    yield from (e for e in form.entries() if not balanced or e.inputs[queries] == Shard(2))


def _attention_labels(call: OpCall, first: int) -> tuple[Labels, Labels, Labels, Labels]:
    q, k = call.inputs[first : first + 2]
    attrs = call.attrs_as(AttentionAttrs)
    told = attrs.balanced or not (attrs.causal or attrs.window)
    s = "s" if told else None
    heads = None if k.dims[1] == 1 and q.dims[1] != 1 else "h"
    return ["b", "h", s, None], ["b", heads, None, None], ["b", s, "h", None], ["b", "h", s]


def _extras(call: OpCall, first: int) -> list[Labels]:
    found: list[Labels] = []
    for name, kind in zip(call.attrs_as(AttentionAttrs).extras, call.inputs[first:], strict=False):
        if name == "bias":
            found.append([c if d != 1 else None for c, d in zip(("b", "h", "s", None), kind.dims, strict=True)])
        else:
            found.append(["h"] if name == "sinks" else ["b", "s", None])
    return found


def index_keys(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Batch, and queries where positions are told (axes of the sequence) or do not count; heads meet in a choice."""
    s = "s" if axis in _SEQUENCE or not call.attrs_as(IndexAttrs).causal else None
    yield from IndexMap([["b", None, s, None], ["b", None, None, None], ["b", s, None]], [["b", s, None]]).entries()


def kv_append(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """All dims but that along which the cache grows; that one too where there is no cache yet."""
    del axis
    dim, count = call.attrs_as(KvAppendAttrs).dim, len(call.inputs)
    labels = [None if i == dim and count > 1 else str(i) for i in range(call.outputs[0].rank)]
    yield from IndexMap([labels] * count, [labels]).entries()


def _bank_labels(call: OpCall, first: int) -> tuple[list[Placement], Placement, bool]:
    """Placements of up, down and biases cut by inner size; of the up projection's result; whether it is gated."""
    attrs = call.attrs_as(ExpertsAttrs)
    up = Shard(2 if attrs.transposed else 1, packed=attrs.gated)
    down = Shard(1 if attrs.transposed else 2)
    biases: list[Placement] = [Shard(1, packed=attrs.gated), PARTIAL]
    count = min(2 if attrs.bias and len(call.inputs) > first + 2 else 0, len(call.inputs) - first - 2)
    return [up, down, *biases[:count]], Shard(1, packed=attrs.gated), attrs.gated


def experts(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Tokens; or the inner size, over which results are summed."""
    del axis
    count = len(call.inputs)
    yield PlacementEntry((REPLICATE,) * count, (REPLICATE,) * 5)
    yield PlacementEntry((Shard(0),) * 3 + (REPLICATE,) * (count - 3), (Shard(0),) * 5)
    bank, wide, _ = _bank_labels(call, 3)
    yield PlacementEntry((REPLICATE,) * 3 + tuple(bank), (PARTIAL, REPLICATE, wide, Shard(1), PARTIAL))


def experts_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Weights' gradients are sums over tokens, those of tokens and routing weights over the inner size."""
    del axis
    extra = len(call.outputs) - 4
    yield PlacementEntry((REPLICATE,) * 10, (REPLICATE,) * len(call.outputs))
    whole, rows = (REPLICATE,) * 2, (Shard(0),) * 4
    yield PlacementEntry((*rows, *whole, *rows), (Shard(0), Shard(0), *(PARTIAL,) * (2 + extra)))
    (up, down), wide, gated = (_bank_labels(call, 4)[0][:2], *_bank_labels(call, 4)[1:])
    saved = (REPLICATE, wide, Shard(1), PARTIAL)
    biases = (Shard(1, packed=gated), REPLICATE)[:extra]
    yield PlacementEntry(((REPLICATE,) * 4) + (up, down, *saved), (PARTIAL, PARTIAL, up, down, *biases))
    yield PlacementEntry((PARTIAL, *(REPLICATE,) * 9), (PARTIAL,) * len(call.outputs))


def expert_bank(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Rows; rows with their experts; or the inner size, over which results are summed."""
    del axis
    rest = len(call.inputs) - 1
    yield PlacementEntry((REPLICATE,) * (rest + 1), (REPLICATE,) * 3)
    yield PlacementEntry((Shard(0), *(REPLICATE,) * rest), (Shard(0),) * 3)
    yield PlacementEntry((ROUTED, *(Shard(0),) * rest), (ROUTED,) * 3)
    bank, wide, _ = _bank_labels(call, 1)
    yield PlacementEntry((REPLICATE, *bank), (PARTIAL, wide, Shard(1)))


def expert_bank_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """As forward; gradients of weights are sums over rows, those of rows over the inner size. Linear in the gradient.

    A copy of the gradient in columns lies as the gradient.
    """
    del axis
    extra, copies = len(call.outputs) - 3, len(call.inputs) - 6
    bank, wide, gated = _bank_labels(call, 2)
    up, down = bank[:2]
    whole = (REPLICATE,) * 2
    yield PlacementEntry((REPLICATE,) * (6 + copies), (REPLICATE,) * len(call.outputs))
    cases: list[tuple[Placement, tuple[Placement, ...], tuple[Placement, ...]]] = [
        (Shard(0), (Shard(0), *whole, Shard(0), Shard(0)), (Shard(0), *(PARTIAL,) * (2 + extra))),
        (ROUTED, (ROUTED, Shard(0), Shard(0), ROUTED, ROUTED), (ROUTED, *(Shard(0),) * (2 + extra))),
        (
            REPLICATE,
            (REPLICATE, up, down, wide, Shard(1)),
            (PARTIAL, up, down, *(Shard(1, packed=gated), REPLICATE)[:extra]),
        ),
        (PARTIAL, (REPLICATE,) * 5, (PARTIAL,) * len(call.outputs)),
    ]
    for grad, given, made in cases:
        yield PlacementEntry((grad, *given, *(grad,) * copies), made)


def dispatch(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Tokens; where all ranks have all, each may take the rows of its own experts."""
    if axis in call.attrs_as(RoutedAttrs).own.split("+"):
        yield PlacementEntry((REPLICATE, REPLICATE), (ROUTED,))
        return
    yield PlacementEntry((REPLICATE, REPLICATE), (REPLICATE,))
    yield PlacementEntry((Shard(0), Shard(0)), (Shard(0),))
    yield PlacementEntry((PARTIAL, REPLICATE), (PARTIAL,))


def dispatch_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Tokens; linear in the rows; of a rank's own rows a part of the sum."""
    if axis in call.attrs_as(RoutedAttrs).own.split("+"):
        yield PlacementEntry((ROUTED, REPLICATE), (PARTIAL,))
        return
    yield PlacementEntry((REPLICATE, REPLICATE), (REPLICATE,))
    yield PlacementEntry((Shard(0), Shard(0)), (Shard(0),))
    yield PlacementEntry((PARTIAL, REPLICATE), (PARTIAL,))


def combine(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Tokens; linear in rows and in weights; of a rank's own rows a part of the sum."""
    if axis in call.attrs_as(RoutedAttrs).own.split("+"):
        yield PlacementEntry((ROUTED, REPLICATE, REPLICATE), (PARTIAL,))
        return
    yield PlacementEntry((REPLICATE,) * 3, (REPLICATE,))
    yield PlacementEntry((Shard(0),) * 3, (Shard(0),))
    yield PlacementEntry((PARTIAL, REPLICATE, REPLICATE), (PARTIAL,))
    yield PlacementEntry((REPLICATE, PARTIAL, REPLICATE), (PARTIAL,))


def combine_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Tokens; linear in the gradient; the gradient of the weights is linear in the rows, of a rank's own a part."""
    if axis in call.attrs_as(RoutedAttrs).own.split("+"):
        yield PlacementEntry((REPLICATE, ROUTED, REPLICATE, REPLICATE), (ROUTED, PARTIAL))
        return
    yield PlacementEntry((REPLICATE,) * 4, (REPLICATE,) * 2)
    yield PlacementEntry((Shard(0),) * 4, (Shard(0),) * 2)
    yield PlacementEntry((PARTIAL, REPLICATE, REPLICATE, REPLICATE), (PARTIAL, PARTIAL))
    yield PlacementEntry((REPLICATE, PARTIAL, REPLICATE, REPLICATE), (REPLICATE, PARTIAL))


def scan(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Batch and heads; along the sequence each step needs the one before."""
    del axis
    operands = _scan_labels(call, 0)
    yield from IndexMap(operands, [operands[0], ["b", "h", None, None]]).entries()


def scan_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """As forward; gradients are summed over what their operand does not have. Linear in the gradient."""
    del axis
    operands = _scan_labels(call, 1)
    outputs = operands[: len(call.outputs)]
    sums = {c: [i for i, labels in enumerate(outputs) if c not in labels] for c in ("b", "h")}
    yield from IndexMap([operands[0], *operands], outputs, sums, linear=[((0,), ())]).entries()


def _scan_labels(call: OpCall, first: int) -> list[Labels]:
    """Labels of values, operands and state; groups of heads that share an operand are cut with the heads."""
    given = call.inputs[first:]
    has_state = call.attrs_as(ScanAttrs).has_state
    heads = given[0].dims[2]

    def label(t: TensorType) -> Labels:
        if t.rank < 3:
            return ["h", *(None,) * (t.rank - 1)]
        shared = t.dims[2] == 1 and heads != 1
        return ["b", None, None if shared else "h", *(None,) * (t.rank - 3)]

    operands: list[Labels] = [label(t) for t in given[: len(given) - has_state]]
    return [*operands, ["b", "h", None, None]] if has_state else operands


def conv(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Batch; channels of their own; output channels; input channels, which are summed.

    Along a split sequence a causal one reads a few positions of its neighbour, whose message the graph leaves out.
    """
    x, weight = call.inputs[:2]
    attrs = call.attrs_as(ConvAttrs)
    own, dense = _is_depthwise(x, weight), weight.dims[1] == x.dims[1]
    position = "s" if attrs.causal and axis in _SEQUENCE else None
    across = [position, *(None,) * (x.rank - 3)]
    c_in, c_out = ("c", "c") if own else ("i" if dense else None, "o" if dense else None)
    bias: list[Labels] = [[c_out]] * sum(t.rank == 1 for t in call.inputs[2:])
    state: list[Labels] = [["b", c_in, None]] * attrs.has_state
    kernel: Labels = [c_out, None if own else c_in, *(None,) * (x.rank - 2)]
    both: list[Labels] = [["b", c_out, *across], ["b", c_in, None]]
    outputs = both[: len(call.outputs)]
    linear = not attrs.activation
    sums = {"i": (0,)} if linear and not own else {}
    same = {"s": (1,)}
    added = list(range(2, 2 + len(bias)))
    yield from IndexMap([["b", c_in, *across], kernel, *bias, *state], outputs, sums, same, added).entries()


def conv_bwd(call: OpCall, axis: str) -> Iterator[PlacementEntry]:
    """Batch, channels of their own, and positions as forward; gradients of weights sum over batch and positions."""
    x, weight = call.inputs[1:3]
    attrs = call.attrs_as(ConvAttrs)
    channel = "c" if _is_depthwise(x, weight) else None
    across = ["s" if attrs.causal and axis in _SEQUENCE else None, *(None,) * (x.rank - 3)]
    rows: Labels = ["b", channel, *across]
    kernel: Labels = [channel, *(None,) * (weight.rank - 1)]
    made: list[Labels] = [rows if t.dims == x.dims else kernel if t.rank > 1 else [channel] for t in call.outputs]
    sums = {c: [i for i, labels in enumerate(made) if c not in labels] for c in ("b", "s")}
    bias: list[Labels] = [[channel]] * (len(call.inputs) - 3)
    yield from IndexMap([rows, rows, kernel, *bias], made, sums, linear=[((0,), ())]).entries()


def _is_depthwise(x: TensorType, weight: TensorType) -> bool:
    return weight.dims[1] == 1 and weight.dims[0] == x.dims[1]


LAWS: Mapping[str, Law] = {
    "attention": attention, "attention_bwd": attention_bwd, "index_keys": index_keys, "kv_append": kv_append,
    "experts": experts, "experts_bwd": experts_bwd, "expert_bank": expert_bank, "expert_bank_bwd": expert_bank_bwd,
    "dispatch": dispatch, "dispatch_bwd": dispatch_bwd, "combine": combine, "combine_bwd": combine_bwd,
    "scan": scan, "scan_bwd": scan_bwd, "conv": conv, "conv_bwd": conv_bwd,
}  # fmt: skip
