"""Results of foreign packages as a page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from ..coverage.plans import MOST_GROWTH, PLANS
from .measure import AGREES, Result

_HEADING = ("module", "layers", "parameters", "forward", "step", "inference", "plans", "remarks")
_INTRODUCTION = f"""# Coverage of foreign packages

<!-- Written by `python -m benchmarks.foreign`. -->

Modules of packages that know nothing of this one, built by their own code and traced as they are, in training (the
sum of the outputs is the loss) and in inference. The numbers are FLOPs of our graph over those that PyTorch's
`FlopCounterMode` counts on the same module; they agree within {AGREES:.1%}, parameters exactly. `plans` says under
how many of {len(PLANS)} plans a training step is estimated: {", ".join(PLANS)}.
"""


def page(results: Sequence[Result]) -> str:
    """Return the whole page."""
    rows = [_HEADING, ("---",) * len(_HEADING), *(_cells(r) for r in results)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{_INTRODUCTION}\n{summary(results)}\n\n{table}\n"


def summary(results: Sequence[Result]) -> str:
    """Say how many of each package are traced, and how many agree."""
    packages = dict.fromkeys(r.model_type.partition("/")[0] for r in results)
    return "\n".join(_of_package(p, [r for r in results if r.model_type.startswith(f"{p}/")]) for p in packages)


def _of_package(package: str, results: Sequence[Result]) -> str:
    train, inference = (sum(w not in r.why_not for r in results) for w in ("train", "prefill"))
    agree = sum(r.agrees for r in results)
    planned = sum("train" not in r.why_not and not r.why_no_plan for r in results)
    return (
        f"- {package}: {len(results)} modules, {train} traced in training, {inference} in inference; {agree} agree; "
        f"{planned} are estimated under all plans."
    )


def _cells(result: Result) -> tuple[str, ...]:
    numbers = (f"{result.ratios[n]:.4f}" if n in result.ratios else "-" for n in ("forward", "step", "inference"))
    remarks = [f"{workload}: {why}" for workload, why in result.why_not.items()]
    remarks += [f"not counted: {result.oracle}"] if result.oracle else []
    remarks += [f"{plan}: {why}" for plan, why in result.why_no_plan.items()]
    remarks += [f"compute grows {result.growth:.2f}-fold"] if result.growth > MOST_GROWTH else []
    told = "; ".join([*remarks, *result.notes]).replace("|", "\\|")
    plans = "-" if "train" in result.why_not else str(len(PLANS) - len(result.why_no_plan))
    return (result.model_type, result.layers or "-", f"{result.parameters[1]:,}", *numbers, plans, told)
