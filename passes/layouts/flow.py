"""Laws of messages and gradients in one region: samples stay with their replica, sums are completed while narrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.graph import Node, Phase, Region, Role
from ...ir.ops import Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.placement import DP, EP, FSDP, MeshAxis, Partial, Placement, Replicate, Shard
from ...ir.sizes.expr import Expr
from ...ir.types import TensorType

REPLICAS = (DP, FSDP)
_SAMPLES = "mbs"
_IN_STEP = (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE)
# What hands on a partial sum, entry by entry.
_KEEPS_SUM = (
    Trait.POINTWISE,
    Trait.RESHAPES,
    Trait.PERMUTES,
    Trait.COPIES,
    Trait.RENAMES,
    Trait.NORMALISES_ROWS,
)


def message_problems(region: Region, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield messages of samples over replicas, and sums sent wide."""
    for node in nodes:
        if isinstance(node.attrs, CollectiveAttrs) and node.phase in _IN_STEP:
            yield from _crosses(region, node, node.attrs)
            yield from _wide(region, node, node.attrs)


def counts_replicas(kind: TensorType) -> bool:
    """Whether a dim grows with the number of replicas; a share of one (`n/dp`) does not."""
    sizes = (d for d in kind.dims if isinstance(d, Expr))
    return any(power > 0 for d in sizes for m, _ in d.terms for name, power in m if name in REPLICAS)


def is_own(kind: TensorType, lies: Placement) -> bool:
    """Whether something holds pairs of samples, which each rank of an axis of data parallelism has of its own."""
    return isinstance(lies, Replicate) and kind.power(_SAMPLES) > 1


def _crosses(region: Region, node: Node, attrs: CollectiveAttrs) -> Iterator[str]:
    if not {*REPLICAS, EP} & {*attrs.axes} or _routes(region, node) or _mixes(region, node):
        return
    for i in node.inputs:
        value = region.by_id[i]
        if any(isinstance(d, Expr) and _SAMPLES in d.symbols for d in value.type.dims):
            yield f"{node.op} at {_place(node)} sends samples over {attrs.axis}: {value.type} {_lies(value.placements)}"


def _routes(region: Region, node: Node) -> bool:
    """Whether a message brings rows to experts, ids to tables that are distributed, or what they give back."""
    lies = [p for i in (*node.inputs, *node.outputs) for _, p in region.by_id[i].placements]
    if any(isinstance(p, Shard) and p.routed for p in lies):
        return True
    tables = [region.by_id[i] for n in region.nodes if has(n, Trait.READS_TABLE) for i in n.inputs]
    if any(axis == EP and v.role is Role.PARAM and isinstance(p, Shard) for v in tables for axis, p in v.placements):
        return True
    return any(has(n, Trait.DISPATCHES, Trait.COMBINES, Trait.HOLDS_EXPERTS) for n in region.nodes)


def _mixes(region: Region, node: Node) -> bool:
    """Whether all samples meet all samples behind a message, as in a loss that tells each from the rest."""
    return any(isinstance(n.attrs, MatmulAttrs) for o in node.outputs for n in region.users.get(o, ()))


def _wide(region: Region, node: Node, attrs: CollectiveAttrs) -> Iterator[str]:
    """A partial sum is completed no later than in the narrowest type on its way; gradients as the user chose."""
    readers = (n for o in node.outputs for n in region.users.get(o, ()))
    if not has(node, Trait.SUMS) or any(has(n, Trait.ACCUMULATES) for n in readers):
        return
    for i in node.inputs:
        kind = region.by_id[i].type
        for axis in attrs.axes:
            narrow = _narrowest(region, i, axis)
            if narrow is not None and narrow.dtype.num_bytes < kind.dtype.num_bytes:
                was = f"a partial sum that was {narrow} on its way: reduce it there"
                yield f"{node.op} at {_place(node)} sends {kind} over {attrs.axis}, {was}"


def _narrowest(region: Region, value: int, axis: MeshAxis) -> TensorType | None:
    """Return the narrowest type of the same entries while they were a partial sum along an axis, walking back."""
    found: TensorType | None = None
    while (made := region.producer.get(value)) is not None and not has(made, Trait.ACCUMULATES):
        kind = region.by_id[value].type
        sums = [i for i in made.inputs if isinstance(_along(region, i, axis), Partial)]
        if len(sums) != 1 or not has(made, *_KEEPS_SUM, backward=False):
            break
        value = sums[0]
        before = region.by_id[value].type
        if before.numel == kind.numel and (found is None or before.dtype.num_bytes < found.dtype.num_bytes):
            found = before
    return found


def gradient_problems(region: Region) -> Iterator[str]:
    """Yield gradients that lie otherwise than their parameter, but for what ZeRO shards, and sums at the optimizer."""
    for param, grad in region.grads:
        name = region.by_id[param].name
        for axis, have in region.by_id[grad].placements:
            want = _along(region, param, axis)
            if isinstance(have, Partial):
                yield f"the gradient of '{name}' is partial along {axis} when the step ends"
            elif not _fits(have, want):
                yield f"the gradient of '{name}' lies {have} along {axis} and the parameter {want}"
    for node in (n for n in region.nodes if has(n, Trait.UPDATES)):
        half = len(node.inputs) // 2
        for grad in node.inputs[half:]:
            sums = [axis for axis, p in region.by_id[grad].placements if isinstance(p, Partial)]
            if sums:
                yield f"optimizer_step reads {region.by_id[grad].type}, a partial sum along {', '.join(sums)}"


def _fits(have: Placement, want: Placement | None) -> bool:
    if isinstance(have, Shard) and isinstance(want, Shard):
        return have.dim == want.dim and have.packed == want.packed
    return have == want or (isinstance(want, Replicate) and isinstance(have, Shard))


def _along(region: Region, value: int, axis: MeshAxis) -> Placement | None:
    return next((p for a, p in region.by_id[value].placements if a == axis), None)


def _lies(placements: tuple[tuple[MeshAxis, Placement], ...]) -> str:
    return f"<{', '.join(f'{a}={p}' for a, p in placements)}>"


def _place(node: Node) -> str:
    return f"{node.scope or 'the top'} ({node.phase})"


__all__ = ["counts_replicas", "gradient_problems", "is_own", "message_problems"]
