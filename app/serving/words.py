"""Words of a server and its requests, and the record of both."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ...ir.units import is_digits
from ..arguments.options import MOST, tokens_of
from ..run_words import count_of
from ..sources import VerbArguments
from .drafts import Drafts
from .pools import Apart

if TYPE_CHECKING:
    from ...backends.machine.software.engine import Engine, Scheduler
    from ...cost.serving.slo import SLO
    from ...cost.serving.traffic.requests import Lengths
    from ...cost.serving.traffic.traffic import Traffic
    from ...driver.serve.load import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What a user asked of requests one by one, as typed."""

    serve: str | None = None
    kv_tiers: str | None = None
    autoscale: str | None = None
    cut: float = 0.0
    inclusive_tpot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving(Simulation):
    """What a user asked of a server, as typed."""

    engine: str | None
    isl: str
    osl: str
    cached: int | None = None
    prefix_hit: float | None = None
    shared_prefix: bool = False
    chunked_prefill: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    memory_utilization: float | None = None
    dual_batch: bool = False
    ttft: str | None
    tpot: str | None
    concurrency: str | None = None
    request_rate: str | None = None
    batch: str | None = None
    drafts: Drafts = field(default_factory=Drafts)
    apart: Apart = field(default_factory=Apart)

    @classmethod
    def of(cls, arguments: VerbArguments) -> Serving:
        """Return what arguments say."""
        return replace(arguments.take(cls), drafts=arguments.take(Drafts), apart=arguments.take(Apart))

    @property
    def prompt(self) -> int:
        """Tokens of a prompt where all are alike."""
        return _one_length("--isl", self.isl)

    @property
    def output(self) -> int:
        """Tokens of an answer where all are alike."""
        return _one_length("--osl", self.osl)

    @property
    def lengths(self) -> Lengths:
        """Tokens of a request; UsageError for a prompt that is cached as a whole."""
        from ...cost.serving.traffic.requests import Lengths

        self._check_cached()
        share = None if self.prefix_hit is None else min(round(self.prefix_hit * self.prompt), self.prompt - 1)
        cached = float(self.cached or 0) if share is None else float(share)
        return Lengths(float(self.prompt), float(self.output), cached, self.shared_prefix)

    @property
    def traffic(self) -> Traffic | None:
        """Requests one by one, where a simulation was asked for."""
        if self.serve is None:
            return None
        from ...cost.serving.traffic.traffic_text import parse_sizes, parse_traffic

        self._check_cached()
        return parse_traffic(self.serve, parse_sizes(self.isl, self.osl, self.prefix_hit or 0.0, self.cached or 0))

    def _check_cached(self) -> None:
        """Raise UsageError for flags of cached tokens that say two things, or nothing."""
        if self.cached is not None and self.prefix_hit is not None:
            raise UsageError("--cached and --prefix-hit both say how much of a prompt is there: give one")
        if self.shared_prefix and not (self.cached or self.prefix_hit):
            raise UsageError("--shared-prefix: of no tokens: say how many with --cached N or --prefix-hit X")

    @property
    def target(self) -> SLO:
        """Latencies that are asked for."""
        from ...cost.serving.slo import SLO

        return SLO.of(self.ttft, self.tpot)

    @property
    def load(self) -> Load:
        """How requests come; UsageError where several flags say it."""
        from ...driver.serve.load import Load

        given = (self.concurrency, self.request_rate, self.batch)
        clients, rate, batch = (None if text is None else count_of(text) for text in given)
        return Load(concurrency=clients, requests_per_s=rate, batch=batch, traffic=self.serve)

    def limited(self, engine: Engine, longest: int) -> Engine:
        """Return the engine with the limits that were given in the place of its own, for requests of so many tokens.

        A step of prompts that are never split must hold the longest of them: vLLM then takes `max_model_len` for the
        tokens of a step (`vllm/config.py`, `SchedulerConfig`), and measures its memory with as many.

        Raises:
            UsageError: requests are longer than `max_model_len`.
        """
        if self.max_model_len is not None and longest > self.max_model_len:
            raise UsageError(
                f"--max-model-len {self.max_model_len}: requests have up to {longest:,} tokens of prompt and answer; "
                f"give --max-model-len {longest} or more, or smaller --isl and --osl"
            )
        at = engine.scheduler
        chunked = at.chunked_prefill if self.chunked_prefill is None else self.chunked_prefill > 0
        whole = 0 if chunked else self.max_model_len or 0
        changed: Scheduler = replace(
            at,
            max_num_seqs=at.max_num_seqs if self.max_num_seqs is None else self.max_num_seqs,
            block_tokens=at.block_tokens if self.block_size is None else self.block_size,
            memory_utilization=at.memory_utilization if self.memory_utilization is None else self.memory_utilization,
            chunked_prefill=chunked,
            max_batched_tokens=max(self.chunked_prefill or at.max_batched_tokens, whole),
            dual_batch=self.dual_batch or at.dual_batch,
        )
        return replace(engine, scheduler=changed)


def _one_length(flag: str, text: str) -> int:
    """Read one number of tokens; sizes that differ from request to request take a simulation."""
    length = count_of(tokens_of(text.strip())) if is_digits(text[:1]) and ".." not in text else 0.0
    if not 1 <= length <= MOST or length != int(length):
        raise UsageError(
            f"{flag} {text[:40]}: tokens, a whole number of 1 or more, and up to {MOST:,}; sizes that differ take "
            "--serve"
        )
    return int(length)
