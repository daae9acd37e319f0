"""Ranked candidates: what nobody measured stands behind, ties are those that bands do not tell apart, prices meet."""

from __future__ import annotations

import math

import pytest

from slipstick.driver.uncertainty.bands import Band
from slipstick.driver.uncertainty.evidence import ChipEvidence, Evidence, SoftwareEvidence
from slipstick.report.ranking import RankedCandidate, rank

MEASURED = Evidence(ChipEvidence.MEASURED, SoftwareEvidence.MEASURED)
UNKNOWN = Evidence(ChipEvidence.NONE, SoftwareEvidence.BORROWED)
HALF = 0.1
BAND = Band(-2 * HALF, -HALF, HALF, 2 * HALF)


def one(
    name: str, value: float, evidence: Evidence = MEASURED, broken: float = 0.0, gpus: int = 8
) -> RankedCandidate[None]:
    return RankedCandidate(
        item=None, name=name, value=value, band=BAND, evidence=evidence, num_gpus=gpus, broken=broken, usd=value,
        gpu_hours=float(gpus), usd_per_gpu_hour=value / gpus,
    )  # fmt: skip


def names(ranking: object) -> list[str]:
    return [candidate.name for candidate in ranking.candidates]  # type: ignore[attr-defined]


def test_chips_that_nobody_measured_stand_behind_unless_asked_otherwise() -> None:
    some = [one("guess", 1.0, UNKNOWN), one("known", 2.0), one("late", 0.5, broken=1.5)]
    assert names(rank(some)) == ["known", "guess", "late"]
    assert names(rank(some, by_evidence=False)) == ["guess", "known", "late"]
    assert "nothing was measured on the chips of guess" in rank(some).notes()


def test_a_tie_is_within_both_halves_and_never_with_what_breaks_a_bound() -> None:
    near = math.exp(0.99 * math.hypot(HALF, HALF))
    far = math.exp(1.01 * math.hypot(HALF, HALF))
    ranking = rank([one("first", 1.0), one("near", near), one("far", far), one("broken", near, broken=2.0)])
    assert [ranking.mark(place) for place in range(4)] == ["1", "2=", "3", "-"]
    assert not rank([one("first", 1.0, broken=1.1), one("near", near, broken=1.2)]).ties


def test_of_equal_ones_the_fewest_gpus_come_first_and_unknown_values_last() -> None:
    assert names(rank([one("many", 1.0, gpus=16), one("few", 1.0), one("unpriced", math.inf)])) == [
        "few", "many", "unpriced",
    ]  # fmt: skip


def test_at_the_break_even_price_both_cost_the_same() -> None:
    ranking = rank([one("first", 8.0), one("second", 24.0, gpus=4)])
    price = ranking.break_even(1)
    assert price is not None
    assert price * 4 == pytest.approx(8.0)
    assert ranking.break_even(0) is None


def test_an_interval_has_nine_tenths_of_measurements() -> None:
    assert one("first", 10.0).interval("{:.3f}".format) == f"{10 * math.exp(-0.2):.3f} to {10 * math.exp(0.2):.3f}"
