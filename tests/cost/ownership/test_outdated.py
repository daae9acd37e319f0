"""What-ifs: a number that was set either moves the bill, or the money is said not to be of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.machine.files.catalogue import assemble
from slipstick.backends.machine.files.system_tree import Tree
from slipstick.backends.machine.load import load_system, system_names
from slipstick.backends.machine.system_table import tabled
from slipstick.cost.money import Terms, system_money
from slipstick.cost.ownership.outdated import outdated
from slipstick.ir.errors import SlipstickError, SystemFileError
from slipstick.report.cost.cost_views import cost_record, cost_text
from slipstick.report.cost.money import standing_record

BUILT = Terms(basis="build")
NODE = ("network.nvlink.size=72", "node.num_chips=72")


def told(*settings: str, system: str = "dgx-h100", basis: str = "market") -> tuple[str, ...]:
    terms = Terms(basis="build") if basis == "build" else Terms()
    return system_money(load_system(system, settings), 576, terms).outdated


@pytest.mark.parametrize(
    ("setting", "market", "build"),
    [
        # A number that was set, and what of the bill is then of another machine: as bought, and as built.
        ("node.num_chips=72", {"server.price", "server.rest_power"}, {"server.parts", "server.rest_power"}),
        ("network.nvlink.size=72", {"server.price"}, {"network.nvlink.equipment.switches"}),
        ("network.nvlink.bandwidth=900GB/s", {"server.price"}, {"network.nvlink.equipment.switches"}),
        ("chip.memory.hbm.capacity=192GiB", {"server.price", "memory of chip.package"}, {"memory of chip.package"}),
        ("chip.memory.hbm.bandwidth=8TB/s", {"server.price", "memory of chip.package"}, {"memory of chip.package"}),
        ("chip.matmul.bf16=2PFLOP/s", {"server.price", "dies of chip.package"}, {"dies of chip.package"}),
        ("chip.num_sms=264", {"server.price", "dies of chip.package"}, {"dies of chip.package"}),
        ("network.infiniband.bandwidth=100GB/s", {"server.price", "network.infiniband.equipment.adapter"},
         {"network.infiniband.equipment.adapter"}),
        # What moves with the bill, or with nothing in it.
        ("chip.power=1kW", set(), set()),
        ("network.nvlink.latency=2us", set(), set()),
        ("calibration.gemm.bf16.sustained=0.9", set(), set()),
        ("stack.launch_overhead=3us", set(), set()),
    ],
)  # fmt: skip
def test_what_is_of_another_machine(setting: str, market: set[str], build: set[str]) -> None:
    for basis, expected in (("market", market), ("build", build)):
        assert {line.partition(":")[0] for line in told(setting, basis=basis)} == expected
    path = setting.partition("=")[0]
    assert all(path in line and "set" in line for line in told(setting))


def test_the_same_number_again_changes_nothing() -> None:
    """A sweep has the machine itself among its values."""
    same = ("node.num_chips=8", "chip.memory.hbm.bandwidth=3350GB/s", "network.nvlink.bandwidth=0.45TB/s")
    assert load_system("dgx-h100", same).changed == ()
    assert told(*same) == ()


def test_what_is_set_as_well_is_of_this_machine() -> None:
    """Eight stacks of 24 GiB hold the 192 GiB; a price that is given is that of the machine that is given."""
    stacks = ("chip.package.contents.hbm.count=8", "chip.package.contents.hbm.capacity=24GiB")
    assert told("chip.memory.hbm.capacity=192GiB", *stacks, "server.price=400kUSD") == ()
    assert told("chip.memory.hbm.capacity=192GiB", *stacks, basis="build") == ()
    assert told(*NODE, "server.price=2.5MUSD", "server.rest_power=30kW") == ()


def test_a_rent_is_of_the_chip_that_is_rented() -> None:
    machine = load_system("dgx-h100", ["chip.memory.hbm.capacity=192GiB"])
    (line,) = outdated(machine, "market", rented=True)
    assert line.startswith("prices.cloud.H100-SXM5-80GB.price: of a machine with another chip.memory.hbm.capacity")
    assert outdated(load_system("dgx-h100", ["chip.power_limit=500W"]), "market", rented=True) == ()


def test_a_rack_that_is_bought_whole() -> None:
    """Of GB200 NVL72 a rack has one price, with its switches and adapters in it."""
    assert [line.partition(":")[0] for line in told("network.nvlink.size=144", system="gb200-nvl72")] == ["rack.price"]


def test_a_table_of_machines_is_of_another_machine_where_any_is() -> None:
    system = load_system("dgx-h100")
    assert tabled(system, {"chip.memory.hbm.bandwidth": np.full(3, system.chip.hbm_bytes_per_s)}).changed == ()
    table = tabled(system, {"chip.memory.hbm.bandwidth": [3.35e12, 4.8e12]})
    assert table.changed == ("chip.memory.hbm.bandwidth",)
    assert system_money(table, 8).standing == "not of this machine"


def test_screens_and_records_say_what_sums_are_worth() -> None:
    firm = system_money(load_system("dgx-h100"), 576)
    other = system_money(load_system("dgx-h100", NODE), 576)
    partly = system_money(replace(load_system("dgx-h100"), server=None, rack=None), 576)
    assert [m.standing for m in (firm, other, partly)] == ["firm", "not of this machine", "at least"]
    assert firm.without == ()
    assert partly.without == ("server", "power of hosts", "racks")
    text = cost_text(other, "summary")
    assert "* no sum is of this machine" in text
    assert "not of this machine: server.price: of a machine with another" in text
    assert "at least $" in cost_text(partly, "summary")
    assert "every sum is at least so much, without server, power of hosts, racks" in cost_text(partly, "system")
    assert "at least" not in cost_text(firm, "summary")
    for money in (firm, other, partly):
        record = cost_record(money)
        assert {key: record[key] for key in ("standing", "unpriced", "outdated")} == standing_record(money)


@pytest.mark.parametrize("name", system_names())
def test_what_a_chip_and_its_package_both_say_agrees_in_the_catalogue(name: str) -> None:
    """Stacks hold what the chip offers, makers keep back a fifth at most; all units that must work are its SMs."""
    system = load_system(name)
    package = system.package
    assert package is not None
    stacks = sum(float(s.num_bytes) * float(count) for s, count in package.counted_stacks()) / package.num_ranks
    assert 0.8 * stacks <= float(system.chip.hbm_bytes) <= stacks * (1 + 1e-9)
    if package.rank_units is not None:
        assert package.rank_units == system.chip.num_sms
    for level in system.levels:
        if level.size is not None:
            assert level.size % system.node_size == 0 or system.node_size % level.size == 0


MINE = """
name: mine
chip:
  name: Mine
  num_sms: {{value: {sms}, source: s}}
  clock: {{value: 2, unit: GHz, source: s}}
  power: {{value: 500, unit: W, source: s}}
  matmul: {{bf16: {{value: 500, unit: TFLOP/s, source: s}}, fp32: {{value: 50, unit: TFLOP/s, source: s}}}}
  vector: {{fp32: {{value: 50, unit: TFLOP/s, source: s}}}}
  memory:
    hbm: {{capacity: {{value: {gib}, unit: GiB, source: s}}, bandwidth: {{value: 3, unit: TB/s, source: s}}}}
    l2: {{capacity: {{value: 50, unit: MiB, source: s}}}}
  package:
    joint: interposer
    contents:
      - name: die
        node: N5
        area: {{value: 600, unit: mm2, source: s}}
        harvest:
          units: {{value: 110, source: s}}
          needed: {{value: 100, source: s}}
          area_share: {{value: 0.7, source: s}}
      - {{name: hbm, memory: hbm3, capacity: {{value: 16, unit: GiB, source: s}}, count: {{value: 5, source: s}}}}
