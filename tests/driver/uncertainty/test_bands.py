"""Bands are read for what an answer rests on, and hold what they say on rows that they were not read from."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.benchmarks.errors.files import bands_of, read_residuals
from slipstick.benchmarks.errors.quantiles import (
    Coverage,
    Kind,
    Residual,
    band_from,
    by_kind,
    coverage,
    differences,
    ends,
)
from slipstick.driver.uncertainty.bands import DENSE, Band, band_of, band_within, is_tie
from slipstick.driver.uncertainty.evidence import ChipEvidence, Evidence, SoftwareEvidence
from slipstick.driver.uncertainty.quantities import QUANTITIES, STEP

# Of judging rows, the shares that may lie inside the halves and the nine tenths of a quantity.
HALF, MOST = (0.45, 0.55), (0.87, 0.93)
# Quantities have to have so many rows from so many publications to say anything of a share.
ENOUGH_ROWS, ENOUGH_SETS = 300, 4
ANY = "*"
RESIDUALS = Path(__file__).parents[2] / "validation" / "bands" / "residuals.csv"
BOTH = Evidence(ChipEvidence.MEASURED, SoftwareEvidence.MEASURED)

# Ends of bands: how far below and above the prediction.
_far = st.floats(0.0, 5.0)


@st.composite
def _bands(draw: st.DrawFn) -> Band:
    low, high = draw(_far), draw(_far)
    return Band(-low - draw(_far), -low, high, high + draw(_far))


@pytest.fixture(scope="module")
def calibrated() -> Mapping[Kind, Band]:
    return bands_of(read_residuals(RESIDUALS))


@pytest.fixture(scope="module")
def covered() -> Mapping[Kind, Coverage]:
    residuals = read_residuals(RESIDUALS)
    return coverage([*residuals, *differences(residuals)])


def test_packaged_bands_are_those_of_the_calibrating_half(calibrated: Mapping[Kind, Band]) -> None:
    for (quantity, model, software, silicon), band in calibrated.items():
        evidence = Evidence(ChipEvidence(silicon), SoftwareEvidence(software))
        packaged = band_of(quantity, evidence, model != DENSE)
        assert packaged.num_rows == band.num_rows
        ends_ = [getattr(packaged, end) for end in ("least", "low", "high", "most")]
        assert ends_ == pytest.approx([band.least, band.low, band.high, band.most], abs=6e-5)


def test_judging_rows_lie_inside_as_often_as_is_said(covered: Mapping[Kind, Coverage]) -> None:
    wide = {kind: one for kind, one in covered.items() if kind[1] == ANY and one.rows >= ENOUGH_ROWS}
    enough = {kind[0]: one for kind, one in wide.items() if one.sets >= ENOUGH_SETS and kind[0] in QUANTITIES}
    assert {STEP, "throughput", "tpot", "memory", "loaded_ttft"} <= set(enough)
    for quantity, one in enough.items():
        assert HALF[0] <= one.half <= HALF[1], (quantity, one)
        assert MOST[0] <= one.most <= MOST[1], (quantity, one)


def test_differences_of_pairs_lie_in_the_band_of_a_ratio() -> None:
    """Pairs of judging rows of one publication by one software: half and nine tenths of their ratios."""
    groups: dict[tuple[str, Kind], list[float]] = {}
    for one in read_residuals(RESIDUALS):
        if not one.calibrates and one.kind[0] == STEP and one.kind[2:] == (BOTH.software, BOTH.silicon):
            groups.setdefault((one.dataset, one.kind), []).append(one.log)
    within = band_within(BOTH)
    ratio = within.over(within)
    # Neighbours in the table, round about, so that a publication has as many pairs as rows.
    pairs = [b - a for of in groups.values() if len(of) > 2 for a, b in zip(of, of[1:] + of[:1], strict=True)]
    assert len(pairs) > ENOUGH_ROWS
    assert MOST[0] <= np.mean([ratio.holds(math.exp(one)) for one in pairs]) <= 0.96


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


def test_no_band_of_few_rows_is_absurd() -> None:
    """Known software on a known chip is nowhere off by more than a factor of 3, first tokens under load aside."""
    for quantity in set(QUANTITIES) - {"loaded_ttft"}:
        for experts in (False, True):
            band = band_of(quantity, BOTH, experts)
            assert -math.log(3.0) < band.least, (quantity, band)
            assert band.most < math.log(3.0), (quantity, band)


def test_ends_of_many_rows_are_plain_quantiles_and_of_few_are_wider() -> None:
    many = (np.arange(1001) - 500) / 1000
    assert ends(many, np.ones(1001)) == pytest.approx((-0.45, -0.25, 0.25, 0.45), abs=2e-3)
    few = many[::50]
    # Of 21 rows a half is read as one of 0.5 (1 + 1/21): 0.262 on either side; positions lie in the middle of rows.
    assert ends(few, np.ones(21))[2] == pytest.approx(0.5 * (1 + 1 / 21) / 2 * 21 / 20, abs=2e-3)


def test_shares_begin_at_the_prediction_where_all_rows_lie_on_one_side_of_it() -> None:
    # Of 1000 rows from 0.1 to 1.1 half lie below 0.6, and nine tenths below 1.0.
    late = 0.1 + np.arange(1001) / 1000
    assert ends(late, np.ones(1001)) == pytest.approx((0.0, 0.0, 0.6, 1.0), abs=3e-3)
    assert ends(-late, np.ones(1001)) == pytest.approx((-1.0, -0.6, 0.0, 0.0), abs=3e-3)
    # One in five lies below 0, so that the half is from there to the seventh tenth.
    most = np.arange(1001) / 1000 - 0.2
    assert ends(most, np.ones(1001))[1:3] == pytest.approx((0.0, 0.5), abs=3e-3)


def test_a_publication_weighs_less_than_as_many_alone() -> None:
    """16 rows of one publication weigh as 16^(3/4) = 8 publications of a row."""
    kind = (STEP, DENSE, str(BOTH.software), str(BOTH.silicon))
    large = [Residual("large", f"l{k}", kind, -1.0) for k in range(16)]
    single = [Residual(f"s{k}", f"s{k}", kind, 1.0) for k in range(8)]
    rows = by_kind([*large, *single])[kind]
    assert rows[rows[:, 0] < 0, 1].sum() == pytest.approx(rows[rows[:, 0] > 0, 1].sum()) == 8.0


def test_few_rows_lean_on_those_of_wider_kinds() -> None:
    """Of 30 rows one is far off, and draws their band; not where 190 rows of another chip lie near 0."""
    kind, other = ((STEP, DENSE, str(BOTH.software), str(chip)) for chip in (BOTH.silicon, ChipEvidence.MAKER))
    own = [Residual(f"a{k}", f"a{k}", kind, 0.1 * (-1) ** k) for k in range(29)] + [Residual("b", "b", kind, -4.0)]
    near = [Residual(f"c{k}", f"c{k}", other, 0.1 * (-1) ** k) for k in range(190)]
    alone, band = (band_from(by_kind(rows), kind) for rows in (own, [*own, *near]))
    # A share of 3.3 % alone, and of 30/40 / 30 = 2.5 % and a little with the others; the end lies at 3.5 %.
    assert alone.least < -1.0
    assert band.least == pytest.approx(-0.1)
    assert band.num_rows == 30


@given(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=40))
def test_ends_of_any_residuals_are_a_band_that_covers_its_shares(logs: list[float]) -> None:
    band = Band(*ends(np.array(logs), np.ones(len(logs))))
    inside = sum(band.low <= one <= band.high for one in logs)
    # A row counts as lying in the middle of its own share: one at each end may be left out.
    assert inside + 2 >= 0.5 * len(logs)
    assert sum(band.least <= one <= band.most for one in logs) + 2 >= 0.9 * len(logs)


@given(_bands(), st.floats(1e-6, 1e12))
def test_an_interval_holds_its_prediction(band: Band, value: float) -> None:
    for one in (band, band.inverse, band.above(0.5), band.above(1.5), band.over(band)):
        interval = one.around(value)
        assert interval.least <= interval.low <= value <= interval.high <= interval.most


@given(_bands(), st.floats(0.01, 1.0))
def test_no_end_is_below_a_floor(band: Band, share: float) -> None:
    assert band.above(share).around(1.0).least >= share * (1 - 1e-12)
    assert band.above(share).high == band.high
    assert band.above(0.0) == band


@given(_bands(), _bands())
def test_a_ratio_is_no_surer_than_either_and_its_inverse_is_the_other_ratio(one: Band, other: Band) -> None:
    ratio, inverse = one.over(other), other.over(one).inverse
    ends_ = ("least", "low", "high", "most")
    assert [getattr(ratio, end) for end in ends_] == [getattr(inverse, end) for end in ends_]
    assert ratio.high >= max(one.high, -other.low)
    assert ratio.least <= min(one.least, -other.most)


@pytest.mark.parametrize("wrong", [(-0.5, 0.1, 0.2, 0.3), (-0.5, -0.4, -0.1, 0.3), (-0.1, -0.2, 0.1, 0.3)])
def test_a_band_without_its_prediction_is_none(wrong: tuple[float, float, float, float]) -> None:
    with pytest.raises(AssertionError):
        Band(*wrong)


def test_a_tie_is_within_both_halves_and_goes_by_their_sides() -> None:
    near = Band(-0.2, -0.1, 0.1, 0.2)
    assert is_tie(1.0, math.exp(0.14), near, near)
    assert not is_tie(1.0, math.exp(0.15), near, near)
    # Predicted 30 % faster without any software, which runs may be slower than by 40 %: nothing is known.
    ideal = Band(0.0, 0.0, 0.4, 0.5)
    assert is_tie(math.exp(-0.3), 1.0, ideal, near)
    # Predicted 30 % slower, and slower still when it is measured.
    assert not is_tie(math.exp(0.3), 1.0, ideal, near)


def test_plans_on_one_machine_differ_by_less_than_machines_do() -> None:
    assert band_within(BOTH).half < band_of(STEP, BOTH).half
