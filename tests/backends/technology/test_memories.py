"""One record says all of a memory: design, cost, energy, carbon and latency of a new kind come from one file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import Budget, design
from slipstick.backends.technology.files.chip_file import system_text
from slipstick.backends.technology.files.package_file import usual_joint
from slipstick.cost.money import Terms, system_money
from slipstick.cost.ownership.levels import levels_of
from slipstick.ir.errors import SystemFileError

# A stack of 32 GB on 1,000 wires of 8 Gbit/s: 1 TB/s.
RECORD = """
memories:
  mine:
    year: {value: 2030, source: s}
    capacity: {value: 32, unit: GB, source: s}
    links: {value: 1000, source: s}
    rate: {value: 8, unit: Gbit/s, source: s}
    density: {value: 500, unit: 1/mm, source: s}
    controller: {value: 10, unit: mm2, source: s}
    footprint: {value: 100, unit: mm2, source: s}
    latency: {value: 77, unit: ns, source: s}
    energy: {value: 2, unit: pJ/bit, source: s}
    leakage: {value: 0.01, unit: W/GB, source: s}
    voltage:
      nominal: {value: 1, unit: V, source: s}
      threshold: {value: 0.3, unit: V, source: s}
      margin: {value: 0.2, unit: V, source: s}
      maximum: {value: 1, unit: V, source: s}
    price: {value: 11, unit: USD/GiB, source: s}
    carbon: {value: 0.2, unit: kg/GB, source: s}
"""
BUDGET = Budget(node="N5", area_mm2=800.0, power_w=1000.0, memory="mine")


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(RECORD, encoding="utf-8")
    return path


@pytest.fixture
def machine(record: Path, tmp_path: Path) -> System:
    technology = load_technology(record)
    path = tmp_path / "box.yaml"
    text = system_text(design(BUDGET, technology), "box", 8, "ndr-infiniband", technology, like="dgx-h100")
    path.write_text(text, encoding="utf-8")
    return load_system(path)


def test_a_new_kind_is_designed_from_its_record(record: Path) -> None:
    technology = load_technology(record)
    made = design(BUDGET, technology)
    # 0.61 of 800 mm2 beside the dies hold four stacks of 100 mm2, whose controllers fit on 0.109 of the die.
    assert made.memory.num_stacks == 4
    assert made.memory.num_bytes == 4 * 32e9
    # 0.15 of the power moves what is left of refresh, at 2 pJ/bit: enough for all wires at their rate.
    assert made.memory.bytes_per_s == pytest.approx(4 * 1e12)
    latency = technology.memory("mine").latency
    assert latency is not None
    assert latency.si == pytest.approx(77e-9)
    assert usual_joint(technology.memory("mine")) == "interposer"


def test_a_new_kind_is_priced_from_the_same_record(machine: System, record: Path) -> None:
    money = system_money(machine, 8, Terms(basis="build"))
    assert money.package is not None
    assert money.package.line("memory").usd == pytest.approx(4 * 32e9 / 2**30 * 11.0)
    assert levels_of(machine, machine.prices.section.energy).memory == pytest.approx(2e-12 * 8)
    assert machine.prices.section.carbon.memory["mine"].si == pytest.approx(0.2e-9)
    # As a price file it says the same.
    book = load_prices(record).section
    assert (book.memory("mine").price.si, book.energy.memory["mine"].si) == pytest.approx((11 / 2**30, 2e-12 * 8))


@pytest.mark.parametrize("kind", load_technology().section.memories)
def test_a_kind_that_is_shipped_is_whole(kind: str) -> None:
    book, record = load_prices().section, load_technology().memory(kind)
    assert {kind} <= book.memories.keys() & book.energy.memory.keys() & book.carbon.memory.keys()
    assert record.year is not None
    assert record.latency is not None
    assert record.design_j_per_byte > 0
    made = design(Budget(node="N5", area_mm2=800.0, power_w=1000.0, memory=kind), load_technology())
    assert made.memory.bytes_per_s > 0


def test_wrong_keys_of_a_record_name_its_line(tmp_path: Path) -> None:
    tree = yaml.safe_load(RECORD)
    tree["memories"]["mine"]["energy"]["unit"] = "W"
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    line = (
        path.read_text(encoding="utf-8").splitlines().index("      unit: W")
    )  # a number lies at its value, a line above
    with pytest.raises(SystemFileError, match=rf"wrong\.yaml:{line}: energy\.memory\.mine"):
        load_prices(path)
    with pytest.raises(SystemFileError, match=rf"wrong\.yaml:{line}: memories\.mine\.energy"):
        load_technology(path)