node: {{num_chips: {{value: 8, source: s}}}}
network: [ndr-infiniband]
"""


def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    """Five stacks of 16 GiB hold 85.9 GB; a chip offers 68.72 GB of them at least."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINE.format(sms=100, gib=80))
    assert load_system(path).chip.num_sms == 100
    path.write_text(MINE.format(sms=132, gib=192))
    with pytest.raises(SystemFileError) as refused:
        load_system(path)
    said = str(refused.value)
    assert "chip.memory.hbm.capacity: 206.2 GB, but the stacks of its package hold 85.9 GB a rank" in said
    assert "allowed: 68.72 to 85.9 GB" in said
    assert "chip.num_sms: 132, but 100 units of the dies of its package must work; allowed: 100" in said
    # Set beside the file it is a what-if: it is timed, and its money is that of another machine.
    path.write_text(MINE.format(sms=100, gib=80))
    what_if = load_system(path, ["chip.memory.hbm.capacity=192GiB"])
    assert system_money(what_if, 8).standing == "not of this machine"


# What costs nothing to have another of: latencies and shares that are reached are no parts; racks of what is bought by
# the server hold as many as they hold. Adapters of a TPU pod are part of its racks, whatever the level counts.
FREE = (
    "latency",
    "efficiency",
    "rack.power",
    "rack.servers",
    "dcn.equipment.adapters",
    "energy.matmul",
    "energy.narrow",
)


def leaves(tree: Tree, at: tuple[str, ...] = ()) -> Iterator[tuple[str, Mapping[str, Tree]]]:
    """Yield every number of a system that can be set, with its path."""
    if isinstance(tree, dict) and "value" in tree:
        yield ".".join(at), tree
    elif isinstance(tree, dict):
        for key, inner in tree.items():
            yield from leaves(inner, (*at, key))
    elif isinstance(tree, list):
        for one in tree:
            if isinstance(one, dict) and "name" in one:
                yield from leaves(one, (*at, str(one["name"])))


@pytest.mark.parametrize("name", ["dgx-h100", "gb200-nvl72", "mi300x-platform", "tpu-v5p-pod"])
def test_no_number_of_a_machine_leaves_a_stale_price_unsaid(name: str) -> None:
    tree = assemble(name, None, None).tree
    sections = ("chip", "node", "server", "rack", "network")
    parts: dict[str, Tree] = {key: tree[key] for key in sections if key in tree}
    usual = float(np.ravel(system_money(load_system(name), 576).owned.gpu_hour.usd)[0])
    silent = []
    for path, leaf in leaves(parts):
        value, unit = leaf["value"], str(leaf.get("unit", ""))
        if not isinstance(value, int | float) or path.endswith(FREE):
            continue
        set_to = f"{value * 1.25 if unit else value * 2:g} {unit}".strip()
        try:
            found = system_money(load_system(name, [f"{path}={set_to}"]), 576)
        except SlipstickError:
            continue
        if float(np.ravel(found.owned.gpu_hour.usd)[0]) == usual and not found.outdated:
            silent.append(path)
    assert not silent
