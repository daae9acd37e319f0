"""Functions of torch whose own kernels take open sizes as plain numbers, in operators that take them as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the field's name for it

_embedding_bag_of_torch, _cdist_of_torch = F.embedding_bag, torch.cdist


def _lerp(input: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    return input + weight * (end - input)


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Euclidean distances as torch computes those of more than 25 rows: one product of rows with their norms beside."""
    if p != 2.0 or compute_mode.startswith("donot"):
        return _cdist_of_torch(x1, x2, p, compute_mode)
    left, right = (x.square().sum(-1, keepdim=True) for x in (x1, x2))
    rows = torch.cat([x1 * -2, left, torch.ones_like(left)], -1)
    columns = torch.cat([x2, torch.ones_like(right), right], -1)
    return (rows @ columns.transpose(-1, -2)).clamp_min(0).sqrt()


def _gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """The gates of a step, r, z, n side by side: h' = (1 - z) tanh(n + r h_n) + z h."""
    (r, z, n), (to_r, to_z, to_n) = (F.linear(*of).chunk(3, -1) for of in ((input, w_ih, b_ih), (hx, w_hh, b_hh)))
    keep = (z + to_z).sigmoid()
    return (1 - keep) * (n + (r + to_r).sigmoid() * to_n).tanh() + keep * hx


def _lstm_cell(
    input: Tensor, hx: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gates of a step, i, f, g, o side by side: c' = f c + i tanh(g), h' = o tanh(c')."""
    h, c = hx
    i, f, g, o = (F.linear(input, w_ih, b_ih) + F.linear(h, w_hh, b_hh)).chunk(4, -1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Rows of a table and, of each bag, their sum, mean or largest entries; of bags of any length, rows added up.

    Tables that are renormalised while they are read keep torch's own operator.
    """
    if max_norm is not None:
        return _embedding_bag_of_torch(
            input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
            include_last_offset, padding_idx,
        )  # fmt: skip
    rows = F.embedding(input, weight, padding_idx)
    rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(-1)
    if input.dim() == 2 or offsets is None:
        return rows.amax(1) if mode == "max" else rows.sum(1) if mode == "sum" else rows.mean(1)
    starts = offsets[:-1] if include_last_offset else offsets
    bags = torch.bucketize(torch.arange(input.shape[0], device=input.device), starts, right=True) - 1
    made = rows.new_zeros(starts.shape[0], weight.shape[1]).index_add(0, bags, rows)
    if mode != "mean":
        return made
    ends = torch.cat([starts[1:], starts.new_full((1,), 0) + input.shape[0]])
    return made / (ends - starts).clamp_min(1).unsqueeze(-1)


def _stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """Windows of a signal `[.., time]`, each transformed: `[.., frequencies, frames]`, as `torch.stft` says."""
    del align_to_window
    rows = input.unsqueeze(0) if input.dim() == 1 else input
    if center:
        rows = F.pad(rows, (n_fft // 2, n_fft // 2), mode=pad_mode)
    frames = rows.unfold(-1, n_fft, hop_length or n_fft // 4)
    if window is not None:
        before = (n_fft - window.shape[0]) // 2
        frames = frames * F.pad(window, (before, n_fft - window.shape[0] - before))
    elif win_length is not None and win_length < n_fft:
        frames = frames.narrow(-1, (n_fft - win_length) // 2, win_length)
    transform = torch.fft.fft if onesided is False or input.is_complex() else torch.fft.rfft
    made = transform(frames, n=n_fft, norm="ortho" if normalized else None).transpose(-1, -2)
    made = made.squeeze(0) if input.dim() == 1 else made
    return torch.view_as_real(made) if return_complex is False else made


LIFTED: Mapping[Callable[..., object], Callable[..., object]] = {
    torch.lerp: _lerp,
    Tensor.lerp: _lerp,
    torch.cdist: _cdist,
    torch.stft: _stft,
    Tensor.stft: _stft,
    torch.gru_cell: _gru_cell,
    torch.lstm_cell: _lstm_cell,
    F.embedding_bag: _embedding_bag,
}

__all__ = ["LIFTED"]
