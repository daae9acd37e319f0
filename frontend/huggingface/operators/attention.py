"""Attention, its masks and rotary embedding of transformers as semantic operators, while a model is recorded."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ...record.adapter import swapped
from ...record.preserve import Contexts, one_context
from ...semantic import semantic
from ...semantic.constants import rotary_style
from .sparse import ExtraEntries, merged

_ROPE_NAMES = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb")
_PAIR, _ONE, _OLD_ONE = ("q", "k", "cos", "sin"), ("x", "cos", "sin"), ("tensor", "sin", "cos")
_COMPLEX = ("xq", "xk", "freqs_cis")


def attend(  # type: ignore[no-untyped-def]
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None,
    dropout: float = 0.0, is_causal: bool | None = None, sliding_window: int | None = None,
    s_aux: Tensor | None = None, softcap: float | None = None, indices: Tensor | None = None,
    position_bias: Tensor | None = None, sinks: Tensor | None = None, scaling: float | None = None,
    cu_seq_lens_q: object = None, max_length_q: int | None = None, beside: ExtraEntries | None = None, **_options,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attention as transformers calls it; a mask that the model made itself is a bias, ours is an attribute.

    A bias by position [b, h, s, t] is one too. Sinks of each token [b, h, s, 1] take their share of its result: what is
    made without a sink z is multiplied by sigmoid(log-sum-exp - z). Packed sequences [1, h, n x s, d] of one length are
    a batch of them. What is attended to `beside` the keys is attended to apart.
    """
    if cu_seq_lens_q is not None and isinstance(max_length_q, int):
        query, key, value = (_unpacked(t, max_length_q) for t in (query, key, value))
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    window = int(sliding_window or _chunk(module))
    bias = _both(_bias(attention_mask), position_bias)
    out, lse = semantic.attention(
        query,
        key,
        value,
        s_aux,
        causal,
        window,
        float(dropout),
        bias,
        indices,
        float(softcap or 0.0),
        float(scaling or 0.0),
        _chunk(module),
    )
    if cu_seq_lens_q is not None and isinstance(max_length_q, int):
        out = out.flatten(0, 1).unsqueeze(0)
    if beside is not None and beside.entries is not None:
        other = semantic.attention(
            query,
            beside.entries,
            beside.entries,
            None,
            False,
            0,
            float(dropout),
            beside.bias,
            beside.ids,
            0.0,
            float(scaling or 0.0),
        )
        return merged((out, lse), other), None
    if sinks is None:
        return out, None
    share = torch.sigmoid(lse.unsqueeze(-1) - sinks).to(out.dtype)
    return out * share.transpose(1, 2), None


