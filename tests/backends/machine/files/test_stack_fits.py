"""Numbers of stacks that were fitted: where they lie, what they lie over, what is like a stack that has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from slipstick.backends.machine.files import catalogue
from slipstick.backends.machine.files.catalogue import lineage, read_stack
from slipstick.backends.machine.files.file_schemas import file_schema
from slipstick.backends.machine.load import load_stack, load_system, stack_names, stack_numbers
from slipstick.backends.machine.software.stack_limits import MOVABLE, movable, moved, priced_alike
from slipstick.backends.machine.software.stack_record import fit_records
from slipstick.ir.errors import SystemFileError, UnknownNameError

FIT = """
name: nanotron
like: nanotron
host:
  layer: {value: 7, unit: ms, confidence: measured, source: robust fit}
slowdown:
  tp: {value: 1.5, confidence: measured, source: robust fit}
fit:
  data_sets: [mine]
  free: [host.layer, slowdown.tp]
  fitted: {rows: 20, median: 0.02}
  judged: {rows: 30, median: 0.03}
"""
Write = Callable[[str, str], None]


@pytest.fixture
def fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Put a folder of fits in the place of the catalogue's; a function that writes one there."""
    folder = tmp_path / "fits"
    folder.mkdir()
    monkeypatch.setattr(catalogue, "FITS", str(folder))

    def write(name: str, text: str) -> None:
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    return write


def test_a_fit_lies_over_its_stack_and_below_what_is_like_it(fits: Write) -> None:
    plain, child = load_stack("nanotron"), load_stack("nanotron-per-rank")
    fits("nanotron", FIT)
    assert load_stack("nanotron") == moved(plain, {"host.layer": 7e-3, "slowdown.tp": 1.5})
    found = load_stack("nanotron-per-rank")
    assert found == moved(child, {"host.layer": 7e-3, "slowdown.tp": 1.5})
    assert (found.name, found.host.layer_rank_s) == ("nanotron-per-rank", child.host.layer_rank_s)
    fits("nanotron-per-rank", FIT.replace("value: 7", "value: 5"))
    assert [load_stack(name).host.layer_s for name in ("nanotron", "nanotron-per-rank")] == [7e-3, 5e-3]


def test_a_fit_s_numbers_are_those_of_systems_with_their_source(fits: Write) -> None:
    fits("nanotron", FIT)
    assert load_system("dgx-h100", stack="nanotron").stack.host.layer_s == 7e-3
    assert load_system("dgx-h100", ["stack.host.layer=1ms"], stack="nanotron").stack.host.layer_s == 1e-3
    (layer,) = (number for number in stack_numbers("nanotron") if number.path == "host.layer")
    assert (layer.value, layer.unit, layer.source) == (7, "ms", "robust fit")


