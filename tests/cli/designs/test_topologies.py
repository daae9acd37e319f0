"""`slipstick topologies`: one table in each form, plans that are varied, and what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from subprocess import CompletedProcess

import pytest

Cli = Callable[..., CompletedProcess[str]]
ASKED = ("topologies", "llama-3.1-8b", "--system", "dgx-h100", "--gpus", "64", "--tp", "8", "--gbs", "64",
         "--seq", "4096", "--zero", "1")  # fmt: skip
SOME = ("--topologies", "fat_tree,torus=4x4x4,node/torus=2x2x2")


def test_networks_of_one_budget_cost_the_same(cli: Cli) -> None:
    answer = json.loads(cli(*ASKED, *SOME, "--budget", "3000USD", "--format", "json").stdout)
    fat, cube, nodes = answer["topologies"]
    assert [row["network_usd"] for row in (fat, cube, nodes)] == pytest.approx([3000 * 64] * 3)
    assert [row["topology"] for row in (fat, cube, nodes)] == ["fat tree 1:1", "torus 4x4x4", "node/torus 2x2x2"]
    # Six ports a rank on a torus of fours, three where twos are joined by one wire each.
    assert cube["bytes_per_s_per_gpu"] == pytest.approx(6 * cube["link_bytes_per_s"])
    assert nodes["bytes_per_s_per_gpu"] == pytest.approx(3 * nodes["link_bytes_per_s"])
    assert cube["placement"] in ("ranks", "blocks")
    assert fat["placement"] == "ranks"
    for row in (fat, cube, nodes):
        tokens_per_s = 64 * 4096 / row["step_time_s"]
        assert row["tokens_per_s_per_usd_capex"] == pytest.approx(tokens_per_s / row["capex_usd"])


def test_every_form_has_the_same_rows(cli: Cli) -> None:
    table, markdown = (cli(*ASKED, *SOME, "--format", form).stdout for form in ("table", "md"))
    rows = list(csv.DictReader(StringIO(cli(*ASKED, *SOME, "--format", "csv").stdout)))
    assert [row["topology"] for row in rows] == ["fat tree 1:1", "torus 4x4x4", "node/torus 2x2x2"]
    for row in rows:
        assert row["topology"] in table
        assert row["topology"] in markdown


def test_each_topology_has_its_fastest_plan(cli: Cli) -> None:
    def steps(*more: str) -> list[float]:
        answer = json.loads(cli(*ASKED, *SOME, "--equal", "bandwidth", *more, "--format", "json").stdout)
        return [row["step_time_s"] for row in answer["topologies"]]

    # 16 GPUs a replica hold no whole batch of 64 over 3 ranks: what is no plan is left out.
    best = steps("--vary", "tp=2,3,8", "--vary", "placement=ranks,blocks")
    each = [steps("--tp", tp, "--placement", word) for tp in ("2", "8") for word in ("ranks", "blocks")]
    assert best == [min(column) for column in zip(*each, strict=True)]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--topologies", "ring,mash"), "unknown topology 'mash'"),
        (("--topologies", "torus=4x4"), "dims 4x4 of 'network' make 16, not the 64 that it joins"),
        (("--topologies", "fat_tree=wide"), "behind = goes the oversubscription, as 2"),
        (("--topologies", "ring=4"), "behind = goes its shape"),
        (("--topologies", "dragonfly=4"), "behind = goes"),
        (("--budget", "3000GB"), "3000GB"),
        (("--budget", "0USD"), "a budget of 0: above 0"),
        (("--vary", "gpus=8,16"), "topologies are of one size"),
        (("--vary", "tp=3"), "does not divide"),
        (("--placement", "closed"), "no level of the network has optical switches"),
    ],
)
def test_what_cannot_be_compared_is_refused(cli: Cli, flags: tuple[str, ...], message: str) -> None:
    answer = cli(*ASKED, *flags)
    assert answer.returncode in (2, 3)
    assert message in answer.stderr
    assert "internal" not in answer.stderr


def test_a_plan_that_fits_on_no_topology_is_told(cli: Cli) -> None:
    answer = cli("topologies", "llama-3.1-70b", "--system", "dgx-h100", "--gpus", "512", "--tp", "8", "--gbs", "512")
    assert answer.returncode == 3
    assert "no plan fits the memory of dgx-h100, on any topology" in answer.stderr
