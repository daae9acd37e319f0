"""Placements of plans in tables: each plan as alone, as printed, explained and searched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system_table import machine_at, tabled
from slipstick.backends.network.collectives import collective_time
from slipstick.backends.pricing.places import placed_system
from slipstick.backends.pricing.program import group_factors
from slipstick.driver.estimate import estimate, estimate_many, evaluate_machines, lower
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, make_plan
from slipstick.report.tables import report_text

Traced = Callable[[str], Graph]
FAMILY = Family(zero=1)
MESHES = ((1, 64), (2, 64), (4, 64), (2, 128), (4, 256), (1, 96), (4, 4096))


# Slices of several sizes, groups of several strides; 96 are no whole slice.
@pytest.mark.parametrize("placement", ["auto", "ranks", "blocks", "closed"])
def test_a_plan_in_a_table_lies_as_it_does_alone(traced: Traced, placement: str) -> None:
    system, family = load_system("tpu-v4-pod"), replace(FAMILY, placement=placement)
    lowered = lower(traced("tiny-llama.train"), family)
    plans = [make_plan(num_gpus=n, tp=tp, seq_len=128, family=family) for tp, n in MESHES]
    table = estimate_many(lowered, system, plans)
    alone = [estimate(traced("tiny-llama.train"), system, plan, lowered=lowered) for plan in plans]
    assert table.metrics["step_time_s"].tolist() == [one.metrics["step_time_s"] for one in alone]


def test_a_machine_of_a_table_has_its_slice(traced: Traced) -> None:
    system = load_system("tpu-v4-pod", calibration="default")
    columns = tabled(system, {"network.ici.bandwidth": [1e11, 3e11]})
    lowered = lower(traced("tiny-llama.train"), FAMILY)
    plan = make_plan(num_gpus=128, tp=2, seq_len=128, family=FAMILY)
    found = evaluate_machines(lowered, columns, plan).metrics["step_time_s"].tolist()
    alone = [estimate(traced("tiny-llama.train"), machine_at(columns, row), plan, lowered=lowered) for row in (0, 1)]
    assert found == pytest.approx([float(one.metrics["step_time_s"]) for one in alone], rel=1e-12)


def test_an_answer_says_how_groups_lie(traced: Traced) -> None:
    graph = traced("tiny-llama.train")
    plan = make_plan(num_gpus=128, tp=2, seq_len=128, family=FAMILY)
    answer = estimate(graph, load_system("tpu-v4-pod"), plan)
    assert "placement: closed, ici 4x4x8: tp 2x1x1, dp 2x4x8" in report_text(answer, 120)
    drawn = estimate(graph, load_system("tpu-v4-pod"), plan.under(replace(FAMILY, placement="ranks")))
    assert "placement: ranks, ici 16x16x16: tp 2x1x1, dp 8x8x1" in report_text(drawn, 120)
    assert "placement" not in report_text(estimate(graph, load_system("dgx-h100"), plan), 120)


def test_a_message_that_is_explained_takes_what_it_has_in_the_step(traced: Traced) -> None:
    system, plan = load_system("tpu-v4-pod"), make_plan(num_gpus=128, tp=2, seq_len=128, family=FAMILY)
    answer, num = estimate(traced("tiny-llama.train"), system, plan), 0
    placed = placed_system(system, plan)
    assert placed.levels[0].dims == (4, 4, 8)
    for priced in answer.table.timing.priced:
        if priced.collective is None or priced.messages is None:
            continue
        seconds = np.asarray(priced.collective.time_s).reshape(priced.time_s.shape)
        (size, stride), *more = group_factors(priced.group.axis, dict(plan.mesh))
        for row, message in enumerate(priced.messages[:, 0].tolist()):
            alone = collective_time(priced.collective.kind, message, size, stride, placed, more)
            assert float(seconds[row, 0]) == float(alone.time_s)
            num += 1
    assert num > 4
