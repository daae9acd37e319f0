"""Energy of a step by what it does: a machine of round numbers by hand, limits, laws on traced models."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.files.catalogue import names
from slipstick.backends.machine.load import load_system, read_system
from slipstick.backends.machine.machine import ServerNode
from slipstick.backends.machine.package import Assembly, Package, Stack
from slipstick.backends.machine.system import System
from slipstick.backends.machine.system_table import machine_at, tabled
from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import Budget, design
from slipstick.backends.technology.files.chip_file import system_text
from slipstick.cost.ownership.activity import BEYOND, Activity, activity, idle_w
from slipstick.cost.ownership.energy import StepEnergy, step_energy
from slipstick.cost.ownership.levels import levels_of, memory_kind
from slipstick.cost.ownership.system import system_cost
from slipstick.driver.estimate import Estimate, estimate, evaluate, lower
from slipstick.ir.errors import SystemFileError, UnknownNameError
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, Plan, PlanTable, make_plan

Traced = Callable[[str], Graph]
Run = Callable[..., tuple[Estimate, Activity]]


@cache
def dgx() -> System:
    system = load_system("dgx-h100")
    levels = tuple(replace(level, equipment=None) for level in system.levels)
    return replace(
        system, package=None, rack=None, levels=levels, server=ServerNode(price_usd=310_000.0, rest_w=4_600.0)
    )


@pytest.fixture(scope="module")
def trained(traced: Traced) -> Run:
    graph = traced("tiny-llama.train")

    def run(gpus: int = 16, tp: int = 2, pp: int = 1, settings: tuple[str, ...] = ()) -> tuple[Estimate, Activity]:
        family = Family(sp=True, pp=pp > 1)
        plan = make_plan(
            num_gpus=gpus, tp=tp, pp=pp, family=family, seq_len=64, micro_batch=1, global_batch=32
        )  # fmt: skip
        answer = estimate(graph, dgx(), plan)
        return answer, activity(answer.table.timing, answer.table.plans, dgx(), load_prices(overrides=settings))

    return run


def no_cap(settings: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Operations so cheap that no node is held to the power of its package."""
    cheap = (
        "energy.vector=1e-18J/FLOP",
        *(f"energy.{key}=1e-16J/B" for key in ("cache", "links.electrical", "memory.hbm3")),
    )
    return (*cheap, *settings)


def test_each_term_of_what_a_step_does(trained: Run) -> None:
    """Memory and cache move the same bytes, vector units do their operations, each at the price of the book."""
    _, doing = trained(settings=no_cap(("energy.cache=3e-16J/B",)))
    _, dearer = trained(settings=no_cap(("energy.cache=3e-16J/B", "energy.vector=2e-18J/FLOP")))
    parts = {name: float(joules[0]) for name, joules in doing.parts_j.items()}
    assert parts["cache"] == pytest.approx(3 * parts["memory"])
    assert parts["vector units"] > 0
    assert float(dearer.parts_j["vector units"][0]) == pytest.approx(2 * parts["vector units"])


def test_what_gradients_take_on_their_way(trained: Run) -> None:
    """An all-reduce over n ranks sends 2 (n - 1)/n of the vector from each of them: 2 (n - 1) of it in all."""
    two, four = (float(trained(gpus=n, tp=1, settings=no_cap())[1].parts_j["network"][0]) for n in (2, 4))
    assert four == pytest.approx(3 * two, rel=1e-3)


def test_operations_are_those_of_the_model(trained: Run) -> None:
    """Of a dense model without recomputation, matrix units do all model FLOPs and those of attention in full."""
    answer, doing = trained(settings=no_cap(("energy.compute.bf16=1e-18J/FLOP", "energy.compute.fp32=1e-18J/FLOP")))
    flops = float(doing.parts_j["matrix units"][0]) / 1e-18
    assert flops == pytest.approx(answer.metrics["model_flops"], rel=0.15)


@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (1, 2), (2, 2)])
def test_the_operations_of_all_packages_do_not_depend_on_how_a_model_is_cut(trained: Run, tp: int, pp: int) -> None:
    cheap = no_cap(("energy.compute.bf16=1e-18J/FLOP", "energy.compute.fp32=1e-18J/FLOP"))
    _, whole = trained(tp=1, settings=cheap)
    _, cut = trained(tp=tp, pp=pp, settings=cheap)
    assert cut.parts_j["matrix units"] == pytest.approx(whole.parts_j["matrix units"], rel=1e-9)


def test_no_part_of_a_step_draws_more_than_packages_may(trained: Run) -> None:
    answer, doing = trained(settings=("energy.compute.bf16=1 nJ/FLOP",))
    cost = system_cost(dgx(), 16, load_prices())
    time_s = answer.metrics["step_time_s"]
    found = step_energy(cost, dgx(), load_prices(), time_s, doing)
    packages_j = found.machines_j - found.parts_j["hosts"] - found.parts_j["network"]
    assert float(np.asarray(packages_j).item()) <= 16 * 700 * time_s * (1 + 1e-9)


