from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstick.backends.machine.files.many_systems import Systems
from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.ir.errors import SlipstickError

ASKED = (
    ("dgx-h100", (), None, None, None),
    ("dgx-h100", ("chip.memory.hbm.bandwidth=4.8TB/s",), None, None, None),
    ("dgx-h100", ("stack.step_overhead=1ms", "network.nvlink.bandwidth=300GB/s"), "megatron-core", None, None),
    ("dgx-h100", ("calibration.kernels.gemm.bf16.launch=9us",), None, None, None),
    ("dgx-h100", ("prices.tco.utilisation=50%",), None, None, "market"),
    ("dgx-b200", (), None, "default", None),
    ("dgx-h100", ("chip.memory.hbm.bandwidth=3TB",), None, None, None),
    ("dgx-h100", ("chip.memory.nothing=1",), None, None, None),
)


def said(load: Callable[..., System], *asked: object) -> str:
    """A system, or why there is none."""
    try:
        return repr(load(*asked))
    except SlipstickError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("order", [1, -1])
def test_a_system_is_what_it_is_when_loaded_alone(order: int) -> None:
    many = Systems()
    for name, overrides, stack, calibration, prices in (*ASKED[::order], *ASKED):
        asked = name, list(overrides), stack, calibration, prices
        assert said(many.load, *asked) == said(load_system, *asked)
