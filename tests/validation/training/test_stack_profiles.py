"""Which number of which profile the steps of a stack take, what is in no fit, and what rows count as."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.backends.machine.files import catalogue
from slipstick.backends.machine.files.system_tree import Tree
from slipstick.ir.errors import UnknownNameError, UsageError
from slipstick.ir.plan import Family, make_plan
from slipstick.ir.types import DType
from slipstick.validation.fit.stacks.fit import fit_stacks
from slipstick.validation.fit.stacks.fit_file import refuse_other
from slipstick.validation.fit.stacks.profiles import ProfileSlot, all_profiles, profiles_of
from slipstick.validation.results.outcomes import Part
from slipstick.validation.rows.rows import Row
from slipstick.validation.rows.split import in_first_half
from slipstick.validation.training.cases import TrainingCase
from slipstick.validation.training.fitted import StackRecords
from slipstick.validation.training.outcomes import part_of

HERE = Path(__file__).parents[1]
STEPS = HERE / "training_step.csv"


def stack(folder: Path, name: str, *lines: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text("\n".join([f"name: {name}", *lines]), encoding="utf-8")
    return str(path)


@pytest.fixture
def family(tmp_path: Path) -> dict[str, str]:
    """A parent, a child that sets one of its free numbers and frees another, and a grandchild that says nothing."""
    free = "fit: {data_sets: [one], free: [host.layer, host.step, overlap.dp]}"
    host = "host: {step: {value: 2, unit: ms, source: s}}"
    return {
        "parent": stack(tmp_path, "parent", "like: default", free),
        "child": stack(tmp_path, "child", "like: parent.yaml", host, "fit: {data_sets: [two], free: [overlap.dp]}"),
        "grandchild": stack(tmp_path, "grandchild", "like: child.yaml"),
        "other": stack(tmp_path, "other", "like: default"),
    }


def test_a_free_number_moves_in_all_that_are_like_its_stack(family: dict[str, str]) -> None:
    parent, child = family["parent"], family["child"]
    profiles = profiles_of([parent, child])
    own = {path: ProfileSlot(parent, path) for path in ("host.layer", "host.step", "overlap.dp")}
    assert dict(profiles.of_stack(parent).slots) == own
    # The child sets host.step and frees overlap.dp itself.
    theirs = {"host.layer": own["host.layer"], "overlap.dp": ProfileSlot(child, "overlap.dp")}
    assert dict(profiles.of_stack(child).slots) == theirs
    assert dict(profiles.of_stack(family["grandchild"]).slots) == theirs
    assert dict(profiles.of_stack(family["other"]).slots) == {}


def test_rows_are_those_of_the_profiles_that_a_stack_is_like(family: dict[str, str]) -> None:
    profiles = profiles_of([family["parent"], family["child"]])
    assert profiles.data_sets == ("one", "two")
    assert profiles.of_stack(family["parent"]).data_sets == {"one"}
    assert profiles.of_stack(family["grandchild"]).data_sets == {"one", "two"}
    assert profiles.of_stack(family["other"]).data_sets == frozenset()
    assert profiles.of_stack(family["grandchild"]).profiles == (family["child"], family["parent"])


def test_a_profile_fitted_alone_leaves_the_numbers_of_what_it_is_like(family: dict[str, str]) -> None:
    alone = profiles_of([family["child"]])
    assert dict(alone.of_stack(family["grandchild"]).slots) == {
        "overlap.dp": ProfileSlot(family["child"], "overlap.dp")
    }
    assert alone.of_stack(family["grandchild"]).plain.host.step_s == pytest.approx(2e-3)


def test_what_is_said_of_a_chip_goes_before_what_is_said_of_any(tmp_path: Path) -> None:
    on_a100 = "chips.a100-sxm-80gb.host.layer"
    fit = f"fit: {{data_sets: [one], free: [host.layer, host.step, {on_a100}]}}"
    h100 = "chips: {h100-sxm-80gb: {host: {step: {value: 2, unit: ms, source: s}}}}"
    parent = stack(tmp_path, "parent", "like: default", fit, h100)
    child = stack(tmp_path, "child", "like: parent.yaml", "host: {layer: {value: 3, unit: ms, source: s}}")
    profiles = profiles_of([parent])
    layer, step = ProfileSlot(parent, "host.layer"), ProfileSlot(parent, "host.step")
    assert dict(profiles.of_stack(parent, "b200-sxm-180gb").slots) == {"host.layer": layer, "host.step": step}
    assert dict(profiles.of_stack(parent, "h100-sxm-80gb").slots) == {"host.layer": layer}
    assert profiles.of_stack(parent, "h100-sxm-80gb").plain.host.step_s == pytest.approx(2e-3)
    theirs = {"host.layer": ProfileSlot(parent, on_a100), "host.step": step}
    assert dict(profiles.of_stack(parent, "a100-sxm-80gb").slots) == theirs
    # The child says something of any chip only.
    assert dict(profiles.of_stack(child, "a100-sxm-80gb").slots) == theirs
    assert dict(profiles.of_stack(child, "b200-sxm-180gb").slots) == {"host.step": step}


def test_stacks_that_are_alike_are_fitted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    free: dict[str, Tree] = {"fit": {"data_sets": ["a"], "free": ["host.layer"]}}
    plain = catalogue.read_file

    def with_fit(kind: str, name: str | Path, folder: Path | None = None) -> catalogue.File:
        file = plain(kind, name, folder)
        tree = {key: value for key, value in file.tree.items() if key != "fit"}
        named = ("nanotron", "nanotron-per-rank", "composer-fsdp", "fsdp2")
        return replace(file, tree={**tree, **free} if name in named else tree)

    monkeypatch.setattr(catalogue, "read_file", with_fit)
    assert all_profiles() == [("composer-fsdp",), ("fsdp2",), ("nanotron", "nanotron-per-rank")]


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ("", "does not say what is free"),
        ("fit: {data_sets: [korthikanti2022_table5], free: [host.layer]}", "korthikanti2022_table5 only judges"),
        ("fit: {data_sets: [a, korthikanti2022_table5], free: [host.layer]}", "only judges"),
        ("fit: {data_sets: [nanotron_h10], free: [host.layer]}", "did you mean 'nanotron_h100'"),
        ("fit: {data_sets: [llama3_table4], free: [host.layer]}", "too few rows"),
    ],
)
def test_what_cannot_be_fitted_is_refused(tmp_path: Path, fit: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit_stacks([STEPS], [stack(tmp_path, "mine", "like: default", fit)], lambda _: None)


def test_rows_whose_stack_takes_nothing_are_counted(tmp_path: Path) -> None:
    said: list[str] = []
    mine = stack(tmp_path, "mine", "like: default", "fit: {data_sets: [torchtitan], free: [host.layer]}")
    with pytest.raises(UsageError, match="too few rows"):
        fit_stacks([STEPS], [mine], said.append)
    assert any("their stack, torchtitan, takes nothing of" in line for line in said)


def test_a_table_of_kernels_fits_no_stack(tmp_path: Path) -> None:
    mine = stack(tmp_path, "mine", "like: default", "fit: {data_sets: [a], free: [host.layer]}")
    with pytest.raises(UsageError, match="of kind gemm"):
        fit_stacks([HERE / "gemm.csv"], [mine], lambda _: None)
    with pytest.raises(UsageError, match="given twice"):
        profiles_of([mine, mine])
    with pytest.raises(UnknownNameError, match="nanotron"):
        profiles_of(["nanotrn"])


def test_only_a_fit_is_written_over(tmp_path: Path) -> None:
    free = "fit: {data_sets: [a], free: [host.layer]}"
    for lines in (("like: default",), ("like: default", free), ("host: [",)):
        mine = Path(stack(tmp_path, "mine", *lines))
        with pytest.raises(UsageError, match=r"mine\.yaml"):
            refuse_other(mine)
    with pytest.raises(UsageError, match="Is a directory"):
        refuse_other(tmp_path)
    refuse_other(tmp_path / "absent.yaml")
    refuse_other(Path(stack(tmp_path, "mine", free.replace("}", ", fitted: {rows: 3}}"))))


@pytest.mark.parametrize(("split", "whole"), [("half", False), ("all", True)])
def test_records_of_fits_say_what_a_row_counts_as(tmp_path: Path, split: str, whole: bool) -> None:
    record = f"fit: {{data_sets: [mine], free: [host.layer], split: {split}, fitted: {{rows: 3}}}}"
    fitted = stack(tmp_path, "fitted", "like: default", record)
    child = stack(tmp_path, "child", "like: fitted.yaml")
    records = StackRecords()
    for group in ("a tp1 pp1", "a tp2 pp1", "a tp4 pp1", "a tp8 pp1"):
        seen = Part.FIT if whole or in_first_half("training", group) else Part.JUDGED
        assert [part_of(case(name, "mine", group), records) for name in (fitted, child)] == [seen, seen]
        assert part_of(case(child, "other", group), records) is Part.JUDGED
        assert part_of(case("default", "mine", group), records) is Part.JUDGED
        assert part_of(replace(case(child, "mine", group), outlier="odd"), records) is Part.EXCLUDED


def case(stack: str, dataset: str, group: str) -> TrainingCase:
    plan = make_plan(num_gpus=1, global_batch=1, micro_batch=1, seq_len=8, family=Family())
    row = Row({"id": "x", "dataset": dataset})
    return TrainingCase(row, group, "{}", DType.BF16, plan, "dgx-h100", (), stack, 1.0)
