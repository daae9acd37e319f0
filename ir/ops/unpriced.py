"""An operator that has no rule, kept on request: its bytes are known, its FLOPs are not."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import Attrs
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
        NAME, OpClass.UNPRICED, _work,
        "an operator without a rule, kept with --allow-unpriced; bytes read and written count, FLOPs are unknown",
        _check, UnpricedAttrs, min_inputs=0, num_outputs=None,
    ),
)  # fmt: skip
