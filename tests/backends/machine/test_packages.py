"""Packages of chips: what the catalogue has is of one piece, what people write is checked, every number can be set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.backends.machine.load import chip_names, load_chip, load_system, system_names, system_numbers
from slipstick.backends.machine.package import Assembly, D2d, Die, Harvest, Stack
from slipstick.backends.machine.system import System
from slipstick.ir.errors import SystemFileError, UnknownNameError, UsageError

# 26 mm x 33 mm, the field of a wafer scanner.
RETICLE_MM2 = 858.0
HEAD = """
name: mine
chip:
  name: Mine
  num_sms: {value: 38, source: s}
  clock: {value: 2, unit: GHz, source: s}
  power: {value: 500, unit: W, source: s}
  matmul: {bf16: {value: 500, unit: TFLOP/s, source: s}, fp32: {value: 50, unit: TFLOP/s, source: s}}
  vector: {fp32: {value: 50, unit: TFLOP/s, source: s}}
  memory:
    hbm: {capacity: {value: 24, unit: GiB, source: s}, bandwidth: {value: 3, unit: TB/s, source: s}}
    l2: {capacity: {value: 50, unit: MiB, source: s}}
"""
PACKAGE = """  package:
    joint: interposer
    contents:
      - name: base
        joint: hybrid_bond
        count: {value: 2, source: s}
        contents:
          - {name: io, node: N6, area: {value: 300, unit: mm2, source: s}}
          - name: compute
            node: N5
            area: {value: 1.2, unit: cm2, source: s}
            count: {value: 2, source: s}
            harvest:
              units: {value: 40, source: s}
              needed: {value: 38, source: s}
              area_share: {value: 0.7, source: s}
            d2d: {kind: ucie-advanced, level: inside, edges: {value: 2, source: s}}
      - {name: hbm, memory: hbm3, capacity: {value: 16, unit: GiB, source: s}, count: {value: 4, source: s}}
    beside:
      - {name: ddr, memory: ddr5, capacity: {value: 32, unit: GiB, source: s}}
    num_ranks: {value: 4, source: s}
    price: {value: 10, unit: kUSD, source: s}
"""
TAIL = """node: {num_chips: {value: 8, source: s}}
network:
  - name: inside
    topology: fully_connected
    size: {value: 4, source: s}
    bandwidth: {value: 1, unit: TB/s, source: s}
    latency: {value: 100, unit: ns, source: s}
    efficiency: {value: 0.8, source: s}
  - ndr-infiniband
