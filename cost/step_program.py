"""A lowered graph compiled for the roll-up: what may hide what, which regions are layers, how much is issued again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..backends.program import Entry, Program
from ..ir.graph import Phase
from ..ir.ops.collectives import RINGS
from ..ir.ops.host import DOWN, UP
from ..ir.stages import block_row
from .beside import Beside
from .overlap import Pair, pairs_of

# The part of context parallelism that passes blocks on; in the breakdown it is `comm.cp`.
RING = "comm.ring"
_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)
Label = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class StepProgram:
    """What a roll-up needs to know of a graph beyond the times of its nodes.

    Attributes:
        beside: messages that something may hide, and what may hide them.
        pairs: messages that the products next to them hide when both are taken apart.
        layers: regions that are layers of the model.
        issued_again: kernels that recomputation issues over those of the forward phase, by region.
    """

    beside: Beside
    pairs: tuple[Pair, ...]
    layers: frozenset[str]
    issued_again: Mapping[str, float]

    @classmethod
    def of(cls, program: Program) -> StepProgram:
        """Compile it."""
        graph = program.graph
        issued = Counter((e.region, e.phase) for e in program.entries)
        again = {r.name: issued[r.name, Phase.RECOMPUTE] / max(issued[r.name, Phase.FORWARD], 1) for r in graph.regions}
        return cls(Beside.of(graph), tuple(pairs_of(graph)), frozenset(block_row(graph)), again)


def label_of(entry: Entry) -> Label | None:
    """Region, phase and part of a node; None for a receive, which runs while the send does that it waits for."""
    if entry.op == "recv":
        return None
    if entry.op in (DOWN, UP):
        part = entry.op
    else:
        axis = "ring" if entry.op in RINGS else axis_of(entry)
        part = f"comm.{axis}" if entry.message is not None else f"compute.{entry.kind}"
    if entry.phase is Phase.OPTIMIZER:
        return entry.region, "optimizer", "optimizer" if entry.message is None and entry.op not in (DOWN, UP) else part
    if entry.phase in (Phase.PREPARE, Phase.REDUCE):
        return entry.region, str(entry.phase), part
    return entry.region, phase_of(entry), part


def phase_of(entry: Entry) -> str:
    """The phase of a micro-batch that a node runs in; recomputation belongs to the backward phase."""
    return "backward" if entry.phase in _BACKWARD else "forward"


def axis_of(entry: Entry) -> str:
    """The axis a message is booked on: a group over several data axes counts as `dp`, `up` as `cp`."""
    last = entry.axis.split("+")[-1].split("/")[0]
    return "cp" if last == "up" else last
