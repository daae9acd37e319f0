"""The layers of a model: which regions of a graph are layers, which stand before, between and behind them."""

from __future__ import annotations

from itertools import chain
from typing import TypeAlias

from .graph import Graph
from .records import dataclass

# Begins the name of a region that is a layer, as graphs are recorded and as passes split it.
LAYER = "block"
# Begins the name of a layer inside a module of multi-token prediction: one by its form, not by its place in the row.
MTP_LAYER = "mtp_layer"
# A layer, and what runs between it and the next one.
Unit: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A model's regions in the order in which they run.

    Attributes:
        head: what runs before the first layer.
        units: each layer, with what runs between it and the next one.
        tail: what runs behind the last layer.
    """

    head: tuple[str, ...]
    units: tuple[Unit, ...]
    tail: tuple[str, ...]

    @property
    def ends(self) -> tuple[str, ...]:
        """What runs before and behind all layers."""
        return (*self.head, *self.tail)

    @property
    def inner(self) -> frozenset[str]:
        """The regions of the units; where there is no layer, all."""
        return frozenset(chain.from_iterable(self.units)) or frozenset(self.ends)


def is_layer(name: str) -> bool:
    """Whether a region of this name is a layer."""
    return name.startswith(LAYER)


def is_mtp_layer(name: str) -> bool:
    """Whether a region of this name is the layer of a module of multi-token prediction."""
    return name.startswith(MTP_LAYER)


def layer_row(graph: Graph) -> LayerRow:
    """Return the layers in order.

    Where no region has the name of one, all but the first and the last are layers; of fewer than three different
    regions all are, and none of two that run once.

    >>> from .graph import Run, Workload
    >>> from .types import DType
    >>> runs = (Run(("prologue",)), Run(("block0",), 2), Run(("between",)), Run(("block1",)), Run(("epilogue",)))
    >>> layer_row(Graph("g", Workload.TRAIN, DType.BF16, (), runs)).units
    (('block0',), ('block0', 'between'), ('block1',))
    """
    row = tuple(graph.sequence())
    places = [k for k, name in enumerate(row) if is_layer(name)]
    if not places:
        once = graph.sequence_once()
        if len(once) == len(row) == 2:
            return LayerRow(row[:1], (), row[1:])
        inner = slice(0, len(row)) if len(once) < 3 else slice(1, len(row) - 1)
        return LayerRow(row[: inner.start], tuple((n,) for n in row[inner]), row[inner.stop :])
    last = places[-1] + 1
    starts = zip(places, (*places[1:], last), strict=True)
    return LayerRow(row[: places[0]], tuple(row[a:b] for a, b in starts), row[last:])


def layer_names(graph: Graph) -> frozenset[str]:
    """Return the regions that are layers, those of modules of multi-token prediction too; not what runs between them.

    Where none has the name of one, all but the first and the last are.
    """
    once = graph.sequence_once()
    inside = frozenset(name for name in once if is_mtp_layer(name))
    rest = [name for name in once if not name.startswith("mtp_")]
    return inside | (frozenset(filter(is_layer, rest)) or frozenset(rest[1:-1]))


def num_layers(graph: Graph) -> int:
    """Return the layers of one pass over the model; 0 where none were found."""
    return len(layer_row(graph).units)


__all__ = [
    "LAYER",
    "MTP_LAYER",
    "LayerRow",
    "Unit",
    "is_layer",
    "is_mtp_layer",
    "layer_names",
    "layer_row",
    "num_layers",
]
