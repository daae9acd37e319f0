"""How engines were started for a publication: limits of their schedulers that its recipes set, and its load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

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
        source: where it is stated, in words.
    """

    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    memory_utilization: float | None = None
    cache_utilization: float | None = None
    requests: int | None = None
    offline: bool = False
    source: str = ""

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


# Requests of a run by lengths of prompt and answer: docs/source/performance/perf-overview.md of NVIDIA/TensorRT-LLM at
# 258c7540c035 (0.17) and 00f37686aa85 (1.0); both also raise the share of the cache to 0.95 in most cases.
_REQUESTS: Mapping[tuple[int, int], int] = MappingProxyType(
    {
        (128, 128): 30000,
        (128, 2048): 3000,
        (128, 4096): 1500,
        (500, 2000): 3000,
        (1000, 1000): 3000,
        (1000, 2000): 1500,
        (2048, 128): 3000,
        (2048, 2048): 1500,
        (5000, 500): 1500,
        (20000, 2000): 1000,
    }
)


def settings_of(row: Row, offline: bool = False) -> RecipeSettings:
    """Return how the engine of a row was started, as far as its publication says."""
    found = _BY_DATASET.get(row.dataset)
    return replace(found(row) if found is not None else RecipeSettings(), offline=offline)


def _most_throughput(row: Row) -> RecipeSettings:
    lengths = (row.number("input_tokens"), row.number("output_tokens"))
    return RecipeSettings(
        4096, 8192, cache_utilization=0.95, requests=_REQUESTS.get(lengths), source="perf-overview.md"
    )


def _inference_max(row: Row) -> RecipeSettings:
    """SemiAnalysisAI/InferenceMAX, benchmarks/*.sh; rows without a date are aiconfigurator's own runs."""
    engine, model = row.text("engine").split(" ")[0], row.text("model")
    recipe = _RECIPES.get((engine, next((name for name in ("Llama", "gpt-oss", "DeepSeek") if name in model), "")))
    if recipe is None or "measured 20" not in row.text("note"):
        return RecipeSettings()
    return replace(recipe(row), source="recipes of InferenceMAX")


def _vllm(row: Row) -> RecipeSettings:
    """70b_fp8_h100, gptoss_fp4_h100, gptoss_fp4_h200: as many sequences as clients; on B200 512."""
    blackwell = row.text("accelerator").startswith("B")
    return RecipeSettings(512 if blackwell else row.number("batch_or_concurrency"), 8192, 0.9)


def _trtllm_llama(row: Row) -> RecipeSettings:
    """70b_fp4_b200_trt: 16384 tokens a step; 70b_fp8_b200_trt: those of the longest request, lengths + 200."""
    longest = row.number("input_tokens") + row.number("output_tokens") + 200
    return RecipeSettings(1024, 16384 if row.text("precision") == "fp4" else longest)


def _trtllm_gpt_oss(row: Row) -> RecipeSettings:
    """gptoss_fp4_b200_trt, gptoss_fp4_h200_trt."""
    blackwell = row.text("accelerator").startswith("B")
    return RecipeSettings(512 if blackwell else row.number("batch_or_concurrency"), 20000, cache_utilization=0.85)


def _trtllm_deepseek(row: Row) -> RecipeSettings:
    """dsr1_fp8_h200_trt: a prompt and the decodes beside it."""
    tokens = (row.number("batch_or_concurrency") + row.number("input_tokens") + 127) // 64 * 64
    return RecipeSettings(None, tokens, cache_utilization=0.75)


def _sglang_deepseek(row: Row) -> RecipeSettings:
    """dsr1_fp8_h200 and dsr1_fp8_b200; dsr1_fp4_b200."""
    if row.text("precision") == "fp4":
        return RecipeSettings(256, 16384, 0.85)
    if row.text("accelerator").startswith("B"):
        return RecipeSettings(128, 32768, 0.82)
    short = row.number("input_tokens") == row.number("output_tokens") == 1024
    return RecipeSettings(512 if short else 256, 32768, 0.82)


_RECIPES: Mapping[tuple[str, str], Callable[[Row], RecipeSettings]] = MappingProxyType(
    {
        ("vllm", "Llama"): _vllm,
        ("vllm", "gpt-oss"): _vllm,
        ("trtllm", "Llama"): _trtllm_llama,
        ("trtllm", "gpt-oss"): _trtllm_gpt_oss,
        ("trtllm", "DeepSeek"): _trtllm_deepseek,
        ("sglang", "DeepSeek"): _sglang_deepseek,
    }
)
_BY_DATASET: Mapping[str, Callable[[Row], RecipeSettings]] = MappingProxyType(
    {
        "trtllm_max_throughput_v017": _most_throughput,
        "trtllm_max_throughput_v10": _most_throughput,
        "aiconfigurator_silicon_agg": _inference_max,
    }
)
