"""Files of DeepSpeed, Accelerate and transformers' Trainer."""

import json

import pytest

from slipstick.frameworks.reading import read_launch
from slipstick.ir.errors import ParseError, UsageError

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


@pytest.mark.parametrize(
    ("key", "value"),
    [("zero_quantized_weights", True), ("zero_hpz_partition_size", 8), ("zero_quantized_gradients", True)],
)
def test_what_zero_does_beyond_its_stage_is_left_out(key: str, value: object) -> None:
    given = {**DEEPSPEED, "zero_optimization": {"stage": 3, key: value}}
    assert f"zero_optimization.{key}" in read_launch(json.dumps(given), "ds.json").left_out


def test_checkpoints_in_host_memory_are_left_out() -> None:
    given = {**DEEPSPEED, "activation_checkpointing": {"cpu_checkpointing": True, "partition_activations": False}}
    assert set(read_launch(json.dumps(given), "ds.json").left_out) == {"activation_checkpointing.cpu_checkpointing"}


def test_messages_are_in_the_open_where_zero_does_not_hide_them() -> None:
    def said(zero: dict[str, object]) -> object:
        return read_launch(json.dumps({**DEEPSPEED, "zero_optimization": zero}), "ds.json").words.get("set")

    assert said({"stage": 3}) is None
    assert said({"stage": 3, "overlap_comm": False}) == ["stack.overlap.fsdp=0", "stack.overlap.dp=0"]
    assert said({"stage": 1}) == ["stack.overlap.fsdp=0", "stack.overlap.dp=0"]
    assert said({"stage": 1, "overlap_comm": True}) is None


def test_mics_shards_over_some_replicas() -> None:
    given = {**DEEPSPEED, "zero_optimization": {"stage": 3, "mics_shard_size": 8}}
    assert read_launch(json.dumps(given), "ds.json").words["dp_shard"] == 8


AXOLOTL = "base_model: org/m\nsequence_len: 4096\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: auto\n"


def test_a_file_of_axolotl_is_a_plan() -> None:
    launch = read_launch(
        f"{AXOLOTL}learning_rate: 1e-5\nsample_packing: true\noptimizer: adamw_torch\n", "a.yml", num_gpus=8
    )
    found = {name: launch.words[name] for name in ("model", "gpus", "mbs", "gbs", "seq", "dtype")}
    assert found == {"model": "org/m", "gpus": 8, "mbs": 2, "gbs": 64, "seq": 4096, "dtype": "bf16"}
    assert launch.usual == ("sample_packing", "optimizer")
    assert not launch.left_out


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("adapter: lora\nlora_r: 32\nlora_target_linear: true", {"lora_rank": 32}),
        (
            "adapter: qlora\nlora_r: 16\nload_in_4bit: true\nlora_dropout: 0.05\nlora_alpha: 32\n"
            "lora_target_modules:\n- q_proj\n- v_proj",
            {"lora_rank": 16, "lora_base": "nf4", "lora_dropout": 0.05, "lora_modules": "q_proj,v_proj"},
        ),
        ("finetuning_type: lora\nlora_target: all", {"lora_rank": 8}),
        ("finetuning_type: lora\nlora_rank: 64\nlora_target: q_proj,o_proj\nquantization_bit: 8",
         {"lora_rank": 64, "lora_modules": "q_proj,o_proj", "lora_base": "int8"}),
        ("use_peft: true\nlora_r: 4", {"lora_rank": 4}),
        ("finetuning_type: full", {}),
        ("load_in_4bit: false\nadapter: null", {}),
    ],
)  # fmt: skip
def test_adapters_of_low_rank_are_read(lines: str, said: dict[str, object]) -> None:
    launch = read_launch(f"{AXOLOTL}{lines}\n", "a.yml", num_gpus=8)
    assert {name: value for name, value in launch.words.items() if name.startswith("lora")} == said
    assert not launch.left_out


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("finetuning_type: freeze", "trains a part of the weights"),
        ("adapter: llama-adapter", "trains a part of the weights"),
        ("load_in_4bit: true", "quantized weights without adapters"),
        ("adapter: lora\nquantization_bit: 2", "4 or 8 bits are read"),
        ("reward_model: org/judge", "trains by reinforcement"),
    ],
)
def test_a_launch_that_trains_another_part_of_the_weights_is_refused(line: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_launch(f"{AXOLOTL}{line}\n", "a.yml")


def test_a_file_of_deepspeed_that_a_launch_names_is_read() -> None:
    files = {"z3.json": json.dumps({"zero_optimization": {"stage": 3}, "train_batch_size": "auto"})}
    text = "model_name_or_path: org/m\nper_device_train_batch_size: 1\ndeepspeed: z3.json\nbf16: true\n"
    launch = read_launch(text, "sft.yaml", num_gpus=8, beside=files.get)
    assert (launch.words["zero"], launch.words["gpus"]) == (3, 8)
    assert not launch.left_out
    assert read_launch(text, "sft.yaml", num_gpus=8).left_out == {"deepspeed": "z3.json"}
