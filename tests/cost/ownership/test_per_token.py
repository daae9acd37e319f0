"""Money, energy and carbon of a step, a token and a run: by hand, and how they hang together."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.machine import LevelEquipment, ServerNode
from slipstick.backends.machine.package import Assembly, Die, Package, Stack
from slipstick.backends.machine.system import System
from slipstick.backends.prices.book import load_prices
from slipstick.cost.ownership.carbon import embodied, operational_kg, package_kg
from slipstick.cost.ownership.energy import step_energy
from slipstick.cost.ownership.ownership import Ownership, ownership, rental
from slipstick.cost.ownership.per_token import SystemWork, money_metrics
from slipstick.cost.ownership.system import system_cost
from slipstick.ir.errors import UnknownNameError
from slipstick.ir.graph import Workload
from slipstick.ir.sizes.expr import Num

H100 = Package(
    Assembly("package", "interposer", (Die("gh100", "N4", 814.0), Stack("hbm3", 16e9, 5.0))), price_usd=28_000.0
)


@cache
def dgx() -> System:
    system = load_system("dgx-h100")
    nvlink = replace(system.levels[0], equipment=LevelEquipment(switch="nvswitch-3", switches=4))
    server = ServerNode(price_usd=310_000.0, rest_w=4_600.0)
    levels = (nvlink, *system.levels[1:])
    return replace(system, package=H100, rack=None, levels=levels, server=server)


# What the constants of Chiplet Cloud give with energy of 8640 hours a year, and of the 120 hours that a year has more.
FOUR_YEARS_USD = 486_772.6189 + 1.5 * 0.067 * 10.2 * (8760 - 8640) * 4


def metrics(
    work: SystemWork, num_gpus: int = 8, settings: tuple[str, ...] = (), rented: bool = False
) -> dict[str, Num]:
    prices = load_prices(overrides=settings)
    cost = system_cost(dgx(), num_gpus, prices)
    energy = step_energy(cost, dgx(), prices, work.step_time_s)
    owned = rental(dgx(), num_gpus, prices) if rented else ownership(cost, prices, energy.average_w)
    return dict(money_metrics(work, owned, energy, embodied(cost, dgx(), prices), prices))


TRAIN = SystemWork(Workload.TRAIN, step_time_s=10.0, tokens=4e6, model_flops=1e18, run_s=36e5)


def owned(*settings: str) -> Ownership:
    prices = load_prices(overrides=settings)
    return ownership(system_cost(dgx(), 8, prices), prices)


def test_an_accelerator_hour_as_chiplet_cloud_counts_it() -> None:
    """A node of 310,000 USD and 10.2 kW over four years: 1.74 USD an hour; see the vector of the yearly bill."""
    found = owned()
    assert round(float(found.gpu_hour.usd), 2) == 1.74
    assert float(found.tco_usd) == pytest.approx(FOUR_YEARS_USD)
    assert found.gpu_hour.line("capital/servers").usd == pytest.approx(310_000 / 4 / 8 / 8760)
    assert found.opex_usd == pytest.approx(found.tco_usd - 344_000)


def test_hours_that_nobody_pays_make_the_others_dearer() -> None:
    idle = owned("tco.availability=0.9", "tco.utilisation=0.75")
    assert idle.gpu_hour.usd == pytest.approx(owned().gpu_hour.usd / 0.9 / 0.75)
    assert idle.tco_usd == owned().tco_usd


def test_a_rented_accelerator_costs_what_the_list_says() -> None:
    prices = load_prices()
    found = rental(dgx(), 512, prices)
    assert found.gpu_hour.usd == pytest.approx(3.0)
    assert found.capex_usd == 0
    assert found.opex_usd == found.tco_usd == pytest.approx(3.0 * 512 * 8760 * 4)
    unknown = replace(dgx(), chip=replace(dgx().chip, name="H100-SXM5"))
    with pytest.raises(UnknownNameError, match=r"unknown chip of prices.cloud 'H100-SXM5'; did you mean"):
        rental(unknown, 8, prices)


def test_money_of_a_step_by_hand() -> None:
    found = metrics(TRAIN)
    per_step = FOUR_YEARS_USD / 4 / 8760 / 3600 * 10
    assert found["usd_per_step"] == pytest.approx(per_step)
    assert found["usd_per_mtok"] == pytest.approx(per_step / 4)
    assert found["tokens_per_usd"] == pytest.approx(4e6 / per_step)
    assert found["model_flops_per_usd"] == pytest.approx(1e18 / per_step)
    assert found["tokens_per_s_per_usd_capex"] == pytest.approx(4e5 / (310_000 + 102_000))
    assert found["usd_run"] == pytest.approx(per_step * 360_000)
    assert found["usd_capex"] == 412_000


def test_energy_and_carbon_of_a_step_by_hand() -> None:
    found = metrics(TRAIN)
    assert found["average_power_w"] == pytest.approx(10_200)
    assert found["j_per_token"] == pytest.approx(102_000 / 4e6)
    assert found["j_per_token_facility"] == pytest.approx(153_000 / 4e6)
    assert found["model_flop_per_s_per_w"] == pytest.approx(1e18 / 102_000)
    # A thousand hours of 15.3 kW on a grid of 0.369 kg/kWh.
    assert found["kwh"] == pytest.approx(15_300)
    assert found["tco2e_operational"] == pytest.approx(15.3 * 0.369)
    die_kg = 8.14 * (2.75 * 0.642 + 0.225 + 0.5) / 0.875 + 0.15
    made_kg = 1_000 + 4 * 10 + 2_000 * 0.065 + 8 * (die_kg + 5 * (16 * 0.13 + 0.15))
    assert found["tco2e_embodied"] == pytest.approx(made_kg / 1e3 * 1_000 / (4 * 8760))
    assert found["tco2e"] == pytest.approx(found["tco2e_operational"] + found["tco2e_embodied"])
    assert found["kg_co2e_per_mtok"] == pytest.approx(found["tco2e"] * 1e3 / 360_000 / 4)


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        (Workload.TRAIN, "usd_per_mtok"),
        (Workload.PREFILL, "usd_per_mtok_input"),
        (Workload.DECODE, "usd_per_mtok_output"),
    ],
)
def test_tokens_in_and_out_have_names_of_their_own(workload: Workload, name: str) -> None:
    found = metrics(replace(TRAIN, workload=workload, run_s=None))
    assert [key for key in found if key.startswith("usd_per_mtok")] == [name]
    assert not {"usd_run", "kwh", "tco2e"} & set(found)


def test_what_is_rented_has_no_capital() -> None:
    found = metrics(TRAIN, rented=True)
    assert found["usd_per_step"] == pytest.approx(3.0 * 8 * 10 / 3600)
    assert "tokens_per_s_per_usd_capex" not in found
    assert found["usd_capex"] == 0


def test_carbon_of_what_nobody_describes_is_named() -> None:
    prices = load_prices()
    bare = replace(dgx(), package=None, host=None)
    found = embodied(system_cost(bare, 8, prices), bare, prices)
    assert len(found.unknown) == 2
    assert "packages" not in found.parts_kg
    odd = replace(H100, assembly=Assembly("package", "organic", (Die("die", "N4X", 100.0),)))
    with pytest.raises(UnknownNameError, match=r"unknown node of prices.carbon.fabs 'N4X'; did you mean"):
        package_kg(odd, prices)


def test_a_cleaner_grid() -> None:
    clean = load_prices(overrides=("carbon.grid=iceland",))
    assert operational_kg(3.6e6, clean) == pytest.approx(0.0073)


@settings(max_examples=20)
@given(
    number=st.sampled_from(
        ["energy.electricity", "facility.pue.air", "tco.interest_rate", "facility.capex", "carbon.grids.usa"]
    ),
    factor=st.floats(0.7, 0.99),
)
def test_nothing_gets_cheaper_or_cleaner_when_a_number_rises(number: str, factor: float) -> None:
    usual = next(r for r in load_prices().records if r.path == f"prices.{number}")
    less = metrics(TRAIN, settings=(f"{number}={usual.value_si * factor!r} {usual.dimension}",))
    more = metrics(TRAIN)
    for name in ("usd_per_step", "usd_run", "usd_tco", "kwh", "tco2e"):
        assert less[name] <= more[name] * (1 + 1e-12)
