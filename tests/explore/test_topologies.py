"""Networks of topologies counted by hand, and scaled to what they cost, draw or carry."""

from dataclasses import replace

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.explore.topologies import Equal, equalised, topology_network, usual_networks
from slipstick.ir.errors import UsageError

H100 = load_system("dgx-h100")
BOOK = H100.prices.section
OPTICS, FIBRE = BOOK.transceivers["400g"], BOOK.fibres["multimode"]
SWITCH, ADAPTER = BOOK.switches["ndr-64x400g"], BOOK.adapters["ndr-400g"]


def usd(number: object) -> float:
    return float(number.si)  # type: ignore[attr-defined]


# Links of 10 m are optics: two transceivers and a fibre each. Of a torus D a rank, of a HyperX D (k - 1)/2.
@pytest.mark.parametrize(
    ("text", "size", "links", "ports"),
    [
        ("torus=16x16x16", 4096, 3 * 4096, 6),
        ("torus", 4096, 3 * 4096, 6),
        ("torus=64x64", 4096, 2 * 4096, 4),
        ("hyperx=4x4x4", 64, 64 * 9 / 2, 9),
        ("hypercube", 64, 64 * 6 / 2, 6),
        ("mesh=4x4", 16, 2 * 12, 4),
        ("node/torus=4x4x4", 512, 3 * 512, 6),
    ],
)
def test_direct_networks_are_links_alone(text: str, size: int, links: float, ports: int) -> None:
    one = topology_network(text, H100, size)
    assert one.usd == pytest.approx(links * (2 * usd(OPTICS.price) + usd(FIBRE.price)))
    assert one.power_w == pytest.approx(2 * links * usd(OPTICS.power))
    assert one.bytes_per_s == pytest.approx(ports * 50e9)
    assert len(one.levels) == (2 if text.startswith("node/") else 1)


def test_a_fat_tree_of_two_tiers() -> None:
    """512 ports: 16 leaves of 32 down and 32 up, 8 spines, 512 links to ranks and 512 between tiers."""
    one = topology_network("fat_tree", H100, 512)
    links = 1024 * (2 * usd(OPTICS.price) + usd(FIBRE.price))
    assert one.usd == pytest.approx(24 * usd(SWITCH.price) + 512 * usd(ADAPTER.price) + links)


def test_dragonflies_are_as_large_as_switches_allow() -> None:
    """16 hosts, 31 other routers and 16 global links fit 64 ports; 8 groups of 512 make 4,096."""
    dragonfly = topology_network("dragonfly", H100, 4096).levels[0].dragonfly
    assert dragonfly is not None
    assert (dragonfly.hosts, dragonfly.routers, dragonfly.groups, dragonfly.global_links) == (16, 32, 8, 16)
    with pytest.raises(UsageError, match="no balanced dragonfly has 7 hosts"):
        topology_network("dragonfly", H100, 7)
    assert [one.name for one in usual_networks(H100, 20)] == [
        "fat tree 1:1", "fat tree 2:1", "torus 2x2x5", "hyperx 2x2x5",
    ]  # fmt: skip


@pytest.mark.parametrize("equal", ["cost", "power", "bandwidth"])
def test_networks_are_scaled_to_the_first_or_a_budget(equal: Equal) -> None:
    networks = [topology_network(text, H100, 512) for text in ("fat_tree", "torus", "dragonfly", "rail_optimised=2")]
    for budget, amount in ((None, networks[0].amount(equal)), (12345.0, 12345.0)):
        for before, after in zip(networks, equalised(networks, equal, budget), strict=True):
            assert after.amount(equal) == pytest.approx(amount)
            factor = after.link_bytes_per_s / before.link_bytes_per_s
            assert after.usd == pytest.approx(before.usd * factor)
            assert float(after.levels[-1].bytes_per_s) == pytest.approx(before.bytes_per_s * factor)
            near, far = before.levels[-1].dragonfly, after.levels[-1].dragonfly
            if near is not None and far is not None:
                assert far.global_bytes_per_s == pytest.approx(near.global_bytes_per_s * factor)


def test_what_has_no_parts_or_no_price_is_refused() -> None:
    *inner, top = H100.levels
    bare = replace(H100, levels=(*inner, replace(top, equipment=None)))
    with pytest.raises(UsageError, match=r"add network\.infiniband\.equipment"):
        topology_network("torus", bare, 64)
    free = topology_network("torus", H100, 64)
    unpriced = replace(free, unpriced=("switches: no price; set prices.switches.x.price",))
    with pytest.raises(UsageError, match="topologies of equal cost need prices: switches: no price"):
        equalised([unpriced], "cost", None)
    assert equalised([unpriced], "bandwidth", None) == [unpriced]
