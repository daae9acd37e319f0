"""Models of transformers that someone holds: what their configs say while they are recorded, and afterwards again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from slipstick.frontend.huggingface.recording import IMPLEMENTATION, recordable, uncached

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

if TYPE_CHECKING:
    from transformers import GPT2Model

IDS = torch.zeros(2, 4, dtype=torch.int64)


@pytest.fixture
def model() -> GPT2Model:
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=10, n_positions=8))


def test_a_training_step_keeps_no_keys_and_values(model: GPT2Model) -> None:
    assert model(IDS).past_key_values is not None
    with uncached(model):
        assert model(IDS).past_key_values is None
    assert model(IDS).past_key_values is not None


def test_a_part_may_have_a_config_that_is_a_plain_dict(model: GPT2Model) -> None:
    vars(model.wte)["config"] = {"rows": 10}
    before = model.config._attn_implementation
    with recordable(model), uncached(model):
        assert model.config._attn_implementation == IMPLEMENTATION
        assert model.config.use_cache is False
    assert model.config._attn_implementation == before != IMPLEMENTATION
    assert model.config.use_cache is True
