"""Attention over the last tokens and, beside them, over entries that stand for windows of tokens (DeepSeek-V4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...record.adapter import swapped


@dataclass
class Beside:
    """What a layer attends to beside its own keys: entries [b, 1, t, d], which are keys and values.

    `ids` [b, s, n] are those that each query reads, where an indexer chose them; else `bias` [b, 1, s, t] says which
    windows lie before a query, None for all.
    """

    entries: Tensor | None = None
    ids: Tensor | None = None
    bias: Tensor | None = None


@contextmanager
def compressed(model: nn.Module) -> Iterator[None]:
    """Hand the entries of each compressor to attention as they are, and not as keys behind those of tokens.

    Transformers puts both into one tensor with a mask over all of it, of which a kernel would read the window and the
    chosen entries only.
    """
    with ExitStack() as stack:
        for part in model.modules():
            if isinstance(getattr(part, "compressor", None), nn.Module):
                stack.enter_context(swapped(part, "forward", _attention(part, part.forward)))
        yield


def _attention(part: nn.Module, original: Callable[..., object]) -> Callable[..., object]:
    def forward(*args: object, **options: object) -> object:
        beside = Beside()
        compressor = part.compressor
        assert isinstance(compressor, nn.Module)
        with swapped(compressor, "forward", _compressor(compressor, beside)):
            return original(*args, **options, beside=beside)

    return forward


def _compressor(part: nn.Module, beside: Beside) -> Callable[..., tuple[Tensor, None]]:
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


def _kept(original: Callable[..., Tensor], beside: Beside) -> Callable[..., Tensor]:
    def forward(*args: object, **options: object) -> Tensor:
        beside.ids = original(*args, **options)
        return beside.ids

    return forward


def merged(own: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
    """Attention over two sets of keys, from results [b, s, h, d] and log-sum-exps [b, h, s] over each of them."""
    (out, lse), (beside, lse_beside) = own, other
    share = torch.sigmoid(lse - lse_beside).unsqueeze(-1).transpose(1, 2).to(out.dtype)
    return torch.lerp(beside, out, share)


__all__ = ["Beside", "compressed", "merged"]
