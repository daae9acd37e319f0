"""Models that look at data to choose a way that is known beforehand, and those that read ids of other shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import cast

from torch import Tensor, nn
from torch.distributions import Distribution

from .adapter import swapped


@contextmanager
def decided(model: nn.Module) -> Iterator[None]:
    """Let such modules take, for the time of a recording, the way that all tokens go."""
    with ExitStack() as stack:
        stack.enter_context(swapped(Distribution, "_validate_args", False))  # looks at values (Gemma 3n, Phi-MoE)
        for part in model.modules():
            for name, replacement in _replacements(part).items():
                stack.enter_context(swapped(part, name, replacement))
        yield


def ids_a_row(model: nn.Module) -> int:
    """Return how many rows of ids a sequence has: MusicGen reads a row for each codebook, all others read one.

    Source: MusicgenDecoder.forward of transformers, `input_ids` of [batch x codebooks, length].
    """
    config = getattr(model, "config", None)
    is_musicgen = str(getattr(config, "model_type", "")).startswith("musicgen")
    return int(config.num_codebooks) if config is not None and is_musicgen else 1


def _replacements(part: nn.Module) -> Mapping[str, object]:
    make = _BY_CLASS.get(type(part).__name__)
    return {} if make is None else make(part)


_OF_ADAPTERS = ("dropout", "LayerNorm", "adapter_layer_norm")


def _one_language(part: nn.Module) -> Mapping[str, object]:
    """X-MOD: every token is of the default language, so that one adapter gets them all."""
    adapter = next(iter(cast(nn.ModuleDict, part.adapter_modules).values()))
    dropout, norm, norm_of_adapter = (cast("nn.Module | None", getattr(part, name)) for name in _OF_ADAPTERS)

    def lang_adapter(lang_ids: Tensor, hidden_states: Tensor) -> Tensor:
        normed = hidden_states
        if norm_of_adapter is not None:
            normed = norm_of_adapter(hidden_states)
        elif part.adapter_reuse_layer_norm and norm is not None:
            normed = norm(hidden_states)
        out: Tensor = adapter(normed)
        out = out if dropout is None else dropout(out)
        return out + (normed if part.ln_before_adapter else hidden_states)

    return {"lang_adapter": lang_adapter}


_BY_CLASS: Mapping[str, Callable[[nn.Module], Mapping[str, object]]] = MappingProxyType({"XmodOutput": _one_language})


__all__ = ["decided", "ids_a_row"]
