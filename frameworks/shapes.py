"""The shape of a model as a launch spells it out: a model of the catalogue where one has it, else a config.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ..frontend.huggingface.configs.models import aliases, names, read_config

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
# What launches pad vocabularies by, at most.
_PADDING = 0.03
# Names of torchtitan, MaxText, Megatron-Bridge and Primus without marks, and the model of the catalogue of that shape.
_SPELLED = (
    ("llama38b", "llama-3.1-8b"),
    ("llama370b", "llama-3.1-70b"),
    ("llama3370b", "llama-3.1-70b"),
    ("llama3405b", "llama-3.1-405b"),
    ("deepseek3671b", "deepseek-v3"),
    ("deepseekv3671b", "deepseek-v3"),
    ("qwen330ba3b", "qwen3-30b-a3b"),
    ("qwen3235ba22b", "qwen3-235b-a22b"),
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
        known = json.loads(read_config(name).text)
        known |= {plain: known[own] for own, plain in _GPT2.items() if own in known}
        both = [key for key in _TOLD_BY if key in known and key in config]
        needed = {"hidden_size", "num_hidden_layers", "num_attention_heads"} <= set(both)
        experts = (_experts(known) or None) == (_experts(config) or None)
        sizes = [key for key in both if key == "vocab_size"]
        near = all(abs(known[key] - int(str(config[key]))) <= _PADDING * known[key] for key in sizes)
        if needed and experts and near and all(known[key] == config[key] for key in both if key not in sizes):
            return name
    return None


def catalogue_name(text: str) -> str | None:
    """Return the model of the catalogue that a framework names in its own spelling; None where there is none.

    >>> catalogue_name("llama3.1_8B.yaml"), catalogue_name("llama3_70b_16k"), catalogue_name("my-model")
    ('llama-3.1-8b', 'llama-3.1-70b', None)
    """
    plain = _plain(re.sub(r"(-fp8|_[0-9]+k)?(\.ya?ml)?$", "", text.rsplit("/", 1)[-1], count=1))
    known = {_plain(name): name for name in names()} | {_plain(name): known for name, known in aliases().items()}
    return known.get(plain) or next((known[_plain(ours)] for theirs, ours in _SPELLED if plain == theirs), None)


def layers_of(text: str) -> int | None:
    """Return how many layers the model that a framework names has; None where the catalogue has none of that name."""
    known = catalogue_name(text)
    config: dict[str, object] = {} if known is None else json.loads(read_config(known).text)
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    return layers if isinstance(layers, int) else None


def _plain(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def _experts(config: Mapping[str, object]) -> object:
    return next((config[k] for k in ("num_local_experts", "num_experts", "n_routed_experts") if config.get(k)), None)
