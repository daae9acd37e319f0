"""Results of all types as a page: a table, what differs and why, and what PyTorch cannot run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .case import ORACLES, Found
from .reasons import reason_for

_HEAD = """# Oracles

<!-- Written by `python -m benchmarks.oracles`. -->

Every model type of `docs/coverage.md`, small and with untied tables, split in four ways by PyTorch or transformers and
by Slipstick. Both sides run a training step as rank 0; PyTorch's side runs transformers' own code in bf16 on fake
tensors and a fake process group, with nothing of ours.

- **module by module**: `parallelize_module` of `torch.distributed.tensor` on the linear layers of repeated layers that
  Megatron's plan names, `ColwiseParallel` or `RowwiseParallel`; tp 4, or 2 where heads do not allow 4. Ours: the same
  layers as a plan that reduces each input gradient on its own.
- **transformers' plan**: `apply_tensor_parallelism` with the model's `base_model_tp_plan`. Ours: `--tp-plan hf`.
- **FSDP2** and **HSDP**: `fully_shard` of what runs before the layers, each layer, and what runs behind them, over 8
  ranks, and over 2 x 4. Ours: ZeRO 3. FSDP2 fills up the rows of each parameter to a multiple of the ranks, ours cuts a
  flat buffer; compared are filled-up sizes where that matters.

Compared are, exactly: the messages of forward and of backward, each with its kind and the bytes of the full tensor; the
local shapes of all products of linear layers in both phases; the elements of each local parameter. `same 14, 45` says
that 14 messages and 45 products agree. `-`: there is nothing to split.
"""
_SHORT = {"nothing to split": "-", "theirs cannot": "cannot", "not traced": "-", "failed": "failed"}


def page(found: Sequence[Found]) -> str:
    """Return the page; `found` has every type with every oracle, in order."""
    by_type: dict[str, dict[str, Found]] = {}
    for f in found:
        by_type.setdefault(f.model_type, {})[f.oracle] = f
    rows = (f"| {name} | {' | '.join(_cell(row[o]) for o in ORACLES)} |" for name, row in by_type.items())
    parts = [_HEAD, *_summary(found), "", f"| type | {' | '.join(ORACLES)} |", "| --- |" + " --- |" * len(ORACLES)]
    parts += [
        *rows,
        "",
        "## What differs, and why",
        "",
        *_differing(found),
        "",
        "## What PyTorch's side cannot run",
        "",
    ]
    return "\n".join([*parts, *_unable(found)]) + "\n"


def _cell(f: Found) -> str:
    return f"same {f.messages}, {f.products}" if f.outcome == "same" else _SHORT.get(f.outcome, f.outcome)


def _summary(found: Sequence[Found]) -> Iterator[str]:
    for oracle in ORACLES:
        outcomes = Counter(f.outcome for f in found if f.oracle == oracle)
        compared = outcomes["same"] + outcomes["differs"]
        rest = ", ".join(f"{n} {what}" for what, n in sorted(outcomes.items()) if what not in ("same", "differs"))
        yield f"- **{oracle}**: {outcomes['same']} of {compared} compared types are the same; {rest or 'no others'}."


def _differing(found: Sequence[Found]) -> Iterator[str]:
    for f in found:
        if f.outcome in ("differs", "ours cannot"):
            why = reason_for(f) or "**not explained**"
            yield f"- {f.model_type}, {f.oracle}: {why}. {f.what}".replace("..", ".")


def _unable(found: Sequence[Found]) -> Iterator[str]:
    """Reasons, each with the types that have it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for f in found:
        if f.outcome in ("theirs cannot", "failed", "not traced"):
            groups.setdefault((f.oracle, f.what[:90].replace("|", "/")), []).append(f.model_type)
    for (oracle, what), names in sorted(groups.items()):
        yield f"- {oracle}: {', '.join(names)}: `{what}`"
