"""The table of matrix products: how rows are read, which are outliers, how far the shipped constants are off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.kernels.gemm import GemmSizes
from slipstick.backends.kernels.limits import limits_of
from slipstick.backends.machine.load import load_system
from slipstick.ir.errors import InternalError, UsageError
from slipstick.validation.fit.calibrate import CalibrationFits, FitChoice, calibrate
from slipstick.validation.kernels.gemm import GemmJudge
from slipstick.validation.results.statistics import Accuracy
from slipstick.validation.rows.cases import Case
from slipstick.validation.rows.machine_room import MachineRoom
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import read_table

JUDGE = GemmJudge()
TABLE = Path(__file__).parents[1] / "gemm.csv"
Cases = Sequence[Case[GemmSizes]]


@pytest.fixture(scope="module")
def cases() -> Cases:
    faults: list[str] = []
    table = read_table(TABLE, faults)
    assert faults == []
    return [JUDGE.case(row) for row in table.rows]


def row(**other: str) -> Row:
    cells = {
        "id": "one", "dataset": "mine", "accelerator": "H100-SXM-80GB", "framework": "PyTorch", "dtype": "fp16",
        "m": "128", "n": "4096", "k": "512", "time_us": "20",
    }  # fmt: skip
    return Row({**cells, **other})


def place(case: Case[GemmSizes]) -> tuple[str, str, str]:
    return case.system, case.library, case.kind


def errors(cases: Cases) -> list[float]:
    """Signed relative errors under the constants that carry over and those of each library, none of them a chip's."""
    room = MachineRoom("default")
    found: list[float] = []
    for (system, library, kind), some in groupby(sorted(cases, key=place), key=place):
        group = list(some)
        predicted = JUDGE.seconds(group, room.system(system), room.constants(system, library, "gemm", kind))
        found += list(predicted / np.array([c.measured_s for c in group]) - 1.0)
    return found


def test_a_row_is_read_with_its_bytes() -> None:
    case = JUDGE.case(row(note="accumulate=True", out_dtype="fp32", batch="2"))
    assert (place(case), case.cls, case.group) == (("dgx-h100", "pytorch", "bf16"), "gemm", "4096x512")
    assert case.measured_s == pytest.approx(20e-6)
    assert case.outlier == ""
    assert (float(case.sizes.c_bytes), float(case.sizes.batch), float(case.sizes.quantised)) == (8.0, 2.0, 0.0)


@pytest.mark.parametrize(
    ("cells", "library", "kind", "quantised"),
    [
        ({"timing_method": "host wall clock"}, "pytorch-host", "bf16", 0.0),
        ({"framework": "TensorRT-LLM 1.0.0", "dtype": "bfloat16"}, "trtllm", "bf16", 0.0),
        (
            {"framework": "TensorRT-LLM 1.0.0", "dtype": "fp8", "note": "rows include activation quantisation"},
            "trtllm", "fp8", 1.0,
        ),
        ({"framework": "DeepGEMM", "dtype": "fp8"}, "deepgemm", "fp8", 0.0),
    ],
)  # fmt: skip
def test_framework_and_clock_make_a_library(cells: dict[str, str], library: str, kind: str, quantised: float) -> None:
    case = JUDGE.case(row(**cells))
    assert (case.library, case.kind, float(case.sizes.quantised)) == (library, kind, quantised)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"dtype": "fp64"}, "fp64"),
        ({"framework": "Excel"}, "Excel"),
        ({"accelerator": "abacus"}, "abacus"),
        ({"time_us": ""}, "time_us is not given"),
        ({"k": ""}, "k is not given"),
    ],
)
def test_what_cannot_be_judged_says_why(cells: dict[str, str], words: str) -> None:
    with pytest.raises(NotJudged, match=words):
        JUDGE.case(row(**cells))


@pytest.mark.parametrize(
    ("column", "cell"),
    [("m", "0"), ("n", "-4"), ("k", "1.5"), ("m", "nan"), ("batch", "0"), ("time_us", "0"), ("time_us", "nan")],
)
def test_what_is_no_size_or_time_is_an_error_with_its_place(column: str, cell: str) -> None:
    with pytest.raises(UsageError, match=f"row 'one', column '{column}'"):
        JUDGE.case(row(**{column: cell}))


def test_constants_of_another_class_are_a_mistake_of_ours() -> None:
    with pytest.raises(InternalError, match="GemmConstants"):
        JUDGE.seconds([JUDGE.case(row())], load_system("dgx-h100"), object())


@pytest.mark.parametrize("kind", ["bf16", "fp8", "nvfp4"])
def test_fixed_constants_exist(kind: str) -> None:
    system = load_system("dgx-h100")
    assert set(JUDGE.fixed("gemm", kind)) < set(limits_of(type(system.kernels.gemm[kind])))


def test_every_row_is_judged_and_outliers_are_few_and_known(cases: Cases) -> None:
    assert len(cases) == 2020
    counts = Counter((case.row.dataset, case.outlier) for case in cases if case.outlier)
    by_dataset = Counter[str]()
    for (dataset, _), number in counts.items():
        by_dataset[dataset] += number
    assert by_dataset == {"simumax_b200_gemm": 48, "aiconfigurator_gemm": 8, "vidur_linear": 6}


@pytest.mark.parametrize(("kind", "median", "p90"), [("bf16", 0.06, 0.17), ("fp8", 0.07, 0.15), ("nvfp4", 0.05, 0.1)])
def test_shipped_constants_agree_without_any_of_a_chip(cases: Cases, kind: str, median: float, p90: float) -> None:
    """What a fit to each chip improves on; bf16 holds six chips and four libraries."""
    found = Accuracy.of(errors([c for c in cases if c.kind == kind and not c.outlier]))
    assert (found.median <= median, found.p90 <= p90) == (True, True), found


@pytest.fixture(scope="module")
def halves() -> CalibrationFits:
    """Launches, sustained clocks and memory of each chip, fitted to half of the shapes."""
    pytest.importorskip("scipy")
    return calibrate([TABLE], FitChoice(), lambda _: None)


@pytest.mark.parametrize(
    ("chip", "kind", "median", "p90"),
    [
        ("a100-sxm-80gb", "bf16", 0.05, 0.11),
        ("h100-sxm-80gb", "bf16", 0.05, 0.13),
        ("a40-48gb", "bf16", 0.05, 0.14),
        ("b200-sxm-180gb", "bf16", 0.05, 0.22),  # two libraries, one of them at two clocks
        ("l40s-48gb", "bf16", 0.10, 0.20),  # what its cache holds from run to run decides
        ("h100-sxm-80gb", "fp8", 0.05, 0.12),
        ("b200-sxm-180gb", "fp8", 0.05, 0.13),
        ("b200-sxm-180gb", "nvfp4", 0.05, 0.09),
    ],
)
def test_three_constants_of_a_chip_carry_to_shapes_it_was_not_fitted_to(
    halves: CalibrationFits, chip: str, kind: str, median: float, p90: float
) -> None:
    judged = next(fit.judged for fit in halves.fits if (fit.owner, fit.kind) == (chip, kind))
    assert judged is not None
    assert (judged.median <= median, judged.p90 <= p90) == (True, True), judged


@pytest.mark.parametrize("kind", ["bf16", "fp8", "nvfp4"])
def test_outliers_are_far_off(cases: Cases, kind: str) -> None:
    """Leaving them out never makes the table look worse."""
    chosen = [c for c in cases if c.kind == kind]
    kept = Accuracy.of(errors([c for c in chosen if not c.outlier]))
    assert kept.p90 <= Accuracy.of(errors(chosen)).p90
