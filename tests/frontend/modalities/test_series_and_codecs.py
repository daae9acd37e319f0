"""Models of time series, episodes and coded sound, and what training code asks of its numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.huggingface.odd_models import decided
from slipstick.frontend.loading import load_config
from slipstick.frontend.record.adapter import FakeWorld, faked
from slipstick.frontend.runs.options import TraceOptions
from slipstick.ir.graph import Graph, Workload
from tests.frontend.sums import flops

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

Fields = dict[str, object]

SERIES: Fields = {
    "model_type": "time_series_transformer", "prediction_length": 8, "context_length": 16, "lags_sequence": [1, 4],
    "num_time_features": 2, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip
EPISODE: Fields = {
    "model_type": "decision_transformer", "state_dim": 5, "act_dim": 3, "hidden_size": 16, "n_layer": 1, "n_head": 2,
    "max_ep_len": 64, "n_positions": 64,
}  # fmt: skip
PAIR: Fields = {
    "model_type": "fsmt", "langs": ["en", "de"], "src_vocab_size": 50, "tgt_vocab_size": 50, "d_model": 16,
    "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def recorded(fields: Fields, images: int = 0) -> Graph:
    return load_config(config_of("mine", fields), Workload.PREFILL, options=TraceOptions(images=images))


def test_a_series_is_read_back_to_its_longest_lag_and_its_future_by_the_decoder() -> None:
    (read,) = (n for n in recorded(SERIES).notes if n.startswith("it reads"))
    # 16 places of context and 4 of lag before these; 8 places to come, each with two features of time
    assert "past_values [batch, 20]" in read
    assert "past_time_features [batch, 20, 2]" in read
    assert "future_time_features [batch, 8, 2]" in read
    assert "future_values [batch, 8]" in read


def test_an_episode_is_three_tokens_a_step() -> None:
    graph = recorded(EPISODE)
    found = flops(graph).evaluate({"batch": 2.0, "seq": 10.0})
    steps, tokens, d = 2 * 10, 2 * 30, 16
    layer = 2 * tokens * d * (3 * d + d + 4 * d + 4 * d) + 2 * 2 * 2 * 30 * 30 * d
    embedded = 2 * steps * d * (1 + 5 + 3)  # a return, a state and an action
    heads = 2 * steps * d * (5 + 3 + 1)
    assert found == layer + embedded + heads


def test_a_prompt_is_encoded_and_decoded_into_a_cache_of_both() -> None:
    found = flops(recorded(PAIR)).evaluate({"batch": 2.0, "src": 6.0, "seq": 6.0})
    d, ffn, vocabulary, source, target = 16, 32, 50, 6, 1
    mlp = 2 * 2 * d * ffn
    encoder = source * (4 * 2 * d * d + 4 * source * d + mlp)
    own = target * (4 * 2 * d * d + 4 * target * d)
    looked_up = (2 * source + 2 * target) * 2 * d * d + 4 * target * source * d
    assert found == 2 * (encoder + own + looked_up + target * (mlp + 2 * d * vocabulary))


class Coded(nn.Module):
    """A convolution of a codec, with its sizes in tensors, as those of Encodec and Mimi have them."""

    stride: Tensor
    kernel_size: Tensor
    padding_total: Tensor

    def __init__(self, kernel: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 2, kernel, stride, dilation=dilation)
        effective = (kernel - 1) * dilation + 1
        self.register_buffer("stride", torch.tensor(stride))
        self.register_buffer("kernel_size", torch.tensor(effective))
        self.register_buffer("padding_total", torch.tensor(effective - stride))

    def _get_extra_padding_for_conv1d(self, x: Tensor) -> Tensor:
        length = x.shape[-1]
        frames = (length - self.kernel_size + self.padding_total) / self.stride + 1
        ideal = (torch.ceil(frames).to(torch.int64) - 1) * self.stride + self.kernel_size - self.padding_total
        return ideal - length

    def forward(self, x: Tensor) -> Tensor:
        extra = self._get_extra_padding_for_conv1d(x)
        made: Tensor = self.conv(nn.functional.pad(x, (int(self.padding_total), int(extra))))
        return made


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(7, 1, 1), (4, 2, 1), (3, 1, 2), (10, 5, 1), (3, 3, 1)])
def test_paddings_of_codecs_are_those_of_their_own_tensors(kernel: int, stride: int, dilation: int) -> None:
    part = Coded(kernel, stride, dilation)
    own = dict(vars(part))
    for length in range(1, 40):
        x = torch.zeros(1, 1, length)
        theirs = part(x).shape
        with decided(part):
            assert part(x).shape == theirs
    assert vars(part) == own


class Clamped(nn.Module):
    """Asks, as detectors do, whether what it made is finite."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.isfinite(x).all() or torch.isinf(x).any() or torch.isnan(x).any():
            return x.clamp(-1.0, 1.0)
        return x + 1.0


def test_what_a_model_makes_is_taken_to_be_finite() -> None:
    part, world = Clamped(), FakeWorld(FakeTensorMode())
    with faked(part, world), world.mode, decided(part):
        x = torch.zeros(2, 3)
        assert part(x).shape == (2, 3)
