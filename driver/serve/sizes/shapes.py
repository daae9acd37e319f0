"""Shapes that a replica may have: degrees of parallelism inside the part of a network that is fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ....backends.machine.system import System

# Stages that are worth a try where a model is too large for tensor parallelism in a node.
STAGES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, order=True)
class ReplicaShape:
    """Degrees of what is bought as one: a replica, or ranks with attention of their own that share experts.

    Attributes:
        tp: tensor parallelism.
        pp: pipeline stages.
        ep: ranks over which whole experts are sharded; 1: experts are split as everything else is.
        dp: ranks with requests of their own, which share the experts.
        cp: ranks that share out the cached tokens of a decode step.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    cp: int = 1

    @property
    def num_gpus(self) -> int:
        """Devices of it."""
        return self.tp * self.pp * self.cp * self.dp

    def __str__(self) -> str:
        """As people write it: `tp4 pp2`."""
        pairs = (("tp", self.tp), ("pp", self.pp), ("cp", self.cp), ("dp", self.dp), ("ep", self.ep))
        return " ".join(f"{name}{n}" for name, n in pairs if n > 1 or name == "tp")


def shapes_of(
    system: System,
    has_experts: bool,
    tp: Sequence[int] = (),
    pp: Sequence[int] = (),
    ep: Sequence[int] = (),
    cp: Sequence[int] = (),
) -> Iterator[ReplicaShape]:
    """Yield shapes to try, small ones first: powers of two inside a node, stages over nodes, experts sharded.

    Degrees that are given are kept; context parallelism is tried where it is given.
    """
    inside = _powers(system.node_size)
    found = {ReplicaShape(t, p, e) for t in tp or inside for p in pp or STAGES for e in ep or (1,)}
    if has_experts and not ep:
        found |= {ReplicaShape(t, 1, t) for t in tp or inside if t > 1 and not pp}
        found |= {ReplicaShape(1, 1, d, d) for d in _powers(4 * system.node_size) if d > 1 and not tp and not pp}
    found = {replace(shape, cp=c) for shape in found for c in cp or (1,)}
    yield from sorted(found, key=lambda shape: (shape.num_gpus, shape))


def _powers(most: int) -> list[int]:
    """Powers of two up to a number.

    >>> _powers(8)
    [1, 2, 4, 8]
    """
    return [2**k for k in range(most.bit_length()) if 2**k <= most]
