"""A HuggingFace config to a recordable model; every private touch point with transformers is here.

Models are built from configs alone: nothing is downloaded and no weight is allocated.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

import torch
from torch import Tensor, nn

from ..ir.errors import NotUnderstoodError, SlipstickError, TraceError
from ..ir.graph import Hint
from ..ir.types import DType
from . import semantic
from .adapter import swapped, torch_dtype
from .failures import first_line
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

    ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, _no_mask)
    ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, _experts)


def _no_mask(*args: object, **options: object) -> None:
    """The mask is an attribute of the attention operator, never a tensor."""


def _attention(  # type: ignore[no-untyped-def]
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask=None, dropout: float = 0.0,
    is_causal: bool | None = None, sliding_window: int | None = None, s_aux: Tensor | None = None, **_options,
) -> tuple[Tensor, None]:  # fmt: skip
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    out, _ = semantic.attention(query, key, value, s_aux, causal, int(sliding_window or 0), float(dropout))
    return out, None


def _experts(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    up = self.gate_up_proj if self.has_gate else self.up_proj
    up_bias = (self.gate_up_proj_bias if self.has_gate else self.up_proj_bias) if self.has_bias else None
    down_bias = self.down_proj_bias if self.has_bias else None
    out = semantic.experts(
        hidden_states, top_k_index, top_k_weights, up, self.down_proj, up_bias, down_bias,
        self.has_gate, self.is_transposed,
    )  # fmt: skip
    return out[0]


def _rope_pair(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: object, **options: object
) -> tuple[Tensor, Tensor]:
    dim = options.get("unsqueeze_dim", 1)
    table = (cos.unsqueeze(int(str(dim))), sin.unsqueeze(int(str(dim))))
    return semantic.rope(q, *table), semantic.rope(k, *table)


_ROPE_NAMES = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave")


@contextmanager
def patched(model: nn.Module) -> Iterator[None]:
    """Replace, for the time of a recording, what transformers spells out in many small operators.

    Rotary embedding (a function of the modelling file), the packed-sequence check (which reads data), the assembly of
    keys from latents (written in place, value by value), and recurrences (loops over positions).
    """
    import transformers.masking_utils as masking

    with ExitStack() as stack:
        stack.enter_context(swapped(masking, "find_packed_sequence_indices", lambda position_ids: None))
        for module in {sys.modules[type(m).__module__] for m in model.modules()}:
            for name in _ROPE_NAMES:
                if hasattr(module, name):
                    stack.enter_context(swapped(module, name, _rope_pair))
        for part in model.modules():
            if hasattr(part, "expand_kv"):
                stack.enter_context(swapped(part, "expand_kv", _latent_keys(part)))
        stack.enter_context(scans(model))
        stack.enter_context(scanned(model))
        yield


def _latent_keys(module: nn.Module) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Keys and values from latents as one concat: the same result as the module's in-place version."""

    def expand_kv(kv_nope: Tensor, k_rot: Tensor) -> tuple[Tensor, Tensor]:
        b, _, s, _ = kv_nope.shape
        nope, v_dim = int(module.qk_nope_head_dim), int(module.v_head_dim)  # type: ignore[arg-type]
        kv = module.kv_b_proj(kv_nope).view(b, s, -1, nope + v_dim).transpose(1, 2)  # type: ignore[operator]
        k_nope, value = torch.split(kv, [nope, v_dim], dim=-1)
        return torch.cat((k_nope, k_rot.expand(-1, k_nope.shape[1], -1, -1)), dim=-1), value

    return expand_kv


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