def spent(settings: tuple[str, ...], doing: Activity | None, time_s: float = 2.0) -> StepEnergy:
    prices = load_prices(overrides=settings)
    return step_energy(system_cost(dgx(), 16, prices), dgx(), prices, time_s, doing)


def test_energy_of_a_step_by_hand() -> None:
    doing = Activity({"matrix units": np.array([4_000.0]), "network": np.array([100.0])})
    found = spent((), doing)
    # 16 packages that rest at 129.5 W of 700 W; two servers with 4.6 kW of their own at most, of which they draw 64 %.
    hosts_j = 2 * 4_600 * 0.64 * 2
    by_hand = {"idle": 16 * 129.5 * 2, "matrix units": 4_000, "wires": 100, "hosts": hosts_j, "network": 0}
    assert {k: float(np.asarray(v).item()) for k, v in found.parts_j.items()} == pytest.approx(by_hand)
    assert found.machines_j == pytest.approx(sum(by_hand.values()))
    assert found.building_j == pytest.approx(0.5 * sum(by_hand.values()))
    assert found.average_w == pytest.approx(sum(by_hand.values()) / 2)
    # All 16 compute: each has its rest, and a sixteenth of the operations and wires of 2 s.
    assert float(np.asarray(found.gpu_w).item()) == pytest.approx(129.5 + 4_100 / 16 / 2)


def test_the_power_of_a_gpu_is_that_of_one_that_computes() -> None:
    """12 of 16 accelerators compute: idle ones rest, and are in no mean of the others."""
    prices, doing = load_prices(), Activity({"matrix units": np.array([2_400.0])})
    found = step_energy(system_cost(dgx(), 12, prices), dgx(), prices, 2.0, doing)
    assert (found.num_gpus, found.num_bought) == (12, 16)
    assert float(np.asarray(found.gpu_w).item()) == pytest.approx(129.5 + 2_400 / 12 / 2)


def test_a_byte_of_memory_takes_what_a_copy_took_on_an_h100() -> None:
    """3,022 GB/s drew 533.6 W of which 129.5 W are rest (tests/data/h100_power.csv): 134 pJ a byte."""
    energy = load_prices().section.energy
    assert energy.memory["hbm3"].si + energy.cache.si == pytest.approx((533.6 - 129.5) / 3022e9, rel=5e-3)
    # 8192^3 products of random bf16 in 1652.286 us at 703 W, 3 operands of 2 bytes once.
    time_s, moved = 1652.286e-6, 3 * 8192**2 * 2
    joules = (703.0 - 129.5) * time_s - moved * (energy.memory["hbm3"].si + energy.cache.si)
    assert energy.compute["bf16"].si == pytest.approx(joules / (2 * 8192**3), rel=0.01)


def test_a_limit_below_what_is_drawn_at_rest_is_all_that_is_drawn(trained: Run) -> None:
    """Nothing does less than nothing: at rest are 129.5 W of 700 W, where 100 W are allowed."""
    limited = replace(dgx(), chip=replace(dgx().chip, power_limit_w=100.0))
    answer, _ = trained()
    table = answer.table
    doing = activity(table.timing, table.plans, limited, load_prices())
    found = step_energy(system_cost(limited, 16, load_prices()), limited, load_prices(), 2.0, doing)
    assert idle_w(limited, load_prices()) == 100.0
    assert float(doing.total_j[0]) == pytest.approx(0.0, abs=1e-12)
    assert found.parts_j["idle"] == pytest.approx(16 * 100 * 2)


def test_design_power_times_a_load() -> None:
    settings = ("energy.power_model=design_power", "energy.average_load=0.8")
    found = spent(settings, Activity({"matrix units": np.array([4_000.0])}))
    assert found.parts_j == pytest.approx({"packages": 16 * 700 * 0.8 * 2, "hosts": 2 * 4_600 * 0.8 * 2, "network": 0})
    assert spent(settings, None).machines_j == pytest.approx(found.machines_j)


def test_the_memory_of_a_package_says_its_energy() -> None:
    stacks = (Stack("hbm2e", 16e9, 4.0), Stack("ddr5", 1e9))
    system = replace(dgx(), package=Package(Assembly("package", "interposer", stacks)))
    assert memory_kind(system) == "hbm2e"
    assert memory_kind(dgx()) == "hbm3"


def test_a_memory_of_which_nobody_knows_the_energy(trained: Run) -> None:
    answer, _ = trained()
    odd = replace(dgx(), package=Package(Assembly("package", "organic", (Stack("hbm9", 1e9),))))
    with pytest.raises(UnknownNameError, match=r"unknown memory of prices\.energy 'hbm9'"):
        activity(answer.table.timing, answer.table.plans, odd, load_prices())


