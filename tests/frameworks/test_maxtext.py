"""Settings of MaxText."""

import pytest

from slipstick.explore.recompute.spaces import maxtext_settings
from slipstick.frameworks.reading import read_launch
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
    assert words("quantization=int8 quantization_local_shard_count=0")["precision"] == "int8-dgrad"


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


def kept(more: str, model: str = "llama3.1-8b") -> tuple[object, ...]:
    said = dict(read_launch(f"{RUN.replace('llama3.1-8b', model)} ici_fsdp_parallelism=8 {more}").words)
    return tuple(said.get(word) for word in ("recompute", "recompute_save", "offload", "offload_modules"))


CUSTOM = "remat_policy=custom"
QKV = "self_attn.q_proj,self_attn.k_proj,self_attn.v_proj"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (f"{CUSTOM} decoder_layer_input=offload", ("full", None, "activations", None)),
        (f"{CUSTOM} decoder_layer_input=offload mlpwo=device",
         ("save", "mlp.down_proj", "activations", ":elementwise")),
        (f"{CUSTOM} context=offload mlpwo=offload",
         ("save", "self_attn:attention,mlp.down_proj", "activations", "self_attn:attention,mlp.down_proj")),
        (f"{CUSTOM} decoder_layer_input=offload context=offload", ("save", "self_attn:attention", "activations", None)),
        (f"{CUSTOM} qkv_proj=device", ("save", QKV, None, None)),
        (f"{CUSTOM} mlpwo=remat", ("full", None, None, None)),
        ("remat_policy=full mlpwo=device", ("full", None, None, None)),
        ("remat_policy=minimal", ("selective", None, None, None)),
        ("remat_policy=save_out_proj", ("save", "self_attn.o_proj", None, None)),
        ("remat_policy=qkv_proj_offloaded", ("save", QKV, "activations", QKV)),
    ],
)  # fmt: skip
def test_tensors_of_a_policy_are_kept_and_offloaded_by_name(settings: str, words: tuple[object, ...]) -> None:
    assert kept(settings) == words


def test_latent_attention_and_experts_have_names_of_their_own() -> None:
    settings = f"{CUSTOM} query_wa_proj=device mla_kv=device moe_mlpwo=offload"
    saved = "self_attn.kv_a_layernorm,self_attn.q_a_proj,mlp.experts"
    assert set(str(kept(settings, "deepseek3-671b")[1]).split(",")) == set(saved.split(","))
    inner = read_launch(f"{RUN.replace('llama3.1-8b', 'mixtral-8x7b')} {CUSTOM} mlpwi_0=device")
    assert inner.words["recompute"] == "full"
    assert any("computed again: mlpwi_0" in line for line in inner.assumed)


def test_a_place_that_is_none_is_refused() -> None:
    with pytest.raises(ParseError, match="mlpwo=disk: a tensor's place is one of remat, device, offload"):
        kept(f"{CUSTOM} mlpwo=disk")


@pytest.mark.parametrize("policy", ["minimal_with_context", "save_dot_except_mlp", "minimal_offloaded"])
def test_policies_are_plans_that_an_estimate_takes(policy: str) -> None:
    recompute, saved, offload, _ = kept(f"remat_policy={policy}")
    assert recompute == "save"
    assert (offload == "activations") is (policy == "minimal_offloaded")
    words = {
        "recompute": recompute,
        "recompute_save": tuple(str(saved).split(",")),
        "offload": (),
        "offload_modules": (),
    }
    settings = maxtext_settings(words)
    assert {name for name, place in settings.items() if place == "device"} >= {"query_proj", "out_proj"}


def test_a_mesh_of_two_devices_a_chip_says_so() -> None:
    launch = read_launch(f"{RUN} ici_fsdp_parallelism=128", num_gpus=64)
    assert launch.words["gpus"] == 128
    assert any("TPU v7x" in line for line in launch.assumed)
