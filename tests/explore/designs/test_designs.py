"""Designs of a space: each is what its own file says, alone or among others, and the laws that hold between them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.backends.machine.load import read_system
from slipstick.backends.machine.system import System
from slipstick.backends.prices.book import load_prices
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.fits import Reason
from slipstick.cost.money import Terms, system_money
from slipstick.cost.run.training_run import TrainingRun
from slipstick.cost.silicon.dies.limits import Obstacle
from slipstick.driver.estimate import estimate, train, worth
from slipstick.explore.designs.designs import Designs, check_some, column_of, explore, system_text_at
from slipstick.explore.designs.reasons import NOT_PACKAGED, reason_text
from slipstick.explore.designs.setting import DesignJob, DesignSetting
from slipstick.explore.designs.space import DesignSpace
from slipstick.ir.errors import UnknownNameError, UsageError

# One device of one die, of two, and two and four dies that are devices, with every way to join and several packages.
FORMS = DesignSpace(
    nodes=("N7", "N3"), die_mm2=(300.0, 420.0), power_w=(600.0, 900.0), num_dies=(1, 2, 4), memories=("hbm3",),
    num_stacks=(4,), d2d=("", "ucie-advanced"), d2d_bytes_per_s=(1e12,), joins=("ring", "fully_connected"),
    joints=("fan_out_bridge",),
)  # fmt: skip
OTHERS = DesignSpace(
    nodes=("N5",), die_mm2=(200.0, 350.0), power_w=(0.7, 1.0), num_dies=(1, 2), memories=("hbm2e", "gddr6"),
    units=("a100",), links=("nvlink3", "pcie5"), d2d=("nvlink-c2c",), d2d_bytes_per_s=(450e9,), power_is_density=True,
)  # fmt: skip
PLAIN = DesignSpace(nodes=("N5",), die_mm2=(400.0, 600.0, 800.0), power_w=(700.0,))


def rows_of(space: DesignSpace, setting: DesignSetting, job: DesignJob | None = None) -> list[Designs]:
    return list(explore(space, setting, job))


def close(found: float, expected: float) -> bool:
    return found == pytest.approx(expected, rel=1e-9)


def one_by_one(space: DesignSpace, setting: DesignSetting, found: list[Designs]) -> list[tuple[Designs, int, System]]:
    """Every design that can be built, as the file that says it."""
    systems: list[tuple[Designs, int, System]] = []
    at = 0
    for designs in found:
        for row in range(len(designs.reason)):
            if designs.reason[row] == 0:
                text = system_text_at(space, setting, found, at)
                systems.append((designs, row, replace(read_system(text, "one"), own_prices=setting.prices)))
            at += 1
    return systems


@pytest.mark.parametrize("space", [FORMS, OTHERS], ids=["forms", "others"])
def test_a_design_costs_what_its_file_costs(space: DesignSpace, setting: DesignSetting) -> None:
    found = rows_of(space, setting)
    systems = one_by_one(space, setting, found)
    assert len(systems) >= 12
    for designs, row, system in systems:
        money = system_money(system, setting.num_gpus, Terms(basis="build"))
        assert money.package is not None
        assert close(designs.columns["package_usd"][row], float(money.package.usd))
        assert close(designs.columns["usd_per_gpu"][row], float(money.cost.bill.usd) / 64)
        assert close(designs.columns["usd_per_gpu_hour"][row], float(money.owned.gpu_hour.usd))
        assert close(designs.columns["w_per_gpu"][row], float(money.cost.power_w) / 64)
        assert designs.unpriced == money.unpriced


@pytest.mark.parametrize("space", [FORMS, OTHERS], ids=["forms", "others"])
def test_a_design_takes_what_its_file_takes(space: DesignSpace, setting: DesignSetting, job: DesignJob) -> None:
    around = replace(setting, volume=50_000.0, gross_margin=0.6)
    found = rows_of(space, around, job)
    for designs, row, system in one_by_one(space, around, found):
        alone = estimate(job.lowered.source, system, job.plan, lowered=job.lowered)
        answer = worth(train(alone, TrainingRun(amount=1000, unit="steps")), Terms(basis=around.basis))
        assert answer.money is not None
        expected = {**answer.metrics, **answer.money.metrics}
        shared = set(designs.columns) & set(expected)
        assert {"step_time_s", "usd_per_step", "usd_run", "j_per_token", "tco2e", "mfu", "usd_capex"} <= shared
        for name in shared:
            assert close(designs.columns[name][row], float(np.ravel(expected[name])[0])), name
        assert designs.columns["fits"][row] == answer.fits


@pytest.mark.parametrize("name", ["chiplet-actuary", "catch", "market", "h100-cluster-2024"])
def test_every_book_prices_designs_as_their_files(name: str, setting: DesignSetting) -> None:
    around = replace(setting, prices=load_prices(name))
    found = rows_of(PLAIN, around)
    for designs, row, system in one_by_one(PLAIN, around, found):
        money = system_money(system, 64, Terms(basis="build"))
        assert close(designs.columns["usd_per_gpu_hour"][row], float(money.owned.gpu_hour.usd))


def test_a_design_is_the_same_alone_and_among_others(setting: DesignSetting, job: DesignJob) -> None:
    among = rows_of(PLAIN, setting, job)[0].columns
    for row, area in enumerate(PLAIN.die_mm2):
        alone = rows_of(replace(PLAIN, die_mm2=(area,)), setting, job)[0].columns
        assert set(alone) == set(among)
        for name, column in alone.items():
            assert close(column[0], among[name][row]), name


def test_many_designs_are_the_same_in_parts(setting: DesignSetting) -> None:
    areas = tuple(np.linspace(100.0, 900.0, 101).tolist())
    powers = tuple(np.linspace(300.0, 1200.0, 101).tolist())
    many = DesignSpace(nodes=("N5",), die_mm2=areas, power_w=powers)
    found = rows_of(many, setting)[0]
    few = rows_of(replace(many, power_w=powers[7:8]), setting)[0]
    assert len(found.reason) == 101 * 101
    assert np.array_equal(found.reason[7::101], few.reason)
    for name, column in few.columns.items():
        assert np.allclose(found.columns[name][7::101], column, rtol=1e-12, equal_nan=True), name
    # The field of lithography is 858 mm2.
    assert set(found.reason[found.columns["die_mm2"] > 858.0]) == {NOT_PACKAGED + Obstacle.FIELD}


def test_packages_of_chiplets_have_the_interposer_of_their_silicon(setting: DesignSetting) -> None:
    # One device of 800 mm2 in one die, two and four: the same stacks, so the same interposer, and better yield.
    space = DesignSpace(nodes=("N5",), die_mm2=(800.0, 400.0, 200.0), power_w=(1000.0,), num_dies=(1, 2, 4),
                        num_stacks=(4,))  # fmt: skip
    found = rows_of(space, setting)
    whole = {d.form.num_dies: d.columns["package_usd"][d.columns["silicon_mm2"] == 800.0][0] for d in found}
    assert whole[1] > whole[2]
    assert np.isfinite(list(whole.values())).all()


def test_two_dies_without_an_interface_are_one_device(setting: DesignSetting, job: DesignJob) -> None:
    form = replace(PLAIN, die_mm2=(400.0,), num_dies=(2,), num_stacks=(4,), power_w=(1000.0,))
    apart = replace(form, d2d=("ucie-advanced",), d2d_bytes_per_s=(1e12,))
    one, two = rows_of(form, setting, job)[0].columns, rows_of(apart, setting, job)[0].columns
    # Each of the two has half of the power and the memory, and less than half of the units: interfaces take area.
    assert two["hbm_bytes"][0] == one["hbm_bytes"][0] / 2
    assert two["num_sms"][0] <= one["num_sms"][0] / 2
    assert two["d2d_mm2"][0] > 0 == one["d2d_mm2"][0]


@given(st.floats(200.0, 800.0), st.floats(1.01, 4.0))
@settings(max_examples=25)
def test_more_defects_make_a_package_dearer(area: float, factor: float) -> None:
    usual = load_prices("chiplet-actuary")
    density = usual.section.node("N5").defect_density.si
    worse = load_prices("chiplet-actuary", (f"nodes.N5.defect_density={density * factor:.9g}/mm2",))
    space = DesignSpace(nodes=("N5",), die_mm2=(area, area / 2), power_w=(600.0,), num_dies=(1, 2))
    technology = load_technology()
    before, after = (
        np.concatenate(
            [d.columns["package_usd"] for d in explore(space, DesignSetting(technology=technology, prices=p))]
        )
        for p in (usual, worse)
    )
    built = ~np.isnan(before)
    assert built.any()
    assert (after[built] > before[built]).all()


def test_more_silicon_costs_more_and_yields_less(setting: DesignSetting) -> None:
    areas = tuple(np.linspace(200.0, 850.0, 66).tolist())
    space = replace(PLAIN, die_mm2=areas, num_stacks=(1,), power_w=(0.8,), power_is_density=True)
    found = rows_of(space, setting)[0].columns
    assert (np.diff(found["package_usd"]) > 0).all()
    assert (np.diff(found["fp16_flop_per_s"]) >= 0).all()
    assert (np.diff(found["usd_per_gpu"]) > 0).all()


def test_volume_shares_out_what_is_paid_once(setting: DesignSetting) -> None:
    def usd(volume: float | None, margin: float | None = None) -> float:
        around = replace(setting, volume=volume, gross_margin=margin)
        return float(rows_of(replace(PLAIN, die_mm2=(400.0,)), around)[0].columns["package_usd"][0])

    once = (usd(1e4) - usd(None)) * 1e4
    assert once > 1e8
    assert (usd(1e6) - usd(None)) * 1e6 == pytest.approx(once, rel=1e-9)
    # A margin is on top of what package manufacturing cost.
    assert usd(1e4, 0.5) == usd(1e4)


def test_a_margin_is_paid_by_who_buys(setting: DesignSetting) -> None:
    space = replace(PLAIN, die_mm2=(400.0,))
    plain, kept = (rows_of(space, replace(setting, gross_margin=m))[0].columns for m in (0.0, 0.5))
    shared = setting.prices.section.servers.gross_margin.si
    # At a margin of a half a package is sold at twice its cost; the server's maker keeps the part of its own price.
    dearer = float(kept["usd_per_gpu"][0] - plain["usd_per_gpu"][0])
    assert dearer == pytest.approx(float(plain["package_usd"][0]) / (1.0 - shared), rel=1e-9)


def test_reasons_have_words() -> None:
    every = [*(Reason(k) for k in Reason if k), *(NOT_PACKAGED + o for o in Obstacle if o)]
    assert all(reason_text(float(code)) for code in every)


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (replace(PLAIN, die_mm2=(900.0,)), NOT_PACKAGED + Obstacle.FIELD),
        (replace(PLAIN, joints=("organic",)), NOT_PACKAGED + Obstacle.FINE_WIRES),
        (replace(PLAIN, die_mm2=(800.0,), num_dies=(4,), power_w=(2000.0,)), NOT_PACKAGED + Obstacle.WIRES),
        (replace(PLAIN, die_mm2=(4.0,)), Reason.MULTIPROCESSOR),
        (replace(PLAIN, num_stacks=(40,)), Reason.STACKS),
        (replace(PLAIN, num_dies=(3,), d2d=("ucie-advanced",), d2d_bytes_per_s=(1e12,), joins=("mesh",)), Reason.JOIN),
        (replace(PLAIN, num_dies=(2,), d2d=("ucie-advanced",), d2d_bytes_per_s=(99e12,)), Reason.D2D_SHORELINE),
        (replace(PLAIN, num_dies=(2,), num_stacks=(3,), d2d=("ucie-advanced",), d2d_bytes_per_s=(1e12,)), Reason.RANKS),
    ],
)
def test_what_cannot_be_built_says_why(space: DesignSpace, reason: int, setting: DesignSetting) -> None:
    found = rows_of(space, setting)
    assert {int(code) for code in found[0].reason} == {int(reason)}
    assert not found[0].built.any()
    assert np.isnan(column_of(found[0], "package_usd")).all()
    with pytest.raises(UsageError, match=r"(design cannot be built|can be built; of the first): "):
        check_some(space, setting, found)


def test_what_cannot_be_built_stands_beside_what_can(setting: DesignSetting) -> None:
    found = rows_of(replace(PLAIN, die_mm2=(400.0, 900.0, 800.0)), setting)[0]
    assert found.built.tolist() == [True, False, True]
    assert np.isnan(found.columns["usd_per_gpu"]).tolist() == [False, True, False]
    check_some(PLAIN, setting, [found])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nodes": ("N4X",)}, "unknown node 'N4X'"),
        ({"units": ("h101",)}, "unknown unit of compute 'h101'; did you mean 'h100'"),
        ({"memories": ("hbm9",)}, "unknown memory 'hbm9'"),
        ({"links": ("nvlink",)}, "unknown link 'nvlink'"),
        ({"d2d": ("ucie",), "num_dies": (2,), "d2d_bytes_per_s": (1e12,)}, "unknown D2D interface 'ucie'"),
    ],
)
def test_names_that_there_are_not(wrong: dict[str, tuple[str, ...]], message: str, setting: DesignSetting) -> None:
    with pytest.raises(UnknownNameError, match=message):
        rows_of(replace(PLAIN, **wrong), setting)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_packages": 0}, "packages of a node: 0 is too few"),
        ({"num_gpus": 0}, "accelerators: 0 is too few"),
        ({"volume": 0.0}, "a volume of 0 packages: 1 or more"),
        ({"gross_margin": 1.0}, "a gross margin of 1: from 0 to less than 1"),
    ],
)
def test_settings_that_there_are_not(given: dict[str, int], message: str, setting: DesignSetting) -> None:
    with pytest.raises(UsageError, match=message):
        replace(setting, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["chip.power=3W", "network.scale-up.bandwidth=1TB/s", "network.d2d.links=3", "node.num_chips=4"]
)
def test_what_follows_from_a_budget_is_not_set(text: str, setting: DesignSetting) -> None:
    with pytest.raises(UsageError, match="each design has its own"):
        rows_of(PLAIN, replace(setting, overrides=(text,)))


def test_numbers_around_the_chips_are_set(setting: DesignSetting, job: DesignJob) -> None:
    slower = replace(setting, overrides=("network.scale-up.latency=50us",))
    before, after = (rows_of(PLAIN, s, job)[0].columns["step_time_s"] for s in (setting, slower))
    assert (after > before).all()
