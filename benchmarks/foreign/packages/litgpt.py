"""litgpt: its configurations of published models, narrow and shallow."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from torch import nn

from ..case import Case


def _model(name: str) -> nn.Module:
    package = import_module("litgpt")
    published = package.Config.from_name(name)
    heads, groups = published.n_head, published.n_query_groups
    heads = 8 if groups != 1 else 4
    shared = {heads: heads, 1: 1}.get(heads if groups == published.n_head else groups, 2)
    narrow: dict[str, object] = {
        "n_layer": 2, "n_head": heads, "n_query_groups": shared, "n_embd": 64 * heads, "head_size": 64,
        "block_size": 256, "padded_vocab_size": 1024, "intermediate_size": 512,
    }  # fmt: skip
    if published.n_expert:
        narrow |= {"moe_intermediate_size": 256}
    model: nn.Module = package.GPT(package.Config.from_name(name, **narrow))
    return model


_NAMES = (
    "pythia-160m", "Llama-3-8B", "Llama-3.2-1B", "Llama-2-7b-hf", "Gemma-2b", "Gemma-2-2b", "Gemma-3-1b-it",
    "Mixtral-8x7B-v0.1", "Mistral-7B-v0.1", "falcon-7b", "falcon-40b", "phi-2", "Phi-3-mini-4k-instruct", "phi-4",
    "Qwen2.5-0.5B", "Qwen3-0.6B", "Qwen3-30B-A3B", "stablelm-base-alpha-3b", "CodeLlama-7b-hf", "OLMo-1B-hf",
    "OLMo-2-1124-7B", "SmolLM2-135M", "open_llama_3b", "tiny-llama-1.1b",
)  # fmt: skip

CASES: tuple[Case, ...] = tuple(Case("litgpt", name, partial(_model, name)) for name in _NAMES)