def test_numbers_of_one_chip_stand_behind_the_others(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    chips = "chips: {h100-sxm-80gb: {host: {layer: {value: 2, unit: ms, source: s}}}}"
    path.write_text(f"name: mine\nlike: megatron-core\n{chips}\n", encoding="utf-8")
    plain, numbers = stack_numbers("megatron-core"), stack_numbers(path)
    assert numbers[:-1] == plain
    assert (numbers[-1].path, numbers[-1].value_si) == ("chips.h100-sxm-80gb.host.layer", 2e-3)


def test_a_fit_is_left_aside_where_asked(fits: Write) -> None:
    plain = read_stack("nanotron").tree
    fits("nanotron", FIT)
    assert read_stack("nanotron", unfitted=("nanotron",)).tree == plain
    assert read_stack("nanotron", unfitted=("default",)).tree != plain


def test_no_fit_lies_over_a_file_of_a_user(fits: Write, tmp_path: Path) -> None:
    fits("mine", FIT)
    mine = tmp_path / "mine.yaml"
    mine.write_text("{name: mine, like: default}", encoding="utf-8")
    assert load_stack(mine).host == load_stack("default").host
    mine.write_text("{name: mine, like: nanotron}", encoding="utf-8")
    fits("nanotron", FIT)
    assert load_stack(mine).host.layer_s == 7e-3


def test_what_is_free_is_not_inherited_and_its_fit_is_told_from_a_fit(fits: Write, tmp_path: Path) -> None:
    base, child = tmp_path / "base.yaml", tmp_path / "child.yaml"
    base.write_text("{name: a, like: default, fit: {data_sets: [mine], free: [host.layer]}}", encoding="utf-8")
    child.write_text("{name: b, like: base.yaml}", encoding="utf-8")
    assert load_stack(child) == replace(load_stack(base), name="b")
    assert ["fit" in read_stack(path).tree for path in (base, child)] == [True, False]
    assert [file.name for file in lineage(child)] == ["child.yaml", "base.yaml", "default"]
    assert fit_records(str(child)) == ()
    fits("nanotron", FIT)
    (record,) = fit_records("nanotron-per-rank")
    assert (record.stack, record.data_sets, record.num_fitted, record.judged_median) == (
        "nanotron",
        ("mine",),
        20,
        0.03,
    )


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ("{data_sets: [a], free: [host.layr]}", "did you mean 'host.layer'"),
        ("{data_sets: [a], free: [kernels]}", "unknown number to fit 'kernels'"),
        ("{data_sets: [a], free: [memory_reserve]}", "unknown number to fit"),
        ("{data_sets: [a], free: [chips.h100-sxm-80gb.host.layr]}", "did you mean 'host.layer'"),
        ("{data_sets: [a], free: [host.layer, host.layer]}", "given twice: host.layer"),
        ("{data_sets: [a], free: []}", "fit.free"),
        ("{free: [host.layer]}", "missing data_sets"),
        ("{data_sets: [a], free: [host.layer], freed: 1}", "unknown key 'freed'"),
    ],
)
def test_what_a_fit_may_not_say(tmp_path: Path, fit: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"{{name: a, like: default, fit: {fit}}}", encoding="utf-8")
    with pytest.raises(SystemFileError, match=message):
        load_stack(path)


@pytest.mark.parametrize("below", ["a.yaml", "../{}/a.yaml"])
def test_a_circle_of_stacks_is_refused_however_it_is_named(tmp_path: Path, below: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"{{name: a, like: {below.format(tmp_path.name)}}}", encoding="utf-8")
    with pytest.raises(SystemFileError, match="no other stack"):
        load_stack(path)


def test_every_movable_number_stands_where_its_path_says() -> None:
    stack = load_stack("default")
    for path, at in MOVABLE.items():
        assert at.low < at.high
        middle = (at.low + at.high) / 2
        found = moved(stack, {path: middle})
        assert at.of(found) == middle
        assert {other for other, one in MOVABLE.items() if one.of(found) != one.of(stack)} == {path}
        assert (priced_alike(found) == priced_alike(stack)) == at.rolled
    with pytest.raises(UnknownNameError, match=r"host\.layer"):
        movable("host.layers")


def test_what_moves_in_a_file_moves_the_same_number(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    for path, at in MOVABLE.items():
        middle = (at.low + at.high) / 2
        number = f"{{value: {middle / at.scale}, {f'unit: {at.unit}, ' if at.unit else ''}source: s}}"
        section, _, key = path.rpartition(".")
        where = f"{section}: {{{key}: {number}}}" if section else f"{key}: {number}"
        mine.write_text(f"name: default\nlike: default\n{where}\n", encoding="utf-8")
        assert at.of(load_stack(mine)) == pytest.approx(middle)


def test_the_catalogue_s_fits_are_of_its_stacks() -> None:
    folder = resources.files("slipstick.backends") / catalogue.FITS
    written = {file.name.removesuffix(".yaml") for file in folder.iterdir()} if folder.is_dir() else set()
    assert written <= set(stack_names())
    assert all(fit_records(name)[0].stack == name for name in written)


def test_the_schema_knows_stacks_that_are_like_another() -> None:
    schema = file_schema("stack")
    assert isinstance(schema["properties"], dict)
    assert {"like", "fit", "host", "chips"} <= set(schema["properties"])
    alone, other = schema["anyOf"] if isinstance(schema["anyOf"], list) else []
    assert isinstance(alone, dict)
    assert isinstance(alone["required"], list)
    assert {"launch_overhead", "memory_reserve"} <= set(map(str, alone["required"]))
    assert other == {"required": ["like"]}
    assert "required" not in schema


def test_a_fit_that_nothing_has_judged_has_no_judged_median(fits: Write) -> None:
    fits("nanotron", "\n".join(line for line in FIT.splitlines() if "judged" not in line))
    (record,) = fit_records("nanotron")
    assert (record.num_fitted, record.num_judged, record.judged_median) == (20, 0, None)
