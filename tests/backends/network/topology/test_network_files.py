"""Levels as people write them: what is read, what is refused and how; graphs from text and files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from slipstick.backends.machine.load import load_system
from slipstick.backends.network.topology.level import NetworkLevel
from slipstick.ir.errors import SystemFileError

NUMBER = {"source": "test"}
RING = "\n".join(f"{i} {(i + 1) % 8} 25 GB/s" for i in range(8))


def number(value: float, unit: str | None = None) -> dict[str, object]:
    return {"value": value, **({"unit": unit} if unit else {}), **NUMBER}


def written(tmp_path: Path, **level: object) -> Path:
    """Write a system of eight chips with one level, the given keys over plain ones; None takes a key out."""
    plain: dict[str, object] = {
        "name": "net",
        "topology": "switch",
        "size": number(8),
        "bandwidth": number(100, "GB/s"),
        "latency": number(1, "us"),
        "efficiency": number(1),
    }
    kept = {k: v for k, v in {**plain, **level}.items() if v is not None}
    tree = {"name": "made", "chip": "h100-sxm-80gb", "node": {"num_chips": number(8)}, "network": [kept]}
    path = tmp_path / "made.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def level(path: Path) -> NetworkLevel:
    (found,) = load_system(path).levels
    return found


def test_a_plain_level_stays_what_it_was(tmp_path: Path) -> None:
    assert level(written(tmp_path)) == NetworkLevel("net", 8, 100e9, 1e-6, "switch", 1.0)


def test_links_make_the_bandwidth(tmp_path: Path) -> None:
    links = {"links": number(18), "link_bandwidth": number(25, "GB/s")}
    assert level(written(tmp_path, bandwidth=None, **links)).bytes_per_s == 450e9
    assert level(written(tmp_path, bandwidth=number(400, "GB/s"), **links)).bytes_per_s == 400e9


def test_a_torus_and_its_hops(tmp_path: Path) -> None:
    found = level(written(tmp_path, topology="torus", dims="2x4", hop_latency=number(0.2, "us")))
    assert found.dims == (2, 4)
    assert found.further_hop_s == pytest.approx(2e-7)
    assert level(written(tmp_path)).further_hop_s == pytest.approx(1e-6)


def test_a_graph_in_the_file_and_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ring.edges").write_text(f"# a ring\n{RING}\n", encoding="utf-8")
    inline = level(written(tmp_path, topology="graph", edges=RING, bandwidth=None))
    beside = level(written(tmp_path, topology="graph", edges_file="ring.edges", bandwidth=None))
    assert inline == beside
    assert len(inline.edges) == 8
    assert inline.bytes_per_s == 50e9


def test_a_dragonfly(tmp_path: Path) -> None:
    counts = {"hosts": number(2), "routers": number(2), "groups": number(2), "global_links": number(1)}
    found = level(written(tmp_path, topology="dragonfly", dragonfly={**counts, "global_bandwidth": number(25, "GB/s")}))
    assert found.dragonfly is not None
    assert (found.dragonfly.hosts, found.dragonfly.global_bytes_per_s) == (2, 25e9)


FLY = {"hosts": number(1), "routers": number(2), "groups": number(4), "global_links": number(1)}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"links": number(4), "link_bandwidth": number(20, "GB/s")},
            "network.net: bandwidth 100 GB/s is above the sum of its links, 80 GB/s",
        ),
        ({"links": number(4)}, "links and link_bandwidth belong together"),
        ({"bandwidth": None}, "missing bandwidth, or links and link_bandwidth"),
        ({"bandwidth": number(100)}, "network.net.bandwidth: missing unit of '100'"),
        ({"bandwidth": number(-1, "GB/s")}, "network.net.bandwidth: '-1' must be more than zero"),
        ({"latency": number(30, "s")}, "network.net.latency: '30 s' is beyond any machine"),
        ({"efficiency": None}, "missing efficiency (or a protocol, whose constants say it)"),
        ({"oversubscription": number(0.5)}, "oversubscription 0.5 is below 1"),
        ({"topology": "torsu"}, "network.net.topology: input should be 'switch', 'crossbar', 'fully_connected'"),
        ({"algorithm": "rign"}, "unknown algorithm 'rign'; did you mean 'ring'?"),
        ({"protocol": "ncl"}, "network.net.protocol: unknown 'ncl'; did you mean 'nccl'?"),
        ({"direction": "one"}, "direction: one is for a ring, not for switch"),
        ({"topology": "torus"}, "a torus needs dims"),
        ({"topology": "torus", "dims": "3x3"}, "dims 3x3 of 'net' make 9, not the 8 that it joins"),
        ({"dims": "2x4"}, "dims are not for switch"),
        ({"topology": "ring", "size": None}, "a ring needs a size"),
        ({"topology": "hypercube", "size": number(6)}, "a hypercube joins a power of 2, not the 6 of 'net'"),
        ({"topology": "graph"}, "a graph needs edges"),
        ({"topology": "graph", "edges": "0 1"}, "edge '0 1': write two nodes and a bandwidth, as in 0 1 25 GB/s"),
        ({"topology": "graph", "edges": "0 1 25"}, "edge '0 1 25': write two nodes and a bandwidth"),
        ({"topology": "graph", "edges": "0 0 25 GB/s"}, "it must join two nodes"),
        ({"topology": "graph", "edges": "0 2 25 GB/s"}, "edges must name the members 0, 1, 2, ...; found 0, 2"),
        (
            {"topology": "graph", "edges": "0 1 25 GB/s\n2 3 25 GB/s"},
            "edges make a graph of 2 parts that nothing joins: 0, 1; 2, 3",
        ),
        (
            {"topology": "graph", "edges": RING.replace("7", "s"), "bandwidth": None},
            "edges of 'net' name 7 members, not the 8",
        ),
        ({"topology": "graph", "edges": RING}, "bandwidth 100 GB/s is above the sum of its links, 50 GB/s"),
        ({"topology": "graph", "edges_file": "none.edges"}, "cannot read the edges of 'net'"),
        (
            {"topology": "dragonfly", "dragonfly": {**FLY, "global_bandwidth": number(25, "GB/s")}},
            "4 groups of 'net' are more than the 3 that their global links can join",
        ),
        (
            # Two routers of two links each reach four other groups: seven are too many.
            {
                "topology": "dragonfly",
                "size": number(14),
                "dragonfly": {
                    **FLY,
                    "groups": number(7),
                    "global_links": number(2),
                    "global_bandwidth": number(25, "GB/s"),
                },
            },
            "7 groups of 'net' are more than the 5 that their global links can join",
        ),
    ],
)
def test_refusals(tmp_path: Path, keys: dict[str, object], message: str) -> None:
    with pytest.raises(SystemFileError) as refused:
        load_system(written(tmp_path, **keys))
    assert message in str(refused.value)


def test_all_faults_of_a_level_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, bandwidth=None, efficiency=None, algorithm="rign", dims="2x4")
    with pytest.raises(SystemFileError) as refused:
        load_system(path)
    for part in ("missing bandwidth", "missing efficiency", "unknown algorithm", "dims are not for switch"):
        assert part in str(refused.value)
