"""Modules of HuggingFace's Llama, imported, so that what is measured is what models run."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from ....frontend.record.dtypes import torch_dtype
from ....ir.errors import UsageError
from ....ir.types import DType

try:
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama import modeling_llama
except ImportError as error:
    raise UsageError(
        "measuring runs HuggingFace's modules, and transformers is not there: pip install 'slipstick[hf]'"
    ) from error


def rms_norm(cols: int, device: str, dtype: DType) -> nn.Module:
    """Return the norm of a layer."""
    return cast(nn.Module, modeling_llama.LlamaRMSNorm(cols)).to(device, torch_dtype(dtype))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads as `apply_rotary_pos_emb` rotates queries and keys."""
    half = cast(Callable[[Tensor], Tensor], modeling_llama.rotate_half)
    return x * cos + half(x) * sin


def llama(config: dict[str, object], device: str, dtype: DType) -> nn.Module:
    """Build a Llama of random weights that trains with SDPA attention."""
    built = LlamaConfig.from_dict({**config, "use_cache": False})
    built._attn_implementation = "sdpa"
    return cast(nn.Module, LlamaForCausalLM(built)).to(device, torch_dtype(dtype)).train()