def _unpacked(t: Tensor, length: int) -> Tensor:
    """Sequences one behind another [1, h, n x s, d] as a batch [n, h, s, d]."""
    heads, tokens, width = t.shape[1:]
    return t.reshape(heads, tokens // length, length, width).transpose(0, 1)


def _attend_as_laid(module: nn.Module, query: Tensor, *args: object, **options: object) -> tuple[Tensor, None]:
    """Attention as transformers runs it over torch's fused call, whose result lies as the queries do.

    Queries put together by a concat lie head by head: the result is copied into the order of tokens behind it.
    """
    out, _ = attend(module, query, *args, **options)  # type: ignore[arg-type]
    by_head = query.is_contiguous() and not query.transpose(1, 2).is_contiguous()
    return out.clone() if by_head else out, None


def _both(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """The sum of a mask and a bias; a mask of booleans hides what it does not hold."""
    if mask is None or bias is None:
        return bias if mask is None else mask
    return bias.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else bias + mask


def _chunk(module: nn.Module) -> int:
    """Keys of a chunk, where a layer sees its own chunk alone (Llama 4): as a window, which is never less work."""
    config, layer = getattr(module, "config", None), getattr(module, "layer_idx", None)
    kinds = getattr(config, "layer_types", None)
    chunked = isinstance(layer, int) and kinds and layer < len(kinds) and kinds[layer] == "chunked_attention"
    return int(getattr(config, "attention_chunk_size", 0) or 0) if chunked else 0


def _bias(mask: Tensor | None) -> Tensor | None:
    """The mask, unless it says nothing: a single element stands for the causal mask that is an attribute."""
    if mask is None or all(isinstance(d, int) and d == 1 for d in mask.shape):
        return None
    return mask


def no_mask(*args: object, **options: object) -> None:
    """The mask is an attribute of the attention operator, never a tensor."""


def _stand_in(*args: object, **options: object) -> Tensor:
    """A mask of one element, for models that handle their mask before they hand it on."""
    return torch.ones(1, 1, 1, 1, dtype=torch.bool)


@contextmanager
def registered(
    functions: MutableMapping[str, Callable[..., object]], name: str, ours: Callable[..., object]
) -> Iterator[None]:
    """Let a name in one of transformers' registries stand for a function of ours."""
    before = functions[name]
    functions[name] = ours
    try:
        yield
    finally:
        functions[name] = before


@one_context
def attention_patched(model: nn.Module, implementation: str, spelled_out: bool = False) -> Contexts:
    """Swap masks, what spells attention out and, unless `spelled_out`, rotary functions, while a recording takes."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    yield swapped(torch, "polar", _polar)
    if spelled_out:
        yield registered(ALL_ATTENTION_FUNCTIONS, implementation, _attend_as_laid)
    for file in () if spelled_out else {sys.modules[type(m).__module__] for m in model.modules()}:
        for name in _ROPE_NAMES:
            if (ours := _rotation(getattr(file, name, None))) is not None:
                yield swapped(file, name, ours)
    parts = list(model.modules())
    for part in parts:
        for name, ours in _replacements(part).items():
            yield swapped(part, name, ours)
    if any(_handles_its_mask(part) for part in parts):
        yield registered(ALL_MASK_ATTENTION_FUNCTIONS, implementation, _stand_in)


def _handles_its_mask(part: nn.Module) -> bool:
    """Indexers mask their own scores; the models of Bloom's time look at the mask's type."""
    name = type(part).__name__
    is_indexer = name.endswith("Indexer") and "attention_mask" in inspect.signature(type(part).forward).parameters
    return is_indexer or name in _BY_CLASS


def _replacements(part: nn.Module) -> Mapping[str, Callable[..., object]]:
    found: dict[str, Callable[..., object]] = {}
    if hasattr(part, "expand_kv"):
        found["expand_kv"] = _latent_keys(part)
    if (make := _BY_CLASS.get(type(part).__name__)) is not None:
        found["forward"] = make(part)
    return found


def _latent_keys(module: nn.Module) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Keys and values from latents as one concat: the same result as the module's in-place version."""

    def expand_kv(kv_nope: Tensor, k_rot: Tensor) -> tuple[Tensor, Tensor]:
        b, _, s, _ = kv_nope.shape
        nope, v_dim = int(module.qk_nope_head_dim), int(module.v_head_dim)  # type: ignore[arg-type]
        kv = module.kv_b_proj(kv_nope).view(b, s, -1, nope + v_dim).transpose(1, 2)  # type: ignore[operator]
        k_nope, value = torch.split(kv, [nope, v_dim], dim=-1)
        return torch.cat((k_nope, k_rot.expand(-1, k_nope.shape[1], -1, -1)), dim=-1), value

    return expand_kv


def _rotation(original: object) -> Callable[..., object] | None:
    """Our rotary embedding with the signature of a modelling file's; None for one that we do not know."""
    if not callable(original):
        return None
    given = inspect.signature(original).parameters
    names = tuple(given)
    dim = int(given["unsqueeze_dim"].default) if "unsqueeze_dim" in given else 2
    if names[:4] == _PAIR:
        return _pair(cast("Callable[..., tuple[Tensor, Tensor]]", original), names, dim)
    if names[:3] == _ONE:
        return _one(cast("Callable[..., Tensor]", original), dim)
    if names == _OLD_ONE:
        old = cast("Callable[[Tensor, Tensor, Tensor], Tensor]", original)
        told = _told(lambda x, cos, sin: old(x, sin, cos))
        return lambda tensor, sin, cos: _rotated(tensor, cos, sin, dim, told)
    if names == _COMPLEX:
        return _turned
    return None


def _told(original: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor, int], str]:
    """Which entries a function turns together, asked once for each width of heads and tables."""

    @lru_cache
    def style(width: int, table: int, dim: int) -> str:
        return rotary_style(original, width, table, dim)

    return lambda x, cos, dim: style(int(x.shape[-1]), int(cos.shape[-1]), dim)


def _one(original: Callable[..., Tensor], dim: int) -> Callable[..., Tensor]:
    told = _told(original)

    def rotate(x: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = dim) -> Tensor:
        return _rotated(x, cos, sin, unsqueeze_dim, told)

    return rotate


def _pair(
    original: Callable[..., tuple[Tensor, Tensor]], names: tuple[str, ...], dim: int
) -> Callable[..., Tensor | tuple[Tensor, Tensor]]:
    position = names.index("unsqueeze_dim") - len(_PAIR) if "unsqueeze_dim" in names else None
    styles: dict[tuple[int, int, int], str] = {}

    def style(x: Tensor, cos: Tensor, along: int) -> str:
        key = int(x.shape[-1]), int(cos.shape[-1]), along
        if key not in styles:
            given = {"unsqueeze_dim": along} if position is not None else {}
            styles[key] = rotary_style(lambda x, c, s: original(x, x, c, s, **given)[0], *key)
        return styles[key]

    def rotate(
        q: Tensor,
        k: Tensor | None = None,
        cos: Tensor | None = None,
        sin: Tensor | None = None,
        *args: object,
        **options: object,
    ) -> Tensor | tuple[Tensor, Tensor]:
        assert cos is not None
        assert sin is not None
        given = args[position] if position is not None and len(args) > position else options.get("unsqueeze_dim", dim)
        along = int(str(given))
        table = cos.unsqueeze(along), sin.unsqueeze(along)
        said = style(q, cos, along)
        rotated = semantic.rope(q, *table, said)
        return rotated if k is None else (rotated, semantic.rope(k, *table, said))

    return rotate


def _polar(length: Tensor, angle: Tensor) -> Tensor:
    """As torch's, whose shape rule takes open sizes for the numbers they have in the example."""
    return torch.view_as_complex(torch.stack((length * angle.cos(), length * angle.sin()), dim=-1))


def _turned(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> tuple[Tensor, Tensor]:
    """Rotation by complex numbers [b, s, d / 2]; heads lie behind the sequence (Llama 4) or before it (DeepSeek-V2)."""
    dim = 1 if xq.shape[2] == freqs_cis.shape[1] else 2
    cos, sin = torch.view_as_real(freqs_cis).unbind(-1)
    return _rotated(xq, cos, sin, dim, _neighbours), _rotated(xk, cos, sin, dim, _neighbours)


def _neighbours(x: Tensor, cos: Tensor, dim: int) -> str:
    return "pairs_narrow"


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, dim: int, told: Callable[[Tensor, Tensor, int], str]) -> Tensor:
    return semantic.rope(x, cos.unsqueeze(dim), sin.unsqueeze(dim), told(x, cos, dim))


def _bloom(part: nn.Module) -> Callable[..., tuple[Tensor, None]]:
    """Bloom: one bias a head and key (ALiBi), made once for all layers."""

    def forward(  # type: ignore[no-untyped-def]
        hidden_states: Tensor,
        residual: Tensor,
        alibi: Tensor,
        attention_mask: Tensor | None,
        layer_past=None,
        *args: object,
        **options: object,
    ) -> tuple[Tensor, None]:
        q, k, v = part._reshape(part.query_key_value(hidden_states))  # type: ignore[operator]
        if layer_past is not None:
            k, v = layer_past.update(k, v, part.layer_idx)
        bias = alibi.view(q.shape[0], part.num_heads, 1, -1)  # type: ignore[call-overload]
        dropout = float(part.attention_dropout.p) if part.training else 0.0  # type: ignore[union-attr,arg-type]
        scale = float(part.inv_norm_factor)  # type: ignore[arg-type]
        out, _ = semantic.attention(q, k, v, None, True, 0, dropout, bias, None, 0.0, scale)
        made = part.dense(out.flatten(2))  # type: ignore[operator]
        return residual + F.dropout(made, p=part.hidden_dropout, training=part.training), None  # type: ignore[arg-type]

    return forward


def _mpt(part: nn.Module) -> Callable[..., tuple[Tensor, None]]:
    """MPT: a bias a head and key [heads, 1, longest], of which the last keys are taken."""

    def forward(  # type: ignore[no-untyped-def]
        hidden_states: Tensor, position_bias: Tensor | None, past_key_values=None, *args: object, **options: object
    ) -> tuple[Tensor, None]:
        qkv = part.Wqkv(hidden_states)  # type: ignore[operator]
        if part.clip_qkv:
            qkv = qkv.clamp(min=-part.clip_qkv, max=part.clip_qkv)  # type: ignore[operator]
        q, k, v = (t.unflatten(-1, (part.n_heads, part.head_dim)).transpose(1, 2) for t in qkv.chunk(3, dim=2))
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, part.layer_idx)
        # As many as there are keys, of a table that may be shorter than the sizes of an example.
        bias = None if position_bias is None else position_bias[None, :, :, :1].expand(-1, -1, -1, k.shape[2])
        dropout = float(part.attn_dropout_p) if part.training else 0.0  # type: ignore[arg-type]
        scale = float(part.softmax_scale)  # type: ignore[arg-type]
        out, _ = semantic.attention(q, k, v, None, True, 0, dropout, bias, None, 0.0, scale)
        return part.out_proj(out.flatten(2)), None  # type: ignore[operator]

    return forward


_BY_CLASS: Mapping[str, Callable[[nn.Module], Callable[..., object]]] = MappingProxyType(
    {"BloomAttention": _bloom, "MptAttention": _mpt}
)
