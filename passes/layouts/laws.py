"""Layout laws: operands lie as an entry of the op's index map says, and a message converts what it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...ir.ops import IndexMap, OpCall, Trait, has, index_map_of
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.fused.attention import KvAppendAttrs
from ...ir.ops.index_map import SAMPLE_AXES, PlacementEntry
from ...ir.ops.tensors.images import ChannelNormAttrs, WindowAttrs
from ...ir.ops.tensors.layout import SliceAttrs
from ...ir.ops.tensors.lookup import LookupAttrs
from ...ir.ops.tensors.normalize import DimAttrs, ReduceAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.placement import PARTIAL, REPLICATE, Partial, Placement, Shard
from ..sharding.ask import has_batch
from .lay import Law, Lay


def operand_problems(lay: Lay) -> Iterator[str]:
    """Complain where placements are no entry of the index map, and no conversion that stands for a message."""
    index_map = index_map_of(lay.call, lay.axis)
    if index_map is None or _is_conversion(lay) or index_map.fits(lay.ins, lay.outs):
        return
    if lay.axis not in SAMPLE_AXES or not _is_own(lay, index_map):
        yield _differences(lay, index_map)


def _is_own(lay: Lay, index_map: IndexMap) -> bool:
    """Whether each replica works on its own samples: in which order those of all would stand, nobody sees."""
    attrs, first = lay.call.attrs, lay.all[0]
    if index_map.fits(tuple(map(_plain, lay.ins)), tuple(map(_plain, lay.outs))):
        return True
    if isinstance(attrs, DimAttrs):  # They are sorted or normalised among themselves.
        return lay.all.count(first) == len(lay.all) and first != PARTIAL
    if isinstance(attrs, ReduceAttrs):
        return attrs.fn not in ("sum", "mean") and isinstance(first, Shard) and first.dim in attrs.dims
    if isinstance(attrs, SliceAttrs):
        cut = isinstance(first, Shard) and first.dim == attrs.dim
        return cut and not any(isinstance(p, Shard) and p.routed for p in lay.all)
    if has(lay.call, Trait.RESHAPES):  # They are repeated side by side.
        return isinstance(first, Shard) and isinstance(lay.outs[0], Shard)
    if PARTIAL in lay.ins or index_map.exact:
        return False
    if isinstance(attrs, LookupAttrs | WindowAttrs | ChannelNormAttrs):
        return True
    kinds = (*lay.call.inputs, *lay.call.outputs)
    return all(has_batch(k.dims[p.dim]) for k, p in zip(kinds, lay.all, strict=True) if isinstance(p, Shard))


def _is_conversion(lay: Lay) -> bool:
    """Whether a node turns one placement into another without a message, or with one that the graph leaves out."""
    attrs, have, made = lay.call.attrs, lay.ins[:1], lay.outs[0]
    if has(lay.call, Trait.TAKES_RANGE) and isinstance(attrs, SliceAttrs):
        own = isinstance(made, Shard) and made.dim == attrs.dim and not attrs.drop
        return (have == (REPLICATE,) and own) or (lay.shards and have == (made,)) or (attrs.dealt and have == (made,))
    if has(lay.call, Trait.RENAMES):  # Of what is whole, one rank has all of the sum.
        return have == (REPLICATE,) and made == PARTIAL
    if isinstance(attrs, ElementwiseAttrs):  # A fused chain does not say which operand meets which function.
        is_chain = len(attrs.fns) > 1 and not {"add", "sub", "neg"}.issuperset(attrs.fns)
        return is_chain and PARTIAL in lay.ins and made == PARTIAL and not any(isinstance(p, Shard) for p in lay.ins)
    if isinstance(attrs, KvAppendAttrs):  # Of a cache that ranks share out, the new token goes to one of them.
        return have == (made,) and made == Shard(attrs.dim) and set(lay.ins[1:]) <= {REPLICATE}
    if has(lay.call, Trait.ATTENDS, backward=False) and lay.ins[1:3] == (Shard(2), Shard(2)):
        # Of keys that ranks share out, each makes a summand of the result for whole queries.
        return have == (REPLICATE,) and set(lay.outs) == {PARTIAL}
    if isinstance(attrs, DimAttrs) and attrs.across:  # Ranks exchange the statistics of rows.
        return lay.all.count(made) == len(lay.all) and made != PARTIAL
    return False


def _plain(lies: Placement) -> Placement:
    return Shard(lies.dim, routed=lies.routed) if isinstance(lies, Shard) else lies


def _differences(lay: Lay, index_map: IndexMap) -> str:
    """Name the entry that is nearest to how everything lies, and what lies otherwise."""
    wanted = min(index_map.entries(), key=lambda entry: len(_others(lay, entry)))
    names = ", ".join(f"{lay.tensor(i)} (wanted {want})" for i, want in _others(lay, wanted))
    lies = PlacementEntry(lay.ins, lay.outs)
    return f"'{lies}' is no entry of {lay.call.op}; nearest is '{wanted}': {names}"


def _others(lay: Lay, entry: PlacementEntry) -> list[tuple[int, Placement]]:
    pairs = zip(lay.all, (*entry.inputs, *entry.outputs), strict=True)
    return [(i, want) for i, (have, want) in enumerate(pairs) if have != want]


def converts(lay: Lay) -> Iterator[str]:
    """On its axes a message turns one placement into another; along the others everything stays as it lies."""
    attrs = lay.call.attrs_as(CollectiveAttrs)
    own = lay.axis in attrs.axes
    for i, (have, made) in enumerate(zip(lay.ins, lay.outs, strict=False)):
        if own and not _turns(lay.call, attrs.dim, have, made):
            says = f"{lay.call.op} over {attrs.axis} (dim {attrs.dim}) turns {_SAYS[lay.call.op]}"
            yield f"{says}, and {lay.tensor(i)} becomes {made}"
        elif not own and have != made:
            yield f"{lay.call.op} over {attrs.axis} changes {lay.axis}: {lay.tensor(i)} becomes {made}"


def _turns(call: OpCall, dim: int, have: Placement, made: Placement) -> bool:
    if has(call, Trait.GATHERS):
        return isinstance(have, Shard) and have.dim == dim and made == REPLICATE
    if has(call, Trait.SCATTERS):
        return isinstance(have, Partial) and isinstance(made, Shard) and made.dim == dim
    if has(call, Trait.EXCHANGES):
        return isinstance(have, Shard) and isinstance(made, Shard) and have != made
    return isinstance(have, Partial) and made == REPLICATE


_SAYS: Mapping[str, str] = {
    "all_gather": "S to R",
    "ring_gather": "S to R",
    "reduce_scatter": "P to S",
    "ring_scatter": "P to S",
    "all_to_all": "S to S",
    "all_reduce": "P to R",
}
LAWS: Mapping[str, Law] = dict.fromkeys(_SAYS, converts)
