"""Products beside the best that people have found on a chip: no estimate is above it, none far below."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

from slipstick.backends.kernels.gemm import GemmMachine, gemm_sizes
from slipstick.backends.machine.load import load_system

TABLE = Path(__file__).parents[2] / "data" / "gemm_maxima.csv"
# Searched over thousands of shapes, with the operands in the cache: a model finds them in memory.
LEAST, MOST = 0.82, 1.005
# Chips whose constants come from this very table.
FITTED = ("mi", "hls-gaudi")


def shares() -> dict[tuple[str, str], float]:
    found = {}
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            system, dtype = load_system(row["system"]), row["dtype"]
            m, n, k = (float(row[name]) for name in "mnk")
            machine = GemmMachine.of(system.chip, dtype, system.kernels.gemm[dtype])
            time_s = float(machine.times(gemm_sizes(m, n, k, dtype)).time_s)
            found[row["system"], dtype] = 2.0 * m * n * k / time_s / (float(row["tflops"]) * 1e12)
    return found


def test_long_products_come_near_the_best_that_was_found_on_each_chip() -> None:
    found = shares()
    assert len(found) == 20
    assert not {where: share for where, share in found.items() if not LEAST <= share <= MOST}
    judged = [share for (system, _), share in found.items() if not system.startswith(FITTED)]
    assert len(judged) == 13
    assert 0.88 <= median(judged) <= 0.95


def test_shares_of_the_same_dies_agree() -> None:
    found = shares()
    for one, other in (("dgx-b200", "dgx-b300"), ("dgx-h100", "dgx-h200"), ("mi300x-platform", "mi325x-platform")):
        for dtype in ("bf16", "fp8"):
            if (one, dtype) in found and (other, dtype) in found:
                assert abs(found[one, dtype] - found[other, dtype]) < 0.05
