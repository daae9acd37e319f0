"""In-place writes to single assignment: who reads a tensor after a write reads the written value."""

from __future__ import annotations

from torch import Tensor, fx

from .adapter import storage_id
from .fx_import import Importer


def write_back(im: Importer, node: fx.Node, written: int) -> None:
    """After `node` wrote into its first argument: later readers of that tensor see `written`.

    A write through a view also makes a new version of the tensor that owns the storage: the old one with the written
    part scattered into it.
    """
    target = node.args[0]
    if not isinstance(target, fx.Node):
        return
    im.ids[target] = written
    tensor = target.meta["val"]
    base = im.base_node.get(storage_id(tensor)) if isinstance(tensor, Tensor) else None
    if base is None or base is target or not isinstance(base.meta["val"], Tensor):
        return
    if im.type_of(base.meta["val"]).numel == im.type_of(tensor).numel:
        return
    old = im.ids[base]
    kind = im.flat.values[old].type
    (new,) = im.flat.emit("scatter", (old, written), [(kind, im.flat.values[old].storage)], im.origin(node))
    im.ids[base] = new
