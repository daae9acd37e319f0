"""Patterns of single steps become the very calls that the recorder writes for the operators they stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="records modules; install slipstick[torch]")

import torch
from torch.nn import functional as F  # noqa: N812

from slipstick.frontend.recognise import recognise
from slipstick.ir.graph import Workload
from slipstick.ir.ops.fused.attention import AttentionAttrs

from .. import pieces
from ..flats import lines, recorded
from ..pieces import Step, built, fused_attention, softmax_attention

PAIRS: dict[str, tuple[Step, Step]] = {
    "attention": (softmax_attention(), fused_attention()),
    "attention, causal by a triangle": (softmax_attention(pieces.by_triangle), fused_attention(causal=True)),
    "attention, causal by a stored triangle": (
        softmax_attention(pieces.by_stored_triangle),
        fused_attention(causal=True),
    ),
    "attention, causal by positions": (softmax_attention(pieces.by_positions), fused_attention(causal=True)),
    "attention, a window of positions": (softmax_attention(pieces.by_window), fused_attention(True, window=8)),
    "attention, a window of distances": (softmax_attention(pieces.by_distance), fused_attention(True, window=8)),
    "attention, heads shared by expand": (
        softmax_attention(repeat=pieces.repeated_by_expand),
        fused_attention(kv_heads=2),
    ),
    "attention, heads shared by interleave": (
        softmax_attention(repeat=lambda k: k.repeat_interleave(2, 1)),
        fused_attention(kv_heads=2),
    ),
    "attention with sinks": (pieces.with_sinks, fused_attention(True, sinks=True, shared=True)),
    "attention with a learned bias": (
        softmax_attention(pieces.by_learned_table),
        fused_attention(causal=True, biased=True),
    ),
    "attention with a soft cap": (softmax_attention(pieces.capped), fused_attention(causal=True, softcap=30.0)),
    "attention by einsum": (pieces.by_einsum, pieces.of_three),
    "rope by a turned copy": (pieces.turned_by_copy, pieces.wide_turned),
    "rope by halves": (pieces.turned_by_halves, pieces.turned),
    "rope by pairs": (pieces.turned_by_pairs, pieces.turned),
    "rope of complex pairs": (pieces.turned_as_complex, pieces.turned_by_table),
    "layer norm of powers": (
        pieces.layer_norm_of_powers,
        lambda x, p: F.layer_norm(x, x.shape[-1:], p.weight, p.bias),
    ),
    "layer norm of the variance": (
        pieces.layer_norm_of_variance,
        lambda x, p: F.layer_norm(x, x.shape[-1:], p.weight, p.bias),
    ),
    "rms norm": (pieces.rms_norm_in_fp32, lambda x, p: F.rms_norm(x, x.shape[-1:], p.weight)),
    "rms norm around one": (pieces.rms_norm_around_one, lambda x, p: F.rms_norm(x, x.shape[-1:], p.weight)),
    "gelu by erf": (lambda x, p: 0.5 * x * (1 + torch.erf(x / 2**0.5)), lambda x, p: F.gelu(x)),
    "gelu by erf, the half last": (lambda x, p: x * (1 + torch.erf(x / 2**0.5)) * 0.5, lambda x, p: F.gelu(x)),
    "gelu by tanh": (pieces.gelu_by_tanh, lambda x, p: F.gelu(x)),
    "gelu by tanh, factored": (pieces.gelu_by_factors, lambda x, p: F.gelu(x)),
    "silu": (lambda x, p: x * torch.sigmoid(x), lambda x, p: F.silu(x)),
    "softmax": (pieces.softmax_of_exponentials, lambda x, p: F.softmax(x, -1)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_pattern_becomes_the_operator_it_stands_for(name: str) -> None:
    steps, operator = (built(step) for step in PAIRS[name])
    assert lines(recognise(recorded(steps))) == lines(recorded(operator))


def test_what_others_read_stays() -> None:
    """Weights that leave the model keep the products and the softmax that make them."""

    def step(x: torch.Tensor, piece: pieces.Piece) -> torch.Tensor:
        q = pieces.split_heads(x)
        weights = F.softmax(q @ q.transpose(2, 3), -1)
        return pieces.joined(weights @ q) * weights.sum()

    flat = recorded(built(step))
    assert lines(recognise(flat)) == lines(flat)


def test_a_graph_with_its_backward_pass_stays() -> None:
    flat = recorded(built(PAIRS["rms norm"][0]), Workload.TRAIN)
    assert lines(recognise(flat)) == lines(flat)


def test_the_fused_graph_is_its_own_fused_graph() -> None:
    flat = recorded(built(fused_attention(causal=True, kv_heads=2)))
    assert lines(recognise(flat)) == lines(flat)


def _shown_where(test: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> AttentionAttrs:
    """The attention of scores that are hidden where a test of query and key positions fails."""

    def mask(scores: torch.Tensor, piece: pieces.Piece) -> torch.Tensor:
        return scores.masked_fill(~test(*pieces.positions(scores)), float("-inf"))

    flat = recognise(recorded(built(softmax_attention(mask))))
    (found,) = (n.attrs for n in flat.nodes if isinstance(n.attrs, AttentionAttrs))
    return found


@pytest.mark.parametrize(
    "test",
    [
        lambda q, k: q >= k, lambda q, k: k <= q, lambda q, k: ~(k > q), lambda q, k: q - k >= 0,
        lambda q, k: k - q < 1, lambda q, k: q + 1 > k,
    ],
)  # fmt: skip
def test_a_query_that_sees_what_is_not_after_it_is_causal(
    test: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    found = _shown_where(test)
    assert (found.causal, found.window, found.bias) == (True, 0, False)


@pytest.mark.parametrize(
    "test",
    [
        lambda q, k: q == k, lambda q, k: q <= k, lambda q, k: k >= q, lambda q, k: q - k <= 0,
        lambda q, k: (q >= k).transpose(0, 1), lambda q, k: q // 4 == k // 4, lambda q, k: k - q < 8,
    ],
)  # fmt: skip
def test_other_masks_of_positions_are_biases(test: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    found = _shown_where(test)
    assert (found.causal, found.window, found.bias) == (False, 0, True)
