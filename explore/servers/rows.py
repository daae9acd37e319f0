"""Servers under loads as columns: numbers of their plans, what requests see, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ...cost.money import Terms, system_money
from ...cost.serving.batching.steps import groups_of
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.traffic.requests import Lengths
from ...driver.serve.answer import ReplicaFleet, fleet_metrics, request_flops
from ...driver.serve.money import Doing, owned_at, requests_energy, requests_money
from ...driver.serve.server import Server
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..block import Array
from .steps import PhaseSteps, StepBook
from .units import ServerGroup

# Where a row stands in the tuples of its space; `apart` is 1 where prompts have devices of their own.
SETTINGS = ("system", "engine", "max_batched_tokens", "precision", "kv_dtype", "apart")
# `tp` to `dp` are of replicas, or of workers of answers; those of prompts are zero where replicas do both.
NUMBERS = (
    "gpus",
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "dp",
    "prefill_tp",
    "prefill_pp",
    "prefill_etp",
    "prefill_dp",
    "prefill_batch",
    "concurrency",
)
METRICS = (
    "ttft_s", "ttft_low_s", "ttft_high_s", "tpot_s", "e2el_s", "requests_per_s", "tokens_per_s", "tokens_per_s_per_gpu",
    "tokens_per_s_per_user", "total_tokens_per_s", "total_tokens_per_s_per_gpu", "batch", "max_batch",
    "serve_utilization", "mfu", "mbu",
)  # fmt: skip
OF_POOLS = ("prefill_busy", "decode_busy", "transfer_s")
MONEY = (
    "usd_per_mtok",
    "usd_per_mtok_output",
    "usd_per_request",
    "usd_per_gpu_hour",
    "average_power_w",
    "j_per_token",
    "kg_co2e_per_mtok",
)
# Every metric that a search of servers can be for.
KNOWN = (*METRICS, *OF_POOLS, *MONEY)
COLUMNS = (*SETTINGS, *NUMBERS, *KNOWN)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Servers of one group under loads, row by row.

    Attributes:
        group: what they are made of.
        server: a replica, or a worker of answers.
        first: a worker of prompts; None where replicas do both.
        dp: replicas, or workers of answers.
        prompts: workers of prompts, 0 where there are none.
        at_once: prompts that these run at once.
        found: the closed form of one replica, or of both pools.
        most_per_s: requests a second, of what `found` is of, at most.
        room: requests that a replica runs at once.
        of_pools: what OF_POOLS names; nothing without them.
        together: whether requests of a replica start and end together.
    """

    group: ServerGroup
    server: Server
    first: Server | None
    dp: Array
    prompts: Array
    at_once: Array
    found: ServingMetrics
    most_per_s: Array
    room: float
    of_pools: Mapping[str, Array]
    together: bool = False

    @property
    def num_gpus(self) -> Array:
        """Devices."""
        first = self.group.first
        return self.dp * self.group.unit.num_gpus + self.prompts * (0 if first is None else first.num_gpus)


def taken(found: ServingMetrics, rows: NDArray[np.intp]) -> ServingMetrics:
    """Return some rows of closed forms."""
    columns = {f.name: getattr(found, f.name) for f in fields(found)}
    return replace(found, **{name: c[rows] for name, c in columns.items() if isinstance(c, np.ndarray)})


def columns_of(
    rows: Rows, lengths: Lengths, terms: Terms, settings: Mapping[str, float], book: StepBook
) -> Mapping[str, Array]:
    """Return all of COLUMNS; `settings` are the numbers of SETTINGS, the same for each row.

    What steps take is looked up in the book, and kept there.
    """
    num, found, server = len(rows.dp), rows.found, rows.server
    first, step = _phases(rows, lengths, book)
    read_bytes = step.read_bytes * groups_of(server.times, found.batch)
    replicas = rows.dp if rows.first is None else np.ones(num)
    fleet = ReplicaFleet(rows.num_gpus, replicas, rows.most_per_s, rows.room)
    known = fleet_metrics(server, fleet, lengths, found, read_bytes)
    busy = {name: rows.of_pools.get(name, np.full(num, np.nan)) for name in OF_POOLS}
    paid = _money(rows, lengths, terms, known["total_tokens_per_s"] / known["tokens_per_s"], first, step)
    every = {**settings, **_numbers(rows), **known, **busy, **paid}
    return {name: np.array(np.broadcast_to(every[name], num), dtype=np.float64) for name in COLUMNS}


def _numbers(rows: Rows) -> Mapping[str, Array | float]:
    unit, first = rows.group.unit, rows.group.first
    of_prompts = (0, 0, 0) if first is None else (first.tp, first.pp, first.etp)
    found: dict[str, Array | float] = {
        "gpus": rows.num_gpus,
        "tp": unit.tp,
        "pp": unit.pp,
        "cp": unit.cp,
        "ep": unit.ep,
        "etp": unit.etp,
        "dp": rows.dp,
        "prefill_dp": rows.prompts,
        "prefill_batch": rows.at_once,
        "concurrency": rows.found.concurrency * (rows.dp if first is None else 1.0),
    }
    return found | dict(zip(("prefill_tp", "prefill_pp", "prefill_etp"), of_prompts, strict=True))


def _phases(rows: Rows, lengths: Lengths, book: StepBook) -> tuple[PhaseSteps, PhaseSteps]:
    """A step of prompts and a decode step at the mean context, as `serving.server.phases_of` has them."""
    server, found = rows.server, rows.found
    groups = groups_of(server.times, found.batch)
    context = float(np.asarray(lengths.prompt)) + float(np.asarray(lengths.output)) / 2
    ones, fresh = np.ones(len(rows.dp)), float(lengths.fresh)
    answers = book.steps(server, server.served.decode, context if rows.first is None else 1.0, context)
    step = answers.of(rows.dp, found.decodes / groups)
    if rows.first is not None:
        return book.steps(rows.first, rows.first.served.prefill, fresh, 0.0).of(rows.prompts, ones), step
    together = found.batch / groups if rows.together else ones
    return book.steps(server, server.served.prefill, fresh, 0.0).of(rows.dp, together), step


def _money(
    rows: Rows, lengths: Lengths, terms: Terms, tokens: Array | float, first: PhaseSteps, step: PhaseSteps
) -> Mapping[str, Array | float]:
    """What MONEY names; not a number where the system cannot be priced."""
    server = rows.server
    try:
        money = system_money(server.system, rows.num_gpus, terms)
    except UsageError:
        return dict.fromkeys(MONEY, np.nan)
    apart = rows.first is not None
    doing = Doing(
        prefill=first.energy(money),
        decode=step.energy(money),
        prefill_s=first.step_time_s,
        prompts=first.sequences * rows.dp,
        prefill_busy=rows.of_pools["prefill_busy"] if apart else None,
        requests_per_s=rows.found.requests_per_s * (1.0 if apart else rows.dp),
        output=float(np.asarray(lengths.output)),
        tokens=tokens,
        flops=request_flops(server, lengths, server.convention),
    )
    energy = requests_energy(doing)
    found = requests_money(money, doing, owned_at(money, energy), energy)
    # A lower bound is no number to search by.
    return {**found, "kg_co2e_per_mtok": np.nan} if money.made.unknown else found
