"""How much of the memory's bandwidth a product of one row reaches: measured, one share for all, and as modelled.

Kernel times of fp16 layers with one token, from the profiles of Vidur (microsoft/vidur at 7d47513363ec,
data/profiling/compute/*/mlp.csv; a resolution of 1 us). Half of the configurations in those profiles, over which the
model's constants were fitted, are among them, so that this is a picture of the model and no validation.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from drawing import curves
from matplotlib.axes import Axes
from study import Cell, Table, run, say

import slipstick
from slipstick.backends.kernels.gemm import gemm_sizes, gemm_times


class Measured(NamedTuple):
    """One product of a row: columns of the result, what is summed over, microseconds."""

    n: int
    k: int
    time_us: float

    @property
    def num_bytes(self) -> float:
        """Weights, the row and the result, once each, in fp16."""
        return 2.0 * (self.n * self.k + self.k + self.n)


# Layers of Llama 2 7B, Llama 2 70B and InternLM 20B, whole and split over 2 to 8 GPUs.
MEASURED = {
    "dgx-a100-80gb": (
        Measured(4096, 512, 6.0), Measured(4096, 1376, 12.0), Measured(1536, 4096, 14.0), Measured(5120, 1280, 12.0),
        Measured(8192, 1024, 15.0), Measured(4096, 2048, 15.0), Measured(1280, 8192, 19.0), Measured(2752, 4096, 20.0),
        Measured(5120, 3456, 26.0), Measured(3840, 5120, 29.0), Measured(4096, 5504, 32.0), Measured(6144, 4096, 33.0),
        Measured(5120, 5120, 36.0), Measured(8192, 3584, 41.0), Measured(8192, 4096, 45.0), Measured(6912, 5120, 45.0),
        Measured(5120, 8192, 58.0), Measured(11008, 4096, 56.0), Measured(7168, 8192, 77.0),
        Measured(5120, 13824, 90.0), Measured(15360, 5120, 102.0), Measured(8192, 14336, 143.0),
        Measured(27648, 5120, 176.5), Measured(28672, 8192, 283.0),
    ),
    "dgx-h100": (
        Measured(4096, 512, 4.0), Measured(4096, 1376, 6.0), Measured(1536, 4096, 7.0), Measured(5120, 1280, 8.0),
        Measured(2752, 4096, 12.0), Measured(5120, 2560, 13.0), Measured(4096, 4096, 16.0), Measured(5120, 3456, 16.0),
        Measured(3840, 5120, 19.0), Measured(5120, 5120, 23.0), Measured(6912, 5120, 27.0), Measured(5120, 6912, 28.0),
        Measured(7680, 5120, 29.0), Measured(4096, 11008, 38.0), Measured(12288, 4096, 38.0),
        Measured(8192, 8192, 48.0), Measured(13824, 5120, 50.0), Measured(5120, 13824, 55.0),
        Measured(15360, 5120, 55.0), Measured(10240, 8192, 63.0), Measured(22016, 4096, 64.0),
        Measured(27648, 5120, 100.0), Measured(8192, 28672, 171.0), Measured(57344, 8192, 311.0),
    ),
}  # fmt: skip


def rows_of(name: str, found: Sequence[Measured]) -> Iterator[list[Cell]]:
    """Yield a row a product, the fewest bytes first; the one utilisation is the best for all of them together."""
    system = slipstick.load_system(name)
    chip, ordered = system.chip, sorted(found, key=lambda one: one.num_bytes)
    ideal_us = np.array([1e6 * one.num_bytes / chip.hbm_bytes_per_s for one in ordered])
    measured_us = np.array([one.time_us for one in ordered])
    # Errors of times weigh alike in their logarithms.
    one_for_all = float(np.exp(np.mean(np.log(ideal_us / measured_us))))
    sizes = gemm_sizes(1, [float(one.n) for one in ordered], [float(one.k) for one in ordered])
    ours_us = 1e6 * gemm_times(sizes, chip, system.kernels.gemm["bf16"]).time_s
    for one, ideal, real, ours in zip(ordered, ideal_us, measured_us, ours_us, strict=True):
        yield [
            name, f"{one.n}x{one.k}", one.num_bytes / 1e6, float(real), float(ideal / real), one_for_all,
            float(ideal / ours), 100 * float(ideal / one_for_all / real - 1), 100 * float(ours / real - 1),
        ]  # fmt: skip


def make(full: bool) -> Table:
    """Price every product; the reduced grid is of A100."""
    systems = list(MEASURED) if full else ["dgx-a100-80gb"]
    rows = [row for name in systems for row in rows_of(name, MEASURED[name])]
    utilisation = ["measured utilisation", "one utilisation", "modelled utilisation"]
    columns = ["system", "n x k", "MB", "measured (us)", *utilisation, "error of one (%)", "error of the model (%)"]
    table = Table(columns, rows)
    return Table(columns, rows, [_errors(table, error) for error in columns[-2:]])


def _errors(table: Table, error: str) -> str:
    sizes = np.abs(table.numbers(error))
    return f"{error}: mean {sizes.mean():.1f}, greatest {sizes.max():.1f}."


def conclude(table: Table) -> Iterator[str]:
    """Say how the utilisation grows with bytes, and how far one utilisation is off."""
    for system, rows in table.groups("system").items():
        sizes, reached = rows.numbers("MB"), rows.numbers("measured utilisation")
        yield say(
            "On {system} a product of one row reaches {least:.0%} of the bandwidth with {small:.0f} MB of weights and "
            "{most:.0%} with {large:.0f} MB",
            reached[-1] > reached[0] and sizes[-1] > sizes[0], system=system, least=reached[0], most=reached[-1],
            small=sizes[0], large=sizes[-1],
        )  # fmt: skip
        one, model = (
            sum(map(abs, rows.numbers(name))) / len(sizes) for name in ("error of one (%)", "error of the model (%)")
        )
        yield say(
            "There one utilisation for all sizes is {one:.0f} % off on average, the model of sizes {model:.1f} %",
            model < one, one=one, model=model,
        )  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw utilisation over bytes."""
    groups = table.groups("system")
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    for axes, (name, rows) in zip(panels, groups.items(), strict=False):
        for kind in ("measured utilisation", "one utilisation", "modelled utilisation"):
            curves(axes, {kind: rows}, "MB", kind)
        axes.set(title=name, xscale="log", ylabel="utilisation of the memory")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2, conclude=conclude)
