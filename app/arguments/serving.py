"""Words of a server and of the requests that come to it."""

# fmt: off
from pathlib import Path
from typing import Annotated

from ...ir.records import dataclass
from .options import Listed, Opt


@dataclass(frozen=True, kw_only=True)
class EngineArgs:
    """The engine."""

    engine: Annotated[str | Path | None, Opt(
        "Serving engine: a name of `slipstick list engines` or a YAML file. Scheduling, host time, software stack.  "
        "[default: the one that usually serves on the system, vllm]",
        metavar="NAME|FILE", catalogue="engines",
    )] = None


@dataclass(frozen=True, kw_only=True)
class RequestArgs:
    """What requests are like."""

    isl: Annotated[str | float, Opt(
        "Input tokens per request; with --serve also 128..1024, lognormal:MEAN,CV, or a file of prompts and answers.",
        also=("--prompt", "--input-len"), metavar="N|SIZES",
    )] = "1024"
    osl: Annotated[str | float, Opt(
        "Output tokens per request; prefill makes the first.",
        also=("--output-len",), metavar="N|SIZES",
    )] = "1024"


@dataclass(frozen=True, kw_only=True)
class CachedArgs:
    """What of their prompts is there already."""

    cached: Annotated[int | None, Opt(
        "Input tokens found in the prefix cache.  [default: 0]",
        least=0, metavar="N",
    )] = None
    prefix_hit: Annotated[float | None, Opt(
        "Prefix-cache hit rate: the same as a share of the prompt.",
        least=0.0, most=1.0, is_open_above=True, metavar="X",
    )] = None
    shared_prefix: Annotated[bool, Opt("All requests share one cached prefix: it takes memory once.")] = False


@dataclass(frozen=True, kw_only=True)
class LoadArgs:
    """How they come."""

    concurrency: Annotated[str | float | None, Opt(
        "Requests in flight over all replicas (closed loop).",
        metavar="N",
    )] = None
    request_rate: Annotated[str | float | None, Opt(
        "Requests per second over all replicas (open loop).",
        metavar="R",
    )] = None
    batch: Annotated[str | float | None, Opt(
        "Static batch size per replica: requests that start and end together.",
        metavar="N",
    )] = None
    serve: Annotated[str | None, Opt(
        "Simulate request by request: poisson:RATE[,n=N][,seed=K], diurnal:PEAK,LOW[,period=TIME], "
        "steps:RATE@TIME+RATE@TIME, closed:CLIENTS, burst:N, or a file of requests (.csv, .jsonl); adds p50, p90 and "
        "p99.",
        metavar="TRAFFIC",
    )] = None
    kv_tiers: Annotated[Listed | None, Opt(
        "With --serve of a trace with hash_ids: where keys and values of earlier prompts are kept, fastest first: "
        "hbm=SIZE, host=SIZE[@RATE], NAME=SIZE@RATE; sizes over all replicas, rates per GPU.",
        metavar="LIST",
    )] = None
    autoscale: Annotated[str | None, Opt(
        "With --serve: replicas come and go with the load, as under Kubernetes' HPA or KEDA; target=N requests in "
        "flight a replica or rps=R, interval=15s, up=0s and down=5min (stabilisation windows), startup=1min, "
        "tolerance=0.1, initial=MIN; beside a fixed fleet of MAX.",
        metavar="MIN:MAX[,...]",
    )] = None
    cut: Annotated[float, Opt(
        "Share of the answers left out at each end of a simulated run (warm-up and drain).",
        least=0.0, most=0.49, metavar="X",
    )] = 0.0
    inclusive_tpot: Annotated[bool, Opt("Count the first token in TPOT: end-to-end latency / output tokens.")] = False


@dataclass(frozen=True, kw_only=True)
class LimitArgs:
    """Limits of the engine."""

    chunked_prefill: Annotated[int | None, Opt(
        "Chunked prefill: most tokens per step; 0: prompts are never split.  [default: the engine's]",
        also=("--max-num-batched-tokens",), least=0, metavar="N",
    )] = None
    max_model_len: Annotated[int | None, Opt(
        "Longest request that the server takes; where prompts are never split, memory is kept free for a step of so "
        "many tokens.  [default: the requests asked about]",
        least=1, metavar="N",
    )] = None
    max_num_seqs: Annotated[int | None, Opt(
        "Most sequences in flight per replica.  [default: the engine's]",
        least=1, metavar="N",
    )] = None
    block_size: Annotated[int | None, Opt(
        "Tokens per KV-cache block.  [default: the engine's]",
        least=1, metavar="N",
    )] = None
    memory_utilization: Annotated[float | None, Opt(
        "Fraction of GPU memory that the engine reserves.  [default: the engine's]",
        least=0.0, most=1.0, is_open_below=True, metavar="X",
    )] = None
    dual_batch: Annotated[bool, Opt(
        "With --ep: run halves of each step in turn where that is quicker, so that exchanges of experts hide behind "
        "the computation of the other half.",
        also=("--enable-dbo", "--enable-two-batch-overlap"),
    )] = False


