"""Files of torchtitan, DeepSpeed, Accelerate and transformers' Trainer."""

import json

import pytest

from slipstick.frontend.launches.reading import read_launch
from slipstick.ir.errors import ParseError

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
DEEPSPEED = {
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    "gradient_clipping": 1.0, "wall_clock_breakdown": False,
}  # fmt: skip
ACCELERATE = """
distributed_type: FSDP
mixed_precision: bf16
num_processes: 16
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_offload_params: false
  fsdp_activation_checkpointing: true
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


def test_a_file_of_deepspeed_is_a_plan() -> None:
    launch = read_launch(json.dumps(DEEPSPEED), "ds.json")
    found = {name: launch.words[name] for name in ("gpus", "mbs", "gbs", "zero", "dtype", "offload")}
    assert found == {"gpus": 8, "mbs": 2, "gbs": 64, "zero": 3, "dtype": "bf16", "offload": "optimizer"}
    assert not launch.left_out


def test_what_is_auto_is_left_open_and_said() -> None:
    launch = read_launch(json.dumps({**DEEPSPEED, "train_batch_size": "auto"}), "ds.json", num_gpus=8)
    assert launch.words["gbs"] == 64
    assert any("train_batch_size: auto" in line for line in launch.assumed)


def test_a_file_of_accelerate_is_a_plan() -> None:
    launch = read_launch(ACCELERATE, "fsdp.yaml")
    found = {name: launch.words[name] for name in ("gpus", "zero", "dtype", "recompute", "stack")}
    assert found == {"gpus": 16, "zero": 3, "dtype": "bf16", "recompute": "full", "stack": "fsdp2"}


def test_a_stage_that_there_is_not_is_refused() -> None:
    with pytest.raises(ParseError, match="4 is none of 0, 1, 2, 3"):
        read_launch(json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": 4}}), "ds.json")
