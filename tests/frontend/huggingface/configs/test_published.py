"""What configs say of the precision that a model was published in, and what is run on which chip."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstick.frontend import load
from slipstick.frontend.huggingface.configs.models import config_of, index
from slipstick.frontend.huggingface.configs.published import (
    published_precision,
    published_recipes,
    recipe_of,
    recipes_of_config,
)
from slipstick.ir.errors import NotBuiltError, NotUnderstoodError, UsageError
from slipstick.ir.graph import Workload
from slipstick.ir.plan.low_inference import INFERENCE

HOPPER, BLACKWELL, AMPERE = ("bf16", "fp8", "int8"), ("bf16", "fp8", "fp4", "int8"), ("bf16", "int8")
_FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
_ROWS = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}


def compressed(weights: dict[str, object], rows: dict[str, object] | None) -> dict[str, object]:
    """A config as compressed-tensors writes it."""
    group = {"weights": weights, "input_activations": rows, "targets": ["Linear"]}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}, "fp8-block"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8-rowwise"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "w4a16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "w8a16"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (compressed(_FLOAT8, _ROWS), "fp8-rowwise"),
        (compressed(_FLOAT8, {**_ROWS, "strategy": "tensor", "dynamic": False}), "fp8"),
        (compressed({**_FLOAT8, "strategy": "block"}, _ROWS), "fp8-block"),
        (compressed({"num_bits": 8, "type": "int"}, {"num_bits": 8, "type": "int", "dynamic": True}), "int8"),
        (compressed({"num_bits": 4, "type": "int", "group_size": 128}, None), "w4a16"),
        (
            compressed({"num_bits": 4, "type": "float", "group_size": 16}, {"num_bits": 4, "type": "float"}),
            "nvfp4",
        ),
    ],
)
def test_configs_name_a_recipe(given: dict[str, object], name: str) -> None:
    assert recipe_of(config_of("mine", {"model_type": "llama", "quantization_config": given})) == name
    assert name in INFERENCE


@pytest.mark.parametrize(
    "given",
    [{"quant_method": "bitsandbytes", "load_in_4bit": True}, {"quant_method": "gptq", "bits": 3},
     compressed({"num_bits": 4, "type": "int"}, {"num_bits": 8, "type": "int"})],
)  # fmt: skip
def test_a_scheme_that_no_recipe_has_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(NotBuiltError, match=rf"{given['quant_method']}.*name the nearest: none, fp8"):
        recipe_of(config_of("mine", {"model_type": "llama", "quantization_config": given}))


def parts(given: dict[str, object]) -> tuple[str, dict[str, str]]:
    found = recipes_of_config(config_of("mine", {"model_type": "llama", "quantization_config": given}))
    return found.recipe, dict(found.of)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        # As transformers writes it for gpt-oss, AWQ for Mixtral, compressed-tensors and ModelOpt.
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, "model.layers.*.self_attn"),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["gate"]}, "*.gate"),
        (compressed(_FLOAT8, _ROWS) | {"ignore": ["re:.*mlp.gate$"]}, "re:.*mlp.gate$"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["*self_attn*"]}, "*self_attn*"),
        ({"quant_method": "fp8", "modules_to_not_convert": [r"layers\.\d+\.mlp"]}, r"re:layers\.\d+\.mlp"),
        (
            compressed(_FLOAT8, _ROWS) | {"ignore": ["model.language_model.layers.0.mlp.up_proj"]},
            "model.layers.0.mlp.up_proj",
        ),
    ],
)
def test_what_a_checkpoint_leaves_out_is_named(given: dict[str, object], left: str) -> None:
    recipe, of = parts(given)
    assert recipe != "none"
    assert of[left] == "none"
    assert set(of.values()) == {"none"}


def test_groups_have_recipes_of_their_own() -> None:
    # A scheme for all linear layers and one for some, as llm-compressor writes mixed recipes.
    low: dict[str, object] = {"num_bits": 4, "type": "int", "group_size": 128}
    groups = {
        "group_0": {"weights": low, "input_activations": None, "targets": ["re:.*down_proj"]},
        "group_1": {"weights": _FLOAT8, "input_activations": _ROWS, "targets": ["Linear"]},
    }
    given: dict[str, object] = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}
    assert parts(given) == ("fp8-rowwise", {"re:.*down_proj": "w4a16", "lm_head": "none", "*.lm_head": "none"})


def test_layers_with_schemes_of_their_own_leave_the_others() -> None:
    # ModelOpt, `get_quantization_config` of mixed precision.
    layers = {
        "model.layers.0.mlp.up_proj": {"quant_algo": "FP8"},
        "model.layers.1.mlp.up_proj": {"quant_algo": "NVFP4"},
    }
    recipe, of = parts({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert recipe == "none"
    assert of["model.layers.0.mlp.up_proj"] == "fp8"
    assert of["model.layers.1.mlp.up_proj"] == "nvfp4"


def test_a_group_of_a_class_of_modules_is_refused() -> None:
    group = {"weights": _FLOAT8, "input_activations": _ROWS, "targets": ["LlamaMLP"]}
    with pytest.raises(NotBuiltError, match="of class LlamaMLP"):
        parts({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}})


def test_each_recipe_of_a_checkpoint_is_run_as_the_chip_can(tmp_path: Path) -> None:
    layers = {"model.layers.*.mlp": {"quant_algo": "NVFP4"}, "model.layers.*.self_attn": {"quant_algo": "FP8"}}
    given = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"model_type": "llama", "quantization_config": given}))
    kept = [dict(published_recipes(str(file), peaks).of) for peaks in (BLACKWELL, HOPPER, AMPERE)]
    assert [of["model.layers.*.mlp"] for of in kept] == ["nvfp4", "w4a16", "w4a16"]
    assert [of["model.layers.*.self_attn"] for of in kept] == ["fp8", "fp8", "w8a16"]


def test_recipes_of_the_catalogue_are_those_of_inference() -> None:
    found = {name: e.precision for name, e in index().items() if e.precision != "none"}
    assert found == {"deepseek-v3": "fp8-block", "gpt-oss-20b": "mxfp4", "gpt-oss-120b": "mxfp4"}
    assert all("Published quantised" in index()[name].note for name in found)


@pytest.mark.parametrize(
    ("model", "peaks", "name"),
    [
        ("deepseek-v3", HOPPER, "fp8-block"),
        # vLLM on chips without fp8 units: weights alone, by Marlin.
        ("deepseek-v3", AMPERE, "w8a16"),
        ("gpt-oss-120b", HOPPER, "mxfp4"),
        ("gpt-oss-120b", BLACKWELL, "mxfp4-mxfp8"),
        ("gpt-oss-120b", (), "mxfp4"),
        ("llama-3.1-8b", AMPERE, "none"),
    ],
)
def test_what_is_run_depends_on_the_chip(model: str, peaks: tuple[str, ...], name: str) -> None:
    assert published_precision(model, peaks) == name


def test_saved_graphs_do_not_say_how_they_were_published() -> None:
    with pytest.raises(UsageError, match="name a precision"):
        published_precision("mine.graph")


def test_a_quantised_config_is_read_in_the_model_s_type_for_inference(tmp_path: Path) -> None:
    source = Path(__file__).parents[3] / "data" / "configs" / "tiny-llama.json"
    file = tmp_path / "tiny-llama.json"
    file.write_text(json.dumps({**json.loads(source.read_text()), "quantization_config": {"quant_method": "fp8"}}))
    assert load(str(file), Workload.DECODE) == load(str(source), Workload.DECODE)


@pytest.mark.parametrize(
    "given", ["fp8", 8, 1.5, True, ["fp8"], [[]], {}, {"quant_method": None}, {"bits": []}, {"quant_method": {}}]
)
def test_every_kind_of_json_is_read_or_refused_in_one_line(given: object) -> None:
    config = config_of("mine", {"model_type": "llama", "quantization_config": given})
    if given == {}:
        assert recipe_of(config) == "none"
        return
    with pytest.raises(NotUnderstoodError, match="'mine' has a quantization_config of") as caught:
        recipe_of(config)
    assert "\n" not in str(caught.value)
