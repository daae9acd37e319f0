"""Banks of experts of transformers: one operator a layer, whatever loop or product over all experts is written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from slipstick.frontend.fold.balance import count_parameters
from slipstick.frontend.huggingface.configs.building import build
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.loading import load_config
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.ops import work_of
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.types import DType

Fields: TypeAlias = dict[str, object]
D, F, E, K = 64, 32, 8, 2
TOKENS = symbol("batch") * symbol("seq")
COMMON: Fields = {
    "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 128,
    "num_experts_per_tok": K,
}  # fmt: skip
LATENT: Fields = {
    "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model type with sizes of its own; `rows` of a token that compute, of `layers` layers with a bank."""

    model_type: str
    fields: Fields
    rows: int = K
    layers: int = 2


CASES = (
    Case("mixtral", {"intermediate_size": F, "num_local_experts": E}),
    Case("olmoe", {"intermediate_size": F, "num_experts": E}),
    Case("granitemoe", {"intermediate_size": F, "num_local_experts": E}),
    Case("phimoe", {"intermediate_size": F, "num_local_experts": E}),
    Case("gpt_oss", {"intermediate_size": F, "num_local_experts": E, "head_dim": 16}),
    Case("qwen3_moe", {"moe_intermediate_size": F, "num_experts": E, "head_dim": 16}),
    Case("qwen2_moe", {"moe_intermediate_size": F, "shared_expert_intermediate_size": 48, "num_experts": E}),
    Case(
        "deepseek_v3",
        LATENT | {"moe_intermediate_size": F, "n_routed_experts": E, "n_shared_experts": 1, "n_group": 4,
                  "topk_group": 2, "first_k_dense_replace": 1, "num_hidden_layers": 3},
    ),
    Case("deepseek_v2", LATENT | {"moe_intermediate_size": F, "n_routed_experts": E, "first_k_dense_replace": 1}, K, 1),
    Case("llama4_text", {"intermediate_size": F, "intermediate_size_mlp": 48, "num_local_experts": E, "head_dim": 16}),
    Case("jetmoe", {"intermediate_size": F, "num_local_experts": E, "num_key_value_heads": 2, "kv_channels": 16}),
    # 2 of 8 + 8 experts are chosen, and of these one has weights.
    Case("longcat_flash", LATENT | {"expert_ffn_hidden_size": F, "n_routed_experts": E, "zero_expert_num": E,
                                    "moe_topk": 2, "num_layers": 2, "num_hidden_layers": 4, "ffn_hidden_size": 48,
                                    "head_dim": 16}, rows=1),
)  # fmt: skip


def traced(case: Case, workload: Workload) -> tuple[Graph, str]:
    config = config_of(case.model_type, {"model_type": case.model_type} | COMMON | case.fields)
    return load_config(config, workload), config.text


@pytest.mark.parametrize("case", CASES, ids=[c.model_type for c in CASES])
def test_a_bank_is_one_operator_over_the_chosen_rows(case: Case) -> None:
    graph, text = traced(case, Workload.PREFILL)
    banks = [
        (graph.counts[region.name], work_of(region, node))
        for region in graph.regions
        for node in region.nodes
        if node.op == "experts"
    ]
    assert sum(count for count, _ in banks) == case.layers
    # Gate, up and down of each row: three products of d x f.
    assert {work.tensor_flops for _, work in banks} == {TOKENS * (2 * case.rows * 3 * D * F)}
    assert graph.num_parameters == count_parameters(build(text, DType.BF16))


def test_training_a_bank_that_was_a_product_over_all_experts_costs_the_chosen_ones() -> None:
    graph, _ = traced(next(c for c in CASES if c.model_type == "llama4_text"), Workload.TRAIN)
    works = [work_of(r, n).tensor_flops for r in graph.regions for n in r.nodes if n.op == "experts_bwd"]
    assert set(works) == {TOKENS * (2 * 2 * K * 3 * D * F)}


def test_queries_of_attention_experts_are_grouped_products() -> None:
    graph, _ = traced(next(c for c in CASES if c.model_type == "jetmoe"), Workload.PREFILL)
    found = [work_of(r, n).tensor_flops for r in graph.regions for n in r.nodes if n.op == "grouped_matmul"]
    # Two key-value heads of 16, for each of the two experts of a token: d x 32 into queries, 32 x d out of them.
    assert found == [TOKENS * (2 * K * D * 32)] * 2


def test_dbrx_experts_come_joined() -> None:
    fields: Fields = {
        "model_type": "dbrx", "d_model": D, "n_heads": 4, "n_layers": 2, "vocab_size": 128, "max_seq_len": 64,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 5e5},
        "ffn_config": {"ffn_hidden_size": F, "moe_num_experts": E, "moe_top_k": K, "hidden_size": D},
    }  # fmt: skip
    config = config_of("dbrx", fields)
    graph = load_config(config, Workload.PREFILL)
    works = [work_of(r, n).tensor_flops for r in graph.regions for n in r.nodes if n.op == "experts"]
    assert works == [TOKENS * (2 * K * 3 * D * F)]
    assert graph.num_parameters == count_parameters(build(json.dumps(fields), DType.BF16))
