"""An operator that has no rule, kept on request: its bytes are known, its FLOPs are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..graph import Attrs, Graph
from ..records import dataclass
from .base import OpCall, OpClass, OpDef, Work, traffic

NAME = "unpriced"


@dataclass(frozen=True, slots=True)
class UnpricedAttrs(Attrs):
    """`name` is what the source of the model calls the operator: `aten.cummax`, `com.acme.Fuse`."""

    name: str


def _check(call: OpCall) -> Iterator[str]:
    if not call.attrs_as(UnpricedAttrs).name:
        yield "an operator without a rule needs its name"


def _work(call: OpCall) -> Work:
    """Every input is read once and every result written once; how much is computed in between is not known."""
    return traffic(call)


OPS = (
    OpDef(
        NAME,
        OpClass.UNPRICED,
        _work,
        "an operator without a rule, kept with --allow-unpriced; bytes read and written count, FLOPs are unknown",
        _check,
        UnpricedAttrs,
        min_inputs=0,
        num_outputs=None,
    ),
)


def unpriced_calls(graph: Graph) -> dict[str, int]:
    """Return how often operators without a rule run in one pass over the model, by name.

    >>> from slipstick.ir.graph import Workload
    >>> from slipstick.ir.types import DType
    >>> unpriced_calls(Graph("empty", Workload.TRAIN, DType.BF16, (), ()))
    {}
    """
    found: dict[str, int] = {}
    for region in graph.regions:
        for node in region.nodes:
            if isinstance(node.attrs, UnpricedAttrs):
                found[node.attrs.name] = found.get(node.attrs.name, 0) + graph.counts[region.name]
    return found


def unpriced_note(calls: Iterable[tuple[str, int]]) -> str:
    """Say which operators only count by their bytes, for people.

    >>> unpriced_note([("aten.cummax", 32)])
    'only the bytes of operators without a rule are counted, not what they compute: aten.cummax (32 calls)'
    """
    listed = ", ".join(f"{name} ({count} call{'s' if count != 1 else ''})" for name, count in calls)
    return f"only the bytes of operators without a rule are counted, not what they compute: {listed}"
