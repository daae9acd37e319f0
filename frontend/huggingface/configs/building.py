"""A HuggingFace config to a module on the meta device: nothing is downloaded and no weight is allocated."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import cast

import torch
from torch import nn

from ....ir.errors import NotUnderstoodError, SlipstickError
from ....ir.types import DType
from ...record.adapter import swapped
from ...record.dtypes import torch_dtype
from ..operators.old_attention import is_fused
from ..recording import IMPLEMENTATION, register
from .architectures import Architecture, ModelConfig, choose
from .config_checks import check_fields, check_heads, missing_sizes

# How attention is recorded, best first: as our operator, as torch's fused call (which is lifted), as it is spelled out.
_IMPLEMENTATIONS = (IMPLEMENTATION, "sdpa", "eager")
# What says how a checkpoint was kept or is run, not what the model is.
_NOT_OF_THE_MODEL = frozenset({
    "attn_implementation", "_attn_implementation", "_experts_implementation", "auto_map", "dtype", "torch_dtype",
    "output_attentions", "output_hidden_states", "return_dict", "use_return_dict", "quantization_config", "torchscript",
    "use_cache", "gradient_checkpointing", "_name_or_path", "transformers_version",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Built:
    """A model and what a reader of its graph should know: parts left out, attention that is not fused."""

    module: nn.Module
    notes: tuple[str, ...] = ()


def build(config_text: str, dtype: DType) -> nn.Module:
    """Build the language model of a `config.json` on the meta device.

    NotUnderstoodError when transformers does not know the model type, or when its sizes do not fit one another.
    """
    return build_noted(config_text, dtype).module


def build_noted(config_text: str, dtype: DType, is_whole: bool = False) -> Built:
    """Build the model of a `config.json`, with what is to be said of it.

    Of a model that sees or hears it is the language model, or the whole one.
    """
    fields: dict[str, object] = json.loads(config_text)
    model_type = str(fields.pop("model_type"))
    check_fields(fields)
    transformers = _import_transformers()
    register()
    config: ModelConfig | None = None
    try:
        kept = {key: value for key, value in fields.items() if key not in _NOT_OF_THE_MODEL}
        config = cast(ModelConfig, transformers.AutoConfig.for_model(model_type, **kept))
        chosen = choose(config, is_whole)
        check_heads(chosen.config)
        with torch.device("meta"), _undrawn():
            return _built(chosen, dtype)
    except SlipstickError:
        raise
    except (Exception, RecursionError) as error:
        if config is None:
            check_heads(SimpleNamespace(**fields))  # says which numbers would fit
        raise NotUnderstoodError(_told(model_type, error, config)) from error


def _built(chosen: Architecture, dtype: DType) -> Built:
    """The model with the first way of recording attention that its classes know."""
    for implementation in _IMPLEMENTATIONS:
        options = {"dtype": torch_dtype(dtype), "attn_implementation": implementation, **_experts_option(chosen)}
        try:
            module = chosen.model_class._from_config(copy.deepcopy(chosen.config), **options)
        except (KeyError, ValueError) as error:
            if implementation == _IMPLEMENTATIONS[-1] or not _is_unknown(implementation, error):
                raise
            continue
        if not isinstance(module, nn.Module):
            raise NotUnderstoodError(f"model type '{chosen.config.model_type}' did not give a module")
        _all_on_meta(module, torch_dtype(dtype))
        return Built(module, (*chosen.notes, *_attention_note(module, implementation)))
    raise NotUnderstoodError(f"model type '{chosen.config.model_type}' has no attention that can be recorded")


def _all_on_meta(module: nn.Module, dtype: torch.dtype) -> None:
    """Move what old models allocate for real (`torch.FloatTensor(..)`) to where all other parameters are."""
    for part in module.modules():
        for name, p in list(part._parameters.items()):
            if p is not None and p.device.type != "meta":
                moved = torch.empty(p.shape, dtype=dtype if p.is_floating_point() else p.dtype, device="meta")
                part._parameters[name] = nn.Parameter(moved, p.requires_grad)


def _is_unknown(implementation: str, error: Exception) -> bool:
    """Whether a model says that it has no such attention: old ones look for a class of that name."""
    if isinstance(error, KeyError):
        return error.args == (implementation,)
    return "scaled_dot_product_attention" in str(error)


def _attention_note(module: nn.Module, implementation: str) -> tuple[str, ...]:
    if implementation == IMPLEMENTATION or is_fused(module):
        return ()
    return (f"attention is recorded from the '{implementation}' classes of transformers, the model has no others",)


def _experts_option(chosen: Architecture) -> dict[str, str]:
    settable = getattr(chosen.model_class, "_can_set_experts_implementation", None)
    return {"experts_implementation": IMPLEMENTATION} if settable is not None and settable() else {}


def _told(model_type: str, error: Exception, config: object) -> str:
    """What went wrong as one line; an arithmetic slip on a size that is not given says which ones are not."""
    words = " ".join(str(error).split())[:300]
    said = f"transformers cannot build model type '{model_type}': {type(error).__name__}: {words}"
    missing = missing_sizes(config) if config is not None and "NoneType" in words else ()
    return f"{said}; sizes that are not given: {', '.join(missing)}" if missing else said


@contextmanager
def _undrawn() -> Iterator[None]:
    """Draw no weights: on `meta` they have no values, and what would set these takes as long as building the model."""
    with ExitStack() as stack:
        for name in [n for n in vars(nn.init) if n.endswith("_") and not n.startswith("_")]:
            stack.enter_context(swapped(nn.init, name, lambda tensor, *args, **options: tensor))
        yield


def _import_transformers() -> ModuleType:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    try:
        import transformers
    except ImportError as error:
        raise NotUnderstoodError(
            "reading HuggingFace configs needs transformers: pip install 'slipstick[hf]'"
        ) from error
    logging.getLogger("transformers").setLevel(logging.ERROR)
    return transformers


__all__ = ["Built", "build", "build_noted"]
