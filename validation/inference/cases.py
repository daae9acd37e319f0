"""A row of a table of serving as a case: what is served, by what, on what, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ...cost.serving.traffic.requests import Lengths
from ...frontend import config_of
from ...ir.records import dataclass
from ...ir.types import DType
from ..rows.machines import system_of
from ..rows.models import named
from ..rows.rows import NotJudged, Row
from .forms import MeasuredQuantity, RequestForm, form_of, measured_of
from .replicas import ReplicaLayout, ReplicaPool, pools_of, replica_of
from .settings import RecipeSettings, settings_of
from .sources import engine_of, source_of

# Served requests that no model of what their rows say should follow: documented by their properties.

_OVERFLOW = "the cache was full and prompts queued: no static batch"
_IDLE = (
    "tokens are said to take less at 512 clients than at 64, and first ones minutes: far fewer requests run than there "
    "are clients"
)
_UNDRIVEN = (
    "by Little's law its latencies need up to all of the peak of the device for prompts: fewer requests were in flight "
    "than its concurrency says"
)
_DRAFTED = "1.6 to 2 times as fast as a build of the same week at one setting: it drafts tokens, which no column says"
_SLOW_PROMPTS = "a prompt of 8192 tokens takes 2 to 3 s, five times as long as on B200"


def outlier(row: Row) -> str:
    """Return why a row is left out of the figures, empty for most."""
    return next((why for why, holds in _RULES if holds(row)), "")


def in_no_fit(row: Row) -> bool:
    """Whether a row judges alone: Qwen3 by vLLM 0.12.0 takes three times as long as by SGLang on the same devices.

    Its kernels of experts in blocks of fp8 are those of one release, and say nothing of the engine's host.
    """
    return _served(row, "vllm 0.12.0", "H200")


def _overflow(row: Row) -> bool:
    """The publication's own remark."""
    return row.dataset == "lmdeploy_static_a100" and "KV cache overflow" in row.text("note")


def _idle(row: Row) -> bool:
    return (
        _served(row, "vllm", "H100")
        and row.text("model").endswith("gpt-oss-120b")
        and row.number("batch_or_concurrency", 1) == 512
    )


def _undriven(row: Row) -> bool:
    return _served(row, "vllm 0.12.0", "H200") and "Llama-3.1-8B" in row.text("model")


def _drafted(row: Row) -> bool:
    """DeepSeek on B200 by these builds."""
    drafts = row.text("engine") in ("trtllm 1.2.0rc6.post3", "trtllm 1.1.0rc2.post2")
    return drafts and row.text("accelerator") == "B200-SXM" and row.text("model").startswith("deepseek-ai/")


def _slow_prompts(row: Row) -> bool:
    return _served(row, "sglang 0.5.10.post1", "B300")


def _served(row: Row, engine: str, accelerator: str) -> bool:
    aggregated = row.dataset == "aiconfigurator_silicon_agg"
    return aggregated and row.text("engine").startswith(engine) and row.text("accelerator").startswith(accelerator)


_RULES: Sequence[tuple[str, Callable[[Row], bool]]] = (
    (_OVERFLOW, _overflow),
    (_IDLE, _idle),
    (_UNDRIVEN, _undriven),
    (_DRAFTED, _drafted),
    (_SLOW_PROMPTS, _slow_prompts),
)


# Low precision of served models: the word of a table for a recipe, and the type that its engine caches in.

_DTYPES: Mapping[str, DType] = MappingProxyType({"fp16": DType.FP16, "bf16": DType.BF16})
# Models that are published in low precision: what begins their names -> a table's word -> the recipe they were
# published with. https://huggingface.co/deepseek-ai/DeepSeek-V3 (fp8 blocks of 128 x 128), openai/gpt-oss-120b
# (experts in mxfp4), Qwen/Qwen3-235B-A22B-FP8 (blocks of 128 x 128); fp4 checkpoints are NVIDIA's nvfp4.
_PUBLISHED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "deepseek-ai/": {"fp8": "fp8-block"},
        "DeepSeek": {"fp8": "fp8-block"},
        "openai/gpt-oss": {"fp4": "mxfp4", "fp8": "mxfp4"},
        "Qwen/Qwen3-235B-A22B-FP8": {"fp8": "fp8-block"},
    }
)
_RECIPES: Mapping[str, str] = MappingProxyType({"fp8": "fp8", "fp4": "nvfp4", "nvfp4": "nvfp4"})


@dataclass(frozen=True, slots=True)
class Numerics:
    """Types of a served model.

    Attributes:
        dtype: of activations, and of weights without a recipe.
        precision: the recipe of products of weights in layers.
        kv_dtype: of the cache; `same` is that of activations.
        assumed: what its table does not say.
    """

    dtype: DType
    precision: str = "none"
    kv_dtype: str = "same"
    assumed: tuple[str, ...] = ()


