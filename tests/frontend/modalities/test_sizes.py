"""Code that asks for the sizes of each picture: recorded with these as numbers, FLOPs derived."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from slipstick.benchmarks.small_configs import small_config
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.loading import load_config
from slipstick.frontend.loss import LabelledInputs
from slipstick.frontend.modalities.sizes import Known
from slipstick.frontend.runs.options import TraceOptions
from slipstick.ir.graph import Graph, LengthBound, Phase, Workload
from tests.frontend.sums import flops

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

HIDDEN, FFN, HEADS, LAYERS, VOCAB = 64, 128, 4, 2, 100
SIDE, PATCH, CHANNELS, SHUFFLE = 32, 8, 3, 2
PATCHES = (SIDE // PATCH) ** 2
ENCODER = {
    "hidden_size": HIDDEN, "intermediate_size": FFN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
}  # fmt: skip
# Drops pictures that are padding, by their values, and reads masks of pixels patch by patch.
IDEFICS3 = {
    "model_type": "idefics3", "image_token_id": 99, "scale_factor": SHUFFLE,
    "vision_config": {**ENCODER, "image_size": SIDE, "patch_size": PATCH},
    "text_config": {
        "model_type": "llama", **ENCODER, "num_key_value_heads": HEADS, "vocab_size": VOCAB, "pad_token_id": 0,
    },
}  # fmt: skip


def recorded(fields: Mapping[str, object], images: int) -> Graph:
    return load_config(
        config_of("mine", json.loads(json.dumps(fields))), Workload.TRAIN, options=TraceOptions(images=images)
    )


def layers_flops(tokens: int, matrices: int) -> int:
    """Layers over so many tokens: four projections, scores and values, and the matrices of the MLP."""
    return LAYERS * (4 * 2 * tokens * HIDDEN**2 + 4 * tokens**2 * HIDDEN + matrices * 2 * tokens * HIDDEN * FFN)


@pytest.mark.parametrize("images", [1, 2])
def test_pictures_that_are_looked_at_are_encoded_each(images: int) -> None:
    graph = recorded(IDEFICS3, images)
    embedding = 2 * PATCHES * HIDDEN * CHANNELS * PATCH**2
    shuffled = 2 * (PATCHES // SHUFFLE**2) * (HIDDEN * SHUFFLE**2) * HIDDEN
    seq = 24
    text = layers_flops(seq, 3) + 2 * seq * HIDDEN * VOCAB
    found = flops(graph, Phase.FORWARD).evaluate({"seq": float(seq)})
    pictures = images * (embedding + layers_flops(PATCHES, 2) + shuffled)
    assert float(found) == pytest.approx(pictures + text)
    assert LengthBound("batch", 1, 1) in graph.bounds
    assert any("batch is fixed at 1" in note for note in graph.notes)


def test_numbers_are_worked_out_and_sizes_are_not() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(2, 4, 8)
    grid = torch.tensor([[1, 4, 6], [1, 2, 2]])
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        features = mode.from_tensor(torch.empty(28, 8))
        with Known():
            lengths = grid.prod(-1)
            assert lengths.tolist() == [24, 4]
            assert torch.arange(3).sum().item() == 3
            parts = torch.split(features, lengths.tolist())
            kept = features[torch.arange(28) < 5]
    assert [tuple(p.shape) for p in parts] == [(24, 8), (4, 8)]
    assert tuple(kept.shape) == (5, 8)
    assert isinstance(kept, FakeTensor)
    assert tuple(x.shape) == (2, 4, 8)


def test_parts_of_default_configs_are_made_to_fit() -> None:
    handed = small_config("qwen2_vl", is_whole=True)["vision_config"]
    assert isinstance(handed, Mapping)
    assert handed["hidden_size"] == 8192  # the width of the text, Qwen2-VL-72B's
    layers = small_config("vipllava", is_whole=True)["vision_feature_layer"]
    assert layers == [-2, -2, -2, -2, 1]  # of [-2, -5, -8, -11, 6], with two layers left


def test_what_two_towers_are_compared_by_is_no_logits() -> None:
    known = LabelledInputs(torch.empty(3, 48, dtype=torch.int64), frozenset({30522, 512}), frozenset({768}))
    assert known.labels_of(torch.empty(3, 512)) is None  # as wide as the table of positions is long
    assert known.labels_of(torch.empty(3, 30522)) is not None


def test_what_is_filled_with_no_finite_number_stays_as_it_is() -> None:
    with FakeTensorMode(), Known():
        assert torch.full((2, 3), float("-inf")).shape == (2, 3)
