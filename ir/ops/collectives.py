"""Communication between the ranks of a mesh axis."""

from __future__ import annotations

from collections.abc import Iterator

from ..placement import AxisGroup, MeshAxis
from ..records import dataclass
from ..sizes.expr import Dim, Expr, as_dim, as_expr, product, symbol, total
from ..sizes.shares import evened, is_imbalance
from ..types import TensorType
from .base import Attrs, OpCall, OpClass, OpDef, free, no_check
from .traits import Trait

_GATHERS = ("all_gather", "ring_gather")
# Exchanged block by block while the op beside them works on the block it has; a rank holds two blocks, never all.
RINGS = ("ring_gather", "ring_scatter")
# One byte an element, and four for the scale of each 128: DeepSeek-V3, arXiv 2412.19437, section 3.3.
FP8_BYTES = 1 + 4 / 128


@dataclass(frozen=True, slots=True)
class CollectiveAttrs(Attrs):
    """The mesh axes, the tensor dim (-1: none), and why it was inserted.

    `wire` is the type in which elements travel, when not their own: `fp8`, with an fp32 scale for 128 of them.
    `across` is the share of a message to other nodes that really crosses: less than all where a row with several
    goals in one node goes there once and is copied inside.
    `tail` says that an all-reduce sums only the last so many entries of its dim, and leaves the rest as it is; 0: all.
    """

    axis: AxisGroup
    dim: int = -1
    why: str = ""
    wire: str = ""
    across: float = 1.0
    tail: Dim = 0

    @property
    def axes(self) -> tuple[MeshAxis, ...]:
        """The mesh axes along which tensors lie otherwise behind it, innermost first: none for pieces of one."""
        return () if self.axis.pieces else self.axis.axes


def message_bytes(call: OpCall) -> Expr:
    """Return S, the bytes of the full logical vector.

    All-reduce: what each rank holds; all-gather: the gathered result; reduce-scatter: what each rank puts in;
    all-to-all: what each rank puts in, or what the busiest gets where rows are distributed unevenly; send, recv,
    broadcast: the message. A ring's S is the blocks of all ranks, of which n - 1 pass by a rank.
    """
    uneven = call.op == "all_to_all" and any(map(is_imbalance, (f for t in call.outputs for f in t.numel.factors)))
    tensors = call.outputs if call.op in _GATHERS or uneven else call.inputs
    attrs = call.attrs_as(CollectiveAttrs)
    wire = attrs.wire
    if attrs.tail != 0:
        tensors = tuple(t.with_dims((*t.dims[: attrs.dim], attrs.tail, *t.dims[attrs.dim + 1 :])) for t in tensors)
    return total(t.numel * FP8_BYTES if wire else t.num_bytes for t in tensors)


def _check_exchange(call: OpCall) -> Iterator[str]:
    attrs = call.attrs_as(CollectiveAttrs)
    if attrs.wire not in ("", "fp8"):
        yield f"wire is '{attrs.wire}'; allowed: fp8, or none for the type of the elements"
    if not 0 < attrs.across <= 1:
        yield f"across is {attrs.across}, not a share above 0 and up to 1"


def _check_same(call: OpCall) -> Iterator[str]:
    given, made = tuple(t.dims for t in call.inputs), tuple(t.dims for t in call.outputs)
    if given != made:
        yield f"results must have the dims of the inputs {_listed(call.inputs)}, are {_listed(call.outputs)}"


def _check_scaled(call: OpCall) -> Iterator[str]:
    attrs = call.attrs_as(CollectiveAttrs)
    if len(call.inputs) != len(call.outputs):
        yield f"makes one result an input, has {len(call.inputs)} inputs and {len(call.outputs)} results"
        return
    small, large = (call.inputs, call.outputs) if call.op in _GATHERS else (call.outputs, call.inputs)
    for part, whole in zip(small, large, strict=True):
        if not _is_shard(part.dims, whole.dims, attrs):
            yield f"{part} is not {whole} with dim {attrs.dim} divided by {attrs.axis}"


def _is_shard(part: tuple[Dim, ...], whole: tuple[Dim, ...], attrs: CollectiveAttrs) -> bool:
    """An uneven share counts as the quotient that it rounds up."""
    if not 0 <= attrs.dim < len(whole) or len(part) != len(whole):
        return False
    here = as_dim(as_expr(evened(whole[attrs.dim])) / product(symbol(a) for a in attrs.axes))
    others = (*whole[: attrs.dim], part[attrs.dim], *whole[attrs.dim + 1 :])
    return evened(part[attrs.dim]) == here and part == others


def _listed(types: tuple[TensorType, ...]) -> str:
    return ", ".join(str(t) for t in types)


OPS = (
    OpDef("all_reduce", OpClass.COMMUNICATION, free, "sum over the axis, result everywhere", _check_same,
          CollectiveAttrs, num_outputs=None, traits=frozenset({Trait.SUMS, Trait.SUMS_EVERYWHERE})),
    OpDef("all_gather", OpClass.COMMUNICATION, free, "shards joined along a dim, everywhere", _check_scaled,
          CollectiveAttrs, num_outputs=None, traits=frozenset({Trait.GATHERS})),
    OpDef("reduce_scatter", OpClass.COMMUNICATION, free, "sum over the axis, each rank keeps its shard",
          _check_scaled, CollectiveAttrs, num_outputs=None, traits=frozenset({Trait.SUMS, Trait.SCATTERS})),
    OpDef("all_to_all", OpClass.COMMUNICATION, free, "exchange of shards: another dim becomes the sharded one",
          _check_exchange, CollectiveAttrs, num_outputs=None, traits=frozenset({Trait.EXCHANGES})),
    OpDef("ring_gather", OpClass.COMMUNICATION, free, "the blocks of all ranks, passed on from neighbour to neighbour",
          _check_scaled, CollectiveAttrs, num_outputs=None, traits=frozenset({Trait.GATHERS, Trait.RING})),
    OpDef("ring_scatter", OpClass.COMMUNICATION, free, "sums of blocks, passed on to their owners",
          _check_scaled, CollectiveAttrs, num_outputs=None, traits=frozenset({Trait.SUMS, Trait.SCATTERS, Trait.RING})),
    OpDef("broadcast", OpClass.COMMUNICATION, free, "one rank's tensor to all", _check_same, CollectiveAttrs),
    OpDef("send", OpClass.COMMUNICATION, free, "to the next rank of the axis", no_check, CollectiveAttrs,
          traits=frozenset({Trait.SENDS})),
    OpDef("recv", OpClass.COMMUNICATION, free, "from the previous rank of the axis", no_check, CollectiveAttrs,
          traits=frozenset({Trait.RECEIVES})),
)  # fmt: skip
