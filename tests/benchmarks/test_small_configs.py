"""Small configs: few layers, every kind of layer of the library's own default among them."""

from __future__ import annotations

import pytest

from slipstick.benchmarks.small_configs import small_config
from slipstick.frontend.fold.trace import signature
from slipstick.ir.errors import NotUnderstoodError

transformers = pytest.importorskip("transformers", reason="reads its configs; install slipstick[hf]")
torch = pytest.importorskip("torch")


def kinds(model_type: str, **fields: object) -> tuple[int, set[object]]:
    """Return the number of layers of a model and their distinct structures."""
    config = transformers.AutoConfig.for_model(model_type, **fields)
    with torch.device("meta"):
        layers = transformers.AutoModel.from_config(config).layers
    return len(layers), {(getattr(layer, "attention_type", ""), signature(layer)) for layer in layers}


@pytest.mark.parametrize("model_type", ["deepseek_v3", "gemma3_text", "gpt_oss", "jamba"])
def test_the_kinds_of_layers_are_those_of_the_whole_model(model_type: str) -> None:
    many, whole = kinds(model_type)
    few, kept = kinds(model_type, **small_config(model_type))
    assert few < many
    assert kept == whole


def test_layers_that_share_keys_and_values_stay_beside_those_that_make_them() -> None:
    fields = small_config("gemma3n_text")
    # 6 layers of 4 kinds (full or not, sparse or not), and one more of each kind of attention that shares
    assert (fields["num_hidden_layers"], fields["num_kv_shared_layers"]) == (8, 2)
    layer_types = fields["layer_types"]
    assert isinstance(layer_types, list)
    assert set(layer_types[-2:]) == {"sliding_attention", "full_attention"}


def test_the_layers_of_the_text_model_are_reduced_inside_its_config() -> None:
    text = small_config("mllama")["text_config"]
    assert isinstance(text, dict)
    assert (text["num_hidden_layers"], text["cross_attention_layers"]) == (4, [3])


def test_an_encoder_is_told_to_be_a_causal_model() -> None:
    fields = small_config("bert")
    assert (fields["architectures"], fields["is_decoder"]) == (["BertLMHeadModel"], True)
    assert small_config("bart")["is_encoder_decoder"] is False


def test_a_type_that_is_not_known_gets_the_nearest() -> None:
    with pytest.raises(NotUnderstoodError, match="no model type 'lama'; did you mean 'llama'"):
        small_config("lama")


def test_a_backbone_of_another_package_is_the_one_of_the_library_itself() -> None:
    # DetrConfig: ResNet-50 of timm, stages 1 to 4, which transformers has as `resnet` with the same numbers
    fields = small_config("detr", is_whole=True)
    assert fields["backbone_config"] == {"model_type": "resnet", "out_indices": [1, 2, 3, 4]}


def test_a_backbone_of_which_several_stages_are_read_keeps_them_all() -> None:
    # LwDetrViTConfig: 10 layers, of which 2, 4, 5 and 9 are read
    assert "backbone_config" not in small_config("lw_detr", is_whole=True)


def test_what_a_model_of_time_series_leaves_open_is_filled_in() -> None:
    fields = small_config("informer", is_whole=True)
    assert (fields["prediction_length"], fields["num_time_features"]) == (24, 2)


def test_layers_that_features_are_taken_from_are_among_those_that_are_left() -> None:
    # Depth Pro takes features behind layers 11 and 5 of 24, of which two are left.
    assert small_config("depth_pro", is_whole=True)["intermediate_hook_ids"] == [1, 1]


def test_what_a_tower_hands_over_is_as_wide_as_the_text() -> None:
    # By default an encoder of sound makes 3584 numbers of a frame, and the text has 2048 a token.
    fields = small_config("qwen3_omni_moe_thinker", is_whole=True)
    assert isinstance(fields["audio_config"], dict)
    assert fields["audio_config"]["output_dim"] == 2048
