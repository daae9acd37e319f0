"""Models of transformers that read pictures, sound, or both and tokens: FLOPs derived, parameters the module's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

import pytest

from slipstick.frontend.huggingface.configs.building import build_noted
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.loading import load_config
from slipstick.frontend.loss import SUMMED
from slipstick.frontend.runs.options import TraceOptions
from slipstick.ir.errors import NotBuiltError, UsageError
from slipstick.ir.graph import Graph, Phase, Workload
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.types import DType
from tests.frontend.sums import flops

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

Fields = Mapping[str, object]

HIDDEN, FFN, HEADS, LAYERS = 64, 128, 4, 2
SIDE, PATCH, CHANNELS = 32, 8, 3
PATCHES = (SIDE // PATCH) ** 2
ENCODER: Fields = {
    "hidden_size": HIDDEN, "intermediate_size": FFN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
}  # fmt: skip
TOWER: Fields = {**ENCODER, "image_size": SIDE, "patch_size": PATCH}
VIT: Fields = {"model_type": "vit", **TOWER}
CLIP: Fields = {
    "model_type": "clip", "projection_dim": 32, "vision_config": TOWER, "text_config": {**ENCODER, "vocab_size": 100},
}  # fmt: skip
LLAVA: Fields = {
    "model_type": "llava", "image_token_index": 99, "vision_feature_layer": -1,
    "vision_config": {"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False},
    "vision_feature_select_strategy": "full",
    "text_config": {"model_type": "llama", **ENCODER, "num_key_value_heads": HEADS, "vocab_size": 100},
}  # fmt: skip
QWEN: Fields = {
    "model_type": "qwen2_vl", "image_token_id": 99,
    "vision_config": {"depth": LAYERS, "embed_dim": HIDDEN, "hidden_size": HIDDEN, "num_heads": HEADS, "mlp_ratio": 2},
    "text_config": {
        **ENCODER, "num_key_value_heads": HEADS, "vocab_size": 100,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
    },
}  # fmt: skip
WAV2VEC2: Fields = {
    "model_type": "wav2vec2", **ENCODER, "conv_dim": [32, 32], "conv_kernel": [10, 3], "conv_stride": [5, 2],
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip

BATCH, SEQ = symbol("batch"), symbol("seq")


def recorded(fields: Fields, workload: str = "prefill", images: int = 0) -> Graph:
    return _recorded(json.dumps(fields), workload, images)


@cache
def _recorded(text: str, workload: str, images: int) -> Graph:
    return load_config(config_of("mine", json.loads(text)), Workload(workload), options=TraceOptions(images=images))


def parameters(fields: Fields, is_whole: bool = False) -> int:
    module = build_noted(config_of("mine", fields).text, DType.BF16, is_whole).module
    return sum(p.numel() for p in module.parameters())


def layers_flops(tokens: int) -> int:
    """Layers over so many tokens of one sequence: four projections, scores and values, two matrices of the MLP."""
    projections = 4 * 2 * tokens * HIDDEN * HIDDEN
    attention = 4 * tokens * tokens * HIDDEN
    return LAYERS * (projections + attention + 2 * 2 * tokens * HIDDEN * FFN)


EMBEDDING = 2 * PATCHES * HIDDEN * CHANNELS * PATCH**2


def test_a_picture_is_cut_into_patches_and_read_by_every_layer() -> None:
    graph = recorded(VIT)
    pooler = 2 * HIDDEN * HIDDEN
    assert flops(graph) == BATCH * (EMBEDDING + layers_flops(PATCHES + 1) + pooler)
    assert graph.num_parameters == parameters(VIT)
    assert graph.notes == (f"it reads pixel_values [batch, {CHANNELS}, {SIDE}, {SIDE}]",)


def test_training_starts_from_the_sum_of_what_an_encoder_returns() -> None:
    graph = recorded(VIT, "train")
    # Twice forward, but for the gradient of the picture, which nobody asks for; the kernel computes scores once more.
    scores = LAYERS * 2 * (PATCHES + 1) ** 2 * HIDDEN
    assert flops(graph, Phase.BACKWARD) == flops(graph) * 2 - BATCH * EMBEDDING + BATCH * scores
    of_config = f"{SUMMED}; name one with --loss file.py:function of a factory that makes this model"
    assert [note for note in graph.notes if SUMMED in note] == [of_config]


def test_an_encoder_of_pictures_has_no_decode_step() -> None:
    with pytest.raises(NotBuiltError, match=r"ViTModel makes no tokens .* ask for --phase train or prefill"):
        recorded(VIT, "decode")


def test_the_class_that_a_config_names_is_built() -> None:
    named: Fields = {**VIT, "architectures": ["ViTForImageClassification"], "num_labels": 10}
    assert parameters(named) == parameters(VIT) - (HIDDEN * HIDDEN + HIDDEN) + (HIDDEN * 10 + 10)
    bare: Fields = {"model_type": "bert", **ENCODER, "vocab_size": 100}
    assert parameters({**bare, "architectures": ["BertModel"]}) < parameters(bare) + HIDDEN * HIDDEN


def test_two_towers_read_tokens_and_pictures() -> None:
    graph = recorded(CLIP)
    assert graph.num_parameters == parameters(CLIP)
    assert graph.notes[-1] == f"it reads input_ids [batch, seq], pixel_values [batch, {CHANNELS}, {SIDE}, {SIDE}]"


def test_sound_is_as_long_as_the_plan_says() -> None:
    graph = recorded(WAV2VEC2)
    assert graph.notes[-1] == "it reads input_values [batch, seq]"
    # Two convolutions of 10 taps by 5 and 3 taps by 2: 401 samples are 79 and then 39 frames.
    samples, first, frames = 401, 79, 39
    convolutions = 2 * first * 32 * 10 + 2 * frames * 32 * 32 * 3
    positions = 2 * (frames + 1) * HIDDEN * (HIDDEN // 4) * 16  # padded by one, which is cut off
    expected = convolutions + 2 * frames * 32 * HIDDEN + positions + layers_flops(frames)
    assert float(flops(graph).evaluate({"batch": 1.0, "seq": float(samples)})) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("images", [1, 2])
def test_pictures_among_tokens_are_encoded_projected_and_put_in_their_places(images: int) -> None:
    graph = recorded(LLAVA, images=images)
    text = flops(recorded(LLAVA))
    tower = EMBEDDING + layers_flops(PATCHES)
    projector = 2 * 2 * PATCHES * HIDDEN * HIDDEN
    assert flops(graph) - text == BATCH * images * (tower + projector)


def test_without_pictures_the_graph_is_of_the_language_model() -> None:
    assert recorded(LLAVA).num_parameters == parameters(LLAVA)
    assert parameters(LLAVA) < parameters(LLAVA, is_whole=True)
    assert "only the language model" in recorded(LLAVA).notes[0]


def test_training_with_pictures_reaches_all_parameters_that_have_a_gradient() -> None:
    graph = recorded(LLAVA, "train", images=1)
    # The norm behind the last layer of the tower is not read: features come from before it.
    assert graph.num_parameters == parameters(LLAVA, is_whole=True) - 2 * HIDDEN


def test_decode_is_that_of_the_language_model_behind_its_cache() -> None:
    assert flops(recorded(LLAVA, "decode", images=1)) == flops(recorded(LLAVA, "decode"))


def test_pictures_of_a_model_that_takes_none_are_refused() -> None:
    for workload in ("prefill", "decode"):
        with pytest.raises(UsageError, match=r"--images 1: .* sees no pictures, it reads input_values"):
            recorded(WAV2VEC2, workload, images=1)


def test_packed_pictures_are_attended_one_by_one() -> None:
    graph = recorded(QWEN, images=2)
    found = {
        str(region.by_id[node.inputs[0]].type)
        for region in graph.regions
        for node in region.nodes
        if isinstance(node.attrs, AttentionAttrs) and not node.attrs.causal
    }
    # 448 / 14 = 32 patches a side, two pictures a sequence.
    assert found == {f"bf16[2*batch, {HEADS}, 1024, {HIDDEN // HEADS}]"}
