"""Pricing a whole program: tables equal single plans, sums add up, plug-ins take the path of the built-in model."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from slipstick.backends.kernels.terms import KernelTimes
from slipstick.backends.machine.system import System
from slipstick.backends.network.collectives import collective_time
from slipstick.backends.pricing.amounts import Amounts
from slipstick.backends.pricing.program import PricedEntry, PricingGroup
from slipstick.backends.pricing.roofline import Pricer, Roofline
from slipstick.backends.pricing.timing import Timing, annotate
from slipstick.driver.estimate import Lowered, lower
from slipstick.ir.errors import UnsupportedOpError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, Plan, PlanTable, make_plan

FAMILY = Family(sp=True)


@pytest.fixture(scope="module")
def lowered(traced: Callable[[str], Graph]) -> Lowered:
    return lower(traced("tiny-llama.train"), FAMILY)


def plans() -> list[Plan]:
    return [
        make_plan(num_gpus=tp * dp, tp=tp, dp=dp, micro_batch=mbs, seq_len=seq, family=FAMILY, global_batch=8 * mbs)
        for tp in (1, 2)
        for dp in (1, 2, 8)
        for mbs in (1, 3)
        for seq in (64, 128)
    ]


@dataclass(frozen=True, slots=True)
class FreeNorms:
    """A plug-in that prices norms, and says that they take a millisecond."""

    @property
    def name(self) -> str:
        return "free norms"

    def claims(self, entry: PricedEntry) -> bool:
        return entry.op == "norm"

    @property
    def formula(self) -> str:
        return "a millisecond"

    def numbers(self, entry: PricedEntry, system: System) -> tuple[str, ...]:
        return ()

    def bind(self, group: PricingGroup, system: System) -> Pricer:
        def price(amounts: Amounts) -> KernelTimes:
            time_s = np.full_like(amounts.num_bytes, 1e-3)
            return KernelTimes(time_s, {"nothing": time_s})

        return price


def test_a_table_equals_its_rows_bit_for_bit(lowered: Lowered, made_up: System) -> None:
    many = annotate(lowered.program, made_up, PlanTable.of(plans()))
    for i, plan in enumerate(plans()):
        one = annotate(lowered.program, made_up, PlanTable.of([plan]))
        assert dict(_named(many, i)) == dict(_named(one, 0))


def test_sums_by_label_are_the_sums_over_rows(lowered: Lowered, made_up: System) -> None:
    timing = annotate(lowered.program, made_up, PlanTable.of(plans()))
    sums = timing.sums(lambda e: e.phase if e.op != "matmul" else None)
    for i in range(len(plans())):
        for phase, seconds in sums.items():
            rows = [t * e.count for e, t in timing.rows(i) if e.phase == phase and e.op != "matmul"]
            assert seconds[i] == pytest.approx(sum(rows), rel=1e-12)


def test_every_entry_is_priced_once(lowered: Lowered, made_up: System) -> None:
    timing = annotate(lowered.program, made_up, PlanTable.of(plans()[:1]))
    assert sorted(e.name for e, _ in timing.rows()) == sorted(e.name for e in lowered.program.entries)


def test_a_collective_takes_what_the_network_says(lowered: Lowered, made_up: System) -> None:
    plan = make_plan(num_gpus=8, tp=2, seq_len=64, family=FAMILY, global_batch=4)
    timing = annotate(lowered.program, made_up, PlanTable.of([plan]))
    gather = next(e for e, _ in timing.rows() if e.op == "all_gather" and e.axis == "tp")
    priced, row = timing.find(gather.name)
    # bf16 activations of one sequence: 64 tokens x 64 wide x 2 B, gathered over two neighbours.
    wanted = collective_time("all_gather", 64 * 64 * 2.0, 2.0, 1.0, made_up).time_s
    assert priced.time_s[row, priced.point[0]] == pytest.approx(float(wanted), rel=1e-12)


def test_replicas_lie_outside_tensor_parallel_ranks(lowered: Lowered, made_up: System) -> None:
    plan = make_plan(num_gpus=8, tp=2, seq_len=64, family=FAMILY, global_batch=4)
    timing = annotate(lowered.program, made_up, PlanTable.of([plan]))
    entry = next(e for e, _ in timing.rows() if e.axis == "dp" and e.op == "all_reduce")
    priced, row = timing.find(entry.name)
    assert priced.messages is not None
    wanted = collective_time("all_reduce", float(priced.messages[row, 0]), 4.0, 2.0, made_up).time_s
    assert priced.time_s[row, 0] == pytest.approx(float(wanted), rel=1e-12)


def test_a_plug_in_prices_what_it_claims_and_nothing_else(lowered: Lowered, made_up: System) -> None:
    table = PlanTable.of(plans())
    usual = annotate(lowered.program, made_up, table)
    mixed = annotate(lowered.program, made_up, table, (FreeNorms(), Roofline()))
    before, after = dict(_named(usual, 3)), dict(_named(mixed, 3))
    norms = {e.name for e in lowered.program.entries if e.op == "norm"}
    assert norms
    assert {name: time for name, time in after.items() if name in norms} == dict.fromkeys(norms, 1e-3)
    rest = {name: time for name, time in after.items() if name not in norms}
    assert rest == {name: time for name, time in before.items() if name not in norms}
    assert {p.backend.name if p.backend else "collective" for p in mixed.priced} == {
        "free norms",
        "roofline",
        "collective",
    }


def test_two_backends_of_one_name_lose_nothing(lowered: Lowered, made_up: System) -> None:
    table = PlanTable.of(plans()[:1])
    twice = annotate(lowered.program, made_up, table, (OnlyMatmuls(), Roofline()))
    assert dict(_named(twice, 0)) == dict(_named(annotate(lowered.program, made_up, table), 0))


def test_what_nobody_claims_is_an_error(lowered: Lowered, made_up: System) -> None:
    with pytest.raises(UnsupportedOpError, match=r"no backend prices '\w+' at '[\w.*]*' \(\w+/%\d+\)"):
        annotate(lowered.program, made_up, PlanTable.of(plans()[:1]), (FreeNorms(),))


def test_an_unknown_node_is_a_key_error(lowered: Lowered, made_up: System) -> None:
    with pytest.raises(KeyError):
        annotate(lowered.program, made_up, PlanTable.of(plans()[:1])).find("nowhere/%1")


class OnlyMatmuls(Roofline):
    """Has the name of the built-in model."""

    def claims(self, entry: PricedEntry) -> bool:
        return entry.op == "matmul"


def _named(timing: Timing, plan: int) -> list[tuple[str, float]]:
    return [(entry.name, time) for entry, time in timing.rows(plan)]
