"""Results of all model types of transformers as a page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from .measure import AGREES, Result

_HEADING = ("type", "class", "layers", "parameters", "forward", "step", "inference", "remarks")
_INTRODUCTION = f"""# Coverage of transformers

<!-- Written by `python -m benchmarks.alltypes`. -->

Every model type of transformers (`MODEL_MAPPING`), with all its parts, in the library's own sizes with few layers:
traced in training and in inference. The class is the one without a head, or with that of its task; of a model that
sees, with one picture a sequence, the one with its language head. What a type reads follows from its signature and its
config. Training starts from the cross-entropy of logits of the tokens, from the sum of all outputs elsewhere; layers
and frames that training drops at random are all there.

The numbers are FLOPs of our graph over those that PyTorch's `FlopCounterMode` counts on the same class with the
attention that transformers spells out; they agree within {AGREES:.1%}, parameters exactly (all, or all that a training
step gives a gradient). `-` stands where there is no graph or no count, and why is in the remarks.

Types that cannot be called on tensors here are listed apart, with the reason: their class needs a package that is not
installed, or its forward takes an object that is no tensor. All others are types with a forward on tensors.
"""


def page(results: Sequence[Result]) -> str:
    """Return the whole page."""
    apart = [r for r in results if r.not_on_tensors]
    measured = [r for r in results if not r.not_on_tensors]
    parts = [_INTRODUCTION, summary(results), "", _table([_HEADING, *(_cells(r) for r in measured)])]
    if apart:
        parts += ["", "## Not called on tensors", "", _table([("type", "reason"), *(_reason(r) for r in apart)])]
    return "\n".join([*parts, ""])


def _table(rows: Sequence[Sequence[str]]) -> str:
    heading, *rest = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, ("---",) * len(heading), *rest))


def _reason(result: Result) -> tuple[str, str]:
    return result.model_type, result.not_on_tensors.replace("|", "\\|")


def summary(results: Sequence[Result]) -> str:
    """Say how many types are traced, how many could be counted, and how many agree."""
    measured = [r for r in results if not r.not_on_tensors]
    both, all_ = sum(r.is_traced for r in measured), max(len(measured), 1)
    one = sum(len(r.why_not) < 2 for r in measured)
    counted, agree = sum(bool(r.ratios) for r in measured), sum(r.agrees for r in measured)
    return (
        f"{len(results)} types, {len(measured)} of them with a forward on tensors. Of these {both} ({both / all_:.1%}) "
        f"are traced in training and inference, {one} in one of them. {counted} could be counted, {agree} agree."
    )


def _cells(result: Result) -> tuple[str, ...]:
    numbers = (f"{result.ratios[n]:.4f}" if n in result.ratios else "-" for n in ("forward", "step", "inference"))
    reasons = dict.fromkeys(result.why_not.values())
    remarks = [f"{', '.join(w for w, y in result.why_not.items() if y == why)}: {why}" for why in reasons]
    remarks += [f"not counted: {result.oracle}"] if result.oracle and result.oracle not in reasons else []
    told = "; ".join([result.reads, *remarks] if result.reads else remarks).replace("|", "\\|")
    total = result.parameters[1] or result.parameters[0]
    return (result.model_type, f"`{result.class_name}`", result.layers or "-", f"{total:,}", *numbers, told)
