"""Tables of a ranking model over `ep`: ids of all ranks come, columns of rows go back to the samples' own ranks."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from slipstick.backends.machine.load import load_system
from slipstick.driver.estimate import estimate, lower
from slipstick.frontend import GraphCache, load
from slipstick.frontend.module import trace
from slipstick.ir.errors import PlanError
from slipstick.ir.graph import Graph
from slipstick.ir.ops.collectives import CollectiveAttrs
from slipstick.ir.plan import Family, make_plan

TABLES, ROWS, WIDTH, OUT, BATCH, RANKS, BAG = 3, 1000, 32, 8, 4, 8, 5


class Ranked(nn.Module):
    """Rows of some tables side by side, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum") for _ in range(TABLES))
        self.top = nn.Linear(TABLES * WIDTH, OUT, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        made: Tensor = self.top(torch.cat([table(ids[:, i]) for i, table in enumerate(self.tables)], 1)).mean()
        return made


@cache
def ranked() -> Graph:
    with torch.device("meta"):
        module = Ranked().to(torch.bfloat16)
    ids = torch.zeros(2, TABLES, BAG, dtype=torch.int64)
    return trace(module, {"ids": ids}, {"ids": ("batch",)}, phase="train")


def test_rows_return_by_all_to_all_and_gradients_go_the_same_way() -> None:
    """A message a table and direction, of a bag's sum and not of its rows; gradients of tables stay on their rank."""
    graph = lower(ranked(), Family(ep=True)).graph
    sizes = {"mbs": BATCH, "ep": RANKS, "dp": 1, "tp": 1}
    sent: Counter[tuple[str, str, float]] = Counter()
    for region in graph.regions:
        for node in region.nodes:
            if isinstance(node.attrs, CollectiveAttrs) and "ep" in node.attrs.axes:
                kind = region.by_id[node.inputs[0]].type
                times = graph.counts[region.name]
                sent[node.op, str(node.phase), float(kind.numel.evaluate(sizes))] += times
    assert sent["all_gather", "forward", BATCH * BAG] == TABLES  # ids
    assert sent["all_to_all", "forward", BATCH * WIDTH] == TABLES
    assert sent["all_to_all", "backward", BATCH * WIDTH] == TABLES
    reduced = {size for (_, phase, size) in sent if phase == "reduce"}
    assert reduced == {TABLES * WIDTH * OUT}  # of the layer alone


def test_a_rank_holds_its_columns_of_every_table() -> None:
    plan = make_plan(num_gpus=RANKS, ep=RANKS, seq_len=TABLES, micro_batch=BATCH, family=Family(ep=True))
    weights = estimate(ranked(), load_system("dgx-h100"), plan).memory_bytes["weights"]
    assert weights == 2 * (TABLES * ROWS * WIDTH / RANKS + TABLES * WIDTH * OUT)


def test_a_language_model_without_experts_has_nothing_to_distribute() -> None:
    plan = make_plan(num_gpus=RANKS, ep=RANKS, seq_len=1024, family=Family(ep=True))
    with pytest.raises(PlanError, match="no experts to deal out"):
        estimate(load("gpt2", cache=GraphCache.default()), load_system("dgx-h100"), plan)


def test_columns_that_a_degree_does_not_divide_are_named() -> None:
    plan = make_plan(num_gpus=12, ep=12, seq_len=TABLES, family=Family(ep=True))
    with pytest.raises(PlanError, match="ep=12 does not divide the 32 columns of table 'tables"):
        estimate(ranked(), load_system("dgx-h100"), plan)
