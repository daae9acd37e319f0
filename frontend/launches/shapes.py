"""The shape of a model as a launch spells it out: a model of the catalogue where one has it, else a config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..huggingface.configs.models import names, read_config

# Keys of a config.json that tell two shapes apart; those that one of two does not have are not compared.
_TOLD_BY = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "kv_lora_rank",
    "vocab_size",
)
# GPT-2's config.json has names of its own.
_GPT2 = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}


def catalogue_model(config: Mapping[str, object]) -> str | None:
    """Return the model of the catalogue that has the shape of a config.json; None where none has.

    Vocabularies may differ by what launches pad them with: less than 3 %.

    >>> catalogue_model({"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    ...                  "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256})
    'llama-3.1-8b'
    """
    for name in names():
        known = _plain(json.loads(read_config(name).text))
        both = [key for key in _TOLD_BY if key in known and key in config]
        needed = {"hidden_size", "num_hidden_layers", "num_attention_heads"} <= set(both)
        experts = (_experts(known) or None) == (_experts(config) or None)
        if needed and experts and all(_same(key, known[key], config[key]) for key in both):
            return name
    return None


def _plain(config: dict[str, object]) -> dict[str, object]:
    return config | {plain: config[own] for own, plain in _GPT2.items() if own in config}


def _experts(config: Mapping[str, object]) -> object:
    return next((config[k] for k in ("num_local_experts", "num_experts", "n_routed_experts") if config.get(k)), None)


def _same(key: str, one: object, other: object) -> bool:
    if key == "vocab_size" and isinstance(one, int) and isinstance(other, int):
        return abs(one - other) <= 0.03 * one
    return one == other
