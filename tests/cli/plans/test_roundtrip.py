"""A plan priced under the stack of a framework, exported to it and imported again is answered the same.

Full counts: `python -m benchmarks.roundtrip`.
"""

from __future__ import annotations

import pytest

from slipstick.benchmarks.roundtrip import MODELS, STACKS, Prices, tried


@pytest.fixture(scope="module")
def prices() -> Prices:
    return Prices()


@pytest.mark.parametrize("framework", STACKS)
def test_a_plan_that_comes_back_from_a_framework_is_answered_the_same(framework: str, prices: Prices) -> None:
    found = tried(framework, 12, prices=prices, models=MODELS[:1])
    assert found.wrong == {}
    # Most draws are plans that the framework can say.
    assert found.same >= 4
