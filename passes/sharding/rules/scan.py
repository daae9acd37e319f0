"""Sharding of scans and convolutions: heads or channels, batch; the sequence of a scan is whole on each rank."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir.graph import Phase
from ....ir.ops.fused.scan import ScanAttrs
from ....ir.ops.tensors.conv import ConvAttrs
from ....ir.types import TensorType
from ..ask import PARTIAL, REPLICATE, Answer, Ask, Placement, Rule, Shard, replicate_all

_SEQUENCE = ("up", "cp")


def scan(ask: Ask) -> Answer:
    """Batch or heads may be sharded; over context parallelism heads, by all-to-all, as the sequence must be whole."""
    p = _batch_or_heads(ask, 0)
    if p is None:
        return replicate_all(ask)
    return Answer(_operands(ask, 0, p), (p, Shard(0) if p.dim == 0 else Shard(1)))


def scan_bwd(ask: Ask) -> Answer:
    """As forward; what ranks share, parameters over the batch and q and k of all heads over heads, sums up."""
    p = _batch_or_heads(ask, 1)
    if p is None:
        return replicate_all(ask)
    operands = _operands(ask, 1, p)
    grads: list[Placement] = [o if isinstance(o, Shard) else PARTIAL for o in operands[: ask.num_outputs]]
    return Answer((p, *operands), tuple(grads))


def _batch_or_heads(ask: Ask, values: int) -> Shard | None:
    """How the values are to lie: as the first sharded operand says, or by heads where the sequence is sharded."""
    shards = [(i, p) for i in range(len(ask.given)) if isinstance(p := ask.whole(i), Shard)]
    if ask.axis in _SEQUENCE:
        along = any(p.dim == 1 and ask.rank(i) > 2 for i, p in shards)
        remembered = bool(ask.forward) and ask.forward[0] == Shard(2)
        return Shard(2) if along or remembered or any(p.dim == 2 for _, p in shards) else None
    has_state = ask.call.attrs_as(ScanAttrs).has_state
    state = ask.whole(len(ask.given) - 1) if has_state else REPLICATE
    if isinstance(state, Shard):
        return Shard(0 if state.dim == 0 else 2)
    tokens = [(i, p) for i, p in shards if ask.rank(i) > 2 and not (has_state and i == len(ask.given) - 1)]
    if any(p.dim == 0 for _, p in tokens):
        return Shard(0)
    return Shard(2) if any(_is_by_head(ask, i, values, p) for i, p in shards) else None


def _is_by_head(ask: Ask, index: int, values: int, p: Shard) -> bool:
    """Whether an operand is sharded over the heads of the values: q and k of few groups do not say so."""
    t = ask.call.inputs[index]
    heads = ask.call.inputs[values].dims[2]
    dim = 2 if t.rank > 2 else 0
    return (dim if t.dims[dim] == heads else None) == p.dim


def _operands(ask: Ask, values: int, p: Shard) -> tuple[Placement, ...]:
    has_state = ask.call.attrs_as(ScanAttrs).has_state
    given = ask.call.inputs[values:]
    heads = given[0].dims[2]
    state: tuple[Placement, ...] = (Shard(0) if p.dim == 0 else Shard(1),) if has_state else ()
    rest = given[: len(given) - has_state]
    return (*(_operand(t, heads, p) for t in rest), *state)


def _operand(t: TensorType, heads: object, p: Shard) -> Placement:
    if p.dim == 0:
        return Shard(0) if t.rank > 2 else REPLICATE
    if t.rank == 4 and t.dims[2] == 1 and heads != 1:
        return REPLICATE
    return Shard(2 if t.rank > 2 else 0)


def conv(ask: Ask) -> Answer:
    """Batch, channels, or the positions of a causal one may be sharded; few positions of a neighbour are not priced."""
    weight, *rest = ask.call.inputs[1:]
    attrs = ask.call.attrs_as(ConvAttrs)
    p = _batch_or_channels(ask, 0)
    if p is None:
        return replicate_all(ask)
    if p.dim == 1 and not _is_depthwise(ask.call.inputs[0], weight):
        return _dense_channels(ask)
    parameters = _parameters(p, 1 + sum(t.rank == 1 for t in rest))
    state: tuple[Placement, ...] = (_state(p),) if attrs.has_state else ()
    made: tuple[Placement, ...] = (p, _state(p))
    return Answer((p, *parameters, *state), made[: ask.num_outputs])


def conv_bwd(ask: Ask) -> Answer:
    """As forward; gradients of parameters that ranks share sum up over batch and positions."""
    p = _batch_or_channels(ask, 1)
    if p is None or (p.dim == 1 and not _is_depthwise(*ask.call.inputs[1:3])):
        return replicate_all(ask)
    parameters = _parameters(p, len(ask.given) - 2)
    x = ask.call.inputs[1].dims
    grads = tuple(q if p.dim == 1 else PARTIAL for q in parameters)
    # a bias comes last, where it is read at all: that of torch's own convolution is not
    made = tuple(p if o.dims == x else grads[-1 if o.rank == 1 else 0] for o in ask.call.outputs)
    return Answer((p, p, *parameters), made)


def _batch_or_channels(ask: Ask, x: int) -> Shard | None:
    """How the input is to lie: batch before channels; channels where the weight is sharded by them."""
    attrs = ask.call.attrs_as(ConvAttrs)
    given = [ask.whole(i) for i in (x, 0)]
    for p in given:
        if isinstance(p, Shard) and (p.dim < 2 or (attrs.causal and ask.axis in _SEQUENCE)):
            return Shard(p.dim, p.packed)
    weight = ask.whole(x + 1)
    return Shard(1, weight.packed) if isinstance(weight, Shard) and weight.dim == 0 else None


def _is_depthwise(x: TensorType, weight: TensorType) -> bool:
    return weight.dims[1] == 1 and weight.dims[0] == x.dims[1]


def _parameters(p: Shard, count: int) -> tuple[Placement, ...]:
    """Weights and bias by channels, packed as the channels are: a rank has the taps of its own channels."""
    return (Shard(0, p.packed) if p.dim == 1 else REPLICATE,) * count


def _state(p: Shard) -> Placement:
    """The last positions lie as batch and channels do; of a sharded sequence the last rank's are everyone's."""
    return p if p.dim < 2 else REPLICATE


def _dense_channels(ask: Ask) -> Answer:
    """Output channels by the weight's rows; input channels give partial sums; others whole."""
    weight, bias = ask.given[1], len(ask.given) - 2
    x, kernel = ask.call.inputs[:2]
    if x.dims[1] != kernel.dims[1] or ask.phase is not Phase.FORWARD:
        return replicate_all(ask)
    if isinstance(weight, Shard) and weight.dim == 0:
        return Answer((REPLICATE, Shard(0), *(Shard(0),) * bias), (Shard(1),))
    return replicate_all(ask)


def keep_state(ask: Ask) -> Answer:
    """A state stays where it was written."""
    p = ask.whole(0)
    return Answer((p,), (p,))


RULES: Mapping[str, Rule] = {
    "scan": scan,
    "scan_bwd": scan_bwd,
    "conv": conv,
    "conv_bwd": conv_bwd,
    "keep_state": keep_state,
}
