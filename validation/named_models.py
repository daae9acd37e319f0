"""Models that a table only names: the config of the catalogue, or the published sizes of those it lacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..frontend.models import read_config
from .rows import NotJudged

# What a table calls a model -> its name in the catalogue.
CATALOGUE = MappingProxyType(
    {
        "DeepSeekV3": "deepseek-v3",
        "GPT OSS 120B": "gpt-oss-120b",
        "GPT3-175B": "gpt3-175b",
        "LLAMA2-13B": "llama-2-13b",
        "LLAMA2-70B": "llama-2-70b",
        "LLAMA3-405B": "llama-3.1-405b",
        "LLAMA3-8B": "llama-3.1-8b",
        "LLAMA3.1_405B": "llama-3.1-405b",
        "LLAMA3_70B": "llama-3.1-70b",
        "LLAMA3_8B": "llama-3.1-8b",
        "Mixtral-8x7B": "mixtral-8x7b",
        "Qwen3_235B_a22B": "qwen3-235b-a22b",
        "Qwen3_30B_a3B": "qwen3-30b-a3b",
    }
)

_SQUARED_RELU = MappingProxyType({"model_type": "nemotron", "vocab_size": 256000, "max_position_embeddings": 4096})
# Models that the catalogue lacks: their config, and where its sizes are published.
SIZES: Mapping[str, tuple[Mapping[str, object], str]] = MappingProxyType(
    {
        "Kimi_K2": (
            {
                "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64,
                "num_key_value_heads": 64, "intermediate_size": 18432, "moe_intermediate_size": 2048,
                "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
                "n_group": 1, "topk_group": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840, "max_position_embeddings": 131072,
                "tie_word_embeddings": False,
            },
            "moonshotai/Kimi-K2-Instruct config.json",
        ),
        "Nemotron-8B": (
            {
                **_SQUARED_RELU, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 32, "intermediate_size": 16384,
            },
            "nvidia/nemotron-3-8b-base-4k model card",
        ),
        "Nemotron-15B": (
            {
                **_SQUARED_RELU, "hidden_size": 6144, "num_hidden_layers": 32, "num_attention_heads": 48,
                "num_key_value_heads": 8, "intermediate_size": 24576,
            },
            "arXiv 2402.16819, table 1",
        ),
        "Nemotron-340B": (
            {
                **_SQUARED_RELU, "hidden_size": 18432, "num_hidden_layers": 96, "num_attention_heads": 96,
                "num_key_value_heads": 8, "intermediate_size": 73728,
            },
            "arXiv 2406.11704, table 1",
        ),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """A config as transformers reads it, and what had to be assumed for it."""

    fields: Mapping[str, object]
    assumed: tuple[str, ...] = ()


def named_config(given: str) -> Named:
    """Return the config of a model by what a table calls it; NotJudged where none is known.

    >>> named_config("LLAMA3_70B").fields["hidden_size"]
    8192
    """
    name = given.partition(" (")[0]
    if name in SIZES:
        fields, source = SIZES[name]
        return Named(fields, (f"sizes of {name} from {source}",))
    if name not in CATALOGUE:
        raise NotJudged(f"the sizes of '{name}' are not given, and the catalogue has no such model")
    config: Mapping[str, object] = json.loads(read_config(CATALOGUE[name]).text)
    return Named(config, () if given == name else (f"'{given}' as {CATALOGUE[name]}",))
