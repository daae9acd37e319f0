"""Models of transformers as they are recorded: semantic operators in place of what they spell out, and their caches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from ..ir.errors import TraceError
from ..ir.graph import Hint
from . import semantic
from .adapter import swapped
from .hf_linear import scanned
from .hf_scans import scans
from .odd_models import decided
from .old_attention import fused_attention, is_fused

IMPLEMENTATION = "slipstick"


def register() -> None:
    """Make our attention and experts known to transformers under the name that models are built with."""
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
        stack.enter_context(fused_attention(model))
        stack.enter_context(decided(model))
        if is_fused(model):
            stack.enter_context(_unmasked(str(getattr(model.config, "_attn_implementation", ""))))
        yield


@contextmanager
def _unmasked(implementation: str) -> Iterator[None]:
    """Let transformers make no mask for one of its own kinds of attention."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    before = ALL_MASK_ATTENTION_FUNCTIONS[implementation]
    ALL_MASK_ATTENTION_FUNCTIONS[implementation] = _no_mask
    try:
        yield
    finally:
        ALL_MASK_ATTENTION_FUNCTIONS[implementation] = before


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
