"""Low precision of served models: the word of a table for a recipe, and the type that its engine caches in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ...ir.types import DType
from ..rows.rows import NotJudged, Row

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
    return Numerics(DType.BF16, _on_chip(recipe, row, engine), kv, (f"kv cache {kv} ({why})",))


def _on_chip(recipe: str, row: Row, engine: str) -> str:
    """Experts in mxfp4 meet rows in mxfp8 where units take both; vLLM keeps bf16 unless told otherwise."""
    mixes = _is_blackwell(row) and engine != "vllm"
    return "mxfp4-mxfp8" if recipe == "mxfp4" and mixes else recipe


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
