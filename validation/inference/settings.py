"""How engines were started for a publication: limits of their schedulers that its recipes set, and its load."""

from __future__ import annotations

from dataclasses import replace

from ...backends.machine.software.engine import Engine
from ...ir.records import dataclass
from ..rows.rows import Row


@dataclass(frozen=True, slots=True)
class RecipeSettings:
    """What recipes say; None leaves the engine's own.

    Attributes:
        max_num_seqs: most sequences at once.
        max_batched_tokens: most tokens of a step.
        memory_utilization: share of the device's memory that the engine may take.
        cache_utilization: share of what is left of it that the cache takes.
        requests: how many were sent in all, where all were sent at once.
        offline: a program of the engine's own measured: requests have no request overhead.
    """

    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    memory_utilization: float | None = None
    cache_utilization: float | None = None
    requests: int | None = None
    offline: bool = False

    def on(self, engine: Engine) -> Engine:
        """Return an engine as it was started."""
        usual = engine.scheduler
        seqs, tokens = self.max_num_seqs or usual.max_num_seqs, self.max_batched_tokens or usual.max_batched_tokens
        memory, cache, overheads = self.memory_utilization, self.cache_utilization, engine.overheads
        if self.offline:
            overheads = replace(overheads, prompt_s=0.0, prompt_token_s=0.0)
        return replace(
            engine,
            overheads=overheads,
            scheduler=replace(
                usual,
                max_num_seqs=seqs,
                max_batched_tokens=tokens,
                memory_utilization=usual.memory_utilization if memory is None else memory,
                cache_utilization=usual.cache_utilization if cache is None else cache,
            ),
        )


def settings_of(row: Row) -> RecipeSettings:
    """Return how the engine of a row was started, as far as its cells say."""
    return RecipeSettings(
        row.number("max_num_seqs", 0) or None,
        row.number("max_batched_tokens", 0) or None,
        row.measured("memory_utilization"),
        row.measured("cache_utilization"),
        row.number("requests", 0) or None,
        row.flag("offline"),
    )
