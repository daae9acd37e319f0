"""What rows of Megatron-Bridge's tables take from its public recipes."""

from pathlib import Path

import pytest

from slipstick.validation.rows.rows import Row
from slipstick.validation.rows.tables import read_table

TABLE = Path(__file__).parents[1] / "training_step.csv"
SOURCE = next(row.source for row in read_table(TABLE, []).rows if row.dataset == "megatron_bridge_pretrain")


def row(model: str, machine: str = "GB200 (NVL72)", release: str = "26.04", **cells: str) -> Row:
    given = {
        "id": "a", "dataset": "megatron_bridge_pretrain", "model": model, "accelerator": machine,
        "gpus_per_node": "4" if "NVL72" in machine else "8", "note": f"container {release} NeMo Container", **cells,
    }  # fmt: skip
    return Row(given, source=SOURCE)


def bridge_cells(given: Row) -> dict[str, str]:
    """Return the cells that a row's recipe fills."""
    return {name: text for name, text in given.completed()[0].cells.items() if not given.text(name)}


@pytest.mark.parametrize(
    ("given", "stack"),
    [
        (row("LLAMA3_70B"), "megatron-bridge"),
        (row("DeepSeekV3", release="26.04.01"), "megatron-bridge"),
        (row("DeepSeekV3", release="26.06.01"), "megatron-bridge-graphs"),
        (row("Kimi_K2", release="26.06"), "megatron-bridge"),  # its micro-batch of 2 is that of the earlier recipe
        (row("GPT OSS 120B"), "megatron-bridge-alltoall"),
        (row("GPT OSS 120B", release="26.08"), "megatron-bridge-graphs"),
        (row("Qwen3_235B_a22B", "B300 (DGX)"), "megatron-bridge-alltoall"),
        (row("Qwen3_235B_a22B", "B300 (DGX)", "26.02.01"), "megatron-bridge-batches"),
        (row("Qwen3_235B_a22B", "H100-SXM-80GB (DGX)"), "megatron-bridge-batches"),
        (row("Qwen3_30B_a3B", "H100-SXM-80GB (DGX)", pp="2"), "megatron-bridge-batches"),
        (row("Qwen3_30B_a3B", "H100-SXM-80GB (DGX)"), "megatron-bridge-x86"),
        (row("Qwen3_30B_a3B", "B200 (DGX)", "26.06"), "megatron-bridge-x86"),
        (row("Qwen3_30B_a3B (tokendrop)", "B200 (DGX)", "25.09"), "megatron-bridge"),
    ],
)
def test_a_stack_goes_by_model_machine_and_container(given: Row, stack: str) -> None:
    assert bridge_cells(given)["stack"] == stack


def test_userbuffers_overlap_dense_tensor_parallelism_but_not_in_nvfp4() -> None:
    assert bridge_cells(row("LLAMA3.1_405B", tp="4", precision="FP8"))["async_tp"] == "True"
    assert "async_tp" not in bridge_cells(row("LLAMA3.1_405B", tp="4", precision="NVFP4"))
    assert "async_tp" not in bridge_cells(row("LLAMA3_8B", tp="1", precision="FP8"))


def test_hybrid_dispatchers_send_a_token_once_to_a_node() -> None:
    # 64 ranks of experts on nodes of 8 are eight nodes, of which DeepSeek-V3 routes to four
    h100 = "H100-SXM-80GB (DGX)"
    assert bridge_cells(row("DeepSeekV3 (dropless)", h100, "25.09", ep="64"))["routing_nodes"] == "4"
    assert bridge_cells(row("Qwen3_30B_a3B", h100, ep="16"))["routing_nodes"] == "2"
    assert "routing_nodes" not in bridge_cells(row("Qwen3_30B_a3B", h100, ep="8"))
    assert "routing_nodes" not in bridge_cells(row("Qwen3_235B_a22B", h100, ep="32"))  # by NCCL
    assert "routing_nodes" not in bridge_cells(row("DeepSeekV3", ep="64"))  # one domain of NVLink


def test_a_row_without_a_container_is_older_than_any() -> None:
    assert bridge_cells(row("GPT OSS 120B").having({"note": ""}))["stack"] == "megatron-bridge-alltoall"


def test_recipes_name_what_is_recomputed() -> None:
    assert bridge_cells(row("DeepSeekV3", release="26.02"))["recompute_modules"] == "mla_up_proj"
    assert bridge_cells(row("DeepSeekV3", release="26.04"))["recompute_modules"] == "mlp"
    assert bridge_cells(row("DeepSeekV3", release="26.06"))["recompute_modules"] == "mla_up_proj"
    assert bridge_cells(row("GPT OSS 120B"))["recompute_modules"] == "layernorm"
    assert "recompute_modules" not in bridge_cells(row("GPT OSS 120B", release="26.06"))
    assert "recompute_modules" not in bridge_cells(row("Qwen3_30B_a3B"))
