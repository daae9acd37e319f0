"""Replicas that follow the load: what autoscaling answers in time, and how many GPUs it takes on average.

Published: NVIDIA Dynamo's SLA planner on Llama 3.1 8B in fp8 on H200, prompts of 3,000 tokens and answers of 300 that
come at 5 to 45 a second and back within 10 minutes, for half an hour; TTFT within 200 ms and ITL within 10 ms. Beside
four GPUs that are always there, requests in time a second, and these a GPU, rise by 52 and 29 % (two for prompts, two
for answers), by 311 and 249 % (one of two GPUs each), by 725 and 600 % (three and one): 4.71 GPUs on average, by each
of the three. A GPU is said to compute 16.49 such prompts a second, or to write 15.19 such answers, within the limits
(github.com/ai-dynamo/dynamo, tests/planner/README.md, 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from study import Cell, Table, run

import slipstick
from slipstick.cost.serving.simulate.autoscale import Autoscaling
from slipstick.cost.serving.simulate.result import SimulatedServing
from slipstick.cost.serving.simulate.run import Pool, Transfer, simulate_apart
from slipstick.cost.serving.traffic.sizes import Fixed, LengthMix
from slipstick.cost.serving.traffic.varying import diurnal_traffic

PEAK, LOW, PERIOD_S = 45.0, 5.0, 600.0
TTFT_S, ITL_S = 0.2, 0.01
# Requests a second of a GPU of prompts and of one of answers.
RATES = (16.49, 15.19)
# Workers of prompts and of answers, GPUs of each, and what the planner gains over them, in requests and in those a GPU.
FIXED = {
    "2 + 2": (2, 2, 1, 1.52, 1.29),
    "1 + 1, tp2": (1, 1, 2, 4.11, 3.49),
    "3 + 1": (3, 1, 1, 8.25, 7.00),
}
PUBLISHED_GPUS = 4.0 * 1.52 / 1.29
STARTUPS_S = (0.0, 60.0, 180.0)


@dataclass(frozen=True)
class Fleet:
    """Pools of prompts and of answers that served the load."""

    run: SimulatedServing
    gpus: float

    @property
    def in_time(self) -> float:
        """Requests a second within the limits."""
        return self.run.goodput(TTFT_S, ITL_S).requests_per_s


def fleet(workers: tuple[int, int], tp: int, duration_s: float, rules: Sequence[Autoscaling] = ()) -> Fleet:
    """Simulate pools of so many workers, or of as many as rules ask for."""
    answer = slipstick.serve(
        "llama-3.1-8b", "dgx-h200", tp=tp, disagg="1:1", precision="fp8", isl="3000", osl="300", request_rate="1"
    ).answer
    assert answer.pools is not None
    servers = (answer.pools.prefill, answer.pools.decode)
    prefill, decode = (Pool(one.times, one.engine.at_random, num) for one, num in zip(servers, workers, strict=True))
    if rules:
        prefill, decode = (replace(one, autoscaling=rule) for one, rule in zip((prefill, decode), rules, strict=True))
    traffic = diurnal_traffic(PEAK, LOW, PERIOD_S, duration_s, LengthMix(Fixed(3000), Fixed(300)))
    link = answer.pools.link
    found = simulate_apart(traffic, prefill, decode, Transfer(link.bytes_per_s, link.latency_s))
    return Fleet(found, tp * (sum(one.mean for one in found.scaled) if rules else sum(workers)))


def least_gpus() -> float:
    """GPUs on average where each pool always has the rate over that of a GPU, rounded up, at once."""
    rates = (PEAK + LOW) / 2 - (PEAK - LOW) / 2 * np.cos(np.linspace(0.0, 2 * np.pi, 3600, endpoint=False))
    return float(np.mean([sum(ceil(rate / most) for most in RATES) for rate in rates]))


def make(full: bool) -> Table:
    """Serve the load with fixed fleets and with replicas that come and go."""
    duration_s = 3 * PERIOD_S if full else PERIOD_S
    fixed = {name: fleet((first, then), tp, duration_s) for name, (first, then, tp, *_) in FIXED.items()}
    rows: list[list[Cell]] = [
        [name, 4.0, one.in_time, one.run.ttft.p99, one.run.tpot.p99 * 1e3, "", "", "", ""]
        for name, one in fixed.items()
    ]
    rows.append(["closed form", least_gpus(), "", "", "", "GPUs", PUBLISHED_GPUS, least_gpus(),
                 100 * (least_gpus() / PUBLISHED_GPUS - 1)])  # fmt: skip
    for startup_s in STARTUPS_S if full else STARTUPS_S[1:2]:
        rules = [
            Autoscaling(least=1, most=4, target=most, of="rps", interval_s=60.0, down_s=0.0, startup_s=startup_s,
                        tolerance=0.0) for most in RATES
        ]  # fmt: skip
        scaled = fleet((4, 4), 1, duration_s, rules)
        head: list[Cell] = [f"scaled, {startup_s:g} s to start", scaled.gpus, scaled.in_time, scaled.run.ttft.p99,
                            scaled.run.tpot.p99 * 1e3]  # fmt: skip
        rows.append([*head, "GPUs", PUBLISHED_GPUS, scaled.gpus, 100 * (scaled.gpus / PUBLISHED_GPUS - 1)])
        for name, (_, _, _, gain, gain_a_gpu) in FIXED.items():
            ratio = scaled.in_time / fixed[name].in_time if fixed[name].in_time else float("inf")
            for what, published, found in (
                (f"in time, over {name}", gain, ratio),
                (f"in time a GPU, over {name}", gain_a_gpu, ratio * 4.0 / scaled.gpus),
            ):
                rows.append([head[0], "", "", "", "", what, published, found, 100 * (found / published - 1)])
    columns = [
        "fleet",
        "GPUs",
        "in time (1/s)",
        "TTFT p99 (s)",
        "TPOT p99 (ms)",
        "what",
        "published",
        "found",
        "error (%)",
    ]
    return Table(columns, rows, [
        "A pool is looked at every 60 s, as the planner's is, and wants the requests that came over those of a GPU.",
        "The planner predicts the next minute, and how long its workers take to start is not published.",
    ])  # fmt: skip


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw requests in time, and GPUs on average, of each fleet."""
    fleets = [row for row in table.rows if row[2] != ""]
    names = [str(row[0]).replace(", ", "\n") for row in fleets]
    panels[0].bar(names, [float(row[2]) for row in fleets], width=0.6)
    panels[0].set(ylabel="requests in time a second")
    panels[1].bar(names, [float(row[1]) for row in fleets], width=0.6, label="modelled")
    panels[1].axhline(PUBLISHED_GPUS, color="k", linestyle="--", label="planner, published")
    panels[1].set(ylabel="GPUs on average")
    panels[1].legend()
    for panel in panels:
        panel.tick_params(axis="x", labelsize="x-small")


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
