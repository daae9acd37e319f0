"""Tables of collectives: what a row becomes, what is left out and why, and how far predictions lie off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slipstick.backends.kernels.collective import CollectiveConstants
from slipstick.backends.machine.load import load_system
from slipstick.backends.network.collectives import collective_time
from slipstick.validation.kernels.collectives import CollectiveJudge, CollectiveSizes
from slipstick.validation.rows.cases import Case
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import read_table

TABLE = Path(__file__).parents[1] / "collectives.csv"
JUDGE = CollectiveJudge()
MIB = 2.0**20


def row(**cells: str) -> Row:
    plain = {
        "id": "r",
        "dataset": "aiconfigurator_nccl",
        "collective": "alltoall",
        "accelerator": "H100-SXM-80GB",
        "n_gpus": "8",
        "n_nodes": "1",
        "size_bytes": "1048576",
        "time_us": "15",
        "library": "nccl-tests, NCCL 2.29.2",
    }
    return Row({**plain, **cells})


def test_a_row() -> None:
    case = JUDGE.case(row())
    assert (case.system, case.library, case.cls, case.kind) == ("dgx-h100", "pytorch", "collective", "nccl")
    assert case.sizes == CollectiveSizes("all_to_all", 8, 1, MIB)
    assert case.measured_s == pytest.approx(15e-6)
    assert JUDGE.case(row(dataset="vtrain_allreduce")).kind == "nccl-2023"
    custom = JUDGE.case(row(collective="all_reduce", library="TensorRT-LLM custom all-reduce"))
    assert (custom.cls, custom.kind) == ("custom_all_reduce", "default")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"collective": "gather_object"}, "'gather_object' is not a collective of the model"),
        ({"time_us": ""}, "no time is given"),
        ({"n_nodes": "2"}, "between nodes over a link that the table does not name"),
        ({"n_gpus": "1"}, "two ranks or more"),
        ({"accelerator": "abacus"}, "no system of the catalogue is a 'abacus'"),
    ],
)
def test_what_is_not_judged(cells: Mapping[str, str], reason: str) -> None:
    with pytest.raises(NotJudged, match=reason):
        JUDGE.case(row(**cells))


def cases() -> list[Case[CollectiveSizes]]:
    found = []
    for one in read_table(TABLE, []).rows:
        try:
            found.append(JUDGE.case(one))
        except NotJudged:
            continue
    return found


def test_outliers_are_those_that_are_named() -> None:
    """Of 70 rows of vidur below 1 MiB 20 lie between nodes; the others are as a survey of the table lists them."""
    counts = Counter(c.outlier.partition(":")[0].partition(",")[0] for c in cases() if c.outlier)
    assert counts == {
        "vidur below 1 MiB": 50,
        "LLMCompass from 64 KiB to 4 MiB": 6,
        "four B200 or GB200 at 8 MiB": 5,
        "a single spike": 4,
        "slower than with 8 GPUs": 2,
    }


def errors(found: Sequence[Case[CollectiveSizes]], constants: CollectiveConstants) -> list[float]:
    predicted = JUDGE.seconds(found, load_system(found[0].system), constants)
    return [float(p) / c.measured_s - 1 for p, c in zip(predicted, found, strict=True)]


@pytest.mark.parametrize("system", ["dgx-a100-80gb", "dgx-h100", "dgx-b200", "gb200-nvl72"])
def test_large_messages_by_constants_that_carry_over(system: str) -> None:
    """No constant of the chip: within a quarter for nine of ten above 100 MB, half of them within 15 %."""
    constants = load_system(system, calibration="default").kernels.collective["nccl"]
    large = [c for c in cases() if (c.system, c.kind) == (system, "nccl") and c.sizes.num_bytes > 1e8 and not c.outlier]
    assert len(large) >= 18
    off = np.abs(errors(large, constants))
    assert np.median(off) < 0.15
    assert np.quantile(off, 0.9) < 0.25


def test_constants_given_are_those_used() -> None:
    """Half of the bandwidth takes about twice as long, where bandwidth is all."""
    system = load_system("dgx-h100")
    nccl = system.kernels.collective["nccl"]
    case = JUDGE.case(row(size_bytes=str(2**33)))
    full, half = (
        float(JUDGE.seconds([case], system, replace(nccl, all_to_all=nccl.all_to_all / f))[0]) for f in (1, 2)
    )
    assert half == pytest.approx(2 * full, rel=0.01)
    assert full == pytest.approx(float(collective_time("all_to_all", 2.0**33, 8, 1, system).time_s))


def test_what_no_row_tells_is_left_alone() -> None:
    assert JUDGE.fixed("collective", "nccl") == ("channels", "send", "reduced", "switching_s")
    told = ("channels", "gather", "all_to_all", "issue_s", "reduced", "switching_s")
    assert JUDGE.fixed("collective", "nccl-2023") == told
    assert JUDGE.fixed("custom_all_reduce", "default") == ("two_shot", "second")
