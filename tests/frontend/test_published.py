"""What configs say of the precision that a model was published in, and what is run on which chip."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstick.frontend import load
from slipstick.frontend.models import config_of, index
from slipstick.frontend.published import published_precision, recipe_of
from slipstick.ir.errors import NotBuiltError, UsageError
from slipstick.ir.graph import Workload
from slipstick.ir.low_inference import INFERENCE

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
    source = Path(__file__).parents[1] / "data" / "configs" / "tiny-llama.json"
    file = tmp_path / "tiny-llama.json"
    file.write_text(json.dumps({**json.loads(source.read_text()), "quantization_config": {"quant_method": "fp8"}}))
    assert load(str(file), Workload.DECODE) == load(str(source), Workload.DECODE)
