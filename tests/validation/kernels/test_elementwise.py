"""The table of row-wise kernels: how its rows are read, and how far the models are off."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.kernels.constants import kind_of
from slipstick.backends.kernels.experts import ExpertsConstants
from slipstick.backends.kernels.rowwise import RowwiseSizes
from slipstick.backends.machine.load import load_system
from slipstick.ir.errors import InternalError
from slipstick.validation.kernels.elementwise import ElementwiseJudge
from slipstick.validation.rows.cases import Case
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import read_table

JUDGE = ElementwiseJudge()
TABLE = Path(__file__).parents[1] / "elementwise.csv"


@pytest.fixture(scope="module")
def cases() -> list[Case[RowwiseSizes]]:
    return [JUDGE.case(row) for row in read_table(TABLE, []).rows]


def test_every_row_is_judged_and_one_is_left_out_of_fits(cases: list[Case[RowwiseSizes]]) -> None:
    assert len(cases) == 709
    assert [c.row.id for c in cases if c.outlier] == ["llmcompass_layernorm_A100_4096_32768"]
    assert Counter(c.library for c in cases) == {"pytorch": 609, "pytorch-host": 100}


def test_bytes_are_those_that_the_table_gives(cases: list[Case[RowwiseSizes]]) -> None:
    given = [(c.row.measured("bytes_moved_min"), float(c.sizes.num_bytes)) for c in cases]
    assert all(a is None or a == b for a, b in given)


def test_two_sums_timed_as_one_are_one_each(cases: list[Case[RowwiseSizes]]) -> None:
    # phi-2's parallel block: 4096 rows of 2560 take 40 us, twice what other models' sums of that size take.
    found = next(c for c in cases if c.row.id == "vidur_h100_phi-2_tp1_add_4096")
    assert found.measured_s == pytest.approx(20e-6)


def test_a_width_is_one_configuration(cases: list[Case[RowwiseSizes]]) -> None:
    groups = {c.group for c in cases if c.kind == "vllm_rmsnorm"}
    assert groups == {f"rmsnorm,{cols}" for cols in (4096, 5120, 8192)}


def test_constants_that_carry_over_are_near_what_was_measured(cases: list[Case[RowwiseSizes]]) -> None:
    """Nothing of these chips is known but data sheets; constants fitted per chip do better."""
    errors = []
    for name in ("dgx-a100-80gb", "dgx-h100", "a40-server"):
        system = load_system(name)
        for kind in {c.kind for c in cases}:
            mine = [c for c in cases if (c.system, c.kind, c.library) == (name, kind, "pytorch")]
            if mine:
                seconds = JUDGE.seconds(mine, system, kind_of(system.kernels.rowwise, kind))
                errors += [s / c.measured_s - 1 for s, c in zip(seconds, mine, strict=True) if c.measured_s >= 8e-6]
    assert np.median(np.abs(errors)) < 0.12
    assert np.quantile(np.abs(errors), 0.9) < 0.30


def test_what_nobody_models_is_said() -> None:
    row = Row({"id": "x", "accelerator": "H100-SXM-80GB", "framework": "mine", "op": "gelu", "time_us": "1"})
    with pytest.raises(NotJudged, match="'gelu' of 'mine'"):
        JUDGE.case(row)


def test_constants_of_another_class_are_our_mistake(cases: list[Case[RowwiseSizes]]) -> None:
    with pytest.raises(InternalError):
        JUDGE.seconds(cases[:1], load_system("dgx-h100"), ExpertsConstants(0.0, 0.5, 0.5, 1.0, 1.0))
