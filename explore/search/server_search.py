"""A search of servers with what it is for: goals that rank rows, and limits that some of them break."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .block import Block, Found
from .goals import Goal, Limit
from .serving_job import ServingJob
from .serving_rows import METRICS, MONEY, OF_POOLS
from .serving_worker import ServingWorker

# What a search of servers can be for.
KNOWN = (*METRICS, *OF_POOLS, *MONEY, "gpus")
# Latencies that a space itself is asked for: the most requests within them is a candidate of its own.
TARGETS = {"ttft_s": "ttft_s", "tpot_s": "tpot_s", "e2el_s": "e2el_s"}


@dataclass(frozen=True, kw_only=True)
class ServerSearch:
    """A job of servers with goals, limits and the text that it was asked with.

    Attributes:
        job: the servers.
        goals: what they are for, the first first.
        limits: what they must keep besides the latencies of the space.
        text: the space as YAML.
    """

    job: ServingJob
    goals: tuple[Goal, ...]
    limits: tuple[Limit, ...] = ()
    text: str = ""

    @property
    def digest(self) -> str:
        """What tells this search from any other."""
        return hashlib.sha256("\n".join((self.job.digest, repr(self.goals), repr(self.limits))).encode()).hexdigest()

    @property
    def columns(self) -> Sequence[str]:
        """Numbers of servers, then metrics."""
        return self.job.columns

    @property
    def metrics(self) -> Sequence[str]:
        """Columns that are metrics."""
        return KNOWN

    @property
    def words(self) -> Mapping[str, tuple[str, ...]]:
        """Of each column whose numbers stand for words, the words from 0 on."""
        space = self.job.space
        limits = tuple(str(limit) for limit in space.max_batched_tokens) or ("engine's",)
        systems = tuple(" ".join((one.name, *one.overrides)) for one in space.systems)
        return {
            "system": systems, "engine": space.engines, "max_batched_tokens": limits, "precision": space.precision,
            "kv_dtype": space.kv_dtype, "apart": ("replicas", "pools"),
        }  # fmt: skip

    def blocks(self) -> Sequence[Block]:
        """Return the blocks, in order."""
        return self.job.blocks()

    def open(self) -> LimitedWorker:
        """Return what works on blocks."""
        return LimitedWorker(self.job.open(), self.limits)


@dataclass(frozen=True, slots=True)
class LimitedWorker:
    """A worker that leaves out rows which break a limit, and counts them by the first that they break."""

    worker: ServingWorker
    limits: tuple[Limit, ...]

    def work(self, block: Block) -> Found:
        """Work on a block."""
        found = self.worker.work(block)
        columns, pruned = found.columns, dict(found.pruned)
        for limit in self.limits:
            holds = limit.holds(columns[limit.name], float("nan"))
            if num := int((~holds).sum()):
                pruned[f"breaks {limit}"] = num
            columns = {name: column[holds] for name, column in columns.items()}
        return replace(found, columns=columns, pruned=pruned)
