"""One number of each architecture's paper, or of its formula there, beside what a graph or an estimate says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import Estimate, estimate
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.records import dataclass

from . import cases
from .cases import ARCHITECTURES

SYSTEM = "dgx-h200"


@dataclass(frozen=True, slots=True)
class Fact:
    """What a paper says, and what an answer here says of the same."""

    what: str
    source: str
    theirs: float
    ours: float

    @property
    def error(self) -> float:
        """Relative error."""
        return self.ours / self.theirs - 1


def run(graph: Graph, workload: Workload, length: int, batch: int = 1, gpus: int = 1, **degrees: int) -> Estimate:
    """Estimate a step whether it fits or not; of a decode step `length` is what is cached."""
    family = Family(workload=workload, ep="ep" in degrees)
    cached = {"kv_len": length} if workload is Workload.DECODE else {}
    plan = make_plan(num_gpus=gpus, family=family, micro_batch=batch, seq_len=length, **cached, **degrees)
    return estimate(graph, load_system(SYSTEM), plan)


def held(graph: Graph, length: int) -> float:
    """Bytes of cache and states of one sequence."""
    return run(graph, Workload.DECODE, length).memory_bytes["kv_cache"]


def growth(graph: Graph) -> float:
    """Bytes of cache a token."""
    return (held(graph, 32768) - held(graph, 16384)) / 16384


def flops(graph: Graph, length: int, batch: int = 1) -> float:
    """FLOPs of the forward pass over a sequence, the full square of attention."""
    return run(graph, Workload.PREFILL, length, batch).metrics["model_flops"]


def _mamba() -> Fact:
    state, window = 80 * 64 * 128 * 4, (2 * 2560 + 2 * 128) * 4 * 2
    graph = graph_of("Mamba-2", Workload.DECODE)
    return Fact("bytes of states of a sequence, at any length: 64 layers of 80 heads [64, 128] in fp32 and 4 inputs",
                "arXiv 2405.21060", 64.0 * (state + window), held(graph, 131072))  # fmt: skip


def _qwen3_next() -> Fact:
    return Fact("bytes of cache a token: 12 of 48 layers, 2 heads of 256, keys and values",
                "Qwen3-Next-80B-A3B config.json", 12 * 2 * 2 * 256 * 2.0,
                growth(graph_of("gated", Workload.DECODE)))  # fmt: skip


def _kimi() -> Fact:
    latent = (512 + 64) * 2
    return Fact("cache a token over that of 27 layers of latent attention (\"up to 75 % less\": one layer of four)",
                "arXiv 2510.26692", 7 / 27, growth(graph_of("KDA", Workload.DECODE)) / (27 * latent))  # fmt: skip


def _rwkv() -> Fact:
    d, layers, vocab, (w, a, v, g) = 2560, 32, 65536, (96, 96, 64, 320)
    count = 2 * d * vocab + 4 * d + layers * d * (12 * d + 2 * (w + a + v + g) + 19) - (2 * d * v + d)
    graph = graph_of("RWKV", Workload.PREFILL)
    return Fact("parameters: 2 D V + 4 D + L D (12 D + 2 (d_w + d_a + d_v + d_g) + 19) - (2 D d_v + D)",
                "arXiv 2503.14456", float(count), float(str(graph.num_parameters)))  # fmt: skip


def _dsa() -> Fact:
    return Fact("bytes of cache a token: 61 layers of a latent of 576 and an indexer's key of 128, in bf16",
                "DeepSeek-V3.2-Exp report", 61 * (512 + 64 + 128) * 2.0,
                growth(graph_of("DSA", Workload.DECODE)))  # fmt: skip


def _nsa() -> Fact:
    length = 65536
    return Fact("keys that a query at the end of 64k reads (table 4: 5,632): 64k / 16 + 16 x 64 + 512",
                "arXiv 2502.11089", 5632.0, sum(keys_read(graph_of("NSA", Workload.PREFILL), length)))  # fmt: skip


def _moba() -> Fact:
    graph, length = graph_of("MoBA", Workload.PREFILL), 32768
    return Fact("share of keys that a query does not read at 32k, of blocks of 512 the best 3 (95.31 %)",
                "arXiv 2502.13189", 0.9531, 1 - keys_read(graph, length)[0] / length)  # fmt: skip


def keys_read(graph: Graph, length: int) -> list[float]:
    """Keys that the last query of a sequence reads, for each attention of a layer."""
    from slipstick.ir.ops import Trait, call_of, has
    from slipstick.ir.ops.fused.attention import attention_shape

    region = max(graph.regions, key=lambda r: graph.counts[r.name])
    shapes = [attention_shape(call_of(region, n)) for n in region.nodes if has(n, Trait.ATTENDS)]
    all_keys = [float(s.kv_len.evaluate({"seq": length, "batch": 1})) for s in shapes]
    return [float(min(n, s.keys or n, s.window or n)) for n, s in zip(all_keys, shapes, strict=True)]


def _ouro() -> Fact:
    once = 24 * (2 * (4 * 2048**2 + 3 * 2048 * 5632) + 4 * 2048 * 4096)
    head = 2 * 2048 * 49152
    return Fact("FLOPs a token of a prompt of 4,096, four times over 24 layers", "arXiv 2510.25741",
                4 * once + head, flops(graph_of("looped", Workload.PREFILL), 4096) / 4096)  # fmt: skip


def _layer_skip() -> Fact:
    whole, early = (cases.of_module(partial(cases.layer_skip, 32, 0, n))(Workload.PREFILL) for n in (0, 8))
    layer = 2 * (2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336) + 4 * 4096 * 2048
    head = 2 * 4096 * 128256
    return Fact("FLOPs of a draft that leaves behind layer 8 over those of all 32", "arXiv 2404.16710",
                (8 * layer + head) / (32 * layer + head), flops(early, 2048) / flops(whole, 2048))  # fmt: skip


def _llada() -> Fact:
    return Fact("parameters (8.02 B in table 5)", "arXiv 2502.09992", 8.02e9,
                float(str(graph_of("masked", Workload.PREFILL).num_parameters)))  # fmt: skip


def _wan() -> Fact:
    graph, length = graph_of("video", Workload.PREFILL), 1_000_000
    layer = 2 * (6 * 5120**2 + 2 * 5120 * 13824) + 4 * 512 * 5120
    pairs = 4 * length * 5120
    words = 2 * 2 * 512 * 5120**2 / length
    theirs = pairs / (pairs + layer + words)
    return Fact("share of FLOPs in attention over all of a million patches (\"up to 95 %\" of the time)",
                "arXiv 2503.20314", theirs, 40 * pairs * length / flops(graph, length))  # fmt: skip


def _blt() -> Fact:
    wide = cases.of_module(lambda: cases.blt((1, 25, 9), 8))(Workload.PREFILL)
    heavy = 25 * (2 * (4 * 2048**2 + 3 * 2048 * 5632))
    light = 10 * (2 * (4 * 1024**2 + 3 * 1024 * 2816)) + 2 * 1024 * 260 + 2 * 2 * 1024 * 2048

    def each(patch: int, length: int = 8192) -> float:
        return heavy / patch + 25 * 4 * 2048 * length / patch**2 + light + 10 * 4 * 1024 * length

    return Fact("FLOPs a byte with patches of 8 bytes over those with 4: heavy layers run once a patch",
                "arXiv 2412.09871", each(8) / each(4),
                flops(wide, 8192) / flops(graph_of("bytes", Workload.PREFILL), 8192))  # fmt: skip


def _dlrm() -> Fact:
    graph = graph_of("ranking", Workload.TRAIN)
    whole, part = (run(graph, Workload.TRAIN, cases.TABLES, 1024, gpus, **more).memory_bytes["weights"]
                   for gpus, more in ((1, {}), (8, {"ep": 8})))  # fmt: skip
    tables = 2.0 * 26 * 8_000_000 * 128
    return Fact("bytes of weights a GPU, tables cut over 8, over those of one", "TorchRec, column-wise sharding",
                (whole - tables + tables / 8) / whole, part / whole)  # fmt: skip


def graph_of(name: str, workload: Workload) -> Graph:
    """Return the graph of the first architecture whose name begins so."""
    return next(a for a in ARCHITECTURES if a.name.startswith(name)).graph(workload)


FACTS: Mapping[str, Callable[[], Fact]] = MappingProxyType(
    {
        "Mamba-2": _mamba, "gated": _qwen3_next, "KDA": _kimi, "RWKV": _rwkv, "NSA": _nsa, "DSA": _dsa, "MoBA": _moba,
        "looped": _ouro, "early exit": _layer_skip, "masked": _llada, "video": _wan, "bytes": _blt, "ranking": _dlrm,
    }
)  # fmt: skip


def facts() -> Iterator[tuple[str, Fact]]:
    """Yield each architecture's name with its fact."""
    for begin, fact in FACTS.items():
        yield next(a.name for a in ARCHITECTURES if a.name.startswith(begin)), fact()
