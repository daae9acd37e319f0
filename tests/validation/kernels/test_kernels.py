"""The shipped tables of kernels under the shipped calibrations: figures as documented, every row accounted for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from slipstick.backends.machine.files.catalogue import names, read_file
from slipstick.backends.machine.files.system_tree import Tree
from slipstick.validation.judge import judge_files
from slipstick.validation.kinds import JudgingSettings, kernel_judges
from slipstick.validation.results.outcomes import Outcome, Part
from slipstick.validation.results.statistics import Accuracy
from slipstick.validation.rows.machine_room import MachineRoom
from slipstick.validation.rows.split import in_first_half

HERE = Path(__file__).parents[1]
TABLES = [HERE / f"{name}.csv" for name in ("attention", "collectives", "elementwise", "gemm", "moe")]
UNSEEN = {"a40-server": "A40-48GB", "dgx-b200": "B200-SXM", "l40s-server": "L40S"}
Choose = Callable[[Outcome], bool]


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return judge_files(TABLES, [], JudgingSettings(MachineRoom()))


def accuracy(outcomes: Sequence[Outcome], choose: Choose) -> Accuracy:
    return Accuracy.of([o.error for o in outcomes if o.part is Part.JUDGED and choose(o)])


def of(table: str, *kinds: str) -> Choose:
    return lambda o: o.table == table and o.kind in kinds


def dataset(name: str, column: str = "", least: float = 0.0) -> Choose:
    return lambda o: o.row.dataset == name and (not column or (o.row.measured(column) or 0.0) > least)


DECODE, NCCL = "aiconfigurator_generation_attention", "aiconfigurator_nccl"
BANDS = {
    "products of 16 bits": (of("gemm", "bf16"), 0.06, 0.16),
    "products of fp8": (of("gemm", "fp8"), 0.06, 0.16),
    "products of nvfp4": (of("gemm", "nvfp4"), 0.05, 0.12),
    "prefill": (of("attention", "serving", "serving-fp8"), 0.05, 0.13),
    "latent prefill": (of("attention", "serving-mla"), 0.07, 0.16),
    "flash attention in training": (of("attention", "flash2", "flash3"), 0.04, 0.10),
    "decode": (dataset(DECODE), 0.12, 0.34),
    "decode over large caches": (dataset(DECODE, "kv_cache_bytes", 150e6), 0.08, 0.25),
    "row-wise kernels of 8 us or more": (lambda o: o.table == "elementwise" and o.measured >= 8e-6, 0.08, 0.27),
    "NCCL in a node": (dataset(NCCL), 0.08, 0.26),
    "NCCL above 100 MB": (dataset(NCCL, "size_bytes", 100e6), 0.05, 0.14),
    "custom all-reduce": (dataset("aiconfigurator_custom_allreduce"), 0.09, 0.25),
    "experts of a rank": (dataset("aiconfigurator_moe"), 0.12, 0.40),
    "dispatch and combine": (lambda o: o.kind.startswith(("dispatch", "combine")), 0.08, 0.18),
}


@pytest.mark.parametrize("name", BANDS)
def test_rows_left_out_of_the_fit_are_met(outcomes: list[Outcome], name: str) -> None:
    choose, median, p90 = BANDS[name]
    found = accuracy(outcomes, choose)
    assert found.num >= 20
    assert found.median <= median
    assert found.p90 <= p90


def test_every_row_has_a_prediction_or_a_reason(outcomes: list[Outcome]) -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) - 1 for path in TABLES)
    assert len(outcomes) == lines
    assert all(o.reason for o in outcomes if o.part in (Part.SKIPPED, Part.EXCLUDED))
    assert sum(o.part is Part.SKIPPED for o in outcomes) <= 80
    assert sum(o.part is Part.EXCLUDED for o in outcomes) <= 200


def test_no_row_that_judges_is_in_the_half_that_was_fitted(outcomes: list[Outcome]) -> None:
    for o in outcomes:
        if o.part is Part.FIT and o.table != "moe":
            assert in_first_half(o.table, o.group)
    halves = [sum(o.part is part for o in outcomes) for part in (Part.FIT, Part.JUDGED)]
    assert min(halves) / max(halves) > 0.7


# Set by people from what is published, with no kernels measured: `fitted` in `runs.csv` says which runs they saw.
SET = ("systolic", "gaudi-2", "gaudi-3", "mi300x", "mi325x", "mi350x", "mi355x", "hopper", "blackwell", "gb300-279gb")


@pytest.mark.parametrize("name", [n for n in names("calibration") if n not in ("default", *SET)])
def test_a_calibration_says_what_it_was_fitted_to(name: str) -> None:
    tree = read_file("calibration", name).tree
    for cls, kinds in below(tree, "kernels").items():
        # Power comes from steps of training, which fit no kernel: its source says from which.
        for kind in () if cls == "power" else tree_of(kinds):
            record = below(below(below(tree, "fit"), cls), kind)
            assert record["split"] == "half"
            assert record["joint"] is (name == "joint")
            assert record["table"] in kernel_judges()
            assert int(str(below(record, "fitted")["rows"])) > 0


@pytest.mark.parametrize("name", SET)
def test_a_calibration_that_people_set_has_seen_no_table_of_kernels(name: str) -> None:
    assert "fit" not in read_file("calibration", name).tree


@pytest.mark.parametrize(("system", "accelerator"), UNSEEN.items())
def test_a_device_that_was_left_out_is_in_no_fit(system: str, accelerator: str) -> None:
    path = HERE / "unseen" / f"{system}.yaml"
    tree = read_file("calibration", path).tree
    for kinds in below(tree, "fit").values():
        assert all(system not in str(below(tree_of(kinds), kind)["systems"]) for kind in tree_of(kinds))
    where = [f"accelerator={accelerator}", "dataset=vidur_linear", "dataset=aiconfigurator_gemm"]
    found = [
        o
        for o in judge_files([HERE / "gemm.csv"], where, JudgingSettings(MachineRoom(str(path))))
        if o.kind in ("bf16", "fp8")
    ]
    assert not [o for o in found if o.part is Part.FIT]
    figures = accuracy(found, of("gemm", "bf16"))
    assert figures.median <= 0.13
    assert figures.p90 <= 0.40


def below(tree: Tree, key: str) -> dict[str, Tree]:
    return tree_of(tree_of(tree)[key])


def tree_of(tree: Tree) -> dict[str, Tree]:
    assert isinstance(tree, dict)
    return tree
