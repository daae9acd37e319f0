"""Results of all model types of transformers as a page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from ..coverage.compared import AGREES, HEADING, Compared, cells
from ..coverage.plans import PLANS
from ..markdown import table

_INTRODUCTION = f"""# Coverage of transformers

<!-- Written by `make coverage`. -->

Every model type of transformers (`MODEL_MAPPING`), with all its parts, in the library's own sizes with few layers:
traced in training and in inference. The class is the one without a head, or with that of its task; of a model that
sees, with one picture a sequence, the one with its language head. What a type reads follows from its signature and its
config. Training starts from the cross-entropy of logits of the tokens, from the sum of all outputs elsewhere; layers
and frames that training drops at random are all there.

The numbers are FLOPs of our graph over those that PyTorch's `FlopCounterMode` counts on the same class with the
attention that transformers spells out; they agree within {AGREES:.1%}, parameters exactly (all, or all that a training
step gives a gradient). `-` stands where there is no graph or no count, and why is in the remarks. `plans` says under
how many of {len(PLANS)} plans a training step is estimated: {", ".join(PLANS)}.
"""


def page(results: Sequence[Compared]) -> str:
    """Return the whole page."""
    rows = [(r.model_type, f"`{r.class_name}`", *cells(r)) for r in results]
    return f"{_INTRODUCTION}\n{summary(results)}\n\n{table(('type', 'class', *HEADING), rows)}\n"


def summary(results: Sequence[Compared]) -> str:
    """Say how many types are traced, how many could be counted, and how many agree."""
    both = sum(r.is_traced for r in results)
    one = sum(len(r.why_not) < 2 for r in results)
    counted, agree = sum(bool(r.ratios) for r in results), sum(r.agrees for r in results)
    estimated = sum("train" not in r.why_not and not r.plans.why_not for r in results)
    return (
        f"Of {len(results)} types {both} ({both / len(results):.1%}) are traced in training and inference, "
        f"{one} in one of them. {counted} could be counted, {agree} agree. {estimated} are estimated under all plans."
    )
