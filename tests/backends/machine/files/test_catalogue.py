"""The catalogue: every file loads, and its figures agree with one another and with what is known of the machines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slipstick.backends.machine.files.catalogue import names, read_file
from slipstick.backends.machine.files.file_schemas import FILES, SystemFile, file_schema
from slipstick.backends.machine.files.section import section_of
from slipstick.backends.machine.load import (
    chip_names,
    load_chip,
    load_network,
    load_system,
    network_names,
    system_names,
)
from slipstick.ir.errors import SystemFileError, UnknownNameError
from slipstick.validation.rows.publication_files import common

# FLOP per clock of an SM (compute unit, matrix unit, core) in bf16, fp16 for V100: NVIDIA white papers, of V100 (1024),
# A100 (2048), H100 (4096), GA102 and Ada with fp32 accumulation (1024, halved on GeForce); 8192 for Blackwell; AMD CDNA
# white papers: 1024 (CDNA 2), 2048 (CDNA 3), 4096 (CDNA 4); a systolic array of n x n: 2 n^2.
FLOP_PER_CLOCK = {
    "v100-sxm2-32gb": 1024,
    "a100-sxm-40gb": 2048,
    "a100-sxm-80gb": 2048,
    "a100-pcie-80gb": 2048,
    "a800-sxm-80gb": 2048,
    "h100-sxm-80gb": 4096,
    "h100-pcie-80gb": 4096,
    "h100-nvl": 4096,
    "h800-sxm-80gb": 4096,
    "h200-sxm-141gb": 4096,
    "h200-nvl": 4096,
    "h20-sxm-96gb": 1024,
    "gh200-96gb": 4096,
    "gh200-144gb": 4096,
    "b200-sxm-180gb": 8192,
    "gb200-186gb": 8192,
    "b300-sxm-270gb": 8192,
    "gb300-279gb": 8192,
    "a40-48gb": 1024,
    "l40s-48gb": 1024,
    "l40-48gb": 512,
    "l20-48gb": 512,
    "rtx-6000-ada": 1024,
    "rtx-a6000": 1024,
    "rtx-pro-6000": 1024,
    "arc-pro-b60": 2048,
    "rtx-4090": 512,
    "mi210": 1024,
    "mi250x-gcd": 1024,
    "mi300x": 2048,
    "mi325x": 2048,
    "mi355x": 4096,
    "mi350x": 4096,
    "tpu-v4": 2 * 128**2,
    "tpu-v5e": 2 * 128**2,
    "tpu-v5p": 2 * 128**2,
    "tpu-v6e": 2 * 256**2,
    "tpu-v7x": 2 * 256**2,
    "gaudi-2": 2 * 2 * 256**2 / 24,
    "gaudi-3": 8 * 2 * 256**2 / 64,
    "trainium-1": 2 * 128**2,
    "trainium-2": 2 * 128**2,
    "xeon-8480": 2048,
}
# Links of a chip and their rate, one direction, from the same papers.
LINKS = {
    "dgx-1-v100": 6 * 25e9,
    "dgx-a100-80gb": 12 * 25e9,
    "hgx-a800": 8 * 25e9,
    "dgx-h100": 18 * 25e9,
    "hgx-h800": 8 * 25e9,
    "dgx-h200": 18 * 25e9,
    "hgx-h20": 18 * 25e9,
    "h200-nvl-server": 18 * 25e9,
    "dgx-b200": 18 * 50e9,
    "gb200-nvl72": 18 * 50e9,
    "a40-server": 4 * 14.0625e9,
    "rtx-a6000-server": 4 * 14.0625e9,
    "a100-pcie-80gb-pairs": 12 * 25e9,
    "h100-nvl-pairs": 12 * 25e9,
    "mi300x-platform": 7 * 64e9,
    "mi350x-platform": 7 * 76.8e9,
    "mi355x-platform": 7 * 76.8e9,
    "tpu-v4-pod": 6 * 50e9,
    "tpu-v5e-pod": 4 * 50e9,
    "tpu-v5p-pod": 6 * 100e9,
    "tpu-v6e-pod": 4 * 100e9,
    "tpu-v7x-pod": 6 * 100e9,
    "trn1-server": 4 * 96e9,
    "hls-gaudi-2": 21 * 12.5e9,
    "hls-gaudi-3": 21 * 25e9,
}


@pytest.mark.parametrize("name", chip_names())
def test_the_peak_is_units_times_operations_times_clock(name: str) -> None:
    chip, _ = load_chip(name)
    peaks = chip.peak_flop_per_s
    half = peaks.bf16 or peaks.fp16
    assert half == pytest.approx(chip.num_sms * FLOP_PER_CLOCK[name] * chip.clock_hz, rel=0.03)


@pytest.mark.parametrize("name", chip_names())
def test_narrower_numbers_are_never_slower(name: str) -> None:
    chip, records = load_chip(name)
    peaks = chip.peak_flop_per_s.by_dtype()
    half = max(peaks.get("bf16", 0.0), peaks.get("fp16", 0.0))
    order = [peaks[dtype] for dtype in ("fp64", "tf32", "bf16", "fp8", "fp6", "fp4") if dtype in peaks]
    assert order == sorted(order)
    assert peaks["fp32"] <= half
    assert chip.vector_flop_per_s <= half
    assert all(record.source for record in records)
    # A product of 4096 a side is bound by compute on all of them, one of 16 a side by memory.
    assert 8 < half / chip.hbm_bytes_per_s < 4096
    assert chip.l2_bytes < chip.hbm_bytes / 20


@pytest.mark.parametrize("name", system_names())
def test_a_system_is_of_one_piece(name: str) -> None:
    system = load_system(name)
    assert system.name == name
    inner = system.levels[0]
    assert inner.size is None or inner.size % system.node_size == 0 or system.node_size % inner.size == 0
    rates = [level.bytes_per_s for level in system.levels]
    assert rates == sorted(rates, reverse=True)
    assert all(rate < system.chip.hbm_bytes_per_s for rate in rates)


@pytest.mark.parametrize(("name", "rate"), LINKS.items())
def test_the_inner_level_has_all_links_of_a_chip(name: str, rate: float) -> None:
    assert load_system(name).levels[0].bytes_per_s == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("name", sorted(set(map(str, common().accelerators.values()))))
def test_measured_machines_are_there(name: str) -> None:
    assert load_system(name).name == name


@pytest.mark.parametrize(("older", "newer"), [
    ("v100-sxm2-32gb", "a100-sxm-80gb"), ("a100-sxm-80gb", "h100-sxm-80gb"), ("h100-sxm-80gb", "h200-sxm-141gb"),
    ("h200-sxm-141gb", "b200-sxm-180gb"), ("b200-sxm-180gb", "b300-sxm-270gb"), ("mi210", "mi300x"),
    ("mi300x", "mi325x"), ("mi325x", "mi350x"), ("mi350x", "mi355x"), ("tpu-v4", "tpu-v5p"),
    ("tpu-v5e", "tpu-v6e"), ("gaudi-2", "gaudi-3"),
    ("tpu-v5p", "tpu-v7x"), ("trainium-1", "trainium-2"), ("h100-nvl", "h200-nvl"), ("l20-48gb", "l40-48gb"),
    ("a40-48gb", "rtx-a6000"), ("rtx-6000-ada", "rtx-pro-6000"),
])  # fmt: skip
def test_a_successor_is_at_least_as_good(older: str, newer: str) -> None:
    before, after = load_chip(older)[0], load_chip(newer)[0]
    a, b = (max(c.peak_flop_per_s.by_dtype().values()) for c in (before, after))
    assert a <= b
    # What drivers keep for themselves differs by a percent.
    assert before.hbm_bytes <= 1.01 * after.hbm_bytes
    assert before.hbm_bytes_per_s <= after.hbm_bytes_per_s


@pytest.mark.parametrize("name", network_names())
def test_a_network_has_a_rate_a_time_and_sources(name: str) -> None:
    levels, records = load_network(name)
    assert levels[-1].size is None
    assert all(record.source for record in records)
    assert all(level.bytes_per_s > 1e9 and level.latency_s > 1e-6 for level in levels)


def test_a_system_may_be_put_on_another_network(tmp_path: Path) -> None:
    text = "name: pods\nchip: h800-sxm-80gb\nnode:\n  num_chips: {value: 8, source: s}\nnetwork: roce-400g-pods\n"
    (tmp_path / "pods.yaml").write_text(text, encoding="utf-8")
    system = load_system(tmp_path / "pods.yaml")
    assert [(v.name, v.size, v.oversubscription) for v in system.levels] == [("pod", 3072, 1.0), ("spine", None, 7.0)]


def test_scaled_peaks_keep_what_there_is() -> None:
    peaks = load_chip("v100-sxm2-32gb")[0].peak_flop_per_s
    assert peaks.times(2.0).by_dtype() == {dtype: 2.0 * peak for dtype, peak in peaks.by_dtype().items()}


def test_names_of_what_is_referred_to_get_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown chip 'h100-sxm-80'; did you mean 'h100-sxm-80gb'"):
        load_chip("h100-sxm-80")
    with pytest.raises(UnknownNameError, match="unknown network 'ndr-infiniban'; did you mean 'ndr-infiniband'"):
        load_network("ndr-infiniban")


def test_a_faulty_chip_and_network_name_file_line_and_what_is_allowed(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("files")
    (folder / "c.yaml").write_text("name: c\nmatmul: 3\npower: {value: 3, unit: GB, source: s}\n", encoding="utf-8")
    with pytest.raises(SystemFileError, match=r"chip 'c.yaml' has 5 faults:") as caught:
        load_chip(folder / "c.yaml")
    assert "c.yaml:2: matmul: expected a mapping with bf16, fp16" in str(caught.value)
    assert "c.yaml:3: power: wrong unit 'GB'" in str(caught.value)
    (folder / "n.yaml").write_text("name: n\nlevels:\n  - {name: a, topology: swich}\n", encoding="utf-8")
    with pytest.raises(SystemFileError, match=r"network 'n.yaml' has 2 faults:") as caught:
        load_network(folder / "n.yaml")
    assert "n.yaml:3: levels.a.topology: input should be" in str(caught.value)


@pytest.mark.parametrize("name", system_names())
def test_the_schema_of_systems_takes_the_catalogue_as_it_is_written(name: str) -> None:
    assert section_of(SystemFile, read_file("systems", name).tree, name).name == name


@pytest.mark.parametrize("kind", FILES)
def test_a_schema_is_of_an_object_and_has_what_it_refers_to(kind: str) -> None:
    schema = file_schema(kind)
    assert schema["type"] == "object"
    definitions = schema.get("$defs", {})
    assert isinstance(definitions, dict)
    assert set(re.findall(r"#/\$defs/(\w+)", str(schema))) == set(definitions)


def test_the_schema_of_calibrations_knows_every_constant_in_use() -> None:
    for name in names("calibration"):
        tree = read_file("calibration", name).tree
        known = file_schema("calibration")["properties"]
        assert isinstance(known, dict)
        assert set(tree) <= set(known)
