"""Trees of switches: counts that the arithmetic of fat trees gives, whatever the number of ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.cost.ownership.cabling.trees import joined, tree

RADIX = st.sampled_from([8, 16, 32, 64, 128])


@pytest.mark.parametrize(
    ("ends", "switches"),
    [
        (0, 0),
        (1, 1),
        (64, 1),
        # 33 leaves of 32 ends and 17 spines: no leaf is half used but the last.
        (1056, 33 + 17),
        # 3 n / r and 5 n / r, the counts of the public spreadsheet of H100 clusters of August 2024.
        (1024, 48),
        (2048, 96),
        (32768, 2560),
        (65536, 5120),
    ],
)
def test_switches_of_64_ports(ends: int, switches: int) -> None:
    assert tree(ends, 64).num_switches == switches


@given(radix=RADIX, tiers=st.integers(1, 4))
def test_a_full_tree_has_2_half_radix_to_the_tiers_ends(radix: int, tiers: int) -> None:
    ends = 2 * (radix // 2) ** tiers
    found = tree(ends, radix)
    assert sum(n > 0 for n in found.switches) == tiers
    assert found.num_switches == (2 * tiers - 1) * ends / radix
    assert found.links == (ends,) * tiers
    assert sum(n > 0 for n in tree(ends + 1, radix).switches) == tiers + 1


@given(radix=RADIX, ends=st.integers(1, 100_000), more=st.integers(0, 10_000))
def test_more_ends_never_take_fewer_switches(radix: int, ends: int, more: int) -> None:
    assert tree(ends + more, radix).num_switches >= tree(ends, radix).num_switches


@given(ends=st.integers(1, 100_000), over=st.sampled_from([1, 2, 3, 7]))
def test_no_port_is_used_twice(ends: int, over: int) -> None:
    found = tree(ends, 64, over)
    for tier, switches in enumerate(found.switches):
        above = found.links[tier + 1] if tier + 1 < len(found.links) else 0
        assert found.links[tier] + above <= 64 * switches


def test_oversubscription_saves_spines() -> None:
    # 2:1 leaves have 42 ports down (two thirds of 64) and 22 up: 25 leaves for 1024, 512 links up, 8 spines.
    assert tree(1024, 64, 2.0).switches == (25.0, 8.0)


def test_rails_share_no_leaf() -> None:
    # 8 rails of 20 ends: a leaf each and 160 links up to 3 spines; together they would be 5 leaves.
    assert tree(160, 64, rails=8).switches == (8.0, 3.0)
    assert tree(160, 64).switches == (5.0, 3.0)


def test_a_level_above_takes_ports_of_the_topmost_tier() -> None:
    # Half of the ports of a single switch go up: it takes 32 ends, not 64.
    assert tree(32, 64, above=0.5).switches == (1.0,)
    assert sum(n > 0 for n in tree(64, 64, above=0.5).switches) == 2


def test_tiers_over_pods() -> None:
    # 100 pods of 64 uplinks: more than the 64 that one switch reaches, so 200 switches below 100.
    assert joined(6400, 100, 64).switches == (200.0, 100.0)
    assert joined(6400, 1, 64).num_switches == 0


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=20))
def test_many_at_once_are_as_each_alone(ends: list[int]) -> None:
    at_once = np.broadcast_to(tree(np.array(ends, dtype=float), 64).num_switches, len(ends))
    assert list(at_once) == [tree(n, 64).num_switches for n in ends]
