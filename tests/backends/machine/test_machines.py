"""Servers, racks, equipment and prices of system files: the catalogue is of one piece, what people write is checked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_network, load_system, network_names, system_names
from slipstick.backends.machine.machine import FittedPart, LevelEquipment, Rack, ServerNode
from slipstick.backends.machine.system import System
from slipstick.backends.prices.book import load_prices
from slipstick.ir.errors import SystemFileError, UnknownNameError, UsageError

MACHINE = """name: mine
chip: h100-sxm-80gb
node: {num_chips: {value: 8, source: s}}
server:
  price: {value: 300, unit: kUSD, source: s}
  has_adapters: false
  rest_power: {value: 4, unit: kW, source: s}
  dram: {value: 1, unit: TB, source: s}
  cooling: liquid
  parts:
    - {name: xeon-8480, count: {value: 2, source: s}}
    - {name: gpu-chassis}
rack:
  servers: {value: 4, source: s}
  power: {value: 50, unit: kW, source: s}
  rest_power: {value: 1, unit: kW, source: s}
  parts: [{name: rack-liquid}]
network:
  - name: nvlink
    topology: switch
    size: {value: 8, source: s}
    bandwidth: {value: 450, unit: GB/s, source: s}
    latency: {value: 1, unit: us, source: s}
    efficiency: {value: 0.8, source: s}
    equipment: {switch: nvswitch-3, switches: {value: 4, source: s}}
  - name: fabric
    topology: fat_tree
    bandwidth: {value: 50, unit: GB/s, source: s}
    latency: {value: 5, unit: us, source: s}
    efficiency: {value: 0.8, source: s}
    equipment:
      switch: ndr-64x400g
      adapter: ndr-400g
      adapters: {value: 0.5, source: s}
      cable: dac-400g
      transceiver: 400g
      fibre: multimode
      copper_share: {value: 25, unit: "%", source: s}
      lengths:
        - {value: 2, unit: m, source: s}
        - {value: 30, unit: m, source: s}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Callable[..., System]:
    def load(*overrides: str, text: str = MACHINE, prices: str | None = None) -> System:
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        return load_system(path, overrides, prices=prices)

    return load


@pytest.mark.parametrize("name", system_names())
def test_the_catalogue_names_what_the_price_book_has(name: str) -> None:
    system, book = load_system(name), load_prices().section
    assert system.server is not None
    assert system.rack is not None
    assert {part.part for part in (*system.server.parts, *system.rack.parts)} <= set(book.parts)
    for level in system.levels:
        assert level.equipment is not None
        _check_equipment(level.equipment)
    assert system.package is not None
    assert {die.node for die in system.package.assembly.dies} <= set(book.nodes) & set(book.carbon.fabs)
    kinds = {stack.kind for stack, _ in system.package.counted_stacks()}
    assert kinds <= set(book.memories) & set(book.carbon.memory) & set(book.energy.memory)


@pytest.mark.parametrize("name", network_names())
def test_networks_of_the_catalogue_say_what_they_are_built_of(name: str) -> None:
    for level in load_network(name)[0]:
        assert level.equipment is not None
        assert level.equipment.switch
        _check_equipment(level.equipment)


def _check_equipment(equipment: LevelEquipment) -> None:
    book = load_prices().section
    for word, known in (
        (equipment.switch, book.switches), (equipment.adapter, book.adapters), (equipment.cable, book.cables),
        (equipment.transceiver, book.transceivers), (equipment.fibre, book.fibres),
    ):  # fmt: skip
        assert not word or word in known
    # A link that copper does not reach has optics at both ends and fibre between.
    assert bool(equipment.transceiver) == bool(equipment.fibre)


@pytest.mark.parametrize(
    ("name", "total_w"),
    # Maximum power in the data sheets of the DGX systems.
    [("dgx-1-v100", 3500), ("dgx-a100-80gb", 6500), ("dgx-h100", 10200), ("dgx-h200", 10200), ("dgx-b200", 14300)],
)
def test_servers_draw_what_their_data_sheets_say(name: str, total_w: float) -> None:
    system = load_system(name)
    assert system.server is not None
    assert system.server.rest_w is not None
    assert float(system.server.rest_w) + 8 * system.chip.power_w == total_w


