"""Products of several nodes that software runs as one: queries, keys and values, or the gate and what it gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...ir.records import dataclass
from .planned import BACKWARD, MatrixProduct, PlannedNode
from .positions import PARTS, Positions
from .sizes import Key, product_key

# Queries, keys and values.
_MOST = 3


@dataclass(frozen=True, slots=True)
class Merged:
    """Nodes that run as one product, and where the first of them stands, as often as it runs."""

    nodes: tuple[int, ...]
    first: tuple[int, ...]


def merged_places(positions: Positions, tokens: int, split: bool) -> Mapping[tuple[int, Key], Merged]:
    """Return what products of neighbours make when they are one, by stretch and key."""
    by_part: dict[tuple[str, str], list[int]] = {}
    nodes = positions.planned.nodes
    for k, node in enumerate(nodes):
        if len(node.products) == 1:
            by_part.setdefault((node.region, node.part), []).append(k)
    resized = positions.resized(tokens)
    found: dict[tuple[int, Key], Merged] = {}
    for (_, part), there in by_part.items():
        # Of several runs with one sum, the one that the model runs first is of queries, keys and values.
        runs = list(_runs([(k, resized(nodes[k])) for k in there]))
        for run, key in runs if part == BACKWARD else reversed(runs):
            first = np.flatnonzero(positions.node == run[0]).tolist()
            found[PARTS[part] if split else 0, key] = Merged(run, tuple(first))
    return found


def _runs(products: Sequence[tuple[int, PlannedNode]]) -> Iterator[tuple[tuple[int, ...], Key]]:
    """Yield neighbours of one form, with the key of their sum: they add columns, or terms of a gradient."""
    for added in ("n", "k", "m"):
        same: dict[tuple[int, ...], list[tuple[int, MatrixProduct]]] = {}
        for k, node in products:
            p = node.products[0]
            sizes = {"m": p.m, "n": p.n, "k": p.k}
            del sizes[added]
            same.setdefault((p.batch, *sizes.values()), []).append((k, p))
        for row in same.values():
            for size in range(2, _MOST + 1):
                for at in range(len(row) - size + 1):
                    yield _run(row[at : at + size], added)


def _run(row: Sequence[tuple[int, MatrixProduct]], added: str) -> tuple[tuple[int, ...], Key]:
    p = row[0][1]
    whole = {"m": p.m, "n": p.n, "k": p.k} | {added: sum(getattr(one, added) for _, one in row)}
    return tuple(k for k, _ in row), product_key(MatrixProduct(p.batch, whole["m"], whole["n"], whole["k"]))
