"""Where a recording holds, from the conditions that it met."""

from __future__ import annotations

import sympy  # type: ignore[import-untyped]

from slipstick.frontend.runs.guards import GuardRanges, SizeGuard
from slipstick.ir.graph import LengthBound


def test_the_least_size_is_none_that_is_left_out() -> None:
    seq = sympy.Symbol("seq", integer=True, positive=True)
    met = [SizeGuard(seq >= 512, "net.py:9"), SizeGuard(sympy.Ne(seq, 512), "net.py:9")]
    assert GuardRanges({"seq": 4096}).bounds(met) == (LengthBound("seq", 513, 0, where="net.py:9"),)
