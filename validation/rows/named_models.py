"""Models that a table only names: the config of the catalogue, or the published sizes of those it lacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from ...frontend.huggingface.configs.models import aliases, read_config
from ...ir.records import dataclass
from .rows import NotJudged

# What a table calls a model -> its name in the catalogue, beside the spellings that the catalogue knows itself.
CATALOGUE = MappingProxyType(
    {
        "DeepSeek-V3/R1": "deepseek-v3",
        "DeepSeekV3": "deepseek-v3",
        "GPT OSS 120B": "gpt-oss-120b",
        "GPT3-175B": "gpt3-175b",
        # The only LLaMA of 70B is of the second kind; 7B has the same sizes in both.
        "LLaMA 70B": "llama-2-70b",
        "LLaMA 7B": "llama-2-7b",
        "LLAMA2-13B": "llama-2-13b",
        "LLAMA2-70B": "llama-2-70b",
        "LLAMA3-405B": "llama-3.1-405b",
        "LLAMA3-8B": "llama-3.1-8b",
        "LLAMA3.1_405B": "llama-3.1-405b",
        "LLAMA3_70B": "llama-3.1-70b",
        "LLAMA3_8B": "llama-3.1-8b",
        "Llama-3.3-70B": "llama-3.1-70b",
        "Llama-3.3-70B-Instruct": "llama-3.1-70b",
        "Mixtral-8x7B": "mixtral-8x7b",
        "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
        "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
        "Qwen3_235B_a22B": "qwen3-235b-a22b",
        "Qwen3_30B_a3B": "qwen3-30b-a3b",
    }
)

_SQUARED_RELU = MappingProxyType({"model_type": "nemotron", "vocab_size": 256000, "max_position_embeddings": 4096})
# Attention and MLP side by side behind one norm, as GPT-J has them: transformers' own GPT-J and Falcon write attention
# out by hand, Phi has the same block around the attention that is recorded. Falcon's second norm is left out.
_SIDE_BY_SIDE = MappingProxyType({"model_type": "phi", "max_position_embeddings": 16384, "tie_word_embeddings": False})
# Models that the catalogue lacks: their config, and where its sizes are published.
SIZES: Mapping[str, tuple[Mapping[str, object], str]] = MappingProxyType(
    {
        "Falcon 180B": (
            {
                **_SIDE_BY_SIDE, "hidden_size": 14848, "num_hidden_layers": 80, "num_attention_heads": 232,
                "num_key_value_heads": 8, "intermediate_size": 59392, "partial_rotary_factor": 1.0, "vocab_size": 65024,
            },
            "tiiuae/falcon-180B config.json",
        ),
        "GPT-J 6B": (
            {
                **_SIDE_BY_SIDE, "hidden_size": 4096, "num_hidden_layers": 28, "num_attention_heads": 16,
                "num_key_value_heads": 16, "intermediate_size": 16384, "partial_rotary_factor": 0.25,
                "vocab_size": 50400,
            },
            "EleutherAI/gpt-j-6b config.json",
        ),
        "internlm-20b": (
            {
                "model_type": "llama", "hidden_size": 5120, "num_hidden_layers": 60, "num_attention_heads": 40,
                "num_key_value_heads": 40, "intermediate_size": 13824, "vocab_size": 103168,
                "max_position_embeddings": 16384, "tie_word_embeddings": False,
            },
            "internlm/internlm-20b config.json",
        ),
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
        "Mistral-7B": (
            {
                "model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32768, "sliding_window": None,
                "max_position_embeddings": 32768, "tie_word_embeddings": False,
            },
            "mistralai/Mistral-7B-v0.3 config.json",
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
class NamedModel:
    """A config as transformers reads it, and what had to be assumed for it."""

    fields: Mapping[str, object]
    assumed: tuple[str, ...] = ()


def named_config(given: str) -> NamedModel:
    """Return the config of a model by what a table calls it; NotJudged where none is known.

    >>> named_config("LLAMA3_70B").fields["hidden_size"]
    8192
    """
    name = given.partition(" (")[0]
    if name in SIZES:
        fields, source = SIZES[name]
        return NamedModel(fields, (f"sizes of {name} from {source}",))
    known = CATALOGUE.get(name) or aliases().get(name.casefold())
    if known is None:
        raise NotJudged(f"the sizes of '{name}' are not given, and the catalogue has no such model")
    config: Mapping[str, object] = json.loads(read_config(known).text)
    return NamedModel(config, () if given == name else (f"'{given}' as {known}",))
