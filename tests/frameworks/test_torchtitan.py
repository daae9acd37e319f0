"""Files of torchtitan."""

import pytest

from slipstick.frameworks.reading import read_launch

TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[float8]
enable_fsdp_float8_all_gather = false
"""


def test_a_toml_file_of_torchtitan_is_a_plan() -> None:
    launch = read_launch(TITAN, "llama3_8b.toml", num_gpus=64)
    found = {
        name: launch.words[name] for name in ("model", "gpus", "tp", "sp", "zero", "mbs", "gbs", "seq", "recompute")
    }
    assert found == {
        "model": "llama-3.1-8b", "gpus": 64, "tp": 8, "sp": True, "zero": 3, "mbs": 1, "gbs": 8, "seq": 8192,
        "recompute": "ops",
    }  # fmt: skip
    assert not launch.left_out


@pytest.mark.parametrize(
    ("model", "section", "precision"),
    [
        ('converters = ["mx"]', '[mx]\nrecipe_name = "mxfp8_cublas"', "mxfp8"),
        ('converters = ["float8"]', '[float8]\nrecipe_name = "rowwise"', "fp8-rowwise"),
        ("", '[mx]\nrecipe_name = "mxfp8"', None),
    ],
)
def test_a_converter_says_the_recipe(model: str, section: str, precision: str | None) -> None:
    text = TITAN.replace('flavor = "8B"', f'flavor = "8B"\n{model}').partition("[float8]")[0] + section
    launch = read_launch(text, "t.toml", num_gpus=8)
    assert launch.words.get("precision") == precision
    assert not launch.left_out
