"""Bands are read for what an answer rests on, and hold what they say on rows that they were not read from."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.benchmarks.errors.files import bands_of, read_residuals
from slipstick.benchmarks.errors.quantiles import LEAST, Kind, Residual, coverage, quantiles
from slipstick.driver.uncertainty.bands import DENSE, QUANTITIES, STEP, Band, band_of, band_within, is_tie
from slipstick.driver.uncertainty.evidence import (
    ChipEvidence,
    Evidence,
    SoftwareEvidence,
    evidence_of,
    silicon_named,
    software_of,
)

# Of judging rows, the shares that may lie inside the halves and the nine tenths of a kind.
HALF, MOST = (0.40, 0.60), (0.85, 0.97)
# Kinds have to have so many rows from so many publications to say anything of a share.
ENOUGH_ROWS, ENOUGH_SETS = 100, 4
ANY = "*"
RESIDUALS = Path(__file__).parents[2] / "validation" / "bands" / "residuals.csv"


@pytest.fixture(scope="module")
def calibrated() -> Mapping[Kind, Band]:
    return bands_of(read_residuals(RESIDUALS))


def test_packaged_bands_are_those_of_the_calibrating_half(calibrated: Mapping[Kind, Band]) -> None:
    for (quantity, model, software, silicon), band in calibrated.items():
        evidence = Evidence(ChipEvidence(silicon), SoftwareEvidence(software))
        packaged = band_of(quantity, evidence, model != DENSE)
        assert packaged.num_rows == band.num_rows
        ends = [getattr(packaged, end) for end in ("least", "low", "high", "most")]
        assert ends == pytest.approx([band.least, band.low, band.high, band.most], abs=6e-5)


def test_judging_rows_lie_inside_as_often_as_is_said(calibrated: Mapping[Kind, Band]) -> None:
    found = coverage(read_residuals(RESIDUALS), calibrated)
    wide = {kind: one for kind, one in found.items() if kind[1] == ANY and one.rows >= ENOUGH_ROWS}
    assert {STEP, "throughput", "tpot", "memory"} <= {kind[0] for kind in wide}
    for kind, one in wide.items():
        # A first token of a static batch is in too few publications: the page says what it comes to.
        if one.sets >= ENOUGH_SETS and kind[0] != "ttft":
            assert HALF[0] <= one.half <= HALF[1], (kind, one)
            assert MOST[0] <= one.most <= MOST[1], (kind, one)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_less_evidence_is_never_narrower(quantity: str) -> None:
    softwares, silicons = list(SoftwareEvidence), list(ChipEvidence)
    for experts in (False, True):
        for k, software in enumerate(softwares):
            for n, silicon in enumerate(silicons):
                band = band_of(quantity, Evidence(silicon, software), experts)
                for better in ((softwares[max(k - 1, 0)], silicon), (software, silicons[max(n - 1, 0)])):
                    other = band_of(quantity, Evidence(better[1], better[0]), experts)
                    assert band.half >= other.half - 1e-4
                    assert band.most - band.least >= other.most - other.least - 2e-4


def test_quantiles_of_many_rows_are_plain_ones_and_of_few_are_wider() -> None:
    many = [Residual("d", str(k), (STEP, DENSE, "", ""), (k - 500) / 1000) for k in range(1001)]
    assert quantiles(many) == pytest.approx((-0.45, -0.25, 0.25, 0.45), abs=2e-3)
    few = [replace(many[k * 50], id=str(k)) for k in range(LEAST + 1)]
    # Of 21 rows a half is read as one of 0.5 (1 + 1/21): 0.262 on either side; positions lie in the middle of rows.
    assert quantiles(few)[2] == pytest.approx(0.5 * (1 + 1 / 21) / 2 * 21 / 20, abs=2e-3)


def test_data_sets_weigh_by_the_roots_of_their_sizes() -> None:
    # 100 rows at 0 weigh as 10 sets of one row each: with 10 single rows at 1 the median lies between.
    large = [Residual("large", str(k), (STEP, DENSE, "", ""), 0.0) for k in range(100)]
    single = [Residual(f"s{k}", f"s{k}", (STEP, DENSE, "", ""), 1.0) for k in range(10)]
    least, low, high, most = quantiles([*large, *single])
    assert (least, low, high, most) == (0.0, 0.0, 1.0, 1.0)


def test_evidence_of_systems() -> None:
    h100 = load_system("dgx-h100", stack="nanotron")
    assert evidence_of(h100, "nanotron") == Evidence(ChipEvidence.MEASURED, SoftwareEvidence.MEASURED)
    assert evidence_of(h100, "default").software is SoftwareEvidence.IDEAL
    assert software_of("nanotron", "B200-SXM6-180GB") is SoftwareEvidence.ELSEWHERE
    assert software_of("never heard of", h100.chip.name) is SoftwareEvidence.BORROWED
    changed = load_system("dgx-h100", ["chip.clock=1 GHz"])
    assert evidence_of(changed, "default").silicon is ChipEvidence.SISTER


def test_evidence_of_chips_goes_by_design_then_by_maker() -> None:
    assert silicon_named("H300", "hopper") is ChipEvidence.SISTER
    assert silicon_named("H300") is ChipEvidence.MAKER
    assert silicon_named("mine") is ChipEvidence.NONE


def test_a_tie_is_within_both_halves_and_goes_by_middles() -> None:
    near = Band(-0.2, -0.1, 0.1, 0.2)
    assert is_tie(1.0, math.exp(0.14), near, near)
    assert not is_tie(1.0, math.exp(0.15), near, near)
    # Predicted 30 % faster without any software, which such predictions are by 30 % and more: nothing is known.
    ideal = Band(0.1, 0.2, 0.4, 0.5)
    assert is_tie(math.exp(-0.3), 1.0, ideal, near)


def test_plans_on_one_machine_differ_by_less_than_machines_do() -> None:
    evidence = Evidence(ChipEvidence.MEASURED, SoftwareEvidence.MEASURED)
    assert band_within(evidence).half < band_of(STEP, evidence).half