@pytest.mark.parametrize("name", system_names())
def test_a_rack_may_draw_what_its_servers_do(name: str) -> None:
    system = load_system(name)
    assert system.rack is not None
    assert system.server is not None
    if system.rack.power_w is not None:
        each_w = system.node_size * system.chip.power_w + float(system.server.rest_w or 0.0)
        assert system.rack.num_servers * each_w <= float(system.rack.power_w)


def test_a_machine_is_read_as_it_is_written(mine: Callable[..., System]) -> None:
    system = mine()
    assert system.server == ServerNode(
        300e3, False, 4000.0, (FittedPart("xeon-8480", 2.0), FittedPart("gpu-chassis", 1.0)), 1e12, "liquid"
    )
    assert system.rack == Rack(4, None, True, 50e3, 1000.0, (FittedPart("rack-liquid", 1.0),))
    nvlink, fabric = (level.equipment for level in system.levels)
    assert nvlink == LevelEquipment("nvswitch-3", 4.0)
    assert fabric == LevelEquipment(
        "ndr-64x400g", None, "ndr-400g", 0.5, None, "dac-400g", "400g", "multimode", (2000.0, 30000.0), 0.25
    )


def test_what_nobody_says_is_none() -> None:
    system = load_system("dgx-h200")
    assert system.server is not None
    assert (system.server.price_usd, system.server.dram_bytes) == (None, None)


