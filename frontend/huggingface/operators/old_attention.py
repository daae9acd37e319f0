"""Attention of models written before transformers had one place for it, as our operator for the time of a recording.

These classes spell out scores, mask and softmax, in fp32 and with a mask of all positions: a kernel does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ...record.adapter import swapped
from ...record.preserve import Contexts, one_context
from ...semantic import semantic

_TORCH_SDPA = F.scaled_dot_product_attention


@one_context
def fused_attention(model: nn.Module) -> Contexts:
    """Let the attention of old classes be one operator, with as many key-value heads as the model has."""
    for part in model.modules():
        make = _BY_CLASS.get(_kind(part))
        for name, replacement in ({} if make is None else make(part)).items():
            yield swapped(part, name, replacement)
    yield swapped(F, "scaled_dot_product_attention", _sdpa)


def _sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Torch's call, which takes no symbolic truth (`length > 1`) for a plain one."""
    return _TORCH_SDPA(query, key, value, attn_mask, dropout_p, bool(is_causal), scale=scale, enable_gqa=enable_gqa)


def is_fused(model: nn.Module) -> bool:
    """Whether all attention of a model with old classes becomes our operator, so that nothing reads a mask."""
    parts = [part for part in model.modules() if _kind(part) in _BY_CLASS]
    return bool(parts) and not getattr(model.config, "alibi", False)


def _kind(part: nn.Module) -> str:
    return f"{type(part).__module__.rpartition('.')[2]}.{type(part).__name__}"


def _dropout(part: nn.Module) -> float:
    return float(getattr(part.attn_dropout, "p", 0.0)) if part.training else 0.0


def _plain(part: nn.Module) -> Mapping[str, object]:
    """GPT-J, CodeGen: heads [b, h, s, d] in and out."""

    def attend(query: Tensor, key: Tensor, value: Tensor, *masks: object, **options: object) -> tuple[Tensor, None]:
        out, _ = semantic.attention(
            query, key, value, None, True, _window(part), _dropout(part), None, None, 0.0, _scale(part)
        )
        return out.transpose(1, 2).to(value.dtype), None

    return {"_attn": attend}


def _scale(part: nn.Module) -> float:
    """GPT-Neo does not scale its scores; 0 for the usual d^-0.5."""
    return 1.0 if hasattr(part, "attention_type") else 0.0


def _window(part: nn.Module) -> int:
    """GPT-Neo: every other layer sees the last tokens alone."""
    return int(part.config.window_size) if getattr(part, "attention_type", "") == "local" else 0  # type: ignore[union-attr,arg-type]


def _transposed_keys(part: nn.Module) -> Mapping[str, object]:
    """The first GPT: keys come as [b, h, d, s], results go as a list."""

    def attend(query: Tensor, key: Tensor, value: Tensor, *masks: object, **options: object) -> list[Tensor]:
        out, _ = semantic.attention(query, key.transpose(2, 3), value, None, True, 0, _dropout(part))
        return [out.transpose(1, 2)]

    return {"_attn": attend}


def _grouped(part: nn.Module) -> Mapping[str, object]:
    """Falcon: keys and values of a group of heads are one head, not a copy for each query head of the group."""
    if not part.new_decoder_architecture:
        return {}

    def split(fused_qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, s, _ = fused_qkv.shape
        groups, size = int(part.num_kv_heads), int(part.head_dim)  # type: ignore[arg-type]
        qkv = fused_qkv.view(b, s, groups, int(part.num_heads) // groups + 2, size)  # type: ignore[arg-type]
        return qkv[:, :, :, :-2].flatten(2, 3), qkv[:, :, :, -2], qkv[:, :, :, -1]

    return {"_split_heads": split, "new_decoder_architecture": False}


_BY_CLASS: Mapping[str, Callable[[nn.Module], Mapping[str, object]]] = MappingProxyType(
    {
        "modeling_gptj.GPTJAttention": _plain,
        "modeling_codegen.CodeGenAttention": _plain,
        "modeling_gpt_neo.GPTNeoSelfAttention": _plain,
        "modeling_openai.Attention": _transposed_keys,
        "modeling_falcon.FalconAttention": _grouped,
    }
)
