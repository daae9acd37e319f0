"""The shipped table of attention kernels: what rows are taken for, and how near the constants that carry over come."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstick.backends.kernels.constants import CLASSES, RooflineConstants
from slipstick.backends.kernels.limits import limits_of
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.ir.errors import InternalError
from slipstick.validation.kernels.attention import IMPOSSIBLE, AttentionJudge, TimedAttention
from slipstick.validation.rows.cases import Case
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import read_table

HERE = Path(__file__).parents[1]
JUDGE = AttentionJudge()
Array = NDArray[np.float64]
Pools = dict[tuple[str, str, str], list[Case[TimedAttention]]]


@cache
def machine(name: str) -> System:
    return load_system(name, calibration="default")


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.id: row for row in read_table(HERE / "attention.csv", []).rows}


@pytest.fixture(scope="module")
def cases(rows: dict[str, Row]) -> list[Case[TimedAttention]]:
    return [JUDGE.case(row) for row in rows.values() if row.text("time_us")]


@pytest.fixture(scope="module")
def pools(cases: list[Case[TimedAttention]]) -> Pools:
    found: Pools = defaultdict(list)
    for case in cases:
        if not case.outlier:
            found[case.cls, case.kind, case.system].append(case)
    return found


@pytest.fixture(scope="module")
def errors(pools: Pools) -> Callable[..., Array]:
    """Errors of a kind over all systems under the shipped constants for any chip."""

    def of(cls: str, kind: str, *systems: str) -> Array:
        parts = []
        for (c, k, name), some in pools.items():
            if (c, k) == (cls, kind) and name in (systems or (name,)):
                constants = getattr(machine(name).kernels, cls)[kind]
                measured = np.array([case.measured_s for case in some])
                parts.append(JUDGE.seconds(some, machine(name), constants) / measured - 1.0)
        return np.asarray(np.abs(np.concatenate(parts)), dtype=np.float64)

    return of


def test_every_row_with_a_shape_is_judged(rows: dict[str, Row], cases: list[Case[TimedAttention]]) -> None:
    left = [row for row in rows.values() if not row.text("time_us")]
    assert (len(rows), len(cases), len(left)) == (1220, 1216, 4)
    for row in left:
        with pytest.raises(NotJudged, match="an upper bound of the speed alone"):
            JUDGE.case(row)


def test_rows_are_taken_for_the_kernels_they_ran(cases: list[Case[TimedAttention]]) -> None:
    assert Counter((case.library, case.cls, case.kind) for case in cases) == {
        ("trtllm", "attention", "serving"): 381,
        ("trtllm", "attention", "serving-fp8"): 70,
        ("trtllm", "attention", "serving-mla"): 124,
        ("trtllm", "decode", "grouped"): 269,
        ("trtllm", "decode", "by-head"): 127,
        ("trtllm", "decode", "latent"): 116,
        ("flash-attention", "attention", "flash2"): 65,
        ("flash-attention", "attention", "flash3"): 24,
        ("pytorch-eager", "unfused_attention", "eager"): 40,
    }


def test_outliers_are_caches_read_faster_than_memory_can(cases: list[Case[TimedAttention]]) -> None:
    # As counted by hand: more than twice L2, above 0.95 of the data sheet's bandwidth.
    odd = Counter((case.system, case.outlier) for case in cases if case.outlier)
    assert odd == {("dgx-a100-80gb", IMPOSSIBLE): 24, ("dgx-h100", IMPOSSIBLE): 13}


def test_a_cache_is_the_one_that_the_table_counts(cases: list[Case[TimedAttention]]) -> None:
    # Tables count both widths of a head; of latents they count none.
    for case in cases:
        counted = case.row.measured("kv_cache_bytes")
        if case.cls == "decode" and case.kind != "latent":
            assert float(case.sizes.sizes.cache_bytes) == counted


def test_configurations_stay_together(cases: list[Case[TimedAttention]]) -> None:
    groups = {case.kind: case.group for case in cases}
    assert groups["serving"].endswith("wide")
    assert groups["grouped"].startswith("batch")
    assert groups["flash2"].endswith("long")


def test_what_is_fixed_are_constants_of_the_class(cases: list[Case[TimedAttention]]) -> None:
    for cls, kind in {(case.cls, case.kind) for case in cases}:
        assert set(JUDGE.fixed(cls, kind)) < set(limits_of(CLASSES[cls]))


# Medians and ninetieth percentiles that constants for any chip reach, with a little room.
@pytest.mark.parametrize(
    ("cls", "kind", "median", "p90"),
    [
        ("attention", "serving", 0.07, 0.13),
        ("attention", "serving-fp8", 0.06, 0.13),
        ("attention", "serving-mla", 0.06, 0.13),
        ("attention", "flash3", 0.06, 0.12),
        ("unfused_attention", "eager", 0.05, 0.08),
        ("decode", "by-head", 0.11, 0.24),
        ("decode", "grouped", 0.14, 0.40),
        ("decode", "latent", 0.13, 0.30),
    ],
)
def test_constants_for_any_chip_come_near(
    cls: str, kind: str, median: float, p90: float, errors: Callable[..., Array]
) -> None:
    found = np.quantile(errors(cls, kind), [0.5, 0.9])
    assert found[0] <= median
    assert found[1] <= p90


@pytest.mark.parametrize("system", ["dgx-a100-80gb", "dgx-b200", "dgx-h100"])
def test_no_chip_is_far_off(system: str, errors: Callable[..., Array]) -> None:
    median, p90 = np.quantile(errors("attention", "serving", system), [0.5, 0.9])
    assert median <= 0.09
    assert p90 <= 0.15


def test_forward_and_backward_are_added(pools: Pools) -> None:
    both = next(c for c in pools["attention", "flash2", "dgx-h100"] if c.sizes.with_backward)
    constants = machine("dgx-h100").kernels.attention["flash2"]
    forward = replace(both, sizes=TimedAttention(both.sizes.sizes))
    together, one = (JUDGE.seconds([c], machine("dgx-h100"), constants)[0] for c in (both, forward))
    assert together > 3 * one


def test_unknown_kernels_and_phases_are_named(rows: dict[str, Row]) -> None:
    row = next(r for r in rows.values() if r.text("phase").startswith("train"))
    with pytest.raises(NotJudged, match="kernel 'mine' is not modelled"):
        JUDGE.case(Row({**row.cells, "kernel": "mine"}))
    with pytest.raises(NotJudged, match="phase 'later' is none of"):
        JUDGE.case(Row({**row.cells, "phase": "later"}))


def test_constants_of_other_classes_are_a_mistake_of_ours(pools: Pools) -> None:
    some = pools["decode", "latent", "dgx-h100"]
    with pytest.raises(InternalError, match="RooflineConstants"):
        JUDGE.seconds(some, machine("dgx-h100"), RooflineConstants(0.5, 0.5, 0.5))
