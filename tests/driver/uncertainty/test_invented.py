"""Certainty falls when hardware is invented: numbers of chip and network that are not those of the measured machine."""

from collections.abc import Iterator
from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system, system_names
from slipstick.backends.machine.system import System
from slipstick.backends.machine.system_table import machine_numbers
from slipstick.driver.uncertainty.bands import Band, band_of
from slipstick.driver.uncertainty.evidence import ChipEvidence, Evidence, evidence_of
from slipstick.driver.uncertainty.quantities import MEMORY, QUANTITIES, STEP, TTFT

SYSTEMS = ("dgx-h100", "dgx-a100-80gb", "dgx-b200", "mi300x-platform")
# Numbers of machines that are of parts or energies, and move no time.
NO_TIMES = ("chip.energy", "chip.package", "node.")


def keys_of(name: str) -> Iterator[tuple[str, float, str]]:
    """Yield each number of chip and network with its value and unit."""
    system = load_system(name)
    sources = {record.path: record for record in system.sources}
    for path in machine_numbers(system):
        if path in sources and not path.startswith(NO_TIMES) and "equipment" not in path:
            yield path, sources[path].value_si, sources[path].dimension


KEYS = [(name, *key) for name in SYSTEMS for key in keys_of(name)]


def band(system: System, quantity: str = STEP) -> tuple[Evidence, Band]:
    evidence = evidence_of(system, system.stack.name, quantity)
    return evidence, band_of(quantity, evidence)


def is_within(inner: Band, outer: Band) -> bool:
    return outer.least <= inner.least <= inner.most <= outer.most and outer.low <= inner.low <= inner.high <= outer.high


def invent(key: tuple[str, str, float, str], factor: float) -> System | None:
    name, path, value, unit = key
    unit = "" if unit == "1" else f" {unit}"
    try:
        return load_system(name, [f"{path}={value * factor!r}{unit}"])
    except Exception:
        return None


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KEYS), st.one_of(st.floats(0.06, 0.94), st.floats(1.06, 18.0)), st.sampled_from((STEP, TTFT)))
def test_a_changed_number_is_never_as_sure(key: tuple[str, str, float, str], factor: float, quantity: str) -> None:
    changed = invent(key, factor)
    if changed is None or not changed.changed:
        return
    (was, usual), (evidence, wide) = band(load_system(key[0]), quantity), band(changed, quantity)
    assert evidence.beyond == pytest.approx(abs(log(factor)), rel=1e-6)
    assert evidence.silicon is not ChipEvidence.MEASURED
    assert not evidence.is_measured
    assert is_within(usual, wide)
    assert was.beyond == 0.0


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_number_typed_as_it_is_demotes_nothing(name: str) -> None:
    same = [f"{path}={value!r}{'' if unit == '1' else f' {unit}'}" for path, value, unit in keys_of(name)]
    assert len(same) > 10
    assert band(load_system(name, same)) == band(load_system(name))


@given(st.sampled_from(QUANTITIES), st.floats(0.05, 4.0), st.floats(0.0, 3.0), st.booleans())
def test_the_further_outside_the_wider(quantity: str, beyond: float, more: float, experts: bool) -> None:
    system = load_system("dgx-h100")
    evidence = evidence_of(system, system.stack.name, quantity)
    near, far = (
        band_of(quantity, Evidence(ChipEvidence.SISTER, evidence.software, one), experts)
        for one in (beyond, beyond + more)
    )
    assert is_within(near, far)
    assert is_within(band_of(quantity, evidence, experts), near)


def test_the_width_is_that_of_a_chip_no_fit_has_seen() -> None:
    """Products on L40S, 864 of 2039 GB/s: 29.3 % in nine of ten, so that at that distance this is added."""
    wide = Band(0.0, 0.0, 0.0, 0.0).stretched(log(2039 / 864))
    assert exp(wide.most) == pytest.approx(1.293)
    assert exp(wide.high) == pytest.approx(1.100)


def test_chips_without_relatives_and_bytes_stay_as_they_are() -> None:
    invented = load_system("dgx-h100", ["chip.memory.hbm.bandwidth=60 TB/s"])
    assert evidence_of(invented, "pytorch", MEMORY) == evidence_of(load_system("dgx-h100"), "pytorch", MEMORY)
    assert str(evidence_of(invented, "default", STEP)).endswith(", 17.9 x outside what was measured")
    unknown = replace(invented, chip=replace(invented.chip, name="mine", design=""))
    assert evidence_of(unknown, "default", STEP).beyond == 0.0


def test_a_name_alone_is_no_measurement() -> None:
    """Typed as a number or written with a name, the same machine is as sure."""
    renamed = load_system("dgx-b200", ["chip.name=H100-SXM5-80GB"])
    evidence = evidence_of(renamed, renamed.stack.name, STEP)
    assert evidence.silicon is not ChipEvidence.MEASURED
    assert evidence.beyond >= log(2250 / 989)  # dense bf16 of both
    assert evidence_of(load_system("dgx-h100", ["chip.name=H100-SXM5-80GB"]), "default", STEP).beyond == 0.0


FILE = """
name: mine
chip: h100-sxm-80gb
node: {num_chips: 8}
network:
  - {name: NAME, topology: switch, size: 8, RATE, latency: LATENCY us, protocol: nccl}
"""


@pytest.mark.parametrize("name", ["nvlink", "scale-up"])
@pytest.mark.parametrize(
    ("rate", "latency", "outside"),
    [
        ("bandwidth: 450 GB/s", 0.5, 1.0),
        ("bandwidth: 1800 GB/s", 0.5, 4.0),
        ("links: 36, link_bandwidth: 50 GB/s", 0.5, 4.0),
        ("links: 18, link_bandwidth: 25 GB/s", 0.5, 1.0),
        ("bandwidth: 900 GB/s", 0.05, 10.0),
    ],
)
def test_a_network_in_a_file_is_as_far_outside_as_one_that_is_typed(
    tmp_path: Path, name: str, rate: str, latency: float, outside: float
) -> None:
    """A level has the name of that of the measured machine (DGX H100: 450 GB/s, 0.5 us), or its place."""
    file = tmp_path / "mine.yaml"
    file.write_text(FILE.replace("NAME", name).replace("RATE", rate).replace("LATENCY", str(latency)))
    assert exp(load_system(file).beyond) == pytest.approx(outside)
    back = [f"network.{name}.bandwidth=450 GB/s", f"network.{name}.latency=0.5 us"]
    assert load_system(file, back).beyond == 0.0
    if rate.startswith("bandwidth"):
        typed = [f"network.nvlink.bandwidth={rate.partition(': ')[2]}", f"network.nvlink.latency={latency}us"]
        assert load_system("dgx-h100", typed).beyond == pytest.approx(load_system(file).beyond)


def test_parts_of_a_network_count_as_its_numbers() -> None:
    """NVLink 4 at NVLink 5's reach: 72 for 8 chips; a port of 800 Gbit/s for one of 400."""
    for part, outside in (("scale-up=nvl72", 9.0), ("nic=800g", 2.0)):
        assert exp(load_system("dgx-h100", [part]).beyond) == pytest.approx(outside)


def test_no_system_of_the_catalogue_is_outside() -> None:
    assert not [name for name in system_names() if load_system(name).beyond]
