"""Served requests that no model of what their rows say should follow: documented by their properties."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..rows.rows import Row

_OVERFLOW = "the cache was full and prompts queued: no static batch"
_IDLE = (
    "tokens are said to take less at 512 clients than at 64, and first ones minutes: far fewer requests run than there "
    "are clients"
)
_UNDRIVEN = (
    "by Little's law its latencies need up to all of the peak of the device for prompts: fewer requests were under way "
    "than its concurrency says"
)
_DRAFTED = "1.6 to 2 times as fast as a build of the same week at one setting: it drafts tokens, which no column says"
_SLOW_PROMPTS = "a prompt of 8192 tokens takes 2 to 3 s, five times as long as on B200"


def outlier(row: Row) -> str:
    """Return why a row is left out of the figures, empty for most."""
    return next((why for why, holds in _RULES if holds(row)), "")


def in_no_fit(row: Row) -> bool:
    """Whether a row judges alone: Qwen3 by vLLM 0.12.0 takes three times as long as by SGLang on the same devices.

    Its kernels of experts in blocks of fp8 are those of one release, and say nothing of the engine's host.
    """
    return _served(row, "vllm 0.12.0", "H200")


def _overflow(row: Row) -> bool:
    """The publication's own remark."""
    return row.dataset == "lmdeploy_static_a100" and "KV cache overflow" in row.text("note")


def _idle(row: Row) -> bool:
    return _served(row, "vllm", "H100") and row.text("model").endswith("gpt-oss-120b") and _clients(row) == 512


def _undriven(row: Row) -> bool:
    return _served(row, "vllm 0.12.0", "H200") and "Llama-3.1-8B" in row.text("model")


def _drafted(row: Row) -> bool:
    """DeepSeek on B200 by these builds."""
    drafts = row.text("engine") in ("trtllm 1.2.0rc6.post3", "trtllm 1.1.0rc2.post2")
    return drafts and row.text("accelerator") == "B200-SXM" and row.text("model").startswith("deepseek-ai/")


def _slow_prompts(row: Row) -> bool:
    return _served(row, "sglang 0.5.10.post1", "B300")


def _served(row: Row, engine: str, accelerator: str) -> bool:
    aggregated = row.dataset == "aiconfigurator_silicon_agg"
    return aggregated and row.text("engine").startswith(engine) and row.text("accelerator").startswith(accelerator)


def _clients(row: Row) -> int:
    return row.number("batch_or_concurrency", 1)


_RULES: Sequence[tuple[str, Callable[[Row], bool]]] = (
    (_OVERFLOW, _overflow), (_IDLE, _idle), (_UNDRIVEN, _undriven), (_DRAFTED, _drafted),
    (_SLOW_PROMPTS, _slow_prompts),
)  # fmt: skip
