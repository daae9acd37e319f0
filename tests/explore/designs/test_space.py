"""Spaces by hand: which forms and rows there are, and what no space may be."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.backends.technology import columns
from slipstick.backends.technology.d2d import Join
from slipstick.backends.technology.data import load_technology
from slipstick.backends.technology.design import design
from slipstick.backends.technology.files.package_file import JOINTS
from slipstick.backends.technology.packaging import packaged
from slipstick.explore.designs.space import DesignForm, DesignSpace
from slipstick.ir.errors import UsageError

JOINS = get_args(Join)


def lists(*words: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(words), min_size=1, max_size=3, unique=True).map(tuple)


def test_forms_are_words_and_rows_are_numbers() -> None:
    space = DesignSpace(
        nodes=("N5", "N3"), die_mm2=(400.0, 800.0), power_w=(700.0, 1000.0), num_dies=(1, 2), num_stacks=(4, 6),
        d2d=("", "ucie-advanced"), d2d_bytes_per_s=(1e12, 2e12, 3e12),
    )  # fmt: skip
    # One die has no interface: of each node one die, two that are one device, and two that are devices.
    assert [(f.node, f.num_dies, f.d2d) for f in space.forms()] == [
        ("N5", 1, ""), ("N5", 2, ""), ("N5", 2, "ucie-advanced"),
        ("N3", 1, ""), ("N3", 2, ""), ("N3", 2, "ucie-advanced"),
    ]  # fmt: skip
    # Eight rows without interfaces, three bandwidths each with them.
    assert space.num_designs() == 2 * (8 + 8 + 24)
    forms = list(space.forms())
    alone, joined = space.budget(forms[0]), space.budget(forms[2])
    assert np.asarray(alone.area_mm2).tolist() == [400.0] * 4 + [800.0] * 4
    assert np.asarray(alone.power_w).tolist() == [700.0, 700.0, 1000.0, 1000.0] * 2
    assert np.asarray(alone.num_stacks).tolist() == [4.0, 6.0] * 4
    assert np.asarray(joined.area_mm2).tolist() == [800.0] * 12 + [1600.0] * 12
    assert np.asarray(joined.d2d_bytes_per_s).tolist() == [1e12, 2e12, 3e12] * 8


def test_a_density_is_of_all_dies() -> None:
    space = DesignSpace(nodes=("N5",), die_mm2=(400.0,), power_w=(0.8,), num_dies=(1, 4), power_is_density=True)
    watts = [float(np.ravel(space.budget(form).power_w)[0]) for form in space.forms()]
    assert watts == [320.0, 1280.0]


def test_a_joint_is_as_usual_with_the_memory() -> None:
    space = DesignSpace(nodes=("N5",), die_mm2=(400.0,), power_w=(500.0,), memories=("hbm3", "gddr6"))
    technology = load_technology()
    made = [packaged(design(columns.row(space.budget(f), 0), technology), technology, f.joint) for f in space.forms()]
    assert [package.assembly.joint for package in made] == ["interposer", "organic"]
    all_of_them = DesignSpace(nodes=("N5",), die_mm2=(400.0,), power_w=(500.0,), joints=JOINTS)
    assert [form.joint for form in all_of_them.forms()] == list(JOINTS)


@given(
    st.sets(st.sampled_from(["N7", "N5", "N3"]), min_size=1),
    st.sets(st.integers(1, 6), min_size=1),
    lists("", "ucie-advanced", "nvlink-c2c"),
    st.lists(st.sampled_from(JOINS), min_size=1, unique=True),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_every_design_is_there_once(
    nodes: set[str], dies: set[int], d2d: tuple[str, ...], joins: list[Join], num_areas: int, num_rates: int
) -> None:
    space = DesignSpace(
        nodes=tuple(nodes), die_mm2=tuple(100.0 + k for k in range(num_areas)), power_w=(500.0,),
        num_dies=tuple(dies), d2d=d2d, joins=tuple(joins), d2d_bytes_per_s=tuple(1e12 + k for k in range(num_rates)),
    )  # fmt: skip
    forms = list(space.forms())
    assert len(set(forms)) == len(forms)
    # An interface between several dies multiplies by ways to join and by bandwidths; all else is there once.
    several, named = len(dies - {1}), len(set(d2d) - {""})
    plain = several * ("" in d2d) + (1 in dies)
    assert len(forms) == len(nodes) * (plain + several * named * len(joins))
    assert space.num_designs() == len(nodes) * num_areas * (plain + several * named * len(joins) * num_rates)
    assert space.num_designs() == sum(np.size(space.budget(form).power_w) for form in forms)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes": ()}, "at least one of nodes"),
        ({"die_mm2": ()}, "at least one of die_mm2"),
        ({"die_mm2": (400.0, -1.0)}, "area of a die: -1 is not allowed: above zero, and finite"),
        ({"power_w": (float("inf"),)}, "power: inf is not allowed"),
        ({"power_w": (float("nan"),)}, "power: nan is not allowed"),
        ({"num_dies": (0,)}, "dies of a package: 0 is not allowed"),
        ({"num_stacks": (0,)}, "stacks of a package: 0 is not allowed"),
        ({"num_dies": (2,), "d2d": ("ucie-advanced",)}, "an interface between dies needs a bandwidth"),
    ],
)
def test_what_is_no_space(given: dict[str, tuple[float, ...]], message: str) -> None:
    whole = {"nodes": ("N5",), "die_mm2": (400.0,), "power_w": (500.0,)}
    with pytest.raises(UsageError, match=message):
        DesignSpace(**{**whole, **given})  # type: ignore[arg-type]


def test_a_form_is_known_by_what_it_is() -> None:
    assert DesignForm(node="N5") == DesignForm(node="N5", num_dies=1, join="line")
