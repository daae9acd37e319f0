"""Library calls and well-known classes to semantic operators, and calls that take open sizes as plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ..record.adapter import swapped
from ..record.again import one_kind_of_checkpoint
from ..record.preserve import Contexts, FunctionMode, one_context
from ..record.shapes import adaptive_avg_pool, interpolate
from . import scan as recurrent
from . import semantic
from .constants import norm_constants

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
    input: Tensor,
    hx: tuple[Tensor, Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gates of a step, i, f, g, o side by side: c' = f c + i tanh(g), h' = o tanh(c')."""
    h, c = hx
    i, f, g, o = (F.linear(input, w_ih, b_ih) + F.linear(h, w_hh, b_hh)).chunk(4, -1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Rows of a table and, of each bag, their sum, mean or largest entries; of bags of any length, rows added up.

    Tables that are renormalised while they are read keep torch's own operator.
    """
    if max_norm is not None:
        return _embedding_bag_of_torch(
            input,
            weight,
            offsets,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )
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
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
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


# What torch takes where an epsilon is not given: that of the element type; references compute in float64.
_EPSILON = torch.finfo(torch.float64).eps
# What is not lifted goes to torch's own, whatever stands under its name while a recording lasts.
_cross_entropy_of_torch, _pad_of_torch = F.cross_entropy, F.pad


class Lift(FunctionMode):
    """Turns calls of torch.nn.functional into semantic operators before they are taken apart.

    A function of torch.nn.functional that calls another one hands itself to this mode first and then runs outside it:
    what it calls is lifted by name (`lifted`).
    """

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run the operator that stands for the call."""
        lifted = _LIFTED.get(func)
        return (lifted or func)(*args, **kwargs)


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
    """Fused attention; a mask that is given stays a tensor that is read, for what is in it is not known here."""
    del enable_gqa
    lead = query.shape[:-2]
    q, k, v = (_four_dims(t) for t in (query, key, value))
    bias = attn_mask
    if bias is not None and query.dim() == 3 and bias.dim() == 3:
        bias = bias.unsqueeze(1)
    while bias is not None and bias.dim() < 4:
        bias = bias.unsqueeze(0)
    if bias is not None and bias.dim() > 4:
        bias = bias.expand(*lead[:-1], *bias.shape[-3:]).flatten(0, -4)
    out, _ = semantic.attention(q, k, v, None, is_causal, 0, dropout_p, bias, None, 0.0, scale or 0.0)
    made = out.transpose(1, 2)
    return made if query.dim() == 4 else made.reshape(*lead, *made.shape[-2:])


def _four_dims(x: Tensor) -> Tensor:
    """Look at `[.., length, dim]` as `[batch, heads, length, dim]`: one head where there is no dim for it."""
    while x.dim() < 4:
        x = x.unsqueeze(-3)
    return x.flatten(0, -4) if x.dim() > 4 else x


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    del normalized_shape
    scale = input.new_ones(input.shape[-1:]) if weight is None else weight
    return semantic.rms_norm(input, scale, _EPSILON if eps is None else eps)[0]


def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Rows of logits to one loss; soft targets, class weights and one loss a row keep torch's own operators."""
    plain = weight is None and size_average is None and reduce is None and reduction != "none" and not label_smoothing
    if plain and input.dim() == 2 and target.dim() == 1:
        return semantic.cross_entropy(input, target, ignore_index, reduction)[0]
    return _cross_entropy_of_torch(
        input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
    )


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """One operator with a boolean mask, as on a GPU, instead of the CPU's random tensor in full precision."""
    del inplace
    return torch.native_dropout(input, p, True)[0] if training and p > 0.0 else input


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return torch.native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


def _baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """A product and a sum: the two at once do not take open sizes."""
    return torch.add(input if beta == 1 else input * beta, torch.bmm(batch1, batch2), alpha=alpha)


def _pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Constant padding as a concat, which takes open sizes as they are; negative amounts are cut off."""
    if mode != "constant":
        return _pad_of_torch(input, list(pad), mode, value)
    out = input
    for i in range(len(pad) // 2):
        out = _padded(out, input.dim() - 1 - i, pad[2 * i], pad[2 * i + 1], value or 0.0)
    return out


def _padded(x: Tensor, dim: int, before: int, behind: int, value: float) -> Tensor:
    first, size = max(-before, 0), x.shape[dim] + min(before, 0) + min(behind, 0)
    kept = x if min(before, behind) >= 0 else x.narrow(dim, first, size)
    parts = [_filled(kept, dim, before, value), kept, _filled(kept, dim, behind, value)]
    given = [p for p in parts if p is not None]
    return torch.cat(given, dim) if len(given) > 1 else kept


def _filled(like: Tensor, dim: int, size: int, value: float) -> Tensor | None:
    sizes = [size if i == dim else s for i, s in enumerate(like.shape)]
    return like.new_full(sizes, value) if size > 0 else None


def _div(input: object, other: object, *, rounding_mode: str | None = None) -> object:
    """`torch.div` of two sizes, none of them negative, as their quotient: a number and no tensor that holds one."""
    if isinstance(input, _SIZES) and isinstance(other, _SIZES) and rounding_mode in ("trunc", "floor"):
        return input // other
    return torch.div(cast(Tensor, input), cast(Tensor, other), rounding_mode=rounding_mode)


def _log_sigmoid(input: Tensor) -> Tensor:
    """As torch computes it on a GPU: no second result that is kept."""
    return -F.softplus(-input)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """A direction at a length of its own: v g / |v|, with one length for each place along a dim."""
    over = [d for d in range(v.dim()) if d != dim]
    return v * (g / v.square().sum(over, keepdim=True).sqrt())


def _masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Rows of a source in place of the rows that a mask marks, in order: a lookup by their number and a choice.

    So features of pictures take the places of their tokens. Where there are as many a sample,
    each takes its own: [batch, s, width] from [batch, n, width]. A mask that does not mark whole rows is left to torch.
    """
    # The mask [..] of the rows of [.., width], where one entry stands for each row and sources are as wide.
    repeats = mask.dim() == input.dim() and (mask.shape[-1] == 1 or mask.stride(-1) == 0)
    rows = mask[..., 0] if repeats and source.shape[-1] == input.shape[-1] else None
    if rows is None or input.dim() != 3 or not _is_shared(source.numel(), input.shape[0], input.shape[2]):
        return torch.masked_scatter(input, mask, source)
    number = (rows.long().cumsum(1) - 1).clamp(min=0)
    own = source.reshape(input.shape[0], source.numel() // (input.shape[0] * input.shape[-1]), input.shape[-1])
    taken = torch.gather(own, 1, number.unsqueeze(-1).expand(input.shape))
    return torch.where(rows.unsqueeze(-1), taken, input)


def _set_rows(self: Tensor, index: object, value: object) -> None:
    """`x[mask] = rows` with a mask [batch, s] of rows of [batch, s, width]: the rows of a source in their places."""
    marks = index if isinstance(index, Tensor) and index.dtype is torch.bool and index.dim() == 2 else None
    rows = value if isinstance(value, Tensor) and value.dim() == 2 and self.dim() == 3 else None
    if marks is None or rows is None or rows.shape[-1] != self.shape[-1]:
        Tensor.__setitem__(self, cast(Tensor, index), cast(Tensor, value))
    else:
        self.copy_(_masked_scatter(self, marks.unsqueeze(-1), rows))


def _is_shared(size: int | torch.SymInt, batch: int | torch.SymInt, width: int | torch.SymInt) -> bool:
    """Whether a source has as many rows for each of the samples, for any number of them or for the given one."""
    if isinstance(size, torch.SymInt):
        return True
    return isinstance(batch, int) and isinstance(width, int) and size % (batch * width) == 0


_SIZES = (int, torch.SymInt)
_LIFTED: Mapping[Callable[..., object], Callable[..., object]] = {
    F.scaled_dot_product_attention: _sdpa,
    F.rms_norm: _rms_norm,
    F.cross_entropy: _cross_entropy,
    F.dropout: _dropout,
    F.layer_norm: _layer_norm,
    F.logsigmoid: _log_sigmoid,
    F.pad: _pad,
    F.interpolate: interpolate,
    F.adaptive_avg_pool1d: adaptive_avg_pool(F.adaptive_avg_pool1d, 1),
    F.adaptive_avg_pool2d: adaptive_avg_pool(F.adaptive_avg_pool2d, 2),
    F.adaptive_avg_pool3d: adaptive_avg_pool(F.adaptive_avg_pool3d, 3),
    torch.baddbmm: _baddbmm,
    torch.div: _div,
    Tensor.baddbmm: _baddbmm,
    Tensor.masked_scatter: _masked_scatter,
    Tensor.__setitem__: _set_rows,
    torch._weight_norm: _weight_norm,  # pyright: ignore[reportPrivateImportUsage]
    **recurrent.LIFTED,
    **LIFTED,
}
_LIFTED_BY_NAME = {name: found for name, found in vars(F).items() if callable(found) and found in _LIFTED}


def _norm_forward(module: nn.Module) -> Callable[[Tensor], Tensor]:
    weight = module.weight
    assert isinstance(weight, Tensor)
    eps, offset = norm_constants(module)
    return lambda x: semantic.rms_norm(x, weight, eps, offset)[0]


def _gelu_forward(module: nn.Module) -> Callable[[Tensor], Tensor]:
    del module
    return lambda x: F.gelu(x, approximate="tanh")


# Those of T5's kind subtract no mean, whatever they are called (transformers: "T5LayerNorm").
_RMS_NORMS = (
    "RMSNorm",
    "T5LayerNorm",
    "SwitchTransformersLayerNorm",
    "UdopLayerNorm",
    "Pop2PianoLayerNorm",
    "Pix2StructLayerNorm",
)


def _is_written_out_gelu(module: nn.Module) -> bool:
    """A GELU spelled as eight pointwise operators, equal to the tanh approximation."""
    return type(module).__name__ in ("NewGELUActivation", "FastGELUActivation", "GELUTanh")


@one_context
def lifted(module: nn.Module, spelled_out: bool = False) -> Contexts:
    """Record under this: library calls are lifted and, unless `spelled_out`, forwards of known classes replaced."""
    for part in () if spelled_out else module.modules():
        # A class named ..RMSNorm, or as T5 calls it, with one weight and no gate: what fused kernels replace.
        named = type(part).__name__.endswith(_RMS_NORMS) and type(part) is not nn.RMSNorm
        if named and isinstance(getattr(part, "weight", None), Tensor) and len(list(part.parameters())) == 1:
            yield swapped(part, "forward", _norm_forward(part))
        elif _is_written_out_gelu(part):
            yield swapped(part, "forward", _gelu_forward(part))
    for name, found in _LIFTED_BY_NAME.items():
        yield swapped(F, name, _LIFTED[found])
    yield one_kind_of_checkpoint()
    yield Lift()
