"""Systems into what is bought for them: public clusters, sums by hand, what is not said, laws."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.machine import FittedPart, LevelEquipment, Rack, ServerNode
from slipstick.backends.machine.package import Assembly, Die, Package
from slipstick.backends.machine.system import System
from slipstick.backends.network.topology.level import Topology
from slipstick.backends.prices.book import load_prices
from slipstick.cost.bill import Bill
from slipstick.cost.ownership.system import system_cost
from slipstick.ir.errors import UnknownNameError, UsageError

NDR = LevelEquipment(switch="ndr-64x400g", adapter="ndr-400g", transceiver="400g", fibre="multimode", cable="dac-400g")
BOUGHT = ServerNode(price_usd=310_000.0, rest_w=4_600.0)
PACKAGE = Bill("package", 3_320.0)


machine = cache(load_system)


def dgx(topology: Topology = "rail_only", server: ServerNode | None = BOUGHT, rack: Rack | None = None) -> System:
    """DGX H100 with nothing said of its chips' packages; NVSwitches by their makers' count."""
    base = machine("dgx-h100")
    nvlink = replace(base.levels[0], equipment=LevelEquipment(switch="nvswitch-3", switches=4))
    infiniband = replace(base.levels[1], topology=topology, equipment=NDR)
    return replace(base, package=None, server=server, rack=rack, levels=(nvlink, infiniband))


@pytest.mark.parametrize(
    ("num_gpus", "switches", "usd_per_gpu"),
    [
        (16, 0, 45_810),
        (512, 8, 46_883),
        (1024, 48, 49_248),
        (16384, 768, 49_248),
        (32768, 2560, 51_613),
        (65536, 5120, 51_613),
    ],
)
def test_public_clusters_of_august_2024(num_gpus: int, switches: int, usd_per_gpu: float) -> None:
    """Money for a GPU of the public spreadsheet of H100 clusters, August 2024 (tech-talk-cto substack).

    Servers and switches are at its prices, and so is the building; switches and links are counted here, and links
    are at what optics cost elsewhere. It has rails that no spine joins.
    """
    cost = system_cost(dgx(), num_gpus, load_prices("h100-cluster-2024"))
    assert cost.levels[1].wiring is not None
    assert cost.levels[1].wiring.switches == switches
    assert cost.bill.usd / num_gpus == pytest.approx(usd_per_gpu, rel=0.04)


@pytest.mark.parametrize(("num_gpus", "usd_per_gpu"), [(16, 45_810), (512, 46_883), (1024, 49_248), (32768, 51_613)])
def test_public_clusters_behind_one_fabric(num_gpus: int, usd_per_gpu: float) -> None:
    """The same with one fat tree over all rails, as the catalogue has it."""
    cost = system_cost(dgx("switch"), num_gpus, load_prices("h100-cluster-2024"))
    assert cost.bill.usd / num_gpus == pytest.approx(usd_per_gpu, rel=0.1)


def test_a_cluster_by_hand() -> None:
    cost = system_cost(dgx(), 1024, load_prices())
    lines = {
        "servers/servers/server": 128 * 310_000,
        # 48 switches; 2048 links of two transceivers and a fibre; adapters are part of the servers.
        "network/infiniband/switches": 48 * 36_000,
        "network/infiniband/transceivers": 2 * 2048 * 900,
        "network/infiniband/fibres": 2048 * 50,
        "network/infiniband/copper cables": 0,
        "facility/power delivery and cooling": 10 * (128 * 10_200 + 48 * 1_700),
    }
    found = {path.removeprefix("system/"): line.usd for path, line in cost.bill.walk()}
    servers = "servers/servers"
    assert found[servers] == lines.pop("servers/servers/server")
    assert {path: found[path] for path in lines} == pytest.approx(lines)
    assert cost.bill.usd == pytest.approx(128 * 310_000 + sum(lines.values()))
    assert cost.power_w == 128 * 10_200 + 48 * 1_700


def test_short_links_are_copper() -> None:
    near = replace(NDR, lengths_mm=(2_500.0, 30_000.0))
    system = dgx()
    system = replace(system, levels=(system.levels[0], replace(system.levels[1], equipment=near)))
    fabric = system_cost(system, 1024, load_prices()).bill.line("network/infiniband")
    assert fabric.line("copper cables").usd == 1024 * 200
    assert fabric.line("transceivers").usd == 2 * 1024 * 900
    half = replace(NDR, copper_share=0.5)
    system = replace(system, levels=(system.levels[0], replace(system.levels[1], equipment=half)))
    assert system_cost(system, 1024, load_prices()).bill.line("network/infiniband/copper cables").usd == 512 * 200


def test_adapters_are_bought_where_servers_have_none() -> None:
    bare = system_cost(dgx(server=replace(BOUGHT, has_adapters=False)), 1024, load_prices())
    assert bare.bill.line("network/infiniband/adapters").usd == 1024 * 2_000
    theirs = system_cost(dgx(), 1024, load_prices()).bill.line("network/infiniband")
    assert [line.name for line in theirs.parts] == ["switches", "copper cables", "transceivers", "fibres"]


def test_a_server_that_is_built_by_hand() -> None:
    built = ServerNode(rest_w=4_600.0, parts=(FittedPart("xeon-8480", 2), FittedPart("gpu-chassis")))
    prices = load_prices(overrides=("servers.gross_margin=0.2", "servers.package_margin=0.75"))
    server = system_cost(dgx(server=built), 8, prices, "build", PACKAGE).bill.line("servers/servers")
    lines = {
        "packages": 8 * 3_320 / 0.25,
        "xeon-8480": 2 * 10_710,
        "gpu-chassis": 6_000,
        "host memory": 2e12 / 2**30 * 2.4,
        # 5.6 kW at 0.8 V.
        "converters": 5_600 / 0.8 * 0.33,
        "power supplies": 10_200 * 0.13,
    }
    assert {name: server.line(name).usd for name in lines} == pytest.approx(lines)
    assert server.usd == pytest.approx(sum(lines.values()) / 0.8)


def test_what_is_built_pays_for_its_inner_network() -> None:
    built = system_cost(dgx(), 16, load_prices(), "build", PACKAGE).bill
    assert built.line("network/nvlink/switches").usd == 2 * 4 * 1_500
    assert built.line("network/infiniband/adapters").usd == 16 * 2_000


def test_power_of_a_server_of_parts_has_the_losses_of_its_supplies() -> None:
    """(packages / 0.95 + hosts + memory + NVSwitches + adapters with their optics) / 0.95."""
    built = ServerNode(parts=(FittedPart("xeon-8480", 2),), dram_bytes=1e12)
    cost = system_cost(dgx(server=built), 64, load_prices(), "build", PACKAGE)
    by_hand = (5_600 / 0.95 + 2 * 350 + 1000 * 0.392 + 4 * 120 + 8 * (25 + 8)) / 0.95
    assert cost.servers.power_w / 8 == pytest.approx(by_hand)


def test_racks_hold_what_they_have_power_for() -> None:
    rack = Rack(8, power_w=42_000.0, parts=(FittedPart("rack-air"),))
    assert system_cost(dgx(rack=rack), 128, load_prices()).bill.line("servers/racks").usd == 4 * 5_000
    roomy = replace(rack, power_w=None)
    assert system_cost(dgx(rack=roomy), 128, load_prices()).bill.line("servers/racks").usd == 2 * 5_000


def test_a_rack_is_bought_with_all_that_lies_in_it() -> None:
    base = load_system("gb200-nvl72")
    trays = LevelEquipment(switch="nvlink-switch-tray", switches=9)
    levels = (replace(base.levels[0], equipment=trays), replace(base.levels[1], equipment=NDR))
    system = replace(base, rack=Rack(18, price_usd=3e6), levels=levels, server=ServerNode(rest_w=1_000.0))
    cost = system_cost(system, 100, load_prices())
    # A hundred GPUs are 25 trays in two racks.
    assert cost.bill.line("servers").usd == 2 * 3e6
    assert cost.bill.line("network/nvlink").usd == 0
    # Racks come full, with 18 trays of four GPUs each; built from parts, no more trays are bought than are asked for.
    assert cost.gpus_bought == 2 * 18 * 4
    assert system_cost(system, 100, load_prices(), "build", PACKAGE).gpus_bought == 25 * 4
    # 18 trays; four leaves for a hundred adapters and two spines: racks are not joined back to back.
    assert cost.network.power_w == 18 * 800 + (4 + 2) * 1_700


def test_what_nobody_said_is_named() -> None:
    base = load_system("dgx-h100")
    bare = replace(
        base, package=None, server=None, rack=None, levels=tuple(replace(v, equipment=None) for v in base.levels)
    )
    unpriced = system_cost(bare, 1024, load_prices()).unpriced
    wanted = (
        "packages: add a section package to the chip",
        "server: add a section server",
        "power of hosts: add server.rest_power",
        "racks: add a section rack",
        "network level nvlink: add network.nvlink.equipment",
        "network level infiniband: add network.infiniband.equipment",
    )
    for line in wanted:
        assert any(found.startswith(line) for found in unpriced), line
    assert len(unpriced) == len(wanted)
    # A single accelerator has nobody to talk to.
    assert not any(line.startswith("network") for line in system_cost(bare, 1, load_prices()).unpriced)


def test_packages_without_a_price_are_said_to_be_at_cost() -> None:
    described = Package(Assembly("package", "organic", (Die("die", "N5", 100.0),)))
    system = replace(dgx(server=ServerNode(rest_w=100.0, parts=(FittedPart("gpu-chassis"),))), package=described)
    at_cost = system_cost(system, 8, load_prices(), "market", PACKAGE)
    assert any("priced at their manufacturing cost" in line for line in at_cost.unpriced)
    priced = replace(system, package=replace(described, price_usd=28_000.0))
    found = system_cost(priced, 8, load_prices(), "market", PACKAGE)
    assert found.bill.line("servers/servers/packages").usd == 8 * 28_000
    assert not any("packages" in line for line in found.unpriced)
    kept = replace(system, package=replace(described, gross_margin=0.5))
    sold, made = (system_cost(kept, 8, load_prices(), b, PACKAGE).bill for b in ("market", "build"))
    assert sold.line("servers/servers/packages").usd == 8 * 6_640
    assert made.line("servers/servers/packages").usd == 8 * 3_320
    # A chip that says it is sold at cost has a price; a book that knows no margin has none.
    said = system_cost(
        replace(system, package=replace(described, gross_margin=0.0)), 8, load_prices(), "market", PACKAGE
    )
    assert said.bill.line("servers/servers/packages").usd == 8 * 3_320
    assert not any("packages" in line for line in said.unpriced)


def test_equipment_that_no_book_has() -> None:
    odd = replace(NDR, switch="ndr-64x400")
    system = dgx()
    system = replace(system, levels=(system.levels[0], replace(system.levels[1], equipment=odd)))
    with pytest.raises(UnknownNameError, match=r"unknown switch 'ndr-64x400'; did you mean 'ndr-64x400g'\?"):
        system_cost(system, 64, load_prices())
    with pytest.raises(UnknownNameError, match="unknown part 'xeon'"):
        system_cost(dgx(server=ServerNode(parts=(FittedPart("xeon"),))), 8, load_prices())


def test_a_system_has_an_accelerator() -> None:
    with pytest.raises(UsageError, match="a system of 0 accelerators: 1 or more"):
        system_cost(dgx(), 0, load_prices())


@settings(max_examples=30)
@given(
    num_gpus=st.integers(1, 50_000),
    topology=st.sampled_from(["switch", "fat_tree", "rail_only", "rail_optimised"]),
    basis=st.sampled_from(["market", "build"]),
)
def test_parts_add_up(num_gpus: int, topology: Topology, basis: str) -> None:
    cost = system_cost(dgx(topology), num_gpus, load_prices(), "build" if basis == "build" else "market", PACKAGE)
    for _, line in cost.bill.walk():
        assert line.usd >= 0
        if line.parts:
            assert line.usd == pytest.approx(sum(part.usd for part in line.parts))


@settings(max_examples=15)
@given(
    path=st.sampled_from(
        ["switches.ndr-64x400g.price", "transceivers.400g.price", "fibres.multimode.price", "servers.host_memory",
         "switches.nvswitch-3.price", "adapters.ndr-400g.price", "servers.psu", "servers.dcdc", "facility.capex"]
    ),
    factor=st.floats(0.1, 0.99),
)  # fmt: skip
def test_nothing_gets_cheaper_when_a_price_rises(path: str, factor: float) -> None:
    usual = next(r for r in load_prices().records if r.path == f"prices.{path}")
    books = [load_prices(overrides=(f"{path}={usual.value_si * f!r} {usual.dimension}",)) for f in (factor, 1.0)]
    system = dgx(server=ServerNode(parts=(FittedPart("xeon-8480"),)))
    cheap, dear = (system_cost(system, 256, book, "build", PACKAGE).bill.usd for book in books)
    assert cheap <= dear


@settings(max_examples=30)
@given(num_gpus=st.integers(8, 20_000), more=st.integers(0, 5_000))
def test_more_accelerators_never_cost_less(num_gpus: int, more: int) -> None:
    fewer, all_of_them = (system_cost(dgx(), n, load_prices()).bill.usd for n in (num_gpus, num_gpus + more))
    # Two servers are joined without a switch, three with one: never the other way.
    assert fewer <= all_of_them


def test_many_designs_at_once_are_as_each_alone() -> None:
    system, prices = dgx(server=ServerNode(rest_w=4_600.0, parts=(FittedPart("gpu-chassis"),))), load_prices()
    packages = np.array([1_000.0, 2_000.0, 5_000.0])
    at_once = system_cost(system, 1024, prices, "build", Bill("package", packages)).bill.usd
    alone = [system_cost(system, 1024, prices, "build", Bill("package", float(p))).bill.usd for p in packages]
    assert at_once == pytest.approx(alone)
    sizes = np.array([16.0, 512.0, 1024.0, 32768.0])
    by_size = system_cost(dgx(), sizes, prices).bill.usd
    assert by_size == pytest.approx([system_cost(dgx(), float(n), prices).bill.usd for n in sizes])


def test_a_rack_that_is_bought_full_draws_what_is_in_it_beside_its_servers() -> None:
    system = load_system("gb200-nvl72")
    assert system.rack is not None
    pumped = replace(system, rack=replace(system.rack, rest_w=system.rack.rest_w + 1_000.0))
    before, after = (system_cost(s, 144, load_prices()).servers.power_w for s in (system, pumped))
    assert after - before == pytest.approx(2 * 1_000.0)


def test_what_a_rack_draws_itself_leaves_less_for_its_servers() -> None:
    """Of 41 kW 1 kW for fans leaves room for three servers of 10.2 kW, not four: twelve take four racks."""
    rack = Rack(num_servers=4, power_w=41_000.0, rest_w=1_000.0)
    found = system_cost(dgx(rack=rack), 96, load_prices())
    assert found.servers.power_w == pytest.approx(12 * (8 * 700 + 4_600) + 4 * 1_000)


def test_a_server_that_draws_more_than_a_rack_stands_in_several() -> None:
    rack = Rack(4, power_w=42_000.0, rest_w=2_000.0, parts=(FittedPart("rack-air"),))
    large = replace(dgx(rack=rack), chip=replace(dgx().chip, power_w=12_000.0))
    found = system_cost(large, 16, load_prices())
    # 8 x 12 kW and 4.6 kW of the rest are 100.6 kW: three racks of 40 kW for each of two servers.
    assert found.bill.line("servers/racks").usd == 6 * 5_000
    assert found.servers.power_w == pytest.approx(2 * 100_600 + 6 * 2_000)
    assert not [line for line in found.servers.unpriced if "rack" in line]


@pytest.mark.parametrize(("fibre", "reach"), [("multimode", 50.0), ("single-mode", 500.0)])
def test_links_are_no_longer_than_their_fibre_reaches(fibre: str, reach: float) -> None:
    """The second tier of an H100 PCIe server's network is of optics; copper shorter than its reach asks no fibre."""
    word = f"network.infiniband.equipment.fibre={fibre}"
    lengths = (f"network.infiniband.equipment.lengths.1={reach * part:g}m" for part in (1.0, 1.01))
    held, broken = (load_system("h100-pcie-server", [word, length]) for length in lengths)
    assert system_cost(held, 4096, held.prices).bill.usd > 0.0
    with pytest.raises(UsageError, match=f"longer than the {reach:g} m that fibre {fibre} reaches"):
        system_cost(broken, 4096, broken.prices)
