"""Servers under loads as columns: numbers of their plans, what requests see, what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ...cost.money import Money, Terms, system_money
from ...cost.serving.batching.steps import groups_of
from ...cost.serving.metrics import ServingMetrics
from ...cost.serving.traffic.requests import Lengths
from ...driver.serve.answer import ReplicaFleet, fleet_metrics, request_flops
from ...driver.serve.money import Doing, owned_at, requests_energy, requests_money
from ...driver.serve.server import Server
from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..block import Array
from .steps import AskedSteps, PhaseSteps, StepBook, energy_of, known_steps, price_steps
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
    tables: Sequence[Rows], lengths: Lengths, terms: Terms, settings: Mapping[str, float], book: StepBook
) -> Mapping[str, Array]:
    """Return all of COLUMNS of tables behind each other; `settings` are the numbers of SETTINGS, the same for each row.

    All are on one system. What steps take is looked up in the book, and kept there.
    """
    if not tables:
        return {name: np.zeros(0) for name in COLUMNS}
    steps = price_steps([one for rows in tables for one in _asked(rows, lengths, book)])
    both = list(zip(steps[::2], steps[1::2], strict=True))
    known = [_known(rows, lengths, step) for rows, (_, step) in zip(tables, both, strict=True)]
    columns = {name: np.concatenate([one[name] for one in known]) for name in known[0]}
    columns |= _money(tables, lengths, terms, both, columns["total_tokens_per_s"] / columns["tokens_per_s"])
    num = len(columns["tp"])
    every = {**{name: np.full(num, number) for name, number in settings.items()}, **columns}
    return {name: every[name] for name in COLUMNS}


def _known(rows: Rows, lengths: Lengths, step: PhaseSteps) -> Mapping[str, Array]:
    """All columns of a table but those of its settings and MONEY."""
    num, found, server = len(rows.dp), rows.found, rows.server
    read_bytes = step.read_bytes * groups_of(server.times, found.batch)
    replicas = rows.dp if rows.first is None else np.ones(num)
    fleet = ReplicaFleet(rows.num_gpus, replicas, rows.most_per_s, rows.room)
    known = fleet_metrics(server, fleet, lengths, found, read_bytes)
    busy = {name: rows.of_pools.get(name, np.full(num, np.nan)) for name in OF_POOLS}
    every: Mapping[str, Array | float] = {**_numbers(rows), **known, **busy}
    wanted = (*NUMBERS, *METRICS, *OF_POOLS)
    return {name: np.array(np.broadcast_to(every[name], num), dtype=np.float64) for name in wanted}


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


def _asked(rows: Rows, lengths: Lengths, book: StepBook) -> tuple[AskedSteps, AskedSteps]:
    """A step of prompts and a decode step at the mean context, as `serving.server.phases_of` has them."""
    server, found, first = rows.server, rows.found, rows.first
    groups = groups_of(server.times, found.batch)
    context = float(np.asarray(lengths.prompt)) + float(np.asarray(lengths.output)) / 2
    ones, fresh = np.ones(len(rows.dp)), float(lengths.fresh)
    new = context if first is None else 1.0
    step = known_steps(book, server, server.served.decode, new, context), rows.dp, np.asarray(found.decodes / groups)
    if first is not None:
        return (known_steps(book, first, first.served.prefill, fresh, 0.0), rows.prompts, ones), step
    together = np.asarray(found.batch / groups) if rows.together else ones
    return (known_steps(book, server, server.served.prefill, fresh, 0.0), rows.dp, together), step


def _money(
    tables: Sequence[Rows],
    lengths: Lengths,
    terms: Terms,
    steps: Sequence[tuple[PhaseSteps, PhaseSteps]],
    tokens: Array,
) -> Mapping[str, Array]:
    """What MONEY names of tables behind each other; not a number where the system of a table cannot be priced.

    `tokens` are those of prompt and answer over those of the answer.
    """
    counts = [len(rows.dp) for rows in tables]
    try:
        money = system_money(tables[0].server.system, np.concatenate([rows.num_gpus for rows in tables]), terms)
    except UsageError:
        if len(tables) == 1:
            return {name: np.full(counts[0], np.nan) for name in MONEY}
        # Another table may have no number of devices that has no price.
        parts = zip(tables, steps, np.split(tokens, np.cumsum(counts)[:-1]), strict=True)
        paid = [_money([rows], lengths, terms, [both], some) for rows, both, some in parts]
        return {name: np.concatenate([one[name] for one in paid]) for name in MONEY}
    doing = _doing(tables, lengths, money, steps, tokens)
    energy = requests_energy(doing)
    found = requests_money(money, doing, owned_at(money, energy), energy)
    if money.made.unknown:
        # A lower bound is no number to search by.
        found = {**found, "kg_co2e_per_mtok": np.nan}
    return {name: np.array(np.broadcast_to(found[name], sum(counts)), dtype=np.float64) for name in MONEY}


def _doing(
    tables: Sequence[Rows],
    lengths: Lengths,
    money: Money,
    steps: Sequence[tuple[PhaseSteps, PhaseSteps]],
    tokens: Array,
) -> Doing:
    firsts, answers = zip(*steps, strict=True)
    apart, dp = tables[0].first is not None, np.concatenate([rows.dp for rows in tables])
    flops = [request_flops(rows.server, lengths, rows.server.convention) for rows in tables]
    rate = np.concatenate([rows.found.requests_per_s for rows in tables])
    return Doing(
        prefill=energy_of(firsts, money),
        decode=energy_of(answers, money),
        prefill_s=np.concatenate([one.step_time_s for one in firsts]),
        prompts=np.concatenate([one.sequences for one in firsts]) * dp,
        prefill_busy=np.concatenate([rows.of_pools["prefill_busy"] for rows in tables]) if apart else None,
        requests_per_s=rate * (1.0 if apart else dp),
        output=float(np.asarray(lengths.output)),
        tokens=tokens,
        flops=np.repeat(flops, [len(rows.dp) for rows in tables]),
    )
