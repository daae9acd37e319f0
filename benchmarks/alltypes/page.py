"""Results of all model types of transformers as a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slipstick.frontend.modalities.feeding import NO_TENSOR

from ..coverage.compared import AGREES, HEADING, Compared, cells
from ..coverage.plans import PLANS
from ..markdown import table

_MISSING = re.compile(r"ImportError: .* requires the \S+ library")
_INTRODUCTION = f"""# Coverage of transformers

<!-- Written by `make coverage`. -->

Every model type of transformers (`MODEL_MAPPING`), with all its parts, in the library's own sizes with few layers:
traced in training and in inference. The class is the one without a head, or with that of its task; of a model that
sees, with one picture a sequence, the one with its language head. What a type reads follows from its signature and its
config. Training starts from the cross-entropy of logits of the tokens, from the sum of all outputs elsewhere; layers
and frames that training drops at random are all there.

The numbers are FLOPs of our graph over those that PyTorch's `FlopCounterMode` counts on the same class with the
attention that transformers spells out, recurrences left out of both; they agree within {AGREES:.1%}, parameters
exactly (all, or all that a training step gives a gradient). `-` stands where there is no graph or no count, and why is
in the remarks. `plans` says under how many of {len(PLANS)} plans a training step is estimated: {", ".join(PLANS)}; tp
2 with sequences shared out wherever their lengths are even.

Types that cannot be called on tensors here are listed apart, with the reason: their class needs a package that is not
installed, or its forward takes an object that is no tensor. All others are types with a forward on tensors.
"""


def page(results: Sequence[Compared]) -> str:
    """Return the whole page."""
    apart = [r for r in results if not_on_tensors(r)]
    rows = [(r.model_type, f"`{r.class_name}`", *cells(r)) for r in results if r not in apart]
    listed = [(r.model_type, not_on_tensors(r).replace("|", "\\|")) for r in apart]
    last = f"\n## Not called on tensors\n\n{table(('type', 'reason'), listed)}\n" if apart else ""
    return f"{_INTRODUCTION}\n{summary(results)}\n\n{table(('type', 'class', *HEADING), rows)}\n{last}"


def not_on_tensors(result: Compared) -> str:
    """Return why a type cannot be called on tensors here: a package that is not installed, an object that it takes."""
    told = [*result.why_not.values(), result.oracle] if result.why_not else []
    return next((t for t in told if _MISSING.search(t) or NO_TENSOR in t), "")


def summary(results: Sequence[Compared]) -> str:
    """Say how many types are traced, how many could be counted, and how many agree."""
    measured = [r for r in results if not not_on_tensors(r)]
    both, all_ = sum(r.is_traced for r in measured), max(len(measured), 1)
    one = sum(len(r.why_not) < 2 for r in measured)
    counted, agree = sum(bool(r.ratios) for r in measured), sum(r.agrees for r in measured)
    estimated = sum("train" not in r.why_not and not r.plans.why_not for r in measured)
    return (
        f"{len(results)} types, {len(measured)} of them with a forward on tensors. Of these {both} ({both / all_:.1%}) "
        f"are traced in training and inference, {one} in one of them. {counted} could be counted, {agree} agree. "
        f"{estimated} are estimated under all plans."
    )