@settings(max_examples=10)
@given(
    number=st.sampled_from(
        ["energy.compute.bf16", "energy.memory.hbm3", "energy.links.electrical", "energy.cache", "energy.vector"]
    ),
    factor=st.floats(0.1, 0.9),
)
def test_energy_never_falls_when_an_operation_takes_more(trained: Run, number: str, factor: float) -> None:
    usual = next(r for r in load_prices().records if r.path == f"prices.{number}")
    _, less = trained(settings=(f"{number}={usual.value_si * factor!r} {usual.dimension}",))
    _, more = trained(settings=(f"{number}={usual.value_si!r} {usual.dimension}",))
    assert float(less.total_j[0]) <= float(more.total_j[0]) * (1 + 1e-12)


def test_each_plan_of_a_table_sends_what_it_sends_alone(traced: Traced) -> None:
    family = Family(sp=True)
    done = lower(traced("tiny-llama.train"), family)
    plans = [
        make_plan(num_gpus=16, tp=tp, family=family, seq_len=64, micro_batch=1, global_batch=32) for tp in (1, 2, 4)
    ]

    def network_j(some: list[Plan]) -> list[float]:
        table = evaluate(done, dgx(), PlanTable.of(some))
        return [float(j) for j in activity(table.timing, table.plans, dgx(), load_prices()).parts_j["network"]]

    alone = [network_j([plan])[0] for plan in plans]
    assert len(set(alone)) == 3
    assert network_j(plans) == pytest.approx(alone, rel=1e-12)


def test_the_same_operations_take_the_energy_of_their_node_and_voltage(trained: Run) -> None:
    """N12 to N1: joules of matrix units go as node.power x V^2, clipped or not, and the series of all of them falls."""
    technology, answer = load_technology(), trained()[0]
    budget = Budget("N7", 826.0, 400.0, unit="a100", memory="hbm2e", link="nvlink3")
    made = [design(replace(budget, node=node), technology) for node in technology.node_names]
    systems = [
        read_system(system_text(one, one.budget.node, 8, "ndr-infiniband", technology), one.budget.node) for one in made
    ]
    done = [activity(answer.table.timing, answer.table.plans, one, load_prices()) for one in systems]
    matrix = [float(one.parts_j["matrix units"][0]) for one in done]
    law = [1.3 ** (3 - place) * (one.compute.at.voltage_v / 0.8) ** 2 for place, one in enumerate(made)]
    assert [joules / matrix[0] for joules in matrix] == pytest.approx([one / law[0] for one in law], rel=1e-9)
    unclipped = [sum(float(j[0]) for name, j in one.parts_j.items() if name != BEYOND) for one in done]
    assert unclipped == sorted(unclipped, reverse=True)
    assert len(set(unclipped)) == len(NODES_OF_PAPER)


NODES_OF_PAPER = ("N12", "N10", "N7", "N5", "N3", "N2", "N1")
# Nodes before N5 of a chip's compute dies, each with 1.3 times the power: nodes.yaml; N4 is of N5, and N6 of N7.
STEPS = {"N12": 3, "N10": 2, "N7": 1, "N6": 1, "N5": 0, "N4": 0, "N4P": 0, "N3": -1}


@pytest.mark.parametrize("name", names("systems"))
def test_a_chip_nobody_measured_has_the_energy_of_its_node(name: str) -> None:
    system, energy = load_system(name), load_prices().section.energy
    levels = levels_of(system, energy)
    law = 1.3 ** min((STEPS[die.node] for die in system.package.assembly.dies), default=0) if system.package else 1.0
    assert levels.vector == pytest.approx(energy.vector.si * law)
    if system.chip.design == "blackwell":
        # What the calibration has: 0.533 pJ in 16 bits, 0.795 of the power at twice and four times the rate.
        power = system.kernels.power["chip"]
        assert levels.compute["bf16"] == pytest.approx(power.energy_j_per_flop)
        assert levels.compute["fp8"] == pytest.approx(power.energy_j_per_flop * power.narrow / 2)
        assert levels.compute["fp4"] == pytest.approx(power.energy_j_per_flop * power.narrow / 4)
    else:
        assert levels.compute == pytest.approx({dtype: one.si * law for dtype, one in energy.compute.items()})


def test_machines_of_a_table_take_what_each_takes_alone() -> None:
    one = load_system("dgx-h100", ["chip.energy.matmul=0.5 pJ/FLOP"])
    table = tabled(one, {"chip.energy.matmul": [4e-13, 8e-13]})
    levels = [levels_of(machine_at(table, row), load_prices().section.energy).compute["bf16"] for row in (0, 1)]
    assert levels == pytest.approx([4e-13, 8e-13])
    assert list(np.asarray(levels_of(table, load_prices().section.energy).compute["bf16"])) == pytest.approx(levels)


