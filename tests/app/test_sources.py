"""The nearest source of a word counts, and each value knows who said it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

import slipstick
from slipstick.app.arguments.machine import OverrideArgs
from slipstick.app.arguments.options import options_of
from slipstick.app.arguments.plan import PlanArgs
from slipstick.app.sources import Setting, Source, VerbArguments, merge_layers
from slipstick.ir.errors import UsageError

OPTIONS = {**options_of(PlanArgs), **options_of(OverrideArgs)}


@pytest.mark.parametrize(("below", "above"), list(combinations(list(Source)[1:], 2)), ids=str)
def test_the_later_source_wins_and_repeatable_words_have_both(below: Source, above: Source) -> None:
    first = {"tp": Setting(2, below), "overrides": Setting(("a=1",), below)}
    second = {"tp": Setting(4, above), "overrides": Setting(("b=2",), above)}
    found = VerbArguments(settings=merge_layers(OPTIONS, first, second))
    assert (found.get("tp"), found.get("overrides")) == (4, ("a=1", "b=2"))
    assert found.is_given("tp")
    assert found.is_typed("tp") == (above is Source.TYPED)


def test_a_word_that_nobody_says_has_its_default_and_is_not_given() -> None:
    found = VerbArguments(settings=merge_layers(OPTIONS))
    assert (found.get("tp"), found.get("overrides"), found.get("sp")) == (1, (), None)
    assert not any(found.is_given(name) for name in found.settings)


def test_metrics_are_attributes() -> None:
    step = slipstick.estimate("gpt2", "dgx-h100", seq=512)
    assert (step.step_time_s, step.mfu) == (step.metrics["step_time_s"], step.metrics["mfu"])
    unpriced = replace(step, answer=replace(step.answer, money=None))
    with pytest.raises(AttributeError, match="no usd_per_step; its metrics: step_time_s"):
        assert unpriced.usd_per_step


def test_words_of_another_function_are_named() -> None:
    with pytest.raises(UsageError, match="size is of one system and one rate: choose"):
        slipstick.size("gpt2", "dgx-h100", target_rps="1,2", isl=64, osl=16)
