"""Results of foreign packages as a page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from ..coverage.compared import AGREES, HEADING, Compared, cells
from ..coverage.plans import PLANS
from ..markdown import table

_INTRODUCTION = f"""# Coverage of foreign packages

<!-- Written by `make coverage`. -->

Modules of other packages, which know nothing of Slipstick, built by their own code and traced unchanged, in training
(the sum of the outputs is the loss) and in inference. The numbers are FLOPs of our graph over those that PyTorch's
`FlopCounterMode` counts on the same module; they agree within {AGREES:.1%}, parameters exactly. `plans` says under
how many of {len(PLANS)} plans a training step is estimated: {", ".join(PLANS)}.
"""


def page(results: Sequence[Compared]) -> str:
    """Return the whole page."""
    rows = [(r.model_type, *cells(r)) for r in results]
    return f"{_INTRODUCTION}\n{summary(results)}\n\n{table(('module', *HEADING), rows)}\n"


def summary(results: Sequence[Compared]) -> str:
    """Say how many of each package are traced, and how many agree."""
    packages = dict.fromkeys(r.model_type.partition("/")[0] for r in results)
    return "\n".join(_of_package(p, [r for r in results if r.model_type.startswith(f"{p}/")]) for p in packages)


def _of_package(package: str, results: Sequence[Compared]) -> str:
    train, inference = (sum(w not in r.why_not for r in results) for w in ("train", "prefill"))
    agree = sum(r.agrees for r in results)
    planned = sum("train" not in r.why_not and not r.plans.why_not for r in results)
    return (
        f"- {package}: {len(results)} modules, {train} traced in training, {inference} in inference; {agree} agree; "
        f"{planned} are estimated under all plans."
    )