def numerics_of(row: Row, engine: str) -> Numerics:
    """Return the types of a row; NotJudged where a word is no recipe that is known.

    Without a word weights are those of the checkpoint, bf16.
    """
    given = row.text("precision").lower()
    if given in ("nan", ""):
        return Numerics(DType.BF16)
    if given in _DTYPES:
        return Numerics(_DTYPES[given])
    model = row.text("model")
    published = next((of for name, of in _PUBLISHED.items() if model.startswith(name)), {})
    recipe = published.get(given) or _RECIPES.get(given)
    if recipe is None:
        raise NotJudged(f"which recipe of low precision '{given}' is, is not said")
    kv, why = _cache(row, engine, model)
    # Experts in mxfp4 meet rows in mxfp8 where units take both; vLLM keeps bf16 unless told
    # otherwise.
    mixes = _is_blackwell(row) and engine != "vllm"
    return Numerics(
        DType.BF16, "mxfp4-mxfp8" if recipe == "mxfp4" and mixes else recipe, kv, (f"kv cache {kv} ({why})",)
    )


def _is_blackwell(row: Row) -> bool:
    return "B200" in row.text("accelerator") or "B300" in row.text("accelerator")


def _cache(row: Row, engine: str, model: str) -> tuple[str, str]:
    """Return the type of the cache and why: what recipes of the publication say, or the engine's default."""
    if model.startswith("openai/gpt-oss"):
        return "same", "its recipes leave the type of the cache alone"
    if engine.startswith("tensorrt-llm"):
        return "fp8", "its recipes set kv_cache_config dtype fp8"
    if _is_blackwell(row):
        return "fp8", "recipes for Blackwell set kv-cache-dtype fp8"
    return "same", "the default of the engine"


@dataclass(frozen=True, slots=True)
class CaseServers:
    """What runs the requests of a case: one replica, or a pool for prompts and a pool for decodes."""

    replica: ReplicaLayout
    prefill: ReplicaPool | None = None
    decode: ReplicaPool | None = None

    @property
    def text(self) -> str:
        """Its degrees in words."""
        if self.prefill is None or self.decode is None:
            return self.replica.replica.text
        pools = (self.prefill, self.decode)
        return " / ".join(f"{pool.workers} x {pool.laid.replica.text}" for pool in pools)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What had to be assumed for it."""
        pools = [pool.laid.assumed for pool in (self.prefill, self.decode) if pool is not None]
        return sum(pools, ()) if pools else self.replica.assumed


@dataclass(frozen=True, slots=True)
class ServedCase:
    """Requests that were served, and what was measured of them.

    Attributes:
        row: as published.
        group: the configuration; a split into what is fitted and what judges keeps it whole.
        form: how requests came.
        config: canonical text of the model's config; equal ones share graphs.
        dense: whether the model has no experts.
        numerics: types of weights, activations and cache.
        layout: degrees of what runs them.
        system: name of the catalogue's system.
        engine: name of the catalogue's engine.
        batch: sequences at once: of a replica, of one of its groups where attention is data parallel, of all pools.
        lengths: tokens of a prompt and of what follows.
        measured: the quantities.
        settings: how its engine was started.
        assumed: settings that are not published, in words.
        excluded: why the row is no measure of a model, empty for most.
        in_no_fit: whether it judges alone.
    """

    row: Row
    group: str
    form: RequestForm
    config: str
    dense: bool
    numerics: Numerics
    layout: CaseServers
    system: str
    engine: str
    batch: int
    lengths: Lengths
    measured: tuple[MeasuredQuantity, ...]
    settings: RecipeSettings
    assumed: tuple[str, ...] = ()
    excluded: str = ""
    in_no_fit: bool = False


def served_case(row: Row) -> ServedCase:
    """Read a row; NotJudged where it cannot be predicted."""
    source, engine = source_of(row), engine_of(row)
    refused = source.unknown or source.refused(row)
    if refused:
        raise NotJudged(refused)
    if not engine:
        raise NotJudged(f"the catalogue has no engine '{row.text('engine')}'")
    form, model = form_of(row), named(row)
    layout = _layout(source.completed(row), form)
    numerics = numerics_of(row, engine)
    share, said = source.share(row)
    assumed = (*model.assumed, *numerics.assumed, *layout.assumed, *([said] if said else []))
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    has_experts = isinstance(model.fields, dict) and any(name in model.fields for name in names)
    return ServedCase(
        row,
        _group(row, layout),
        form,
        config_of(row.text("model"), model.fields).text,
        not has_experts,
        numerics,
        layout,
        system_of(row),
        engine,
        row.number("batch_or_concurrency", 1),
        Lengths(_tokens(row, "input_tokens", share), _tokens(row, "output_tokens", share)),
        measured_of(row, form, source.derived),
        settings_of(row, source.offline),
        assumed,
        outlier(row),
        source.judges_only or in_no_fit(row),
    )


def _group(row: Row, layout: CaseServers) -> str:
    """Return the configuration of a row: model, types, degrees and lengths, under any load."""
    lengths = f"{row.text('input_tokens')}/{row.text('output_tokens')}"
    return f"{row.text('model')} {row.text('precision')} {layout.text} {lengths}"


def _layout(row: Row, form: RequestForm) -> CaseServers:
    if form is not RequestForm.POOLS:
        return CaseServers(replica_of(row))
    prefill, decode = pools_of(row)
    return CaseServers(decode.laid, prefill, decode)


def _tokens(row: Row, column: str, share: float) -> float:
    return float(max(1, round(row.number(column) * share)))
