"""Prompts on one kind of machine and answers on another: each pool as it is by itself, and costs that add up."""

from __future__ import annotations

import pytest

import slipstick
from slipstick.driver.serve.answer import ServeEstimate
from slipstick.ir.errors import UsageError

REQUESTS = {"isl": 4096, "osl": 256, "tp": 1}


def served(system: str, pools: str, **words: object) -> ServeEstimate:
    found = slipstick.serve("llama-3.1-8b", system, disagg=pools, **REQUESTS, **words)  # type: ignore[arg-type]
    return found.answer


def test_the_slower_pool_says_what_both_answer() -> None:
    """A pool does what it does beside any other: the rate is the least of both, whatever chips they are."""
    few, many = served("dgx-h200", "1:4"), served("dgx-h200", "8:1")
    prompts = served("dgx-h200", "1:4", prefill_system="dgx-b200")
    answers = served("dgx-h200", "8:1", prefill_system="dgx-b200")
    # One worker of prompts is too few for four of answers: a faster one answers more. Eight are too many for one.
    assert prompts.metrics["requests_per_s"] > 1.2 * few.metrics["requests_per_s"]
    assert answers.metrics["requests_per_s"] == pytest.approx(many.metrics["requests_per_s"])
    alone = served("dgx-b200", "1:4")
    assert prompts.metrics["requests_per_s"] == pytest.approx(
        min(alone.metrics["requests_per_s"], served("dgx-h200", "8:4").metrics["requests_per_s"])
    )


def test_caches_cross_the_slower_of_both_networks() -> None:
    one, other = served("dgx-h200", "8:8"), served("dgx-b200", "8:8")
    mixed = served("dgx-h200", "8:8", prefill_system="dgx-b200")
    assert one.pools is not None
    assert other.pools is not None
    assert mixed.pools is not None
    assert mixed.pools.link.bytes_per_s == min(one.pools.link.bytes_per_s, other.pools.link.bytes_per_s)


def test_costs_of_both_kinds_add_up() -> None:
    """Whole servers of two kinds cost more than as many of the cheaper kind, less than of the dearer one."""
    mixed = served("dgx-h200", "8:8", prefill_system="dgx-h100")
    found = mixed.metrics["usd_per_request"] * mixed.metrics["requests_per_s"]
    costs = []
    for system in ("dgx-h100", "dgx-h200"):
        same = served(system, "8:8")
        assert same.money is not None
        costs.append(float(same.money.metrics["usd_per_request"]) * same.metrics["requests_per_s"])
    assert min(costs) < found < max(costs)
    assert mixed.metrics["usd_per_mtok_output"] == pytest.approx(mixed.metrics["usd_per_request"] * 1e6 / 256)
    assert "mfu" not in mixed.metrics
    assert any("8 x H100-SXM5-80GB" in line and "8 x H200-SXM5-141GB" in line for line in mixed.warnings)


def test_a_system_of_prompts_needs_pools() -> None:
    with pytest.raises(UsageError, match="prefill-system"):
        slipstick.serve("llama-3.1-8b", "dgx-h200", prefill_system="dgx-h100", **REQUESTS)  # type: ignore[arg-type]
