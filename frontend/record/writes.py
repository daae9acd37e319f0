"""In-place writes to single assignment: who reads a tensor after a write reads the written value."""

from __future__ import annotations

from torch import Tensor, fx

from ...ir.ops.tensors.lookup import LookupAttrs, lookup_of
from ..aten.fx_import import Importer
from .adapter import layout_key, layout_sizes, storage_id


def write_back(im: Importer, node: fx.Node, written: int) -> None:
    """After `node` wrote into its first argument: later readers of that memory see `written`.

    The same view under another node becomes `written` itself. A tensor that is the whole storage becomes `written` in
    other dims when the write was to all of it, else the old tensor with the written part scattered into it.
    """
    target = node.args[0]
    tensor = target.meta["val"] if isinstance(target, fx.Node) else None
    if not isinstance(tensor, Tensor):
        return
    versions: dict[tuple[object, ...], int | None] = {layout_key(tensor): written}
    for other in im.sharers[storage_id(tensor)]:
        key = layout_key(other.meta["val"])
        if key not in versions:
            versions[key] = _version(im, node, other, tensor, written)
        if (version := versions[key]) is not None:
            im.ids[other] = version


def _version(im: Importer, node: fx.Node, other: fx.Node, tensor: Tensor, written: int) -> int | None:
    """Return what a tensor of the same storage holds after the write; None when it only may have changed."""
    whole = im.type_of(im.sharers[storage_id(tensor)][0].meta["val"]).numel
    kind = im.type_of(other.meta["val"])
    if kind.numel != whole:
        return None
    old = im.ids[other]
    everything = im.type_of(tensor).numel == whole
    made = [(kind, im.flat.values[old].storage)]
    if everything:
        return im.flat.emit("reshape", (written,), made, im.origin(node))[0]
    part = im.flat.values[written].type.dims
    attrs = _written_part(other.meta["val"], tensor) if part == im.type_of(tensor).dims else LookupAttrs()
    return im.flat.emit("scatter", (old, written), made, im.origin(node), attrs)[0]


def _written_part(whole: Tensor, part: Tensor) -> LookupAttrs:
    """Which dims of a view that was written into are whole dims of the tensor: those of its size and its stride."""
    if whole.is_complex():
        return LookupAttrs()
    dims = _strided(whole)
    full = tuple(range(len(dims)))
    return lookup_of([full, [dims.index(d) if d in dims else None for d in _strided(part)], full])


def _strided(tensor: Tensor) -> list[tuple[object, object]]:
    """The size and the stride of each dim, which symbols compare by."""
    sizes, rank = layout_sizes(tensor), tensor.dim()
    return list(zip(sizes[:rank], sizes[rank : 2 * rank], strict=True))
