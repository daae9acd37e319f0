"""Parts by name move what is timed and what is billed together, leave no stale price, and say where they come from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.system import System
from slipstick.backends.prices.book import load_prices
from slipstick.cost.money import Money, Terms, system_money
from slipstick.ir.errors import UnknownNameError, UsageError

GPUS = 576
# Each part with what it makes of the machine: a number of the timing side that must move, and which way.
PARTS = (
    ("dgx-h100", "chip.memory=8xhbm4", lambda s: s.chip.hbm_bytes_per_s),
    ("dgx-h100", "chip.memory=6xhbm3e", lambda s: s.chip.hbm_bytes),
    ("gb200-nvl72", "chip.memory=8xhbm4", lambda s: s.chip.hbm_bytes_per_s),
    ("mi300x-platform", "chip.memory=8xhbm3e", lambda s: s.chip.hbm_bytes_per_s),
    ("dgx-h100", "nic=800g", lambda s: s.levels[-1].bytes_per_s),
    ("dgx-b200", "nic=800g", lambda s: s.levels[-1].bytes_per_s),
    ("gb200-nvl72", "nic=800g", lambda s: s.levels[-1].bytes_per_s),
    ("dgx-h100", "scale-up=nvl72", lambda s: s.levels[0].size),
    ("dgx-b200", "scale-up=144", lambda s: s.levels[0].size),
    ("gb200-nvl72", "scale-up=576", lambda s: s.levels[0].size),
)


def money(system: System) -> Money:
    return system_money(system, GPUS, Terms())


def usd(found: Money) -> float:
    return float(np.ravel(found.owned.gpu_hour.usd)[0])


@pytest.mark.parametrize(("name", "part", "timed"), PARTS)
def test_a_part_moves_time_and_money_and_leaves_no_stale_price(
    name: str, part: str, timed: Callable[[System], object]
) -> None:
    before, after = load_system(name), load_system(name, [part])
    assert np.ravel(np.asarray(timed(after), dtype=float)) > np.ravel(np.asarray(timed(before), dtype=float))
    assert usd(money(after)) > usd(money(before))
    assert money(after).outdated == ()
    told = [number for number in after.sources if number.source.startswith(f"part {part}")]
    assert told
    assert {number.confidence for number in told} == {"estimated"}


def test_the_price_of_stacks_is_that_of_the_price_book() -> None:
    # Five stacks of 16 GiB of HBM3 go, eight of 48 GB of HBM4 come, on each of eight chips of a server.
    book = load_prices().section.memories
    added = 8 * 48e9 * book["hbm4"].price.si - 5 * 16 * 2**30 * book["hbm3"].price.si
    before, after = (load_system("dgx-h100", parts).server for parts in ([], ["chip.memory=8xhbm4"]))
    assert before is not None
    assert after is not None
    assert float(after.price_usd or 0) - float(before.price_usd or 0) == pytest.approx(8 * added, rel=1e-9)


def test_cooling_by_liquid_moves_power_and_money() -> None:
    before, after = (load_system("dgx-h100", parts) for parts in ([], ["rack=liquid"]))
    assert before.server is not None
    assert after.server is not None
    # Fans of 1,200 W go; a fourth of a rack's pumps, 2,000 W, comes.
    rest = float(after.server.rest_w or 0) - float(before.server.rest_w or 0)
    assert rest == pytest.approx(-1200.0 + 2000.0 / 4)
    assert usd(money(after)) != usd(money(before))
    assert money(after).outdated == ()


def test_numbers_are_set_over_parts() -> None:
    system = load_system("dgx-h100", ["chip.memory.hbm.bandwidth=9TB/s", "chip.memory=8xhbm4"])
    assert float(system.chip.hbm_bytes_per_s) == 9e12
    assert float(system.chip.hbm_bytes) == 8 * 48e9
    assert money(system).outdated


def test_the_part_that_is_there_already_changes_nothing() -> None:
    for name, part in (("dgx-h100", "nic=400g"), ("dgx-h100", "scale-up=8"), ("gb200-nvl72", "rack=liquid")):
        assert usd(money(load_system(name, [part]))) == pytest.approx(usd(money(load_system(name))), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "part", "said"),
    [
        ("dgx-h100", "chip.memory=8xhbm9", "kinds: hbm2"),
        ("dgx-h100", "chip.memory=80", "as in 8xhbm3e"),
        ("dgx-h100", "nic=300g", "a port of 100g"),
        ("dgx-h100", "scale-up=73", "as in nvl72"),
        ("dgx-h100", "scale-up=4", "a domain of whole servers"),
        ("mi300x-platform", "scale-up=72", "no switches of its own"),
        ("dgx-h100", "rack=oil", "air, liquid"),
    ],
)
def test_what_is_refused(name: str, part: str, said: str) -> None:
    with pytest.raises((UnknownNameError, UsageError), match=said):
        load_system(name, [part])
