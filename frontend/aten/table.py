"""What each ATen operator is in the IR: one table of handlers; operators without one, kept on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch import Tensor, fx

from ...ir.errors import UnsupportedOpError
from ...ir.graph import Graph
from ...ir.ops.unpriced import NAME, UnpricedAttrs, unpriced_calls, unpriced_note
from ...ir.records import dataclass
from ..semantic.costs import PricedHandlers
from . import data, images, lookup, math, semantic, views
from .fx_import import Handler, Importer, is_inplace, op_name, write_back

HANDLERS: Mapping[str, Handler] = PricedHandlers(
    {
        **views.HANDLERS,
        **math.HANDLERS,
        **data.HANDLERS,
        **lookup.HANDLERS,
        **semantic.HANDLERS,
        **images.HANDLERS,
    }
)


@dataclass(frozen=True, slots=True)
class Lenient(Mapping[str, Handler]):
    """Handlers in which every operator has one: what has no rule, or is not understood by its own, is kept unpriced."""

    known: Mapping[str, Handler]

    def __getitem__(self, name: str) -> Handler:
        handler = self.known.get(name)
        return keep_unpriced if handler is None else _or_unpriced(handler)

    def __contains__(self, name: object) -> bool:
        return name in self.known

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)


def _or_unpriced(handler: Handler) -> Handler:
    def attempt(im: Importer, node: fx.Node) -> None:
        try:
            handler(im, node)
        except UnsupportedOpError:
            keep_unpriced(im, node)

    return attempt


def keep_unpriced(im: Importer, node: fx.Node) -> None:
    """Emit a node that reads and writes what the operator does; one without results does nothing that is read."""
    val = node.meta["val"]
    results = [val] if isinstance(val, Tensor) else [v for v in val or () if isinstance(v, Tensor)]
    if not any(t.dim() != 1 or t.shape[0] != 0 for t in results):
        return
    outs = im.emit(node, NAME, im.inputs(node), UnpricedAttrs(op_name(node)))
    if is_inplace(node):
        write_back(im, node, outs[0])


def noted(graph: Graph) -> Graph:
    """Return the graph with a note that names its operators without a rule, where it has some."""
    calls = unpriced_calls(graph)
    return replace(graph, notes=(*graph.notes, unpriced_note(sorted(calls.items())))) if calls else graph
