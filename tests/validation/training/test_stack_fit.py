"""Numbers of stacks from measured steps: found again where they are known, written so that estimates take them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.backends.machine.load import load_stack, load_system
from slipstick.backends.machine.software.stack_limits import moved, split_chip
from slipstick.driver.estimate import evaluate
from slipstick.frontend import GraphCache
from slipstick.validation.fit.profiles import ProfileFit
from slipstick.validation.fit.stacks.fit import fit_stacks
from slipstick.validation.fit.stacks.fit_file import check, refuse_other, tree_of
from slipstick.validation.fit.stacks.problem import StackPricer
from slipstick.validation.rows.rows import Row
from slipstick.validation.rows.split import HALF, in_first_half
from slipstick.validation.rows.tables import Table
from slipstick.validation.training.cases import TrainingCase, group_of
from slipstick.validation.training.fitted import StackRecords
from slipstick.validation.training.judge import PreparedCases, TrainingBench, prepared
from slipstick.validation.training.machine_shop import MachineShop
from slipstick.validation.training.outcomes import read_cases

BASE = """
name: base
like: megatron-core
host:
  layer: {value: 0.1, unit: ms, source: a guess}
  step: {value: 1, unit: ms, source: a guess}
fit: {data_sets: [mine], free: [host.layer, host.step, chips.h100-sxm-80gb.kernel_slowdown.matmul]}
"""
CHILD = """
name: child
like: base.yaml
fit: {data_sets: [mine], free: [host.layer_rank]}
"""
TRUE = {"host.layer": 0.4e-3, "host.step": 3e-3, "kernel_slowdown.matmul": 1.3}
CHILD_TRUE = {**TRUE, "host.layer_rank": 0.15e-3}
HEADER: tuple[str, ...] = (
    "id", "dataset", "stack", "accelerator", "n_gpus", "model", "layers", "hidden", "heads", "ffn_hidden", "vocab",
    "seq_len", "tp", "pp", "dp", "micro_batch", "global_batch", "step_time_s",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("stacks")
    (found / "base.yaml").write_text(BASE, encoding="utf-8")
    (found / "child.yaml").write_text(CHILD, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def cache(graph_folder: Path) -> GraphCache:
    return GraphCache(graph_folder)


def cells(stack: Path, place: int, tp: int, micro_batch: int, layers: int) -> dict[str, str]:
    """A small Llama whose products take about as long as the host does."""
    found = {
        "id": f"{stack.stem}-{place}", "dataset": "mine", "stack": str(stack), "accelerator": "H100-SXM5-80GB",
        "n_gpus": tp, "model": f"small-{layers}", "layers": layers, "hidden": 1024, "heads": 8, "ffn_hidden": 2816,
        "vocab": 1024, "seq_len": 512, "tp": tp, "pp": 1, "dp": 1, "micro_batch": micro_batch,
        "global_batch": 2 * micro_batch, "step_time_s": 1,
    }  # fmt: skip
    return {key: str(value) for key, value in found.items()}


def table(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        writer.writerows(rows)
    return path


def seconds(rows: list[dict[str, str]], true: Mapping[str, float], cache: GraphCache) -> dict[str, float]:
    """What each row takes when its stack has known numbers, by the way that estimates go."""
    found = {}
    for case, lowered, plans, system in prepared(cases_of(rows), cache):
        known = replace(system, stack=moved(system.stack, true))
        found[case.row.id] = float(evaluate(lowered, known, plans).metrics["step_time_s"][0])
    return found


def cases_of(rows: list[dict[str, str]]) -> list[TrainingCase]:
    cases, skipped = read_cases(Table(Path("rows.csv"), HEADER, tuple(map(Row, rows))), MachineShop(), [])
    assert skipped == {}
    return list(cases.values())


@pytest.fixture(scope="module")
def measured(folder: Path, cache: GraphCache) -> Path:
    sizes = [(tp, micro, layers) for layers in (2, 3) for tp in (1, 2, 4) for micro in (1, 4, 16)]
    rows: list[dict[str, str]] = []
    for name, true in (("base", TRUE), ("child", CHILD_TRUE)):
        mine = [cells(folder / f"{name}.yaml", place, *size) for place, size in enumerate(sizes)]
        times = seconds(mine, true, cache)
        rows += [{**row, "step_time_s": str(times[row["id"]])} for row in mine]
    return table(folder / "steps.csv", rows)


@pytest.fixture(scope="module")
def fits(folder: Path, measured: Path, cache: GraphCache) -> dict[str, ProfileFit]:
    names = [str(folder / "base.yaml"), str(folder / "child.yaml")]
    return {Path(f.profile.name).stem: f for f in fit_stacks([measured], names, lambda _: None, HALF, cache)}


@pytest.mark.slow
def test_known_numbers_are_found_again(fits: dict[str, ProfileFit]) -> None:
    found = {split_chip(number.path)[1]: number.value for fit in fits.values() for number in fit.numbers}
    assert found == pytest.approx(CHILD_TRUE, rel=0.01)
    assert {split_chip(n.path)[1] for n in fits["base"].numbers} == set(TRUE)


@pytest.mark.slow
def test_the_half_that_was_not_fitted_judges(fits: dict[str, ProfileFit], measured: Path) -> None:
    with measured.open(encoding="utf-8") as file:
        rows = [Row(row) for row in csv.DictReader(file)]
    seen = [row for row in rows if in_first_half("training", group_of(row))]
    # Rows of the child move the numbers of the base too.
    base, child = fits["base"], fits["child"]
    assert (base.fit.num, child.fit.num) == (len(seen), len(seen) / 2)
    assert base.judged is not None
    assert base.judged.num == len(rows) - len(seen)
    assert base.judged.worst < 0.01


@pytest.mark.slow
def test_a_written_fit_is_a_stack_like_the_one_fitted(fits: dict[str, ProfileFit], folder: Path) -> None:
    from slipstick.validation.fit.calibration_file import text_of

    out = folder / "out"
    out.mkdir()
    for name, fit in fits.items():
        tree = tree_of(fit, "slipstick 0", out)
        path = out / f"{name}.yaml"
        path.write_text(text_of(tree, "A fit."), encoding="utf-8")
        refuse_other(path)
        assert load_stack(path) == check(fit, tree)
        on_h100, before = (load_system("dgx-h100", stack=str(file)).stack for file in (path, folder / f"{name}.yaml"))
        assert on_h100 == moved(before, {n.path: n.value for n in fit.numbers})
        assert load_stack(path).kernel_slowdown.matmul == 1.0
    records = StackRecords()
    for group in ("small-2 tp1 pp1", "small-3 tp1 pp1", "small-2 tp2 pp1"):
        assert records.saw(str(out / "base.yaml"), "mine", group) is in_first_half("training", group)
        assert not records.saw(str(folder / "base.yaml"), "mine", group)
        assert not records.saw(str(out / "base.yaml"), "other", group)


@pytest.mark.slow
def test_steps_are_those_of_estimates_whatever_came_before(folder: Path, cache: GraphCache) -> None:
    rows = [cells(folder / "child.yaml", place, tp, 2, 2) for place, tp in enumerate((1, 2, 4))]
    # A graph that is cut over tp, and one that is not.
    prepared = TrainingBench(cache).prepare(cases_of(rows))
    assert sorted(len(found.cases) for found in prepared if isinstance(found, PreparedCases)) == [1, 2]
    for found in prepared:
        assert isinstance(found, PreparedCases)
        pricer, own = StackPricer.of(found), [case.row.id for case in found.cases]
        for true in (TRUE, CHILD_TRUE, {**CHILD_TRUE, "kernel_slowdown.matmul": 2.0}, {"overlap.tp": 0.5}):
            expected = seconds(rows, true, cache)
            times = pricer.seconds(moved(found.system.stack, true))
            assert list(times) == pytest.approx([expected[name] for name in own], rel=1e-12)
