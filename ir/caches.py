"""What a serving step keeps and reads of the tokens before: caches it appends to, states, caches it only reads."""

from __future__ import annotations

from collections.abc import Iterator

from .graph import Region, Role, Value
from .ops import Trait, has


def kept_caches(region: Region) -> Iterator[Value]:
    """Yield the caches of one run of a region as they are behind it, keys, values and states each once.

    Keys and values of an encoder's output, which attention reads and nobody appends to, are among them.
    """
    yield from (region.by_id[node.key] for node in region.nodes if has(node, Trait.WRITES_CACHE))
    yield from read_caches(region)


def read_caches(region: Region) -> Iterator[Value]:
    """Yield the caches that attention reads as they come."""
    for v in region.of_role(Role.CACHE):
        if any(has(node, Trait.ATTENDS) for node in region.users.get(v.id, ())):
            yield v


__all__ = ["kept_caches", "read_caches"]
