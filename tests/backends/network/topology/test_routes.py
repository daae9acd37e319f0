"""What links carry along the shortest paths: patterns on a line and a square counted by hand."""

from __future__ import annotations

from itertools import product

import pytest

from slipstick.backends.network.topology.level import Edge
from slipstick.backends.network.topology.routes import RouteLoad, loads


def line(size: int, slow: float = 1.0) -> tuple[Edge, ...]:
    """Members in a row, a byte a second; the last link as slow as asked."""
    return tuple(Edge(str(i), str(i + 1), slow if i == size - 2 else 1.0) for i in range(size - 1))


SQUARE = tuple(Edge(str(i), str((i + 1) % 4), 1.0) for i in range(4))


@pytest.mark.parametrize(
    ("pattern", "hops", "seconds"),
    [
        # Each link has what goes to the next member, and back what the last sends to the first.
        ("ring", 3, 1.0),
        # Halves to the next member and to the one before: half of a byte, and half of what goes all the way.
        ("both", 3, 1.0),
        # 0 with 2 and 1 with 3: both over the link in the middle.
        ("swap", 2, 2.0),
        # A third of a byte to each other member: two send to two over the middle.
        ("peers", 3, 4 / 3),
        ("pairs", 3, 4 / 3),
    ],
)
def test_patterns_on_a_line_of_four(pattern: str, hops: float, seconds: float) -> None:
    found = loads(line(4), 4, 1, pattern)
    assert found.hops == hops
    assert found.seconds_per_byte == pytest.approx(seconds)


def test_ways_that_are_as_short_share_what_is_sent() -> None:
    # Across a square half goes either way: four bytes over two links each, on eight links of one direction.
    assert loads(SQUARE, 4, 1, "swap") == RouteLoad(2.0, 1.0)
    # Two links between the same members are one of twice the bandwidth.
    assert loads((*SQUARE, *SQUARE), 4, 1, "swap") == RouteLoad(2.0, 0.5)


def test_groups_lie_side_by_side_and_only_full_ones_talk() -> None:
    # Two groups of every second member: 0 to 2 and 1 to 3 share the links between, and so do the ways back.
    assert loads(line(4), 2, 2, "ring") == RouteLoad(2.0, 2.0)
    # Two pairs of neighbours keep to their own links: the slow one has one of them.
    assert loads(line(4, slow=0.125), 2, 1, "ring") == RouteLoad(1.0, 8.0)
    # Of six members four are a group, and two are none: nothing goes over the link between these.
    assert loads(line(6, slow=0.125), 4, 1, "ring") == RouteLoad(3.0, 1.0)


def test_a_group_of_one_sends_nothing() -> None:
    assert loads(line(4), 1, 1, "ring") == RouteLoad(1.0, 0.0)


def test_all_to_all_of_a_large_hyperx_loads_its_wires_alike() -> None:
    """A HyperX of 256 members, sent to by all in several batches: each wire carries (1 - 1/4) S over 3 of a dimension.

    A member sends S/255 to each other; 192 of these lie elsewhere along a dimension, behind 3 wires.
    """
    places = list(product(range(4), repeat=4))
    joined = {
        (rank, places.index((*at[:k], v, *at[k + 1 :])))
        for rank, at in enumerate(places)
        for k in range(4)
        for v in range(at[k] + 1, 4)
    }
    graph = tuple(Edge(str(a), str(b), 1.0) for a, b in sorted(joined))
    found = loads(graph, 256, 1, "peers")
    assert found.hops == 4
    assert found.seconds_per_byte == pytest.approx(192 / 255 / 3)
