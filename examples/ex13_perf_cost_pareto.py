"""Time against money of packages made of chiplets: Llama 3.1 70B on 64 packages of 800 mm2, in one die, two and four.

The technology engine builds every package from the same silicon, power and memory. Dies are one device together, or
each is a device of its own and they talk over UCIe, whose bandwidth is a level of the network, and whose modules take
area, edge and power of the dies. Each design runs the tensor-parallel plan that is cheapest on it. The studies that ask
this have published no numbers that we could read; none are claimed to be reproduced.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.explore.designs.designs import Designs, explore
from slipstick.explore.designs.setting import DesignJob, DesignSetting
from slipstick.explore.designs.space import DesignSpace
from slipstick.explore.pareto import pareto

CACHE = slipstick.GraphCache.default()
MODEL, SEQ_LEN, SEQUENCES, TOKENS = "llama-3.1-70b", 8192, 512, 15e12
PACKAGES, SILICON_MM2, STACKS = 64, 800.0, 4
FAMILY = slipstick.Family(sp=True, zero=1, recompute="full")
# One direction, to each neighbour.
BANDWIDTHS = (0.25e12, 0.5e12, 1e12, 2e12, 4e12)
POWERS_W = (700.0, 1000.0, 1300.0)
NODES = ("N7", "N5", "N3")
TENSOR_PARALLEL = (4, 8, 16, 32)
COLUMNS = ("package_usd", "fp16_flop_per_s", "step_time_s", "usd_per_mtok", "usd_run", "j_per_token")


@dataclass(frozen=True, slots=True)
class Run:
    """One design under the plan that is cheapest on it."""

    kind: str
    node: str
    num_dies: int
    power_w: float
    d2d_bytes_per_s: float
    tp: int
    numbers: tuple[float, ...]

    @property
    def usd_per_mtok(self) -> float:
        """Dollars of a million tokens."""
        return self.numbers[COLUMNS.index("usd_per_mtok")]


def spaces(full: bool) -> Iterator[tuple[str, DesignSpace]]:
    """Yield the spaces of each kind of package."""
    base = DesignSpace(
        nodes=NODES if full else ("N5",), die_mm2=(SILICON_MM2,), power_w=POWERS_W,
        memories=("hbm3e",), num_stacks=(STACKS,), joints=("fan_out_bridge",),
    )  # fmt: skip
    yield "one die", base
    for dies in (2, 4):
        split = replace(base, die_mm2=(SILICON_MM2 / dies,), num_dies=(dies,))
        yield "one device", split
        joined = replace(split, d2d=("ucie-advanced",), d2d_bytes_per_s=BANDWIDTHS if full else BANDWIDTHS[::2])
        yield "devices", joined


def runs_of(kind: str, space: DesignSpace, lowered: slipstick.Lowered) -> Iterator[Run]:
    """Yield every design of a space that can be built, under its cheapest plan."""
    (dies,) = space.num_dies
    ranks = dies if any(space.d2d) else 1
    gpus = PACKAGES * ranks
    # A package has one port of InfiniBand, which its dies share where each is a device.
    port = (f"network.infiniband.bandwidth={400 / ranks}Gbit/s", f"network.infiniband.equipment.adapters={1 / ranks}")
    setting = DesignSetting(technology=load_technology(), prices=load_prices(), num_gpus=gpus, overrides=port)
    best: dict[tuple[str, float, float], Run] = {}
    for tp in TENSOR_PARALLEL:
        plan = slipstick.make_plan(num_gpus=gpus, tp=tp, seq_len=SEQ_LEN, global_batch=SEQUENCES, family=FAMILY)
        job = DesignJob(lowered, plan, TOKENS / (SEQUENCES * SEQ_LEN))
        for designs in explore(space, setting, job):
            for found in _runs(kind, designs, tp):
                key = (found.node, found.power_w, found.d2d_bytes_per_s)
                if key not in best or found.usd_per_mtok < best[key].usd_per_mtok:
                    best[key] = found
    yield from best.values()


def _runs(kind: str, designs: Designs, tp: int) -> Iterator[Run]:
    """Yield the designs that can be built and hold the plan."""
    columns = designs.columns
    for row in np.flatnonzero(designs.built):
        if columns["fits"][row]:
            yield Run(kind, designs.form.node, designs.form.num_dies, float(columns["package_w"][row]),
                      float(columns["d2d_bytes_per_s"][row]), tp, tuple(float(columns[n][row]) for n in COLUMNS),
                      )  # fmt: skip


def make(full: bool) -> Table:
    """Build and run every design; the reduced grid has one node and three bandwidths."""
    lowered = slipstick.lower(slipstick.load(MODEL, cache=CACHE), FAMILY)
    runs = [found for kind, space in spaces(full) for found in runs_of(kind, space, lowered)]
    numbers = np.array([found.numbers for found in runs])
    best = pareto([numbers[:, COLUMNS.index("step_time_s")], numbers[:, COLUMNS.index("usd_per_mtok")]])
    rows = [_row(found, bool(front)) for found, front in zip(runs, best, strict=True)]
    columns = ["dies are", "node", "dies", "package (W)", "D2D (TB/s)", "tp", "package ($)", "fp16 a device (TFLOP/s)"]
    return Table([*columns, "step (s)", "$/Mtoken", "run (M$)", "J/token", "Pareto"], rows, [
        f"bf16, {SEQUENCES} sequences of {SEQ_LEN} tokens, ZeRO 1, full recomputation, tp as told, the rest dp.",
        f"Each package has {SILICON_MM2:g} mm2, {STACKS} stacks of HBM3E, a port of NDR InfiniBand; 8 share a server.",
        "Dies that are one device are taken to be so for nothing: no interface takes of their area, power and time.",
        "All is owned at what it is made for, without margin and design of packages; a run is 15T tokens, no pauses.",
        "Pareto: no other row has both a shorter step and cheaper tokens.",
    ])  # fmt: skip


def _row(found: Run, front: bool) -> list[Cell]:
    package_usd, flop_per_s, step_s, usd_per_mtok, usd_run, joules = found.numbers
    return [found.kind, found.node, found.num_dies, found.power_w, found.d2d_bytes_per_s / 1e12, found.tp, package_usd,
            flop_per_s / 1e12, step_s, usd_per_mtok, usd_run / 1e6, joules, "yes" if front else "no"]  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw tokens' price over the step, and over the bandwidth between dies."""
    for (kind, dies), rows in _groups(table).items():
        panels[0].scatter(rows.numbers("step (s)"), rows.numbers("$/Mtoken"), s=18, label=f"{dies} dies: {kind}")
    front = Table(table.columns, sorted((r for r in table.rows if r[-1] == "yes"), key=lambda r: float(r[8])))
    panels[0].plot(front.numbers("step (s)"), front.numbers("$/Mtoken"), color="grey", linewidth=0.8, zorder=0)
    panels[0].set(xlabel="step (s)", ylabel="$ of 1M tokens")
    panels[0].legend()
    for (kind, dies), rows in _groups(table).items():
        n5 = Table(rows.columns, [row for row in rows.rows if row[1] == "N5" and row[3] == 1000.0])
        if kind == "devices":
            panels[1].plot(n5.numbers("D2D (TB/s)"), n5.numbers("$/Mtoken"), marker="o", label=f"{dies} dies: {kind}")
        elif n5.rows:
            panels[1].axhline(n5.numbers("$/Mtoken")[0], linewidth=0.8, label=f"{dies} dies: {kind}", color=f"C{dies}")
    panels[1].set(xlabel="D2D to each neighbour (TB/s), N5, 1 kW", ylabel="$ of 1M tokens")
    panels[1].legend()


def _groups(table: Table) -> dict[tuple[str, str], Table]:
    return {
        (kind, dies): rows
        for kind, those in table.groups("dies are").items()
        for dies, rows in those.groups("dies").items()
    }


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