@pytest.mark.parametrize(
    ("sizes", "strides", "kind", "shares"),
    [
        ([4], [1], "all_reduce", {"nvlink": 1.0}),
        ([4], [8], "all_reduce", {"infiniband": 1.0}),
        ([16], [1], "all_reduce", {"nvlink": 7 / 8, "infiniband": 1 / 8}),
        ([16], [1], "all_to_all", {"nvlink": 7 / 15, "infiniband": 8 / 15}),
        ([16], [4], "all_gather", {"nvlink": 1 / 2, "infiniband": 1 / 2}),
        ([2, 4], [4, 16], "all_to_all", {"nvlink": 1 / 7, "infiniband": 6 / 7}),
    ],
)
def test_bytes_of_a_message_go_by_the_links_of_the_levels_they_cross(
    sizes: list[int], strides: list[int], kind: str, shares: dict[str, float]
) -> None:
    """Of 8 chips behind NVLink by hand: a ring leaves its node once, an all-to-all goes to every peer alike."""
    wires = levels_of(load_system("dgx-h100"), load_prices().section.energy).wires
    columns = (np.array(sizes, float)[:, None], np.array(strides, float)[:, None])
    found = {one.level: float(wires.only(one.level, 1.0).j_per_byte(kind, *columns)[0]) for one in wires.links}
    assert {level: share for level, share in found.items() if share} == pytest.approx(shares)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shares_of_levels_add_up_to_one(data: st.DataObject) -> None:
    system = load_system(data.draw(st.sampled_from(names("systems"))))
    wires = levels_of(system, load_prices().section.energy).wires
    sizes = np.array(data.draw(st.lists(st.sampled_from([1.0, 2, 3, 4, 8, 64]), min_size=1, max_size=3)))[:, None]
    strides = np.array([data.draw(st.sampled_from([1.0, 2, 4, 8, 72])) for _ in sizes])[:, None]
    kind = data.draw(st.sampled_from(["all_reduce", "all_to_all", "send"]))
    shares = [float(wires.only(one.level, 1.0).j_per_byte(kind, sizes, strides)[0]) for one in wires.links]
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) >= -1e-12


def test_links_go_by_their_kind_or_what_they_say() -> None:
    """8 pJ/bit of NVLink, 6.5 of PCIe to an adapter, 9 W of 1.6 Tbit/s co-packaged; a number of its own comes first."""
    energy = load_prices().section.energy

    def joules(system: System) -> dict[str, tuple[str, object]]:
        return {one.level: (one.kind, float(one.j_per_byte)) for one in levels_of(system, energy).wires.links}

    assert joules(load_system("dgx-h100")) == {
        "nvlink": ("electrical", pytest.approx(64e-12)),
        "infiniband": ("pcie", pytest.approx(52e-12)),
    }
    assert joules(load_system("rtx-4090-server"))["pcie"] == ("pcie", pytest.approx(52e-12))
    optics = load_system("dgx-h100", ["network.nvlink.equipment.link=co-packaged"])
    assert joules(optics)["nvlink"] == ("co-packaged", pytest.approx(9 / 1.6e12 * 8))
    own = load_system("dgx-h100", ["network.nvlink.equipment.energy=2 pJ/bit"])
    assert joules(own)["nvlink"] == ("electrical", pytest.approx(16e-12))
    with pytest.raises(UnknownNameError, match=r"unknown link of prices\.energy\.links 'wireless'"):
        joules(load_system("dgx-h100", ["network.nvlink.equipment.link=wireless"]))
    with pytest.raises(SystemFileError, match="optics count twice: transceiver 400g"):
        load_system("dgx-h100", ["network.infiniband.equipment.link=pluggable"])


def test_what_a_design_writes_has_the_energy_of_its_memory_and_lanes() -> None:
    """Joules of a bit are those of HBM3 at any rate, and go with the square of the voltage of NVLink 4."""
    technology = load_technology()
    made = design(Budget("N5", 826.0, 600.0, unit="a100", memory="hbm3", link="nvlink4"), technology)
    system = read_system(system_text(made, "mine", 8, "ndr-infiniband", technology, like="dgx-h100"), "mine")
    levels = levels_of(system, load_prices().section.energy)
    kind, lane = technology.memory("hbm3"), technology.link("nvlink4")
    assert made.memory.speed < 1
    assert float(levels.memory) == pytest.approx(kind.design_j_per_byte)
    lane_share = (made.network.at.voltage_v / lane.voltage.nominal.si) ** 2
    assert float(levels.wires.links[0].j_per_byte) == pytest.approx(lane.energy.si * float(lane_share))
