"""Settings of MaxText."""

import pytest

from slipstick.frontend.launches.reading import read_launch
from slipstick.ir.errors import ParseError

RUN = (
    "python3 -m MaxText.train MaxText/configs/base.yml "
    "model_name=llama3.1-8b per_device_batch_size=3 max_target_length=8192"
)


def words(more: str, num_gpus: int | None = None) -> dict[str, object]:
    return dict(read_launch(f"{RUN} {more}", num_gpus=num_gpus).words)


def test_a_command_is_a_plan() -> None:
    found = words("ici_fsdp_parallelism=32 remat_policy=full opt_type=adamw")
    assert found["model"] == "llama-3.1-8b"
    assert {name: found[name] for name in ("gpus", "zero", "mbs", "gbs", "seq", "recompute", "dtype")} == {
        "gpus": 32, "zero": 3, "mbs": 3, "gbs": 96, "seq": 8192, "recompute": "full", "dtype": "bf16",
    }  # fmt: skip


def test_training_in_int8_and_modules_of_multi_token_prediction_are_read() -> None:
    found = words("ici_fsdp_parallelism=8 quantization=int8 mtp_num_layers=1 mtp_loss_scaling_factor=0.1")
    assert (found["precision"], found["mtp_num_layers"]) == ("int8", 1)


def test_an_axis_of_minus_one_takes_the_devices_that_are_left() -> None:
    found = words("ici_fsdp_parallelism=-1 ici_tensor_parallelism=4", num_gpus=64)
    assert (found["tp"], found["gpus"], found["gbs"], found["mbs"]) == (4, 64, 192, 12)
    slices = words("ici_fsdp_parallelism=16 dcn_data_parallelism=-1", num_gpus=64)
    assert (slices["dp_shard"], slices["gbs"]) == (16, 192)


def test_axes_that_are_not_the_devices_are_refused() -> None:
    with pytest.raises(ParseError, match="the axes of its mesh are 32 devices, and the launch has 24"):
        words("ici_fsdp_parallelism=32", num_gpus=24)
    with pytest.raises(ParseError, match="no degrees of parallelism"):
        words("ici_fsdp_parallelism=0")


def test_tensors_of_a_policy_of_ones_own_are_said() -> None:
    launch = read_launch(f"{RUN} ici_fsdp_parallelism=8 remat_policy=custom decoder_layer_input=offload mlpwo=device")
    assert (launch.words["recompute"], launch.words["offload"]) == ("full", "activations")
    assert any("decoder_layer_input, mlpwo" in line for line in launch.assumed)


def test_a_mesh_of_two_devices_a_chip_says_so() -> None:
    launch = read_launch(f"{RUN} ici_fsdp_parallelism=128", num_gpus=64)
    assert launch.words["gpus"] == 128
    assert any("TPU v7x" in line for line in launch.assumed)
