"""Where a recording holds, from the conditions that it met."""

from __future__ import annotations

import sympy  # type: ignore[import-untyped]

from slipstick.frontend.runs.guards import Condition, Ranges
from slipstick.ir.graph import Bound


def test_the_least_size_is_none_that_is_left_out() -> None:
    seq = sympy.Symbol("seq", integer=True, positive=True)
    met = [Condition(seq >= 512, "net.py:9"), Condition(sympy.Ne(seq, 512), "net.py:9")]
    assert Ranges({"seq": 4096}).bounds(met) == (Bound("seq", 513, 0, where="net.py:9"),)
