"""Sparse attention of transformers: over entries that stand for windows of tokens (DeepSeek-V4), and indexers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn

from ....ir.records import dataclass
from ...record.adapter import swapped
from ...record.preserve import Contexts, FunctionMode, one_context
from ...semantic import semantic


@dataclass
class ExtraEntries:
    """What a layer attends to beside its own keys: entries [b, 1, t, d], which are keys and values.

    `ids` [b, s, n] are those that each query reads, where an indexer chose them; else `bias` [b, 1, s, t] says which
    windows lie before a query, None for all.
    """

    entries: Tensor | None = None
    ids: Tensor | None = None
    bias: Tensor | None = None


@one_context
def compressed(model: nn.Module) -> Contexts:
    """Hand the entries of each compressor to attention as they are, and not as keys behind those of tokens.

    Transformers puts both into one tensor with a mask over all of it, of which a kernel would read the window and the
    chosen entries only.
    """
    for part in model.modules():
        if isinstance(getattr(part, "compressor", None), nn.Module):
            yield swapped(part, "forward", _attention(part, part.forward))


def _attention(part: nn.Module, original: Callable[..., object]) -> Callable[..., object]:
    def forward(*args: object, **options: object) -> object:
        beside = ExtraEntries()
        compressor = part.compressor
        assert isinstance(compressor, nn.Module)
        with swapped(compressor, "forward", _compressor(compressor, beside)):
            return original(*args, **options, beside=beside)

    return forward


def _compressor(part: nn.Module, beside: ExtraEntries) -> Callable[..., tuple[Tensor, None]]:
    """Compress as the part does, keep what came out, and return none of it."""
    original = part.forward
    indexer = getattr(part, "indexer", None)

    def forward(
        hidden: Tensor, q_residual: Tensor, position_ids: Tensor, past_key_values: object, layer_idx: int
    ) -> tuple[Tensor, None]:
        if past_key_values is not None:
            past_key_values.layers[layer_idx].compress_rate = part.compress_rate  # type: ignore[attr-defined]
        with ExitStack() as stack:
            if isinstance(indexer, nn.Module):
                stack.enter_context(swapped(indexer, "forward", _kept(indexer.forward, beside)))
            entries, bias = original(hidden, q_residual, position_ids, past_key_values, layer_idx)
        beside.entries, beside.bias = entries, None if beside.ids is not None else bias
        return entries[:, :, :0], None

    return forward


def _kept(original: Callable[..., Tensor], beside: ExtraEntries) -> Callable[..., Tensor]:
    def forward(*args: object, **options: object) -> Tensor:
        beside.ids = original(*args, **options)
        return beside.ids

    return forward


def merged(own: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
    """Attention over two sets of keys, from results [b, s, h, d] and log-sum-exps [b, h, s] over each of them."""
    (out, lse), (beside, lse_beside) = own, other
    share = torch.sigmoid(lse - lse_beside).unsqueeze(-1).transpose(1, 2).to(out.dtype)
    return torch.lerp(beside, out, share)


# Queries [b, h, s, d], keys [b, 1, t, d] and weights of heads [b, s, h] that keys are chosen by.
_Operands = tuple[Tensor, Tensor, Tensor]


class _FoundError(Exception):
    """Ends the forward of an indexer where its operands are known: what it makes of the scores is read by nobody."""

    def __init__(self, operands: _Operands) -> None:
        """Keep the operands."""
        super().__init__()
        self.operands = operands


class _Products(FunctionMode):
    """Looks for operands among matrix products; lets `.float()` be: kernels score in the type of the model, or fp8."""

    def __init__(self) -> None:
        """Begin with no product."""
        super().__init__()
        self.operands: list[tuple[Tensor, Tensor]] = []

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        if func is torch.Tensor.float:
            return args[0]
        if func is torch.matmul:
            left, right = args[:2]
            assert isinstance(left, Tensor)
            assert isinstance(right, Tensor)
            self.operands.append((left, right))
            if (found := _scores(self.operands)) is not None:
                raise _FoundError(found)
        return func(*args, **kwargs)


@one_context
def indexed(model: nn.Module) -> Contexts:
    """Let each indexer be one operator, behind its own projections and rotation.

    Of DeepSeek-V3.2's form are those whose forward weights the heads by a product; of V4's those with a scorer; of
    Qwen4's those that choose blocks of tokens.
    """
    for part in model.modules():
        if not type(part).__name__.endswith("Indexer"):
            continue
        if isinstance(getattr(part, "index_topk", None), int):
            yield swapped(part, "forward", _indexer(part, part.forward))
            if isinstance(scorer := getattr(part, "scorer", None), nn.Module):
                yield swapped(scorer, "forward", _scorer(scorer))
    for part in model.modules():
        if isinstance(getattr(getattr(part, "indexer", None), "block_topk", None), int):
            yield swapped(part, "forward", _of_blocks(part, part.forward))


def _indexer(part: nn.Module, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Choose among tokens up to a query's own; windows of tokens (`compress_rate`) are fewer, and all of them count."""
    causal = not hasattr(part, "compress_rate")

    def forward(*args: object, **options: object) -> Tensor:
        try:
            with _Products():
                return original(*args, **options)
        except _FoundError as found:
            operands = found.operands
        with torch.no_grad():
            return semantic.index_keys(*operands, int(part.index_topk), causal)  # type: ignore[arg-type]

    return forward


