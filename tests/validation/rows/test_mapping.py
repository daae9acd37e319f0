"""A row's model and plan: what is built, what is assumed, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_stack
from slipstick.ir.plan import Plan
from slipstick.validation.plans import plan_of, stack_of
from slipstick.validation.rows.models import architecture
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import read_table

Make = Callable[..., Row]
GPT = {"family": "gpt", "vocab": ""}
MOE = {"n_experts": "8", "topk": "2"}


def completed(row: Row) -> Row:
    """Fill in what the publication of a row's data set says, whichever table that is of."""
    tables = [Path(__file__).parents[1] / f"{name}.csv" for name in ("training_step", "memory")]
    sources = {one.dataset: one.source for path in tables for one in read_table(path, []).rows}
    return replace(row, source=sources[row.dataset]).completed()[0] if row.dataset in sources else row


def plan(one: Row, stack: str = "default") -> Plan:
    return plan_of(one, load_stack(stack))


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ({}, "llama"),
        (GPT, "gpt2"),
        ({**GPT, "kv_heads": "2"}, "starcoder2"),
        ({**GPT, "vocab": "160", "swiglu": "True"}, "llama"),
        ({**MOE, "swiglu": "True"}, "mixtral"),
        ({**MOE, "mla": "True", "model": "DeepSeek-V3", "moe_ffn_hidden": "32", "swiglu": "True"}, "deepseek_v3"),
    ],
)
def test_each_kind_of_model_has_its_config(row: Make, cells: dict[str, str], kind: str) -> None:
    assert architecture(row(**cells)).fields["model_type"] == kind


def test_a_vocabulary_that_is_not_given_is_said_and_padded(row: Make) -> None:
    found = architecture(row(**GPT, tp="2"))
    # 50257 up to a multiple of 128 x 2.
    assert (found.fields["vocab_size"], found.assumed) == (50432, ("vocabulary 50257",))
    assert architecture(row(**{**GPT, "vocab": "50432"}, tp="2")).assumed == ()


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"family": "t5"}, "kind 't5'"),
        ({"mla": "True"}, "ranks of its latent attention"),
        ({**MOE, "mla": "True", "swiglu": "True"}, "ranks of its latent attention"),
        (MOE, "experts without gates"),
        ({"vocab": ""}, "vocab is not given"),
    ],
)
def test_models_that_dimensions_do_not_fix_are_refused(row: Make, cells: dict[str, str], words: str) -> None:
    with pytest.raises(NotJudged, match=words):
        architecture(row(**cells))


def test_degrees_batch_and_policy_are_the_row_s(row: Make) -> None:
    found = plan(
        row(tp="2", pp="2", dp="4", global_batch="32", dist_optimizer="True", sequence_parallel="True",
            activation_recompute="full"),
        "megatron-core",
    )  # fmt: skip
    family = found.family
    assert (found.num_gpus, found.num_micro_batches) == (16, 8)
    assert (family.zero, family.sp, family.recompute, family.pp, family.kernels) == (1, True, "full", True, "fused")


@pytest.mark.parametrize(
    ("given", "stage"), [("True", 1), ("", 0), ("zero0", 0), ("zero1", 1), ("FSDP2 full shard", 3)]
)
def test_the_sharding_of_states_is_a_zero_stage(row: Make, given: str, stage: int) -> None:
    assert plan(row(dist_optimizer=given)).family.zero == stage


def test_replicas_follow_from_gpus(row: Make) -> None:
    assert plan(row(dp="", n_gpus="8", tp="2", global_batch="8")).dp == 4


def test_without_replicas_only_unsharded_states_are_known(row: Make) -> None:
    assert plan(row(dp="", global_batch="")).dp == 1
    with pytest.raises(NotJudged, match="neither n_gpus nor dp"):
        plan(row(dp="", dist_optimizer="True"))


def test_layers_a_chunk_say_how_many_chunks(row: Make) -> None:
    assert plan(row(layers="8", pp="2", layers_per_virtual_stage="2", global_batch="8")).vpp == 2


