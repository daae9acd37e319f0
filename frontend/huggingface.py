"""A HuggingFace config to a recordable model; every private touch point with transformers is here.

Models are built from configs alone: nothing is downloaded and no weight is allocated.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

import torch
from torch import nn

from ..ir.errors import NotUnderstoodError, SlipstickError, TraceError
from ..ir.graph import Hint
from ..ir.types import DType
from .adapter import swapped, torch_dtype
from .failures import first_line
from .hf_attention import attend, attention_patched, no_mask
from .hf_experts import banked, experts
from .hf_indexer import indexed
from .hf_linear import scanned
from .hf_scans import scans

IMPLEMENTATION = "slipstick"


def build(config_text: str, dtype: DType) -> nn.Module:
    """Build the causal language model of a `config.json` on the meta device.

    NotUnderstoodError when transformers does not know the model type or refuses the sizes.
    """
    transformers = _import_transformers()
    fields = json.loads(config_text)
    model_type = fields.pop("model_type")
    _register()
    try:
        config = transformers.AutoConfig.for_model(model_type, **fields)
        with torch.device("meta"), _undrawn():
            model = transformers.AutoModelForCausalLM.from_config(
                config, dtype=torch_dtype(dtype), attn_implementation=IMPLEMENTATION, **_experts_option(fields)
            )
    except SlipstickError:
        raise
    except Exception as error:
        raise NotUnderstoodError(f"transformers cannot build model type '{model_type}': {first_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise NotUnderstoodError(f"model type '{model_type}' did not give a module")
    return model


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


def _experts_option(fields: dict[str, object]) -> dict[str, str]:
    has_experts = any(k in fields for k in ("num_local_experts", "num_experts", "n_routed_experts"))
    return {"experts_implementation": IMPLEMENTATION} if has_experts else {}


def _register() -> None:
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, no_mask)
    ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, experts)


@contextmanager
def patched(model: nn.Module) -> Iterator[None]:
    """Replace, for the time of a recording, what transformers spells out in many small operators.

    Rotary embedding (a function of the modelling file), the packed-sequence check (which reads data), the assembly of
    keys from latents (written in place, value by value), and recurrences (loops over positions).
    """
    import transformers.masking_utils as masking

    with ExitStack() as stack:
        stack.enter_context(swapped(masking, "find_packed_sequence_indices", lambda position_ids: None))
        stack.enter_context(attention_patched(model, IMPLEMENTATION))
        stack.enter_context(indexed(model))
        stack.enter_context(banked(model))
        stack.enter_context(scans(model))
        stack.enter_context(scanned(model))
        yield


def hints_on(model: nn.Module) -> tuple[Hint, ...]:
    """The plans that a transformers model (or one that wraps such models alike) carries for splitting its layers."""
    plans = (("tp", getattr(model, "tp_plan", None)), ("ep", getattr(model, "ep_plan", None)))
    return tuple(
        Hint(axis, str(path), str(style))
        for axis, plan in plans
        if isinstance(plan, dict)
        for path, style in plan.items()
    )


def config_of(model: nn.Module):  # type: ignore[no-untyped-def]
    """Return the model's own config object; TraceError when it has none."""
    config = getattr(model, "config", None)
    if config is None:
        raise TraceError(f"{type(model).__name__} has no config")
    return config
