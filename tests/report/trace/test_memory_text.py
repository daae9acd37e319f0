"""The memory of the fullest stage over a step, as text."""

from __future__ import annotations

import re

import pytest

from slipstick.driver.estimate import stage_memory
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family
from slipstick.report.explain.explain import explain_text
from slipstick.report.trace.memory import MemoryBook
from slipstick.report.trace.memory_text import moments_of
from slipstick.report.trace.timeline import timeline_of

from ..traces import answer_of

PIPE = Family(pp=True, zero=1)


def test_moments_hold_what_the_account_says() -> None:
    answer = answer_of(PIPE, pp=4)
    timeline = timeline_of(answer)
    book = MemoryBook(timeline)
    assert book.fullest() == 0
    start, warm, peak, update = moments_of(timeline, 0, book.stage(0))
    steady = sum(answer.memory_bytes[p] for p in ("weights", "gradients", "optimizer", "reserved"))
    assert sum(start.parts.values()) == pytest.approx(steady, abs=1)
    assert start.parts == pytest.approx(update.parts, abs=1)
    # Four stages: the first has four micro-batches in flight when the first one comes back.
    assert warm.parts["activations"] == pytest.approx(answer.memory_bytes["activations"], abs=1)
    assert dict(peak.parts) == pytest.approx(dict(answer.memory_bytes), abs=1)
    assert start.at_s < warm.at_s <= peak.at_s < update.at_s < answer.metrics["step_time_s"]


def test_the_fullest_class_has_the_memory_that_is_reported() -> None:
    table = answer_of(PIPE, pp=4).table
    sums = [sum(float(b[0]) for b in stage_memory(table, cls).values()) for cls in range(table.staging.num_classes)]
    assert max(sums) == float(table.metrics["peak_mem_bytes"][0])


def test_the_text_says_what_runs_at_the_peak() -> None:
    text = explain_text(answer_of(PIPE, pp=4), "memory")
    lines = text.splitlines()
    assert lines[0].startswith("memory of a device of stage 0, the fullest of 4 stages: at most ")
    assert lines[1].split() == ["start", "after", "warm-up", "peak", "optimizer"]
    assert [line.split()[0] for line in lines[2:9]] == [
        "after", "weights", "gradients", "optimizer", "activations", "temporary", "reserved",
    ]  # fmt: skip
    assert re.search(r"peak: backward phase of micro-batch 0, block0/%\d+ \w+ at model\.layers\.1\.", text)
    assert "activations of 4 micro-batches at once, as 1f1b runs them" in text
    assert "stages 1-2: at most" in text


def test_without_stages_the_loss_is_the_peak() -> None:
    text = explain_text(answer_of(Family()), "memory")
    assert "memory of a device of stage 0: at most" in text
    assert re.search(r"peak: backward phase of micro-batch 0, epilogue/%\d+ cross_entropy_bwd", text)


def test_a_decode_step_has_no_backward_phase() -> None:
    text = explain_text(answer_of(Family(workload=Workload.DECODE), model="tiny-llama.decode"), "memory")
    assert text.splitlines()[1].split() == ["start", "peak"]
    assert "kv cache" in text
    assert "micro-batch" not in text
