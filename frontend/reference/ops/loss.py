"""The loss, forward and backward, of whole rows or of a part of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..call import Call, NotComputedError, Reference
from ..models.constants import number, share, word

_SUM, _TARGET = 1, 2  # places of the statistics of the loss; in front of them the maximum


def cross_entropy(call: Call) -> tuple[Tensor, ...]:
    """Mean loss, and a row (0, sum of exponentials, logit of the target).

    The maximum that a kernel subtracts is nothing here, so that statistics over parts of the vocabulary add up; the
    logit of a target counts on the rank that has it. The loss of a part of the vocabulary is none: `loss_of` makes it
    of whole statistics.
    """
    logits, target = call.inputs
    inside, local = _local_targets(call, 0, logits, target)
    chosen = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1) * inside
    sums = logits.exp().sum(-1)
    statistics = torch.stack((torch.zeros_like(sums), sums, chosen), dim=-1)
    return loss_of(call, statistics, target), statistics


def loss_of(call: Call, statistics: Tensor, target: Tensor) -> Tensor:
    """Return this rank's part of the mean loss, of statistics [.., 3] that are whole over the vocabulary."""
    kept = _kept(call, target)
    losses = (statistics[..., _SUM].log() - statistics[..., _TARGET]) * kept
    return losses.sum() / _rows(call, 0, kept)


def cross_entropy_bwd(call: Call) -> tuple[Tensor, ...]:
    """Gradient (softmax - one at the target) dloss / rows of (dloss, logits, targets, statistics)."""
    grad, logits, target, statistics = call.inputs
    kept = _kept(call, target)
    inside, local = _local_targets(call, 1, logits, target)
    soft = logits.exp() / statistics[..., _SUM].unsqueeze(-1)
    hit = torch.zeros_like(logits).scatter_(-1, local.unsqueeze(-1), inside.unsqueeze(-1))
    return ((soft - hit) * kept.unsqueeze(-1) * grad / _rows(call, 1, kept),)


def _kept(call: Call, target: Tensor) -> Tensor:
    """One for each row that counts, as torch leaves rows with the ignored label out."""
    return (target != int(number(call, "ignore_index", -100))).double()


def _rows(call: Call, logits: int, kept: Tensor) -> float:
    """Rows of the mean over all ranks; 1 for a sum. Ranks with parts of the rows must leave the same number out: 0."""
    if word(call, "reduction", "mean") == "sum":
        return 1.0
    others = 1
    for dim in range(kept.dim()):
        others *= share(call, logits, dim)[1]
    if others > 1 and not bool(kept.all()):
        raise NotComputedError("a mean over rows of several ranks, of which some are ignored")
    return float(kept.sum()) * others


def _local_targets(call: Call, value: int, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """One where this rank's part of the vocabulary has the target, and the target in that part (0 elsewhere)."""
    index, _ = share(call, value, logits.dim() - 1)
    local = target.long() - index * logits.shape[-1]
    inside = (local >= 0) & (local < logits.shape[-1])
    return inside.to(logits.dtype), local.where(inside, torch.zeros_like(local))


REFERENCES: Mapping[str, Reference] = {"cross_entropy": cross_entropy, "cross_entropy_bwd": cross_entropy_bwd}
