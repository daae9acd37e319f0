"""Which dims of a node's tensors are the same dim: labels, alike where a dim is handed on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from ...ir.graph import Node, Phase, Region
from ...ir.ops import OpCall, Trait, call_of, has
from ...ir.ops.tensors.images import ChannelNormAttrs, WindowAttrs
from ...ir.ops.tensors.layout import ConcatAttrs, PermuteAttrs, SliceAttrs
from ...ir.ops.tensors.lookup import LookupAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.normalize import ReduceAttrs
from ...ir.sizes.expr import Dim
from ...ir.types import TensorType
from .rules.layout import groups

Label: TypeAlias = tuple[object, ...]
Labels: TypeAlias = tuple[Label, ...]
Spot: TypeAlias = tuple[int, int]  # a value of a region and one of its dims


def same_dims(region: Region, node: Node, spot: Spot) -> Iterable[Spot]:
    """Yield the dims of other tensors of a node that are the dim of one of its tensors."""
    ids = (*node.inputs, *node.outputs)
    labels = labels_of(call_of(region, node))
    wanted = {ls[spot[1]] for i, ls in zip(ids, labels, strict=True) if i == spot[0]} - {None}
    for i, ls in zip(ids, labels, strict=True):
        yield from ((i, dim) for dim, label in enumerate(ls) if label in wanted)


def is_cut_apart(region: Region, node: Node) -> bool:
    """Whether what a slice takes out of a dim is cut into pieces again along it, here or behind what hands it on."""
    assert isinstance(node.attrs, SliceAttrs)
    return not node.attrs.drop and _is_sliced_behind(region, (node.key, node.attrs.dim), tuple(Phase))


def has_packed_channels(region: Region, node: Node) -> bool:
    """Whether the channels (dim 1) of a convolution's result are those of several tensors, sliced out behind it.

    Mamba-2 convolves x, B and C side by side; Mamba-1, and a gated short convolution, one tensor.
    """
    return _is_sliced_behind(region, (node.key, 1), (Phase.FORWARD,))


def _is_sliced_behind(region: Region, spot: Spot, phases: Collection[Phase]) -> bool:
    size = region.by_id[spot[0]].type.dims[spot[1]]
    todo, seen = [spot], {spot}
    while todo:
        value, dim = todo.pop()
        for user in (n for n in region.users.get(value, ()) if n.phase in phases):
            if has(user, Trait.TAKES_RANGE) and isinstance(user.attrs, SliceAttrs) and user.attrs.dim == dim:
                return True
            for spot in same_dims(region, user, (value, dim)):
                if spot[0] in user.outputs and spot not in seen and region.by_id[spot[0]].type.dims[spot[1]] == size:
                    seen.add(spot)
                    todo.append(spot)
    return False


def labels_of(call: OpCall) -> Labels:
    """Return a label for each dim of each input and output; None for a dim that ends or begins here."""
    return _LABELS.get(call.op, _aligned)(call)


def _aligned(call: OpCall) -> Labels:
    """As broadcasting does: counted from the right, and of the same size."""
    tensors = (*call.inputs, *call.outputs)
    return tuple(tuple((t.rank - i, d) if d != 1 else None for i, d in enumerate(t.dims)) for t in tensors)


def _nothing(call: OpCall) -> Labels:
    return tuple((None,) * t.rank for t in (*call.inputs, *call.outputs))


def _matmul(call: OpCall) -> Labels:
    left, right, out = call.attrs_as(MatmulAttrs).letters
    bias = ((out[-1],),) if len(call.inputs) > 2 else ()
    return (tuple(left), tuple(right), *bias, tuple(out))


def _permute(call: OpCall) -> Labels:
    return tuple(range(call.inputs[0].rank)), call.attrs_as(PermuteAttrs).dims


def _reshape(call: OpCall) -> Labels:
    """The leading dim of a group leads on the other side too."""
    source, result = call.inputs[0].dims, call.outputs[0].dims
    made: dict[int, object] = {}
    given: dict[int, object] = {}
    for ins, outs in groups(source, result):
        leads = _leading(source, ins), _leading(result, outs)
        if leads[0] is not None and leads[1] is not None:
            given[leads[0]] = made[leads[1]] = leads
    return tuple(given.get(i) for i in range(len(source))), tuple(made.get(i) for i in range(len(result)))


def _leading(dims: tuple[Dim, ...], group: list[int]) -> int | None:
    return next((i for i in group if dims[i] != 1), None)


def _slice(call: OpCall) -> Labels:
    whole, part = _sliced(call, call.inputs[0].rank)
    return whole, part


def _pad(call: OpCall) -> Labels:
    whole, part = _sliced(call, call.outputs[0].rank)
    return part, whole


def _sliced(call: OpCall, rank: int) -> tuple[Label, Label]:
    attrs = call.attrs_as(SliceAttrs)
    whole = tuple(None if i == attrs.dim else i for i in range(rank))
    return whole, tuple(label for i, label in enumerate(whole) if i != attrs.dim or not attrs.drop)


def _concat(call: OpCall) -> Labels:
    along = call.attrs_as(ConcatAttrs).dim
    label = tuple(None if i == along else i for i in range(call.outputs[0].rank))
    return (label,) * (len(call.inputs) + 1)


def _reduce(call: OpCall) -> Labels:
    attrs = call.attrs_as(ReduceAttrs)
    given = tuple(None if i in attrs.dims else i for i in range(call.inputs[0].rank))
    made = given if attrs.keepdim else tuple(i for i in given if i is not None)
    return given, *(made,) * len(call.outputs)


def _lookup(call: OpCall) -> Labels:
    """Letters that are in two places; what is looked up ends here."""
    words = call.attrs.letters if isinstance(call.attrs, LookupAttrs | WindowAttrs | ChannelNormAttrs) else ()
    if not words:
        return _nothing(call)
    times = Counter("".join(words))
    return tuple(tuple((letter,) if times[letter] > 1 else None for letter in word) for word in words)


def _conv(call: OpCall) -> Labels:
    """Channels of a depthwise convolution are those of its result; batch and positions are handed on as they are."""
    forward = not has(call, Trait.BACKWARD)
    x, weight = call.inputs[:2] if forward else call.inputs[1:3]
    if weight.dims[1] != 1 or weight.dims[0] != x.dims[1]:
        return _nothing(call)

    def label(t: TensorType) -> Label:
        if t.rank == 1:
            return ("channels",)
        if t.dims == weight.dims:
            return ("channels", *(None,) * (t.rank - 1))
        return ("batch", "channels", *(None,) * (t.rank - 2))

    return tuple(label(t) for t in (*call.inputs, *call.outputs))


_LABELS: Mapping[str, Callable[[OpCall], Labels]] = {
    "matmul": _matmul, "permute": _permute, "reshape": _reshape, "slice": _slice, "pad": _pad, "concat": _concat,
    "reduce": _reduce, "attention": _nothing, "attention_bwd": _nothing, "embedding": _nothing,
    "embedding_bwd": _nothing, "grouped_matmul": _nothing, "experts": _nothing, "experts_bwd": _nothing,
    "expert_bank": _nothing, "expert_bank_bwd": _nothing, "gather": _lookup, "scatter": _lookup, "scan": _nothing,
    "scan_bwd": _nothing, "conv": _conv, "conv_bwd": _conv,
    **dict.fromkeys(("window", "window_bwd", "channel_norm", "channel_norm_bwd"), _lookup),
}  # fmt: skip
