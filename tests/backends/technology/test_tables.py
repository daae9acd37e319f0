"""Tables of budgets: each row is the chip that its budget makes by itself, and what makes none says why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.technology import columns
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import AreaShares, Budget, Design, design, design_table
from slipstick.backends.technology.fits import Reason
from slipstick.ir.errors import UsageError

TECHNOLOGY = load_technology()
CHIPLETS = Budget("N5", 1600.0, 1400.0, num_dies=2, d2d="ucie-advanced", d2d_bytes_per_s=2e12)

ROWS = st.tuples(
    st.floats(1.0, 4000.0), st.floats(5.0, 4000.0), st.integers(1, 6), st.floats(1e9, 2e13), st.integers(1, 12)
)


def _row(made: Design, at: int) -> Design:
    return columns.row(replace(made, budget=CHIPLETS, fit=CHIPLETS_FIT), at)


CHIPLETS_FIT = design(CHIPLETS, TECHNOLOGY).fit


@settings(max_examples=40)
@given(st.lists(ROWS, min_size=1, max_size=6), st.sampled_from(["line", "ring", "mesh", "fully_connected"]))
def test_a_table_is_its_rows(rows: list[tuple[float, float, int, float, int]], join: str) -> None:
    area, power, dies, rate, stacks = (np.array(c, np.float64) for c in zip(*rows, strict=True))
    common = replace(CHIPLETS, join=join)  # type: ignore[arg-type]
    table = replace(common, area_mm2=area, power_w=power, num_dies=dies, d2d_bytes_per_s=rate, num_stacks=stacks * dies)
    found = design_table(table, TECHNOLOGY)
    for i, (a, p, d, r, s) in enumerate(rows):
        one = replace(common, area_mm2=a, power_w=p, num_dies=d, d2d_bytes_per_s=r, num_stacks=s * d)
        if found.fit.holds[i]:
            alone = design(one, TECHNOLOGY)
            assert _row(found, i) == replace(alone, budget=CHIPLETS, fit=CHIPLETS_FIT)
        else:
            assert np.isnan(found.compute.flop_per_s[i])  # type: ignore[index]
            with pytest.raises(UsageError):
                design(one, TECHNOLOGY)


def test_rows_beyond_a_chunk_are_in_order() -> None:
    areas = np.linspace(500.0, 3000.0, 40_000)
    found = design_table(Budget("N5", areas, 1000.0), TECHNOLOGY)
    sms = np.asarray(found.compute.num_sms)
    assert sms.shape == (40_000,)
    assert found.fit.holds.all()
    assert (np.diff(sms) >= 0).all()
    assert sms[-1] == design(Budget("N5", 3000.0, 1000.0), TECHNOLOGY).compute.num_sms


def test_reasons_of_rows() -> None:
    dies = np.array([2.0, 2.0, 2.0, 2.5, 2.0, 2.0])
    area = np.array([1600.0, 10.0, 1600.0, 1600.0, np.nan, 1600.0])
    rate = np.array([2e12, 2e11, 0.0, 2e12, 2e12, 1e14])
    found = design_table(replace(CHIPLETS, area_mm2=area, num_dies=dies, d2d_bytes_per_s=rate), TECHNOLOGY)
    assert [Reason(int(r)) for r in found.fit.reason] == [
        Reason.FITS, Reason.MULTIPROCESSOR, Reason.D2D_BANDWIDTH, Reason.DIES, Reason.BUDGET, Reason.D2D_SHORELINE,
    ]  # fmt: skip
    with pytest.raises(UsageError, match="one chip has one budget: given 6 rows"):
        design(replace(CHIPLETS, area_mm2=area), TECHNOLOGY)


def test_columns_are_those_of_a_chip_of_a_system() -> None:
    found = design_table(replace(CHIPLETS, area_mm2=np.array([1200.0, 1600.0])), TECHNOLOGY).columns()
    assert {len(np.asarray(column)) for column in found.values()} == {2}
    assert {"chip.matmul.bf16", "chip.memory.l2.bandwidth", "network.d2d.bandwidth"} <= set(found)
    assert list(np.asarray(found["chip.power"])) == [700.0, 700.0]


def test_shares_of_a_table() -> None:
    core = np.array([0.2, 0.4, 0.6, 0.8])
    shares = AreaShares(core, 0.2, 0.1, 0.02)
    found = design_table(Budget("N5", 800.0, 700.0, area_shares=shares), TECHNOLOGY)
    assert list(found.fit.reason == Reason.SHARES) == [False, False, False, True]
    assert (np.diff(np.asarray(found.compute.num_sms)[:3]) > 0).all()
    unit = TECHNOLOGY.unit("h100").area_shares
    same = AreaShares(unit.core.si, unit.cache.si, unit.memory.si, unit.network.si)
    plain = Budget("N5", 814.0, 700.0)
    assert design(replace(plain, area_shares=same), TECHNOLOGY).compute == design(plain, TECHNOLOGY).compute