def _scores(operands: Sequence[tuple[Tensor, Tensor]]) -> _Operands | None:
    """Q [b, h, s, d], k [b, 1, t, d], weights [b, s, h] of q [b, s, h, d] k [b, 1, d, t] and weights [b, s, 1, h]."""
    if len(operands) != 2:
        return None
    (q, k), (weights, _) = operands
    fits = q.dim() == k.dim() == weights.dim() == 4 and k.shape[1] == 1 and weights.shape[2] == 1
    return (q.transpose(1, 2), k.transpose(2, 3), weights.squeeze(2)) if fits else None


def _scorer(part: nn.Module) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """What DeepSeek-V4 scores: q [b, s, h, d] and entries [b, t, d], heads weighted by the token."""

    def forward(q: Tensor, entries: Tensor, hidden: Tensor) -> Tensor:
        weights = part.weights_proj(hidden) * part.weights_scaling  # type: ignore[operator]
        raise _FoundError((q.transpose(1, 2), entries.unsqueeze(1), weights))

    return forward


def _of_blocks(part: nn.Module, original: Callable[..., object]) -> Callable[..., object]:
    """Attention whose indexer returns a mask of chosen tokens: their ids go to attention in its place."""
    indexer = part.indexer
    assert isinstance(indexer, nn.Module)

    def forward(
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor,
        past_key_values: object = None,
        **options: object,
    ) -> object:
        with swapped(indexer, "forward", partial(_tokens, indexer)), torch.no_grad():
            ids = indexer(hidden_states, position_embeddings, past_key_values)
        with swapped(indexer, "forward", lambda *_: attention_mask):
            return original(hidden_states, position_embeddings, attention_mask, past_key_values, indices=ids, **options)

    return forward


def _tokens(part: nn.Module, hidden: Tensor, positions: tuple[Tensor, Tensor], past_key_values: object) -> Tensor:
    """Ids [b, s, n] of the tokens of the best blocks, and of those behind the last whole block.

    Qwen4's sparse attention as its modelling file has it, for all queries at once: keys of the same number of tokens
    are averaged, normed and rotated as their first one, and heads count alike.
    """
    b, s, _ = hidden.shape
    size, width = int(part.compress_ratio), int(part.index_head_dim)  # type: ignore[arg-type]
    rotate = vars(sys.modules[type(part).__module__])["apply_rotary_pos_emb"]
    cos, sin = positions
    q, keys = part.index_qk_proj(hidden).split((int(part.index_n_heads) * width, width), -1)  # type: ignore
    q = rotate(part.q_layernorm(q.unflatten(-1, (-1, width))), cos=cos[:, -s:], sin=sin[:, -s:], unsqueeze_dim=2)  # type: ignore
    if past_key_values is not None:
        keys = past_key_values.update_indexer(keys, part.layer_idx)  # type: ignore[attr-defined]
    starts = torch.arange(keys.shape[1] // size) * size
    inside = starts.unsqueeze(-1) + torch.arange(size)
    pooled = part.k_layernorm(keys[:, inside].mean(2))  # type: ignore[operator]
    pooled = rotate(pooled.unsqueeze(1), cos=cos[:, starts], sin=sin[:, starts], unsqueeze_dim=1)
    weights = torch.ones((b, s, q.shape[2]), dtype=q.dtype)
    blocks = semantic.index_keys(q.transpose(1, 2), pooled, weights, int(part.block_topk), False)  # type: ignore[arg-type]
    chosen = (blocks.unsqueeze(-1) * size + torch.arange(size, dtype=blocks.dtype)).flatten(2)
    last = torch.arange(keys.shape[1] - s + 1, keys.shape[1] + 1, dtype=blocks.dtype) // size * size
    rest = last.unsqueeze(-1) + torch.arange(size - 1, dtype=blocks.dtype)
    return torch.cat((chosen, rest.expand(b, s, size - 1)), dim=2)
