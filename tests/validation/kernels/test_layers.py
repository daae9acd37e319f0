"""Layers: ops as the kernels that they are, by hand; whole layers forward and backward."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.frontend import GraphCache
from slipstick.validation.kernels.elementwise import op_of
from slipstick.validation.kernels.layers import LayerJudge
from slipstick.validation.rows.machine_room import MachineRoom
from slipstick.validation.rows.rows import NotJudged, Row
from slipstick.validation.rows.tables import RowFault, Table, read_table

HERE = Path(__file__).parents[1]
# GPT-3 on four GPUs: 8 sequences of 2048.
PREFILL = {
    "id": "one", "dataset": "mine", "accelerator": "A100-SXM4-80GB", "tp": "4", "batch": "8", "seq_len": "2048",
    "kv_len": "2048", "hidden": "12288", "heads": "96", "dtype": "fp16", "time_us": "1",
}  # fmt: skip
DECODE = {**PREFILL, "seq_len": "1", "kv_len": "3072"}


def sizes(cells: dict[str, str], op: str) -> tuple[int, ...]:
    found = op_of(Row({**cells, "op": op}))
    return (found.times, *(int(found.cells[name]) for name in ("batch", "m", "n", "k")))


def test_products_are_split_over_tensor_parallel_ranks() -> None:
    # 16384 tokens; a quarter of the heads and of the MLP.
    assert sizes(PREFILL, "Q_K_V") == (3, 1, 16384, 3072, 12288)
    assert sizes(PREFILL, "Wo_proj") == (1, 1, 16384, 12288, 3072)
    assert sizes(PREFILL, "W1_proj") == (1, 1, 16384, 12288, 12288)
    # A product for each of 8 sequences and 24 heads of 128.
    assert sizes(PREFILL, "A_mul_V") == (1, 192, 2048, 128, 2048)


def test_a_decode_step_has_one_token_a_sequence_and_a_long_cache() -> None:
    assert sizes(DECODE, "Q_K_V") == (3, 1, 8, 3072, 12288)
    assert sizes(DECODE, "A_mul_V") == (1, 192, 1, 128, 3072)


def test_an_all_reduce_sums_the_hidden_tensor() -> None:
    found = op_of(Row({**PREFILL, "op": "AllReduce_MHA"}))
    assert (found.cells["size_bytes"], found.cells["n_gpus"]) == (str(2 * 16384 * 12288), "4")


def test_an_op_that_is_not_known_is_refused() -> None:
    with pytest.raises(NotJudged, match="W3_proj"):
        op_of(Row({**PREFILL, "op": "W3_proj"}))


@pytest.mark.slow
def test_layers_of_22b_are_within_a_tenth(graph_folder: Path) -> None:
    table = read_table(HERE / "layer_time.csv", [])
    layers = tuple(row for row in table.rows if row.dataset == "korthikanti2022_table4")
    faults: list[RowFault] = []
    judge = LayerJudge(MachineRoom(), GraphCache(graph_folder))
    found = {o.row.id: o for o in judge.outcomes(Table(table.path, table.columns, layers), faults)}
    assert (faults, len(found)) == ([], 6)
    # Korthikanti et al., arXiv 2205.05198, table 4.
    assert max(abs(o.error) for o in found.values()) <= 0.1
    # Recomputing a layer is running its forward phase again.
    full, none, forward = (
        found[f"korthikanti_t4_{name}"].predicted
        for name in ("full_recompute_bac", "baseline_no_recompute_bac", "baseline_no_recompute_for")
    )
    assert full - none == pytest.approx(forward, rel=0.05)
