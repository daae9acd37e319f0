"""Files of nanotron."""

import pytest

from slipstick.frameworks.reading import read_launch
from slipstick.ir.errors import ParseError

TEXT = """
general: {project: x, seed: 1}
model:
  dtype: bfloat16
  model_config: {hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4, num_attention_heads: 4,
                 num_key_value_heads: 2, vocab_size: 256, tie_word_embeddings: true, is_llama_config: true}
optimizer: {accumulate_grad_in_fp32: true, zero_stage: 1, clip_grad: 1.0}
parallelism: {dp: 2, tp: 2, pp: 2, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true}
tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 4, sequence_length: 128, train_steps: 10}
"""


def test_a_file_is_a_plan() -> None:
    launch = read_launch(TEXT, "config.yaml")
    assert launch.framework == "nanotron"
    names = ("gpus", "tp", "pp", "sp", "schedule", "zero", "mbs", "gbs", "seq", "dtype", "stack")
    assert {name: launch.words[name] for name in names} == {
        "gpus": 8, "tp": 2, "pp": 2, "sp": True, "schedule": "1f1b", "zero": 1, "mbs": 2, "gbs": 16, "seq": 128,
        "dtype": "bf16", "stack": "nanotron",
    }  # fmt: skip
    assert launch.config is not None
    assert (launch.config["model_type"], launch.config["hidden_size"]) == ("llama", 64)
    assert not launch.left_out


def test_degrees_say_how_many_gpus_there_are() -> None:
    with pytest.raises(ParseError, match="are 8 GPUs, and the launch has 16"):
        read_launch(TEXT, "config.yaml", num_gpus=16)


def test_experts_are_left_out_of_the_shape() -> None:
    launch = read_launch(TEXT.replace("hidden_size: 64,", "hidden_size: 64, moe_config: {num_experts: 8},"), "c.yaml")
    assert launch.config is None
    assert "model.model_config.moe_config.num_experts" in launch.left_out
