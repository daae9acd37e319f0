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
    if name not in CATALOGUE:
        raise NotJudged(f"the sizes of '{name}' are not given, and the catalogue has no such model")
    config = read_config(CATALOGUE[name])
    fields: Mapping[str, object] = json.loads(config.text)
    return Named(fields, () if given == name else (f"'{given}' as {CATALOGUE[name]}",))