@pytest.mark.parametrize(
    ("cells", "attention"),
    [
        ({"deterministic_mode": "True"}, "unfused"),
        ({"deterministic_mode": "True", "kv_heads": "2"}, "flash"),
        ({}, "flash"),
        ({"attention": "unfused"}, "unfused"),
    ],
)
def test_attention_is_one_kernel_unless_the_recipe_says_otherwise(
    row: Make, cells: dict[str, str], attention: str
) -> None:
    assert plan(row(**cells)).family.attention == attention


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"precision": "bf16+fp8"}, "recipe of low precision"),
        ({"dist_optimizer": "sometimes"}, "'sometimes'"),
        ({"activation_recompute": "selective/[mlp]"}, "mlp"),
    ],
)
def test_policies_that_are_not_modelled_are_refused(row: Make, cells: dict[str, str], words: str) -> None:
    with pytest.raises(NotJudged, match=words):
        plan(row(**cells))


@pytest.mark.parametrize(
    ("cells", "recipe"),
    [
        ({"precision": "bf16 mixed"}, "none"), ({"precision": "fp16 mixed"}, "none"), ({"precision": ""}, "none"),
        ({"precision": "FP8-CS"}, "fp8"), ({"precision": "fp8 rowwise"}, "fp8-rowwise"),
        ({"precision": "FP8-MX"}, "mxfp8"), ({"precision": "NVFP4"}, "nvfp4"),
        ({"precision": "amp_fp8"}, "fp8-delayed"),
        ({"precision": "fp8", "dataset": "nemo_25.04"}, "fp8-delayed"),
        ({"precision": "FP8", "dataset": "megatron_bridge_pretrain"}, "fp8"),
        ({"precision": "fp8 mixed"}, "fp8-block"),
    ],
)  # fmt: skip
def test_recipes_of_low_precision_by_the_words_of_tables(row: Make, cells: dict[str, str], recipe: str) -> None:
    assert plan(completed(row(**cells))).family.precision == recipe


SIMUMAX = {"dataset": "simumax_b200_memory"}
TITAN = {"dataset": "torchtitan", "fsdp_or_zero": "FSDP2 full shard"}


def test_runs_of_torchtitan_gather_weights_in_fp8_tensor_wise(row: Make) -> None:
    rows = [row(**TITAN, precision=p) for p in ("fp8 (linear)", "fp8 rowwise", "bf16")]
    assert [plan(completed(r)).family.fp8_param_gather for r in rows] == [True, False, False]
    assert not plan(rows[0], "torchtitan").family.fp8_param_gather


def test_op_level_recomputation_is_a_policy_of_its_own(row: Make) -> None:
    assert plan(row(activation_recompute="selective (op-level)")).family.recompute == "ops"
    assert plan(row(activation_recompute="selective")).family.recompute == "selective"


def test_runs_of_torchtitan_with_pipelines(row: Make) -> None:
    # 32 sequences on 2 replicas of 8 stages: 16 a replica, cut into one micro-batch a stage.
    cells = {**TITAN, "layers": "8", "pp": "8", "micro_batch": "", "global_batch": "32", "n_gpus": "16"}
    found = plan(completed(row(**cells)), "torchtitan")
    assert (found.micro_batch, found.num_micro_batches, found.family.reshard) == (2, 8, "step")
    assert plan(row(**TITAN), "torchtitan").family.reshard == "layer"
    with pytest.raises(NotJudged, match="micro_batch is not given"):
        plan(row(**cells), "megatron-core")


@pytest.mark.parametrize(
    ("cells", "stops"),
    [
        ({**TITAN, "activation_recompute": "full"}, True),
        ({"dataset": "llm_foundry_mpt", "accelerator": "A100-SXM4-40GB", "activation_recompute": "full"}, False),
        ({"dataset": "llm_foundry_mpt", "accelerator": "H100-SXM-80GB", "activation_recompute": "full"}, True),
        ({"dataset": "vtrain_single_node", "activation_recompute": "full"}, False),
        ({"dataset": "vtrain_single_node"}, True),
    ],
)
def test_how_far_runs_recompute_follows_from_their_software(row: Make, cells: dict[str, str], stops: bool) -> None:
    found = completed(row(**cells))
    assert plan(found, stack_of(found)).family.early_stop is stops


def test_a_column_names_the_stack_else_the_data_set_does(row: Make) -> None:
    stacks = [stack_of(completed(row(**cells))) for cells in ({}, SIMUMAX, {**SIMUMAX, "stack": "nanotron"})]
    assert stacks == ["default", "megatron-core", "nanotron"]
