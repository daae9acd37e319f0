"""Llama 3.1 70B served by 16 H100 within a second to the first token and 30 ms a token: replicas, or pools?

Every server of up to two DGX H100 is tried: degrees of tensor parallelism and of pipeline stages, replicas of them, or
workers of prompts and workers of answers apart, each with as many requests in flight as there may be. Requests have
2000 tokens in and 500 out, and clients send the next one as soon as one is answered. Latencies are means.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from study import Cell, Table, run

from slipstick.explore.block import Array, joined
from slipstick.explore.job import InProcess
from slipstick.explore.machine import MachineChoice
from slipstick.explore.servers.answers import command_of
from slipstick.explore.servers.job import ServingJob, serving_job
from slipstick.explore.servers.space import ServingSpace

Columns: TypeAlias = Mapping[str, Array]
KINDS = ("replicas", "pools")
SIZE, SPEED = "GPUs at most", "tokens/s a user"
# Tokens a second that a reader gets at least.
SPEEDS = (34, 40, 50, 60, 70, 80, 90)
RATES = ("tokens_per_s", "tokens_per_s_per_gpu", "tokens_per_s_per_user", "requests_per_s", "usd_per_mtok_output")


def space_of(full: bool) -> ServingSpace:
    """Return the whole space; the reduced one has no pipeline stages, and fewer batches of prompts."""
    return ServingSpace(
        model="llama-3.1-70b", systems=(MachineChoice(name="dgx-h100"),), gpus=16, prompt=2000, output=500, ttft_s=1.0,
        tpot_s=0.030, prefill_batch=(1, 2, 4, 8) if full else (1, 4), pp=() if full else (1,),
    )  # fmt: skip


def make(full: bool) -> Table:
    """Search the space; rows have most tokens/s on so many GPUs at most, and with so many tokens/s for each user."""
    started = time.perf_counter()
    job = serving_job(space_of(full))
    found = list(InProcess().run(job, job.blocks()))
    seconds = time.perf_counter() - started
    whole, pruned = joined(found), sum((Counter(f.pruned) for f in found), Counter[str]())
    num = sum(f.num_candidates for f in found)
    print(f"{num:,} candidates in {seconds:.1f} s, the model read or recorded in it", file=sys.stderr)
    columns = whole.columns
    rows = [[name, value, *_row(columns, at)] for name, value, at in _picked(columns)]
    asked, latencies = ["most with", "of", "kind", "GPUs", "plan", "in flight"], ["TTFT (ms)", "TPOT (ms)"]
    rates = ["tokens/s", "tokens/s/GPU", "tokens/s/user", "requests/s", "$/M tokens out"]
    told = ", ".join(f"{count:,} {reason}" for reason, count in pruned.most_common())
    return Table([*asked, *latencies, *rates], rows, [
        f"Of {num:,} candidates {whole.num_rows:,} answer in time; of the others {told}.",
        *(f"The best {kind}: `{command}`." for kind, command in _commands(job, columns)),
        "bf16, vLLM; $ are those of owning the machines, prompts in the price of what is written.",
    ])  # fmt: skip


def _picked(columns: Columns) -> Iterator[tuple[str, int, int]]:
    """What is asked of a row, and the row that then has most tokens/s, of each kind."""
    for kind in range(len(KINDS)):
        mine = columns["apart"] == kind
        for gpus in np.unique(columns["gpus"][mine]):
            yield SIZE, int(gpus), _best(columns, mine & (columns["gpus"] <= gpus))
        for speed in SPEEDS:
            fast = mine & (columns["tokens_per_s_per_user"] >= speed)
            yield from [(SPEED, speed, _best(columns, fast))] if fast.any() else []


def _best(columns: Columns, rows: NDArray[np.bool_]) -> int:
    places = np.flatnonzero(rows)
    return int(places[np.argmax(columns["tokens_per_s"][places])])


def _commands(job: ServingJob, columns: Columns) -> Iterator[tuple[str, str]]:
    for number, kind in enumerate(KINDS):
        best = _best(columns, columns["apart"] == number)
        yield kind, command_of(job, {name: float(column[best]) for name, column in columns.items()})


def _row(columns: Columns, at: int) -> list[Cell]:
    row = {key: float(column[at]) for key, column in columns.items()}
    plan = f"{row['dp']:.0f} x {_shape(row['tp'], row['pp'])}"
    if row["apart"]:
        plan = f"{row['prefill_dp']:.0f} x {_shape(row['prefill_tp'], row['prefill_pp'])} + {plan}"
    latencies = (1e3 * row["ttft_s"], 1e3 * row["tpot_s"])
    rates: list[Cell] = [row[key] for key in RATES]
    return [KINDS[int(row["apart"])], int(row["gpus"]), plan, int(row["concurrency"]), *latencies, *rates]


def _shape(tp: float, pp: float) -> str:
    return f"tp{tp:.0f}" + (f" pp{pp:.0f}" if pp > 1 else "")


def draw(panels: Sequence[Axes], table: Table) -> None:
    """Draw the most tokens/s over the size of the server, and over how fast each user's text grows."""
    for panel, name in zip(panels, (SIZE, SPEED), strict=True):
        for kind, rows in table.groups("most with")[name].groups("kind").items():
            panel.plot(rows.numbers("of"), rows.numbers("tokens/s"), marker="o", label=kind)
        panel.set(xlabel=name if name == SIZE else f"{name}, at least", ylabel="tokens/s in time")
        panel.set_ylim(bottom=0)
        panel.legend()


if __name__ == "__main__":
    run(__doc__, make, draw, panels=2)