@dataclass(frozen=True, kw_only=True)
class TargetArgs:
    """Latencies that are asked for."""

    ttft: Annotated[str | None, Opt(
        "Limit on the time to first token: 500ms of the mean, or p99:500ms.",
        metavar="[pN:]TIME",
    )] = None
    tpot: Annotated[str | None, Opt(
        "Limit on the time per output token: 30ms of the mean, or p95:30ms.",
        metavar="[pN:]TIME",
    )] = None


@dataclass(frozen=True, kw_only=True)
class DisaggArgs:
    """Prompts on some devices, answers on others."""

    disagg: Annotated[str | None, Opt(
        "P prefill and D decode workers, each a replica of --tp and --pp; with --ep each is a data-parallel "
        "attention rank, and the ranks of a pool share the experts.",
        metavar="P:D",
    )] = None


@dataclass(frozen=True, kw_only=True)
class WorkerArgs:
    """Workers of prompts, and what caches cross to those of answers."""

    prefill_system: Annotated[str | Path | None, Opt(
        "System of prefill workers, where it is another one; caches then cross the outermost network of both.  "
        "[default: --system]",
        metavar="NAME|FILE", catalogue="systems",
    )] = None
    prefill_tp: Annotated[int | None, Opt(
        "Tensor-parallel degree of prefill workers.  [--tp]",
        least=1, metavar="N",
    )] = None
    prefill_pp: Annotated[int | None, Opt(
        "Pipeline stages of prefill workers.  [default: --pp]",
        least=1, metavar="N",
    )] = None
    prefill_ep: Annotated[int | None, Opt(
        "Expert-parallel degree of prefill workers.  [default: --ep]",
        least=1, metavar="N",
    )] = None
    prefill_etp: Annotated[int | None, Opt(
        "GPUs over which prefill workers split an expert.  [default: --etp]",
        least=1, metavar="N",
    )] = None
    prefill_batch: Annotated[int | None, Opt(
        "Most prompts per step of a prefill worker.  [default: 1]",
        least=1, metavar="N",
    )] = None
    kv_bandwidth: Annotated[str | float | None, Opt(
        "Bandwidth per GPU of the KV-cache transfer, e.g. 50GB/s.  [default: the network that joins both pools]",
        metavar="RATE",
    )] = None
    stream_kv: Annotated[bool, Opt("Transfer the KV cache layer by layer during prefill.")] = False


@dataclass(frozen=True, kw_only=True)
class DraftArgs:
    """Speculative decoding."""

    draft: Annotated[str | None, Opt("Draft tokens with a small model on the same GPUs.", metavar="MODEL")] = None
    draft_length: Annotated[int | None, Opt("Draft tokens per round.  [default: 4]", least=0, metavar="N")] = None
    mtp: Annotated[int | None, Opt(
        "Draft N tokens per round with the model's multi-token-prediction heads.",
        least=0, metavar="N",
    )] = None
    ngram: Annotated[int | None, Opt("Draft N tokens per round by n-gram lookup (free).", least=0, metavar="N")] = None
    acceptance: Annotated[float | None, Opt(
        "Probability that a draft token is accepted when all before it were; needed with a draft.",
        least=0.0, most=1.0, metavar="X",
    )] = None


@dataclass(frozen=True, kw_only=True)
class RequestsServedArgs(RequestArgs, CachedArgs, LoadArgs, LimitArgs, TargetArgs):
    """Requests to a server, their load, limits and targets."""


@dataclass(frozen=True, kw_only=True)
class PoolArgs(DisaggArgs, WorkerArgs):
    """Pools of prompts and of answers."""


@dataclass(frozen=True, kw_only=True)
class ServerArgs(EngineArgs, RequestsServedArgs, PoolArgs, DraftArgs):
    """Words of a server under a load."""
