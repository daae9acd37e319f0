"""Flags of Megatron-LM: degrees, batches, sharding, recomputation, recipes and the shape of the model."""

import pytest

from slipstick.frameworks.reading import read_launch
from slipstick.frameworks.training.megatron_stages import layers_of_layout, layout_text
from slipstick.ir.errors import ParseError, UsageError

SHAPE = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-query-groups 8 --swiglu"
)


def words(flags: str, num_gpus: int | None = None) -> dict[str, object]:
    return dict(read_launch(f"torchrun pretrain_gpt.py {flags}", num_gpus=num_gpus).words)


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("--tensor-model-parallel-size 8 --sequence-parallel", {"tp": 8, "sp": True, "gpus": 8}),
        ("--sequence-parallel", {"tp": 1, "sp": False}),
        ("--pipeline-model-parallel-size 4 --num-layers 32 --num-layers-per-virtual-pipeline-stage 2",
         {"pp": 4, "vpp": 4}),
        ("--context-parallel-size 2 --cp-comm-type a2a", {"cp": 2, "cp_method": "ulysses"}),
        ("--context-parallel-size 2", {"cp": 2, "cp_method": "ring"}),
        ("--use-distributed-optimizer", {"zero": 1}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", {"zero": 3}),
        ("--expert-model-parallel-size 8 --num-experts 8", {"ep": 8, "gpus": 8}),
        ("--model-parallel-size 2 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --num-experts 8",
         {"ep": 8, "etp": 1, "gpus": 8}),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
         {"recompute": "full", "recompute_every": 2}),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2",
         {"recompute": "full", "recompute_layers": 2}),
        ("--recompute-activations", {"recompute": "selective", "recompute_modules": "core_attn"}),
        ("--bf16 --fp8-format hybrid", {"dtype": "bf16", "precision": "fp8-delayed"}),
        ("--bf16 --fp8-format e4m3 --fp8-recipe blockwise --fp8-param-gather",
         {"precision": "fp8-block", "fp8_param_gather": True}),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag",
         {"precision": "mxfp8", "fp8_param_gather": True}),
        ("--bf16 --fp4-format e2m1 --fp4-param-gather", {"precision": "nvfp4", "fp8_param_gather": True}),
        ("--bf16 --fp8-format hybrid --fp8-dot-product-attention", {"precision": "fp8-delayed", "fp8_attention": True}),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-output-proj",
         {"precision": "mxfp8", "fp8_output_proj": True}),
        ("--mtp-num-layers 1 --mtp-loss-scaling-factor 0.1", {"mtp_num_layers": 1}),
        ("--grad-reduce-in-bf16", {"grad_dtype": "bf16"}),
        ("--exp-avg-dtype bf16 --main-params-dtype fp16", {"exp_avg_dtype": "bf16", "main_params_dtype": "fp16"}),
        ("--micro-batch-size 2 --global-batch-size 64 --seq-length 8192", {"mbs": 2, "gbs": 64, "seq": 8192}),
        ("--optimizer-cpu-offload", {"offload": "optimizer"}),
        ("--use-distributed-optimizer --num-distributed-optimizer-instances 2", {"gpus": 2, "dp_shard": 1}),
    ],
)  # fmt: skip
def test_flags_say_what_a_plan_file_says(flags: str, found: dict[str, object]) -> None:
    said = words(flags)
    assert {name: said.get(name) for name in found} == found


def test_the_launcher_says_how_many_gpus_there_are() -> None:
    text = "torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py --tensor-model-parallel-size 4 --micro-batch-size 2"
    launch = read_launch(text)
    assert (launch.words["gpus"], launch.words["gbs"]) == (32, 16)
    assert read_launch(text, num_gpus=64).words["gpus"] == 64


@pytest.mark.parametrize("layers", [(7, 8, 8, 7), (1, 2, 2, 2, 1, 0), (4, 4), (31, 30)])
def test_a_layout_is_read_as_export_writes_it(layers: tuple[int, ...]) -> None:
    assert layers_of_layout(layout_text(layers)) == layers


