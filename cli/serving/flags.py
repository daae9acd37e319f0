"""The flags of a server and of the requests that come to it, and what they say together."""

from __future__ import annotations

from dataclasses import field, fields, replace
from typing import TYPE_CHECKING

import click

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ...ir.units import is_digits
from ..flags.names import of_catalogue
from ..flags.numbers import MOST, Real, Whole, tokens_of
from ..flags.request import PlanCommand
from ..flags.run import count_of
from .drafts import Drafts
from .pools import Apart

if TYPE_CHECKING:
    from ...backends.machine.software.engine import Engine, Scheduler
    from ...cost.serving.slo import SLO
    from ...cost.serving.traffic.requests import Lengths
    from ...cost.serving.traffic.traffic import Traffic
    from ...driver.serve.load import Load


def _text(*names: str, metavar: str, help: str, kind: str | None = None) -> click.Option:
    completed = None if kind is None else of_catalogue(kind)
    return click.Option(names, metavar=metavar, help=help, shell_complete=completed)


def _number(*names: str, help: str, least: int = 1) -> click.Option:
    return click.Option(names, type=Whole(min=least), metavar="N", help=help)


ENGINE = _text(
    "--engine",
    kind="engines",
    metavar="NAME|FILE",
    help="Serving engine: a name of `slipstick list engines` or a YAML file. Scheduling, host time, software stack.  "
    "[default: the one that usually serves on the system, vllm]",
)
REQUESTS = (
    click.Option(
        ["--isl", "--prompt", "--input-len"],
        default="1024",
        show_default=True,
        metavar="N|SIZES",
        help="Input tokens per request; with --serve also 128..1024, lognormal:MEAN,CV, or a file of prompts and "
        "answers.",
    ),
    click.Option(
        ["--osl", "--output-len"],
        default="1024",
        show_default=True,
        metavar="N|SIZES",
        help="Output tokens per request; prefill makes the first.",
    ),
    _number("--cached", help="Input tokens found in the prefix cache.  [default: 0]", least=0),
    click.Option(
        ["--prefix-hit"],
        type=Real(0.0, 1.0, max_open=True),
        metavar="X",
        help="Prefix-cache hit rate: the same as a share of the prompt.",
    ),
    click.Option(["--shared-prefix"], is_flag=True, help="All requests share one cached prefix: it takes memory once."),
)
LIMITS = (
    _number(
        "--chunked-prefill",
        "--max-num-batched-tokens",
        help="Chunked prefill: most tokens per step; 0: prompts are never split.  [default: the engine's]",
        least=0,
    ),
    _number(
        "--max-model-len",
        help="Longest request that the server takes; where prompts are never split, memory is kept free for a step of "
        "so many tokens.  [default: the requests asked about]",
    ),
    _number("--max-num-seqs", help="Most sequences in flight per replica.  [default: the engine's]"),
    _number("--block-size", help="Tokens per KV-cache block.  [default: the engine's]"),
    click.Option(
        ["--memory-utilization"],
        type=Real(0.0, 1.0, min_open=True),
        metavar="X",
        help="Fraction of GPU memory that the engine reserves.  [default: the engine's]",
    ),
    click.Option(
        ["--dual-batch", "--enable-dbo", "--enable-two-batch-overlap"],
        is_flag=True,
        help="With --ep: run halves of each step in turn where that is quicker, so that exchanges of experts hide "
        "behind the computation of the other half.",
    ),
)
TARGETS = (
    _text("--ttft", metavar="[pN:]TIME", help="Limit on the time to first token: 500ms of the mean, or p99:500ms."),
    _text("--tpot", metavar="[pN:]TIME", help="Limit on the time per output token: 30ms of the mean, or p95:30ms."),
)
# fmt: off
LOADS = (
    _text("--concurrency", metavar="N", help="Requests in flight over all replicas (closed loop)."),
    _text("--request-rate", metavar="R", help="Requests per second over all replicas (open loop)."),
    _text("--batch", metavar="N", help="Static batch size per replica: requests that start and end together."),
    _text(
        "--serve", metavar="TRAFFIC",
        help="Simulate request by request: poisson:RATE[,n=N][,seed=K], diurnal:PEAK,LOW[,period=TIME], "
        "steps:RATE@TIME+RATE@TIME, closed:CLIENTS, burst:N, or a file of requests (.csv, .jsonl); adds p50, p90 and "
        "p99.",
    ),
    _text(
        "--kv-tiers", metavar="LIST",
        help="With --serve of a trace with hash_ids: where keys and values of earlier prompts are kept, fastest first: "
        "hbm=SIZE, host=SIZE[@RATE], NAME=SIZE@RATE; sizes over all replicas, rates per GPU.",
    ),
    _text(
        "--autoscale", metavar="MIN:MAX[,...]",
        help="With --serve: replicas come and go with the load, as under Kubernetes' HPA or KEDA; target=N requests in "
        "flight a replica or rps=R, interval=15s, up=0s and down=5min (stabilisation windows), startup=1min, "
        "tolerance=0.1, initial=MIN; beside a fixed fleet of MAX.",
    ),
    click.Option(
        ["--cut"], type=Real(0.0, 0.49), default=0.0, show_default=True, metavar="X",
        help="Share of the answers left out at each end of a simulated run (warm-up and drain).",
    ),
    click.Option(
        ["--inclusive-tpot"], is_flag=True, help="Count the first token in TPOT: end-to-end latency / output tokens."
    ),
)
# fmt: on


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
    cached: int | None
    prefix_hit: float | None
    shared_prefix: bool
    chunked_prefill: int | None
    max_model_len: int | None = None
    max_num_seqs: int | None
    block_size: int | None
    memory_utilization: float | None
    dual_batch: bool = False
    ttft: str | None
    tpot: str | None
    concurrency: str | None = None
    request_rate: str | None = None
    batch: str | None = None
    drafts: Drafts = field(default_factory=Drafts)
    apart: Apart = field(default_factory=Apart)

    @classmethod
    def said(cls, params: dict[str, object]) -> Serving:
        """Return what flags say; they are taken out of `params`."""
        parts = [{f.name: params.pop(f.name) for f in fields(one) if f.name in params} for one in (Drafts, cls, Apart)]
        drafts, own, apart = parts
        return cls(**own, drafts=Drafts(**drafts), apart=Apart(**apart))  # type: ignore[arg-type]

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


class ServeCommand(PlanCommand):
    """A verb whose function receives what was asked of a server as one `serving`, beside its `request`."""

    serves = True

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb's function."""
        ctx.params["serving"] = Serving.said(ctx.params)
        return super().invoke(ctx)