"""
XCD = "chip.package.contents.base.contents.compute"


@pytest.fixture
def mine(tmp_path: Path) -> Callable[..., System]:
    def load(*overrides: str, package: str = PACKAGE) -> System:
        path = tmp_path / "mine.yaml"
        path.write_text(HEAD + package + TAIL, encoding="utf-8")
        return load_system(path, overrides)

    return load


@pytest.mark.parametrize("name", system_names())
def test_the_memory_of_a_package_is_that_of_its_ranks(name: str) -> None:
    system = load_system(name)
    assert system.package is not None
    built = sum(float(stack.num_bytes * count) for stack, count in system.package.counted_stacks())
    # What drivers and error correction keep for themselves: up to an eighth.
    assert 0.87 * built <= system.chip.hbm_bytes * system.package.num_ranks <= built * (1 + 1e-9)


@pytest.mark.parametrize("name", system_names())
def test_dies_fit_the_reticle_and_have_the_units_of_the_chip(name: str) -> None:
    system = load_system(name)
    assert system.package is not None
    dies = list(system.package.assembly.counted_dies())
    assert dies
    assert all(0 < die.area_mm2 < RETICLE_MM2 for die, _ in dies)
    harvested = [(die.harvest.needed, count) for die, count in dies if die.harvest is not None]
    if harvested:
        assert sum(needed * count for needed, count in harvested) == system.chip.num_sms * system.package.num_ranks


@pytest.mark.parametrize("name", chip_names())
def test_every_chip_says_how_it_is_packaged_and_where_that_is_from(name: str) -> None:
    found = {r.path: r for r in load_chip(name)[1] if r.path.startswith("package.")}
    assert {r.dimension for r in found.values()} >= {"mm2", "B"}
    assert all(r.source and r.confidence for r in found.values())
    assert {"package.price", "package.gross_margin"} & set(found)


def test_a_tree_is_read_as_it_is_written(mine: Callable[..., System]) -> None:
    system = mine()
    assert system.package is not None
    io, compute = (
        Die("io", "N6", 300.0),
        Die(
            "compute",
            "N5",
            120.0,
            count=2.0,
            harvest=Harvest(40, 38, 0.7),
            d2d=D2d("ucie-advanced", 1e12 / 3, 2.0, "inside"),
        ),
    )
    assert system.package.assembly == Assembly(
        "package", "interposer",
        (Assembly("base", "hybrid_bond", (io, compute), 2.0), Stack("hbm3", 16 * 2**30, 4.0, "hbm")),
    )  # fmt: skip
    assert system.package.beside == (Stack("ddr5", 32 * 2**30, 1.0, "ddr"),)
    assert (system.package.num_ranks, system.package.price_usd, system.package.volume) == (4, 10e3, None)
    assert [(die.name, count) for die, count in system.package.assembly.counted_dies()] == [("io", 2), ("compute", 4)]


def test_a_system_without_a_package_has_none(mine: Callable[..., System]) -> None:
    assert mine(package="").package is None


def test_every_number_of_a_package_can_be_set_at_its_path(mine: Callable[..., System]) -> None:
    plain = mine()
    paths = [r.path for r in system_numbers(plain) if r.path.startswith("chip.package.")]
    assert len(paths) == 13
    for path in paths:
        before = next(r for r in plain.sources if r.path == path)
        value = before.value * (0.99 if path.endswith("share") else 1 if before.unit in ("", "1") else 1.01)
        changed = mine(f"{path}={value}{before.unit}")
        after = next(r for r in changed.sources if r.path == path)
        assert after.value == pytest.approx(value)
        assert after.source == "--set"
        assert [r.path for r, s in zip(changed.sources, plain.sources, strict=True) if r != s] == [path]


def test_text_can_be_set_at_depth(mine: Callable[..., System]) -> None:
    system = mine(f"{XCD}.node=N3", "chip.package.contents.hbm.memory=hbm4", "chip.package.joint=fan_out")
    assert system.package is not None
    assert [die.node for die in system.package.assembly.dies] == ["N6", "N3"]
    assert [stack.kind for stack, _ in system.package.counted_stacks()] == ["hbm4", "ddr5"]
    assert system.package.assembly.joint == "fan_out"


def test_what_the_file_leaves_out_can_be_set(mine: Callable[..., System]) -> None:
    system = mine("chip.package.volume=1e6", "chip.package.contents.base.contents.io.count=2", f"{XCD}.stitched=true")
    assert system.package is not None
    io, compute = system.package.assembly.dies
    assert (system.package.volume, io.count, compute.stitched) == (1e6, 2.0, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{XCD}.aria=3cm2", "unknown key of chip.package.contents.base.contents.compute 'aria'; did you mean 'area'?"),
        (
            "chip.package.contents.bse.joint=organic",
            "unknown part of chip.package.contents 'bse'; did you mean 'base'?",
        ),
        ("chip.package.contents=3", "'chip.package.contents' is a list; continue with one of: base, hbm"),
        ("chip.package.contents.hbm=3", "'chip.package.contents.hbm' is a section; set one of its keys: name, count"),
        (f"{XCD}.area=3 GB", f"--set: {XCD}.area: wrong unit 'GB' in '3.0 GB': allowed: mm2, cm2, m2"),
        (f"{XCD}.area=-3 mm2", f"--set: {XCD}.area: '-3.0' must be more than zero"),
        (f"{XCD}.count=1.5", "'1.5' must be a whole number"),
        (f"{XCD}.aspect=0.5", f"{XCD}: aspect 0.5 is below 1: it is the longer side over the shorter"),
        (f"{XCD}.harvest.needed=41", f"{XCD}.harvest: 41 units needed are more than the 40 that there are"),
        (f"{XCD}.design_area=2cm2", "design_area 200 mm2 is more than its area, 120 mm2"),
        (f"{XCD}.d2d.level=nvlink", f"--set: {XCD}.d2d.level: unknown level 'nvlink'; allowed: inside, infiniband"),
        ("chip.package.joint=cowos", "chip.package.joint: input should be 'organic', 'fan_out', 'interposer'"),
        ("chip.package.bridges=3", "bridges is for embedded_bridge, fan_out_bridge, not for interposer"),
        ("chip.package.bonding=wafer_to_wafer", "bonding is for hybrid_bond, not for interposer"),
        ("chip.package.price=-1USD", "chip.package.price: '-1.0' must be more than zero"),
        ("chip.package.num_ranks=0", "chip.package.num_ranks: '0.0' must be more than zero"),
        ("chip.package.gross_margin=120%", "must be at most 1"),
        ("chip.package.contents.hbm.capacity=16B", "'16.0 B' is beyond any machine"),
        ("chip.package.contents.hbm.capacity=16", "hbm.capacity: missing unit of '16': allowed: B, MB, GB"),
        ("chip.package.gross_margin=100%", "must be below 1: it is a part of the price"),
        ("chip.package.num_ranks=3", "chip.package.num_ranks: 3 ranks a package do not divide the 8 chips of a node"),
        (
            "chip.package.num_ranks=2",
            "chip.package.num_ranks: 2, but its dies are level 'inside', which joins 4",
        ),
    ],
)
def test_a_wrong_assignment_says_where_and_what_is_allowed(
    mine: Callable[..., System], text: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        mine(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("node: N6, ", "", "{name: io", "chip.package.contents.base.contents.io: missing node"),
        ("joint: interposer", "order: chip_first", "package:", "chip.package: missing joint"),
        ("{name: hbm, memory: hbm3, ", "{name: hbm, ", "{name: hbm", "chip.package.contents.hbm: missing memory"),
        ("name: base", "name: hbm", "package:", "chip.package: part named twice: hbm"),
        ("name: ddr", "name: hbm", "package:", "chip.package: part named twice: hbm"),
        ("level: inside, ", "", "d2d:", f"{XCD}.d2d: missing bandwidth, or the level of the network that it is"),
        ("{name: io,", "{name: i.o,", "{name: i.o", "chip.package.contents.base.contents.i.o.name"),
        ("kind: ucie-advanced,", "knd: ucie-advanced,", "d2d:", f"{XCD}.d2d: unknown key 'knd'; did you mean 'kind'?"),
    ],
)
def test_a_faulty_file_says_where(mine: Callable[..., System], old: str, new: str, line: str, message: str) -> None:
    text = PACKAGE.replace(old, new)
    assert text != PACKAGE
    with pytest.raises(SystemFileError) as caught:
        mine(package=text)
    number = next(i for i, found in enumerate((HEAD + text).splitlines(), start=1) if line in found)
    assert f"mine.yaml:{number}: {message}" in str(caught.value)


def test_a_hybrid_bond_joins_at_least_two(mine: Callable[..., System]) -> None:
    die = "{name: io, node: N6, area: {value: 300, unit: mm2, source: s}}"
    with pytest.raises(SystemFileError, match="a hybrid_bond joins two parts or more: the first carries the others"):
        mine(package=f"  package:\n    joint: hybrid_bond\n    contents: [{die}]\n")


def test_all_faults_of_a_package_come_with_those_of_the_rest(mine: Callable[..., System]) -> None:
    with pytest.raises(SystemFileError, match="has 3 faults") as caught:
        mine("chip.clock=3Hz", f"{XCD}.area=-1mm2", "chip.package.price=-3USD")
    assert all(f"--set: {path}:" in str(caught.value) for path in ("chip.clock", f"{XCD}.area", "chip.package.price"))


def test_bandwidth_of_an_interface_goes_before_that_of_its_level(mine: Callable[..., System]) -> None:
    # Four dies, each with a link to each of the three others.
    assert _d2d(mine()).bytes_per_s == 1e12 / 3
    assert _d2d(mine("network.inside.bandwidth=3TB/s")).bytes_per_s == 1e12
    assert _d2d(mine(f"{XCD}.d2d.bandwidth=2TB/s")).bytes_per_s == 2e12


def _d2d(system: System) -> D2d:
    assert system.package is not None
    return next(die.d2d for die in system.package.assembly.dies if die.d2d is not None)


def test_a_part_of_the_catalogue_that_there_is_not_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown part of chip.package.contents 'gh10'; did you mean 'gh100'\?"):
        load_system("dgx-h100", ["chip.package.contents.gh10.area=800mm2"])