def test_a_launch_without_a_number_of_gpus_says_what_it_took() -> None:
    launch = read_launch("pretrain_gpt.py --tensor-model-parallel-size 2 --seq-length 128 --vocab-size 32")
    assert any(line.startswith("gpus 2: ") for line in launch.assumed)


def test_settings_are_understood_ignored_or_left_out() -> None:
    launch = read_launch(
        f"pretrain_gpt.py {SHAPE} --lr 1e-4 --log-interval 1 --overlap-grad-reduce --window-size 128,0 "
        "--transformer-impl transformer_engine --hidden-dropout 0.0"
    )
    assert launch.understood["--overlap-grad-reduce"] == "overlap of the stack, as it was measured"
    assert launch.usual == ("--transformer-impl", "--hidden-dropout")
    assert set(launch.ignored) == {"--lr", "--log-interval"}
    assert launch.left_out == {"--window-size": "128,0"}
    assert launch.coverage == (len(launch.understood) + 2) / (len(launch.understood) + 3)


@pytest.mark.parametrize(
    "setting",
    [
        "--transformer-impl local", "--hidden-dropout 0.1", "--optimizer muon", "--deterministic-mode",
        "--distribute-saved-activations", "--fp32-residual-connection", "--moe-layer-recompute",
        "--empty-unused-memory-level 2", "--no-rope-fusion", "--mtp-use-repeated-layer",
    ],
)  # fmt: skip
def test_a_setting_that_the_stack_was_not_measured_with_is_left_out(setting: str) -> None:
    assert setting.split()[0] in read_launch(f"pretrain_gpt.py {SHAPE} {setting}").left_out


def test_messages_that_a_launch_does_not_hide_are_in_the_open() -> None:
    degrees = "--tensor-model-parallel-size 2 --use-distributed-optimizer"
    assert words(f"{degrees} --overlap-grad-reduce", num_gpus=8).get("set") is None
    assert words(degrees, num_gpus=8)["set"] == ["stack.overlap.dp=0"]
    assert words(degrees, num_gpus=2).get("set") is None


def test_the_shape_is_a_config_of_the_nearest_kind() -> None:
    dense = read_launch(f"pretrain_gpt.py {SHAPE} --vocab-size 128256").config
    assert dense is not None
    assert (dense["model_type"], dense["num_key_value_heads"], dense["intermediate_size"]) == ("llama", 8, 14336)
    experts = read_launch(f"pretrain_gpt.py {SHAPE} --num-experts 8 --moe-router-topk 2").config
    assert experts is not None
    assert (experts["model_type"], experts["num_local_experts"]) == ("mixtral", 8)
    plain = read_launch("pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4").config
    assert plain is not None
    assert (plain["model_type"], plain["n_embd"], plain["n_inner"]) == ("gpt2", 64, 256)


def test_a_test_case_in_yaml_is_read_as_its_flags() -> None:
    text = (
        "ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --bf16: true\n  --micro-batch-size: 4\n"
    )
    launch = read_launch(text, "model_config.yaml")
    assert (launch.framework, launch.words["tp"], launch.words["mbs"], launch.words["dtype"]) == (
        "megatron",
        2,
        4,
        "bf16",
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--tensor-model-parallel-size many", "--tensor-model-parallel-size: 'many' is no number"),
        ("--cp-comm-type x --context-parallel-size 2", "'x' is none of p2p"),
        ("--tensor-model-parallel-size $TP", r"--tensor-model-parallel-size is \$TP, which nothing here sets"),
        ("--pipeline-model-parallel-size 3 --num-layers 32 --num-layers-per-virtual-pipeline-stage 2", "multiple of 3"),
        ("--recompute-granularity some", "'some' is none of full, selective"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_is_an_error_with_its_flag(flags: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        words(flags)


@pytest.mark.parametrize("flag", ["--num-tokens-to-generate 8", "--perform-rl-step"])
def test_a_launch_that_does_not_train_is_refused(flag: str) -> None:
    with pytest.raises(UsageError, match="a launch that trains is read"):
        words(flag)
