"""Several models on one fleet: `choose MODEL --rps R --also 'MODEL rps=R isl=N ...'`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.errors import InfeasibleError, UnknownNameError, UsageError
from ...ir.plan.word import changed
from ..prepare import check_model
from .size import SizeRequest, compared_fleets, days_of

if TYPE_CHECKING:
    from ...report.results.result import Result
    from ...report.serving.fleets import FleetComparison

# What a further model may say of its requests; what it does not say is as of the first.
_WORDS = ("rps", "isl", "osl", "ttft", "tpot")


def mixed_fleets(request: SizeRequest, also: Sequence[str]) -> Result:
    """Find the fleets of every model on every system, and put them together; InfeasibleError where none serves all."""
    from ...report.serving.mixed import AIMS, mixed, mixed_result

    sought = request.sought
    if sought.aim not in AIMS:
        raise UsageError(f"--objective {sought.aim}: of one model's tokens; of several models {', '.join(AIMS)}")
    asked = [(request.source.model, dict[str, str]()), *map(also_of, also)]
    models = [_of_model(request, model, words) for model, words in asked]
    found = mixed(models, AIMS[sought.aim], sought.by_evidence)
    if not found.ranking.candidates:
        told = "; ".join(f"{name}: {why}" for name, why in found.left_out.items())
        raise InfeasibleError(f"no system serves all of {len(models)} models in time: {told}")
    return mixed_result(found)


def also_of(text: str) -> tuple[str, Mapping[str, str]]:
    """Read a further model.

    >>> also_of("mixtral-8x7b rps=100 ttft=p99:1s")
    ('mixtral-8x7b', {'rps': '100', 'ttft': 'p99:1s'})
    """
    model, *words = text.split()
    said = dict[str, str]()
    for word in words:
        name, equals, value = word.partition("=")
        if name not in _WORDS:
            raise UnknownNameError.of("word of --also", name, _WORDS)
        if not equals or not value:
            raise UsageError(f"--also '{text}': {name} needs a value, as in {name}=100")
        said[name] = value
    if "rps" not in said:
        raise UsageError(f"--also '{text}': say its rate, as in '{model} rps=100'")
    return model, said


def _of_model(request: SizeRequest, model: str, words: Mapping[str, str]) -> FleetComparison:
    """Compare the systems for one model."""
    own = request.said({"model": model})
    check_model(own)
    rate = words.get("rps", request.sought.target_rps)
    days, said = days_of(rate, changed(request.serving, {k: v for k, v in words.items() if k != "rps"}))
    if len(days) > 1:
        raise UsageError(f"{rate} requests/s: several models take one rate each")
    return compared_fleets(replace(own, serving=said, sought=replace(request.sought, target_rps=rate)), days)
