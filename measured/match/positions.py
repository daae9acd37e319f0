"""The nodes of a step one by one in the order in which they run, and where calls of each key belong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cached_property

import numpy as np

from ...ir.records import dataclass
from ..traces.ran import Floats, Ints, Stretch
from .planned import BACKWARD, OPTIMIZER, MatrixProduct, PlannedNode, PlannedStep
from .sizes import Key, keys_of

PARTS = {"forward": Stretch.FORWARD, BACKWARD: Stretch.BACKWARD, "once": Stretch.BACKWARD, OPTIMIZER: Stretch.OPTIMIZER}
# Where the sequences of keys of a step and of a trace are longer, aligning them takes minutes.
_MOST_PAIRS = 4_000_000


@dataclass(frozen=True)
class Positions:
    """A step's nodes as often as they run: numbers of nodes and of layers, in running order."""

    planned: PlannedStep
    node: Ints
    layer: Ints

    @classmethod
    def of(cls, planned: PlannedStep, stage: int) -> Positions:
        """Unroll a stage's step."""
        rows = np.array([(node, layer) for node, layer, _ in planned.in_order(stage)], dtype=np.int64).reshape(-1, 2)
        return cls(planned, rows[:, 0], rows[:, 1])

    def __len__(self) -> int:
        """How many."""
        return len(self.node)

    @cached_property
    def time_s(self) -> Floats:
        """Seconds of each."""
        return np.array([n.time_s for n in self.planned.nodes])[self.node]

    @cached_property
    def stretch(self) -> Ints:
        """In which stretch of a step each runs."""
        return np.array([PARTS[n.part] for n in self.planned.nodes], dtype=np.int64)[self.node]

    @cached_property
    def tokens(self) -> int:
        """Rows of most products of the forward pass: tokens of a micro-batch on this device."""
        rows: dict[int, int] = {}
        for n in self.planned.nodes:
            for p in n.products if n.phase == "forward" else ():
                rows[p.m] = rows.get(p.m, 0) + 1
        return max(rows, key=lambda m: rows[m], default=0)

    def resized(self, tokens: int) -> Callable[[PlannedNode], PlannedNode]:
        """Return what gives nodes the sizes that they have in passes with so many tokens."""
        return _resized(self.tokens, tokens)

    def keys(self, tokens: int) -> frozenset[Key]:
        """Return the keys of all nodes in passes with so many tokens."""
        resized = self.resized(tokens)
        return frozenset(key for n in self.planned.nodes for key in keys_of(resized(n)))

    def by_key(self, tokens: int, split: bool) -> Mapping[tuple[int, Key], list[int]]:
        """Return the positions of each key by stretch, of passes with so many tokens.

        Without `split` all stretches are one: the trace does not say what is of the backward phase.
        """
        resized = self.resized(tokens)
        keys = [tuple(keys_of(resized(n))) for n in self.planned.nodes]
        found: dict[tuple[int, Key], list[int]] = {}
        for position, (node, stretch) in enumerate(zip(self.node.tolist(), self.stretch.tolist(), strict=True)):
            for key in keys[node]:
                found.setdefault((stretch if split else 0, key), []).append(position)
        return found


def _resized(tokens: int, wanted: int) -> Callable[[PlannedNode], PlannedNode]:
    """Return what gives nodes other tokens; a product has them as its rows, or adds over them."""

    def product(p: MatrixProduct) -> MatrixProduct:
        return replace(p, m=wanted if p.m == tokens else p.m, k=wanted if p.k == tokens and p.m != tokens else p.k)

    def node(n: PlannedNode) -> PlannedNode:
        if wanted == tokens:
            return n
        heads = n.heads and replace(n.heads, batch=1, queries=wanted * n.heads.batch * n.heads.queries // tokens)
        return replace(n, products=tuple(map(product, n.products)), heads=heads)

    return node


def aligned(positions: list[int], keys_planned: list[int], keys_ran: list[int]) -> list[int]:
    """Return the position of each call of a trace that holds part of a step, -1 where the order of keys says none.

    >>> aligned([10, 11, 12, 13], [0, 1, 0, 2], [0, 2])
    [12, 13]
    """
    found = [-1] * len(keys_ran)
    if len(keys_planned) * len(keys_ran) > _MOST_PAIRS * max(len(set(keys_planned)), 1):
        return found
    # The longest stretches in common, as `diff` finds them.
    matcher = SequenceMatcher(None, keys_planned, keys_ran, autojunk=False)
    for block in matcher.get_matching_blocks():
        for i in range(block.size):
            found[block.b + i] = positions[block.a + i]
    return found
