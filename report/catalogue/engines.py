"""Serving engines of the catalogue: a line each, and every number of one with its unit and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..columns import in_columns

if TYPE_CHECKING:
    from ...backends.machine.files.records import NumberRecord
    from ...backends.machine.software.engine import Engine, Scheduler

Record = Mapping[str, object]


def engines() -> list[Record]:
    """Return the engines of the catalogue, in short."""
    from ...backends.machine.software.engine_file import engine_names, load_engine

    return [_short(name, load_engine(name)) for name in engine_names()]


def _short(name: str, engine: Engine) -> Record:
    at, host = engine.scheduler, engine.overheads
    return {
        "name": name,
        "as_of": engine.as_of or None,
        "stack": engine.stack,
        "prompts": prompts_text(at),
        "max_num_seqs": at.max_num_seqs,
        "max_batched_tokens": at.max_batched_tokens,
        "block_tokens": at.block_tokens,
        "step_s": host.step_s,
        "sequence_s": host.sequence_s,
        "prompt_s": host.prompt_s,
    }


def prompts_text(scheduler: Scheduler) -> str:
    """Say how prompts run: whole or in chunks, beside decodes or before them."""
    if scheduler.batching == "static":
        return "static batches"
    how = "in chunks" if scheduler.chunked_prefill else "whole"
    return f"{how} {'beside' if scheduler.mixed else 'before'} decodes"


def engine_record(name: str) -> tuple[str, Record, Sequence[NumberRecord]]:
    """Return a title, everything as raw numbers, and every number as written, of one engine by name or path."""
    from ...backends.machine.software.engine_file import engine_numbers, load_engine

    engine = load_engine(name)
    record = {key: value for key, value in asdict(engine).items() if key not in ("sources", "accuracy")}
    head = f"{engine.name}: serving engine{f' as of {engine.as_of}' if engine.as_of else ''}, kernels of {engine.stack}"
    at = engine.scheduler
    rows = [
        ["batching", at.batching],
        ["prompts", prompts_text(at)],
        ["room for all tokens before a start", "yes" if at.reserve_output else "no"],
    ]
    return "\n".join([head, "", in_columns(rows)]), record, engine_numbers(name)
