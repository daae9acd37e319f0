"""Rows of training steps as models, plans and machines: one of each data set, by hand; and why others are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.ir.errors import PlanError
from slipstick.ir.types import DType
from slipstick.validation.rows.publications import reason
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import Table, read_table
from slipstick.validation.training.cases import TrainingCase, training_case
from slipstick.validation.training.machine_shop import MachineShop

HERE = Path(__file__).parents[1]
Case = Callable[[str], TrainingCase]


@pytest.fixture(scope="module")
def table() -> Table:
    return read_table(HERE / "training_step.csv", [])


@pytest.fixture(scope="module")
def case(table: Table) -> Case:
    rows, shop = {row.id: row for row in table.rows}, MachineShop()
    return lambda name: training_case(rows[name], shop)


def fields(one: TrainingCase) -> dict[str, object]:
    found: dict[str, object] = json.loads(one.config)
    return found


def degrees(one: TrainingCase) -> tuple[int, ...]:
    plan = one.plan
    return plan.tp, plan.pp, plan.dp, plan.vpp, plan.micro_batch, plan.num_micro_batches


def test_what_is_known_of_every_data_set_says_its_stack_or_why_it_is_refused(table: Table) -> None:
    for row in table.rows:
        source = row.source
        assert row.completed()[0].text("stack") or reason(source.unlike, row.cells), row.id


def test_korthikanti_with_full_recomputation_splits_no_sequences(case: Case) -> None:
    full, selective = case("korthikanti2022_t5_175B_full"), case("korthikanti2022_t5_175B_selective")
    # 64 GPUs of 8 x 8, so one replica of 64 micro-batches.
    assert degrees(full) == degrees(selective) == (8, 8, 1, 3, 1, 64)
    assert (full.plan.family.recompute, full.plan.family.sp) == ("full", False)
    assert (selective.plan.family.recompute, selective.plan.family.sp) == ("selective", True)
    assert (full.plan.family.attention, full.plan.family.grad_dtype, full.dtype) == ("unfused", DType.FP16, DType.FP16)
    assert (full.stack, full.system, full.assumed) == ("megatron-2022", "dgx-a100-80gb", ())
    assert fields(full) == {
        "model_type": "gpt2", "n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048, "vocab_size": 51200,
        "n_inner": 49152, "tie_word_embeddings": True, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1,
    }  # fmt: skip


def test_narayanan_s_micro_batch_and_chunks_are_assumed_and_said(case: Case) -> None:
    found = case("narayanan2021_t1_529.6B")
    # 2520 GPUs of 8 x 35: 9 replicas of 280 sequences; 105 layers on 35 stages are 3 chunks of one.
    assert degrees(found) == (8, 35, 9, 3, 1, 280)
    assert found.assumed == (
        "micro_batch 1 (not published: the best one)",
        "vpp 3 (not published: one layer a chunk)",
    )
    assert degrees(case("narayanan2021_t1_1.7B"))[4] == 8


def test_parameters_of_zero_3_are_gathered_layer_by_layer(case: Case) -> None:
    family = case("narayanan2021_t2_ZeRO-3_174.6B_384").plan.family
    assert (family.zero, family.reshard, family.pp) == (3, "layer", False)


def test_mpt_is_gpt_2_with_its_biases(case: Case) -> None:
    found = case("mpt_70b_h100_80gb_64_s2048_amp_bf16_mb8_ga4")
    h, layers, vocab, positions = 8192, 80, 50368, 2048
    # Products 12 h^2; biases 3 h + h + 4 h + h, two norms of 2 h; the table prints 64.8624 billion.
    parameters = layers * (12 * h * h + 13 * h) + (vocab + positions + 2) * h
    assert round(parameters / 1e9, 4) == float(found.row.text("params_b")) == 64.8624
    sizes = fields(found)
    assert [sizes[k] for k in ("n_embd", "n_layer", "vocab_size", "n_positions")] == [h, layers, vocab, positions]
    assert (found.plan.family.zero, found.plan.family.recompute, found.group) == (3, "full", "MPT-70b seq2048")
    # 64 GPUs x 8 sequences x 4 micro-batches.
    assert degrees(found) == (1, 1, 64, 1, 8, 4)


def test_gradients_and_states_in_shards_keep_parameters_for_a_micro_batch(table: Table) -> None:
    row = next(r for r in table.rows if r.text("fsdp_or_zero") == "SHARD_GRAD_OP")
    family = training_case(row, MachineShop()).plan.family
    assert (family.zero, family.reshard) == (3, "microbatch")


def test_nanotron_lays_its_stages_and_recorded_its_network(case: Case) -> None:
    found = case("nanotron_14099076")
    assert degrees(found) == (8, 4, 4, 1, 2, 32)
    assert (found.plan.family.zero, found.plan.family.sp, fields(found)["tie_word_embeddings"]) == (1, True, True)
    assert found.plan.family.pp_layout == "filled"
    # 55.4 GB/s over 128 GPUs against 176 of a healthy network, 425.29 inside a node.
    assert found.network is not None
    assert found.network.world_bus_bytes_per_s == 55.4e9
    assert found.network.step_latency_s(128) == pytest.approx(2.7e9 * (1 / 55.4e9 - 1 / 176e9) / 128)
    assert found.stack == "nanotron-per-rank"
    assert case("nanotron_13502194").stack == "nanotron"


def test_a_network_that_is_as_fast_as_any_is_not_late(case: Case) -> None:
    found = case("nanotron_14113488")
    assert found.network is not None
    assert found.network.step_latency_s(8) == 0.0


def test_torchtitan_runs_on_its_own_h100(case: Case) -> None:
    found = case("torchtitan_t5_1f1b")
    # A replica's batch of 32 in one micro-batch a stage.
    assert degrees(found) == (8, 8, 8, 1, 4, 8)
    assert (found.system, found.plan.family.reshard, found.stack) == ("dgx-h100", "step", "torchtitan")
    assert "chip.memory.hbm.bandwidth=2.4TB/s" in found.overrides
    shop = MachineShop()
    assert shop.system(found.system, found.overrides, found.stack).chip.hbm_bytes_per_s == 2.4e12


def test_vtrain_s_nodes_share_800_gbit(case: Case) -> None:
    found = case("vtrain_multi_037")
    assert degrees(found) == (8, 8, 4, 1, 8, 32)
    assert found.overrides == ("network.infiniband.bandwidth=100Gbit/s",)
    assert (case("vtrain_single_0004").overrides, found.stack) == ((), "megatron-deepspeed")


def test_simumax_s_deepseek_has_the_sizes_of_its_experts(case: Case) -> None:
    sizes = fields(case("simumax_deepseekv3_l4_tp1_ep8_pp1_dp8_mbc4_cef"))
    wanted = {"moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1}
    assert {name: sizes[name] for name in wanted} == wanted


def test_a_model_that_is_only_named_is_the_catalogue_s(case: Case, table: Table) -> None:
    row = next(r for r in table.rows if r.text("model") == "GPT OSS 120B" and r.text("precision") == "BF16")
    found = training_case(row, MachineShop())
    assert json.loads(read_config("gpt-oss-120b").text) == fields(found)
    assert (found.stack, found.plan.family.zero) == ("megatron-bridge-alltoall", 1)


def test_chunks_that_hold_no_layer_are_left_out(case: Case) -> None:
    # 16 stages of 8 chunks for 126 layers: the embedding and the head have one chunk each.
    found = case("llama3_405b_t4_3")
    assert found.plan.vpp == 7
    assert found.assumed[-1] == "vpp 7 for 8 (embedding and head stand in place of layers)"


def test_asynchronous_tensor_parallelism_is_read_off_the_note(case: Case) -> None:
    assert case("torchtitan_t6_cp2").plan.family.async_tp
    assert not case("torchtitan_asynctp_8B_bf16_vanilla").plan.family.async_tp


def test_experts_of_recipes_are_whole(table: Table) -> None:
    # Qwen3 235B on 256 H100 with tp 2, pp 8 and ep 32: experts are dealt over 2 x 16 ranks.
    row = next(r for r in table.rows if r.text("model") == "Qwen3_235B_a22B" and r.text("tp") == "2")
    found = training_case(row.having({"precision": "bf16"}), MachineShop())
    assert (found.plan.etp, found.plan.ep, found.plan.dp, found.plan.family.etp) == (1, 32, 16, False)


@pytest.mark.parametrize(
    ("model", "machine", "container", "mtp", "head", "attention", "again"),
    [
        ("DeepSeekV3", "GB200 (NVL72)", "26.06", 1, True, False, ("mla_up_proj",)),
        ("DeepSeekV3", "GB200 (NVL72)", "26.04.01", 1, False, False, ("mlp",)),
        ("DeepSeekV3", "GB200 (NVL72)", "26.02", 1, False, False, ("mla_up_proj",)),
        ("DeepSeekV3 (dropless)", "H100-SXM-80GB (DGX)", "25.09", 1, False, False, ("mla_up_proj", "mlp")),
        ("DeepSeekV3 (w/o MTP)", "GB300 (NVL72)", "25.11", 0, False, False, ("mla_up_proj",)),
        ("GPT OSS 120B", "GB200 (NVL72)", "26.08", 0, True, True, ()),
        ("GPT OSS 120B", "B300 (DGX)", "26.06", 0, False, False, ()),
        ("Qwen3_235B_a22B", "GB200 (NVL72)", "26.06", 0, False, True, ()),
        ("Qwen3_235B_a22B", "GB200 (NVL72)", "26.04", 0, False, False, ()),
    ],
)
def test_recipes_of_bridge_say_what_they_train_in_fp8_and_repeat(
    table: Table,
    model: str,
    machine: str,
    container: str,
    mtp: int,
    head: bool,
    attention: bool,
    again: tuple[str, ...],
) -> None:
    """Of Megatron-Bridge v0.3 to v0.6: `fp8_output_proj`, `fp8_dot_product_attention`, `recompute_modules`."""
    row = next(r for r in table.rows if r.text("model").startswith(model) and r.text("ep"))
    cells = {"accelerator": machine, "model": model, "note": f"container {container} NeMo", "precision": "MXFP8"}
    family = training_case(row.having(cells), MachineShop()).plan.family
    assert family.mtp_num_layers == mtp
    assert (family.fp8_output_proj, family.fp8_attention) == (head, attention)
    assert family.recompute_modules == again


def test_llama_3_gathers_its_parameters_once_a_step(case: Case) -> None:
    found = case("llama3_405b_t4_1")
    assert (found.plan.family.zero, found.plan.family.reshard, found.stack) == (3, "step", "fsdp2")
    assert degrees(found) == (8, 16, 64, 7, 1, 32)


@pytest.mark.parametrize(
    ("name", "stack", "wanted"),
    [
        ("megascale_Megatron-LM_175B_256", "megatron-2022", (8, 8, 4, 6, 1, 192)),
        ("megascale_fig9_Megatron-LM_530B_2240", "megatron-2022", (8, 35, 8, 3, 1, 280)),
        ("megatron_core_h100_177B", "megatron-core-2024", (8, 6, 48, 16, 1, 24)),
        ("megatron2020_8B_A100", "megatron-2022", (8, 1, 1, 1, 16, 1)),
        ("megatron2020_2B_dp128", "megatron-2022", (2, 1, 128, 1, 16, 1)),
        ("mtnlg_530B_2240", "megatron-deepspeed", (8, 35, 8, 1, 1, 240)),
    ],
)
def test_the_plan_of_one_row_of_each_other_set(case: Case, name: str, stack: str, wanted: tuple[int, ...]) -> None:
    found = case(name)
    assert (found.stack, degrees(found)) == (stack, wanted)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("megascale_MegaScale_175B_256", "MLP and attention side by side"),
        ("deepseek_v3_pretrain", "average of a whole run"),
        ("megatron_core_h100_strong_177B_96", "neither pp nor dp"),
        ("llama1_65B", "not disclosed"),
        ("maxtext_32B_v5p-128", "in no table"),
        ("mbridge_26.06_SFT_LLAMA3_70B_DGX-GB300_MXFP8_32_32", "packed"),
        ("mbridge_26.08_Pre-Training_Nemotron_3_Super_DGX-GB300_NVFP4_64_512", "the catalogue has no such model"),
    ],
)
def test_rows_that_cannot_be_predicted_say_why(case: Case, name: str, words: str) -> None:
    with pytest.raises(NotJudged, match=words):
        case(name)


def test_a_batch_that_does_not_divide_is_a_reason(table: Table) -> None:
    row = next(r for r in table.rows if r.id == "korthikanti2022_t5_175B_full")
    odd = row.having({"dp": "3", "n_gpus": "192"})
    with pytest.raises(PlanError):
        training_case(odd, MachineShop())


def test_what_a_row_says_goes_before_what_is_assumed(table: Table) -> None:
    row = next(r for r in table.rows if r.dataset == "narayanan2021_table1" and "GPT-7.5B" in r.text("model"))
    found, assumed = row.having({"micro_batch": "2", "pp": "2"}).completed()
    assert (found.text("micro_batch"), assumed) == ("2", ())
    assert found.text("attention") == "unfused"


def test_rows_of_other_sets_are_as_they_are(row: Callable[..., Row]) -> None:
    given = row(dataset="mine", model="small", n_gpus="2", step_time_s="1.5")
    assert given.completed()[0].cells == given.cells