def test_every_number_and_word_of_a_machine_can_be_set(mine: Callable[..., System]) -> None:
    plain = mine()
    paths = [r.path for r in plain.sources if r.path.startswith(("server.", "rack.")) or ".equipment." in r.path]
    assert "server.parts.xeon-8480.count" in paths
    assert "network.fabric.equipment.lengths.1" in paths
    for path in paths:
        before = next(r for r in plain.sources if r.path == path)
        changed = mine(f"{path}={2 * before.value}{before.unit}")
        assert [r.path for r, s in zip(changed.sources, plain.sources, strict=True) if r != s] == [path]
    words = mine("server.cooling=air", "server.has_adapters=true", "network.fabric.equipment.switch=ndr-64x800g")
    assert words.server is not None
    assert (words.server.cooling, words.server.has_adapters) == ("air", True)
    assert words.levels[1].equipment is not None
    assert words.levels[1].equipment.switch == "ndr-64x800g"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server.prise=3USD", "unknown key of server 'prise'; did you mean 'price'?"),
        ("server.price=-3USD", "--set: server.price: '-3.0' must be more than zero"),
        ("server.price=3W", "wrong unit 'W' in '3.0 W': allowed: USD, kUSD, MUSD"),
        ("server.parts.xeon.count=3", "unknown part of server.parts 'xeon'; did you mean 'xeon-8480'?"),
        ("server.cooling=water", "server.cooling: input should be 'air', 'liquid' or 'two-phase', not 'water'"),
        ("rack.servers=0", "rack.servers: '0.0' must be more than zero"),
        ("network.fabric.equipment.joins=all", "network.fabric.equipment.joins: input should be 'ranks' or 'switches'"),
        ("network.fabric.equipment.joins=switches", "a level that joins switches has no adapters of ranks"),
        ("network.nvlink.equipment.adapters=2", "network.nvlink.equipment: adapters are counted: name the adapter"),
        ("network.nvlink.equipment.copper_share=0.5", "copper_share is of a cable: name the cable"),
        (
            "network.fabric.equipment.lengths=3m",
            "'network.fabric.equipment.lengths' is a list; continue with one of: 0, 1",
        ),
        (
            "network.fabric.equipment.lengths.2=3m",
            "unknown entry of network.fabric.equipment.lengths '2'; allowed: 0, 1",
        ),
    ],
)
def test_a_wrong_assignment_says_what_is_allowed(mine: Callable[..., System], text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        mine(text)
    assert message in str(caught.value)


def test_a_part_fitted_twice_wants_a_count(mine: Callable[..., System]) -> None:
    with pytest.raises(SystemFileError, match=r"mine.yaml:\d+: server: part named twice, give its count: gpu-chassis"):
        mine(text=MACHINE.replace("{name: xeon-8480, count: {value: 2, source: s}}", "{name: gpu-chassis}"))


def test_prices_are_the_usual_ones_unless_some_are_given(mine: Callable[..., System]) -> None:
    assert mine().own_prices is None
    assert mine().prices is load_prices()
    assert mine(prices="catch").prices.name == "catch"
    assert mine(text=MACHINE + "prices: catch\n").prices.name == "catch"
    assert mine(text=MACHINE + "prices: catch\n", prices="chiplet-actuary").prices.name == "chiplet-actuary"


def test_the_book_is_not_read_for_a_system_that_says_nothing_of_prices() -> None:
    code = (
        "import sys; from slipstick.backends.machine.load import load_system; load_system('dgx-h100');"
        "assert not {m for m in sys.modules if m.startswith('slipstick.backends.prices.') and m[-5:] != 'given'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_mapping_of_prices_lies_over_the_usual_ones(mine: Callable[..., System]) -> None:
    text = "prices:\n  tco:\n    it_life: {value: 6, unit: year, source: s}\n"
    system = mine(text=MACHINE + text)
    found = {r.path: r for r in system.prices.records}
    usual = {r.path: r for r in load_prices().records}
    assert [path for path, record in found.items() if record != usual[path]] == ["prices.tco.it_life"]
    assert found["prices.tco.it_life"].value_si == 6 * 365 * 86400


def test_a_file_of_prices_starts_from_the_file_that_names_it(mine: Callable[..., System], tmp_path: Path) -> None:
    own = "name: own\ntco: {it_life: {value: 6, unit: year, source: s}}\n"
    (tmp_path / "own.yaml").write_text(own, encoding="utf-8")
    assert mine(text=MACHINE + "prices: own.yaml\n").prices.name == "own"
    assert mine(prices=str(tmp_path / "own.yaml")).prices.name == "own"


def test_prices_are_set_by_their_paths(mine: Callable[..., System]) -> None:
    system = mine("prices.nodes.N5.wafer_price=13400USD", "prices.tco.method=annual", "prices.parts.fan.price=20USD")
    found = {r.path: r for r in system.prices.records}
    assert found["prices.nodes.N5.wafer_price"].value_si == 13400
    assert found["prices.nodes.N5.wafer_price"].source == "--set"
    assert found["prices.parts.fan.price"].value_si == 20
    assert system.prices.section.tco.method == "annual"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prices.nodes.N5.wafer_pric=1USD", "unknown key of prices.nodes.N5 'wafer_pric'; did you mean 'wafer_price'?"),
        ("prices.nodes.N5.wafer_price=-1USD", "--set: prices.nodes.N5.wafer_price: '-1.0' must be zero or more"),
        ("prices.nodes.N5=1USD", "'prices.nodes.N5' is a section; set one of its keys: wafer_price"),
        ("prices.node.N5.wafer_price=1USD", "unknown key of prices 'node'; did you mean 'nodes'?"),
        ("prices.nodes.N5X.wafer_price=1USD", "unknown name in prices.nodes 'N5X'; did you mean 'N5'?"),
        ("prices=catch", "'prices' is a section; set one of its keys:"),
        ("price.nodes.N5.wafer_price=1USD", "unknown key of a system 'price'; did you mean 'prices'?"),
    ],
)
def test_wrong_prices_say_what_is_allowed(mine: Callable[..., System], text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        mine(text)
    assert message in str(caught.value)


def test_faults_of_prices_come_with_those_of_the_system_and_name_their_lines(mine: Callable[..., System]) -> None:
    text = (
        MACHINE.replace("value: 300,", "value: -300,")
        + "prices:\n  tco:\n    it_life: {value: -1, unit: year, source: s}\n"
    )
    with pytest.raises(SystemFileError, match="has 2 faults:") as caught:
        mine(text=text)
    lines = text.splitlines()
    at = [1 + next(i for i, line in enumerate(lines) if key in line) for key in ("  price:", "it_life")]
    assert f"mine.yaml:{at[0]}: server.price: '-300' must be more than zero" in str(caught.value)
    assert f"mine.yaml:{at[1]}: prices.tco.it_life: '-1' must be more than zero" in str(caught.value)


def test_an_unknown_profile_gets_the_nearest(mine: Callable[..., System]) -> None:
    with pytest.raises(UnknownNameError, match="unknown price profile 'cach'; did you mean 'catch'"):
        mine(prices="cach")
    with pytest.raises(SystemFileError, match="prices: expected a mapping with"):
        mine(text=MACHINE + "prices: 3\n")


def test_what_others_say_is_kept_beside_the_number_that_is_used() -> None:
    book = load_prices()
    others = book.others()["prices.switches.ndr-64x400g.price"]
    assert [(o.value_si, o.unit) for o in others] == [(50000, "USD")]
    assert all(record.source for records in book.others().values() for record in records)
    assert dict(book.words())["prices.tco.method"] == book.section.tco.method
