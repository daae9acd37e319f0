"""Layout laws of collectives: each converts just the placement that it says, along its own axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...ir.ops import OpCall, Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.placement import REPLICATE, Partial, Placement, Shard
from .lay import Law, Lay


def converts(lay: Lay) -> Iterator[str]:
    """On its axes a message turns one placement into another; along the others everything stays as it lies."""
    attrs = lay.call.attrs_as(CollectiveAttrs)
    own = lay.axis in attrs.axes
    for i, (have, made) in enumerate(zip(lay.ins, lay.outs, strict=False)):
        if own and not _is_conversion(lay.call, attrs.dim, have, made):
            says = f"{lay.call.op} over {attrs.axis} (dim {attrs.dim}) turns {_SAYS[lay.call.op]}"
            yield f"{says}, and {lay.tensor(i)} becomes {made}"
        elif not own and have != made:
            yield f"{lay.call.op} over {attrs.axis} changes {lay.axis}: {lay.tensor(i)} becomes {made}"


def _is_conversion(call: OpCall, dim: int, have: Placement, made: Placement) -> bool:
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
