"""Keys and values of earlier prompts in tiers of memory: which blocks of a prompt are found where, and how fast.

Blocks of all tiers stand in one order, the last used in front. The first tier holds as many as fit, the next one those
behind, and so on; what falls out of the last is gone. A block that is used comes to the front, so that a tier that is
added, or grows, loses no hit: of least recently used blocks a larger store holds all that a smaller one does (Mattson
et al. 1970, stack algorithms). Of a request the last block is touched first: what only it has in front of others goes
first. Requests find what those sent before them have left, done or not; loads do not wait for one another.
Sources: Qin et al., Mooncake, FAST 2025, sections 2.2 and 5.3; `hash_ids` of its traces name blocks with all before
them, so that equal names are equal prefixes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....ir.errors import UsageError
from ....ir.records import dataclass
from ..batching.times import Array
from .sizes import Requests
from .traffic import Index, Traffic


@dataclass(frozen=True, slots=True)
class Tier:
    """A memory that holds blocks.

    Attributes:
        name: as people call it.
        tokens: how many it holds.
        token_s: seconds to load one from it; 0 where it is read in place.
        latency_s: before the first, once a request.
    """

    name: str
    tokens: float
    token_s: float = 0.0
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Reused:
    """What each request of some traffic finds.

    Attributes:
        tokens: of its prompt, from each tier: [requests, tiers].
        fetch_s: what loading them takes.
    """

    tokens: Index
    fetch_s: Array

    @property
    def cached(self) -> Index:
        """Tokens that are not computed."""
        return np.asarray(self.tokens.sum(axis=1))


class _Store:
    """Blocks in tiers, each an order of use with the oldest first."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._tiers: list[OrderedDict[int, None]] = [OrderedDict() for _ in sizes]
        self._at: dict[int, int] = {}

    def find(self, blocks: Sequence[int]) -> list[int]:
        """Return the tier of each of the leading blocks that are there."""
        found: list[int] = []
        for block in blocks:
            if (at := self._at.get(block)) is None:
                break
            found.append(at)
        return found

    def use(self, blocks: Sequence[int]) -> None:
        """Bring blocks to the front, the first of them foremost."""
        for block in reversed(blocks):
            if (at := self._at.get(block)) is not None:
                del self._tiers[at][block]
            moved: int | None = block
            for number, tier in enumerate(self._tiers):
                if moved is None:
                    break
                tier[moved] = None
                self._at[moved] = number
                moved = tier.popitem(last=False)[0] if len(tier) > self._sizes[number] else None
            if moved is not None:
                del self._at[moved]


def reused(traffic: Traffic, tiers: Sequence[Tier]) -> Reused:
    """Return what requests find in tiers, in the order in which they are sent; their last token is always computed.

    UsageError for traffic whose prompts have no names of blocks.
    """
    if traffic.blocks is None:
        raise UsageError(
            "--kv-tiers: requests do not say which parts of their prompts are equal: --serve a trace with hash_ids, "
            "as Mooncake's"
        )
    size = traffic.block_tokens
    store = _Store([int(tier.tokens // size) for tier in tiers])
    tokens = np.zeros((len(traffic), len(tiers)), dtype=np.int64)
    for request, blocks in enumerate(traffic.blocks):
        left = int(traffic.requests.prompt[request]) - 1
        for at in store.find(blocks):
            tokens[request, at] += min(size, left)
            left -= min(size, left)
        store.use(blocks)
    rates = np.array([tier.token_s for tier in tiers], dtype=np.float64)
    latency = (tokens > 0) @ np.array([tier.latency_s for tier in tiers], dtype=np.float64)
    return Reused(tokens, np.asarray(tokens @ rates + latency, dtype=np.float64))


def with_reuse(traffic: Traffic, found: Reused) -> Traffic:
    """Return traffic whose prompts are computed but for what was found, which is loaded first."""
    given = traffic.requests
    return replace(traffic, requests=Requests(given.prompt, given.output, found.cached), fetch_s=found.fetch_s)
