"""The table of mixture of experts: how its rows are read, and how far the models are off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.kernels.constants import kind_of
from slipstick.backends.kernels.exchange import ExchangeSizes
from slipstick.backends.kernels.experts import ExpertSizes
from slipstick.backends.machine.load import load_system
from slipstick.ir.errors import InternalError
from slipstick.validation.kernels.moe import MoeJudge
from slipstick.validation.kernels.moe_sizes import MoeSizes
from slipstick.validation.rows.cases import Array, Case
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import read_table

JUDGE = MoeJudge()
TABLE = Path(__file__).parents[1] / "moe.csv"
Cases = list[Case[MoeSizes]]


@pytest.fixture(scope="module")
def refused() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def cases(refused: dict[str, str]) -> Cases:
    found = []
    for row in read_table(TABLE, []).rows:
        try:
            found.append(JUDGE.case(row))
        except NotJudged as reason:
            refused[row.id] = str(reason)
    return found


@pytest.fixture(scope="module")
def by_id(cases: Cases) -> dict[str, Case[MoeSizes]]:
    return {c.row.id: c for c in cases}


def errors(cases: Cases, wanted: Callable[[Case[MoeSizes]], bool]) -> Array:
    """Errors under the constants that carry over."""
    found = []
    mine = [c for c in cases if wanted(c) and not c.outlier]
    for key in sorted({(c.system, c.cls, c.kind) for c in mine}):
        same = [c for c in mine if (c.system, c.cls, c.kind) == key]
        system = load_system(key[0])
        seconds = JUDGE.seconds(same, system, kind_of(getattr(system.kernels, key[1]), key[2]))
        found += [s / c.measured_s - 1 for s, c in zip(seconds, same, strict=True)]
    return np.asarray(np.abs(found))


def test_all_rows_are_judged_but_those_of_no_machine(cases: Cases, refused: dict[str, str]) -> None:
    assert len(cases) + len(refused) == 989
    assert len(refused) == 8
    assert all("no system of the catalogue is a 'SM" in why for why in refused.values())
    assert Counter(c.cls for c in cases) == {"experts": 482, "exchange": 492, "grouped": 7}


def test_few_rows_are_left_out_of_fits(cases: Cases) -> None:
    assert Counter(c.kind for c in cases if c.outlier) == {"bf16": 5, "fp8": 1, "nvfp4": 3, "combine_two_sided": 2}


def test_sizes_of_a_bank(by_id: dict[str, Case[MoeSizes]]) -> None:
    sizes = by_id["aic_moe_b200_sxm_bfloat16_8192_7168_2048_256_tp1_ep16_balanced"].sizes
    # 8192 tokens x 8 copies over 16 ranks, each of its 16 experts the same: 256 rows, four whole tiles.
    assert isinstance(sizes, ExpertSizes)
    assert sizes.rows.tolist() == sizes.padded_rows.tolist() == [4096.0]
    assert (sizes.touched.tolist(), float(sizes.up_width)) == ([16.0], 4096.0)


def test_bandwidths_become_times_by_their_definition(by_id: dict[str, Case[MoeSizes]]) -> None:
    # DeepEP's benchmark: copies to all 8 ranks that need one, its own among them, 4096 tokens of 7168 in fp8.
    one = by_id["deepep_2025-06+_normal_8_dispatch"]
    assert one.measured_s == pytest.approx(4096 * 7168 * 1.03125 * 8 * (1 - (7 / 8) ** 8) / 153e9)
    # Between nodes it counts nodes: all four of them at most, its own among them.
    four = by_id["deepep_2025-06+_normal_64_combine"]
    assert four.measured_s == pytest.approx(4096 * 7168 * 2 * 4 * (1 - 0.75**8) / 50e9)


def test_what_goes_over_which_wire(by_id: dict[str, Case[MoeSizes]]) -> None:
    pure, joined = by_id["deepep_2025-02_ll_32_dispatch"].sizes, by_id["deepep_2025-06+_ll_32_dispatch"].sizes
    assert isinstance(pure, ExchangeSizes)
    assert isinstance(joined, ExchangeSizes)
    assert float(pure.link_bytes) == 0.0
    assert float(joined.nic_bytes / pure.nic_bytes) == pytest.approx(24 / 31)


def test_experts_by_constants_that_carry_over(cases: Cases) -> None:
    """Three generations with one set of constants; fitted per chip, configurations left out are within 12 / 40 %."""
    found = errors(cases, lambda c: c.cls == "experts" and c.library == "trtllm")
    assert np.median(found) < 0.15
    assert np.quantile(found, 0.9) < 0.36


def test_exchanges_by_constants_that_carry_over(cases: Cases) -> None:
    """Overheads of a chip and its library are not known here; GB200 runs DeepEP's normal kernels at half the pace."""
    found = errors(cases, lambda c: c.cls == "exchange" and c.system != "gb200-nvl72")
    assert np.median(found) < 0.15
    assert np.quantile(found, 0.9) < 0.35


def test_layers_are_the_sum_of_their_parts(cases: Cases) -> None:
    """Megatron-Core's layers from what other libraries' parts measured: nothing here was fitted to them."""
    found = errors(cases, lambda c: c.library == "megatron-core")
    assert len(found) == 10
    assert np.median(found) < 0.25
    assert found.max() < 0.6


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"quantity": "moe_router"}, "no model predicts 'moe_router'"),
        ({"dtype": "int3"}, "no products of 'int3'"),
        ({"distribution": "zipf"}, "drawn by 'zipf'"),
        ({"time_us": ""}, "time_us is not given"),
        ({"tokens_per_gpu": ""}, "tokens_per_gpu is not given"),
    ],
)
def test_what_cannot_be_judged_says_why(by_id: dict[str, Case[MoeSizes]], change: dict[str, str], why: str) -> None:
    row = by_id["aic_moe_b200_sxm_bfloat16_8192_7168_2048_256_tp1_ep16_balanced"].row
    with pytest.raises(NotJudged, match=why):
        JUDGE.case(Row({**row.cells, **change}))


def test_mixed_cases_are_our_mistake(cases: Cases) -> None:
    mixed = [next(c for c in cases if c.cls == cls) for cls in ("experts", "exchange")]
    system = load_system("dgx-h100")
    with pytest.raises(InternalError):
        JUDGE.seconds(mixed, system, system.kernels.experts["bf16"])
