"""Fits find constants that are known, from the rows they may see and no others, and files keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slipstick.backends.machine.files.system_tree import Tree, read_tree
from slipstick.backends.machine.load import load_system
from slipstick.ir.errors import UnknownNameError, UsageError
from slipstick.validation.fit.calibrate import CalibrationFits, FitChoice, KindFit, calibrate
from slipstick.validation.fit.calibration_file import check, heading_of, text_of, updated
from slipstick.validation.judge import judge_files
from slipstick.validation.kinds import JudgingSettings
from slipstick.validation.results.outcomes import Part
from slipstick.validation.rows.machine_room import MachineRoom, base_layers
from slipstick.validation.rows.split import in_first_half

pytest.importorskip("scipy", reason="fits; install slipstick[calibrate]")

Toy = Callable[[Sequence[str]], Path]
PROLOGUE = load_system("dgx-h100", calibration="default").kernels.gemm["bf16"].prologue
BANDWIDTH = {"H100": 3350e9, "A100": 2039e9}


def lines(
    accelerator: str, library: str, memory: float, overhead_us: float, prologue: float = PROLOGUE
) -> Iterator[str]:
    """Rows of 24 configurations, measured without noise on a machine whose constants are the ones given."""
    for k in range(24):
        num_bytes = int(2**20 * 1.4**k)
        moved = num_bytes + 10 * prologue * num_bytes**0.5
        time_us = overhead_us + 1e6 * moved / (memory * BANDWIDTH[accelerator])
        yield f"{accelerator}{library}{k},set_{accelerator},{accelerator},{library},size{k},{num_bytes},{time_us!r}"


def fit(path: Path, choice: FitChoice | None = None) -> CalibrationFits:
    return calibrate([path], choice or FitChoice(), lambda line: None)


def by_owner(found: CalibrationFits) -> dict[str, KindFit]:
    return {fit.owner: fit for fit in found.fits}


def two_chips() -> list[str]:
    return [
        *lines("H100", "pytorch", 0.9, 4.0), *lines("H100", "trtllm", 0.9, 2.0), *lines("A100", "pytorch", 0.6, 5.0),
    ]  # fmt: skip


def test_constants_that_are_known_are_found(toy: Toy) -> None:
    found = by_owner(fit(toy(two_chips())))
    h100, a100 = found["h100-sxm-80gb"], found["a100-sxm-80gb"]
    assert h100.shared == {"memory": pytest.approx(0.9, rel=0.01)}
    assert a100.shared == {"memory": pytest.approx(0.6, rel=0.01)}
    # One share of the memory for both libraries of a chip, an overhead each.
    assert h100.by_library["pytorch"]["overhead_s"] == pytest.approx(4e-6, rel=0.05)
    assert h100.by_library["trtllm"]["overhead_s"] == pytest.approx(2e-6, rel=0.05)
    assert h100.fit.median < 0.005
    assert h100.judged is not None
    assert h100.judged.median < 0.005
    assert h100.fit.num + h100.judged.num == 48


def test_a_joint_fit_finds_what_carries_over(toy: Toy) -> None:
    rows = [*lines("H100", "pytorch", 0.9, 4.0, 300), *lines("A100", "pytorch", 0.6, 4.0, 300)]
    (found,) = fit(toy(rows), FitChoice(joint=True)).fits
    assert found.owner == ""
    assert found.shared["prologue"] == pytest.approx(300, rel=0.1)
    # One share for chips of 0.9 and 0.6 lies between them.
    assert 0.6 < found.shared["memory"] < 0.9


def test_rows_that_judge_and_outliers_are_not_seen(toy: Toy) -> None:
    honest = list(lines("H100", "pytorch", 0.9, 4.0))
    spoilt = [line if in_first_half("toy", line.split(",")[4]) else line + "e1" for line in honest]
    spoilt += [f"bad{k},set_H100,H100,pytorch,size{k},1000000,99999" for k in range(24)]
    clean, found = fit(toy(honest)).fits[0], fit(toy(spoilt)).fits[0]
    assert found.shared == clean.shared
    assert found.num_excluded == 24
    assert found.judged is not None
    assert found.judged.median > 0.1


def test_a_chip_s_own_that_runs_to_an_end_stays_as_it_was(toy: Toy) -> None:
    # Measured ten times slower than any share of the memory that a chip may have.
    found = fit(toy(list(lines("A100", "pytorch", 0.04, 4.0)))).fits[0]
    before = load_system("dgx-a100-80gb", calibration="default").kernels.gemm["bf16"].memory
    assert found.shared == {"memory": pytest.approx(before, rel=1e-3)}
    assert found.by_library["pytorch"]["overhead_s"] > 0


def test_every_row_is_fitted_where_that_is_asked(toy: Toy) -> None:
    found = fit(toy(two_chips()), FitChoice(split="all")).fits[0]
    assert (found.fit.num, found.judged, found.seen.split) == (48, None, "all")


def test_a_system_that_is_left_out_has_no_say(toy: Toy) -> None:
    rows = two_chips()
    alone = fit(toy(rows[:48]), FitChoice(joint=True)).fits[0]
    left = fit(toy(rows), FitChoice(joint=True, leave_out=("dgx-a100-80gb",))).fits[0]
    assert left.shared == alone.shared
    assert left.seen.systems == ("dgx-h100",)
    with pytest.raises(UnknownNameError, match="did you mean 'dgx-h100'"):
        fit(toy(rows), FitChoice(leave_out=("dgx-h10",)))


def test_what_cannot_be_fitted_is_said(toy: Toy) -> None:
    rows = [*lines("H100", "pytorch", 0.9, 4.0), "x,set_X1,X1,pytorch,a,1,1", "y,set_X1,Y,pytorch,a,1,1"]
    found = fit(toy(rows))
    assert found.skipped == {"no system is a 'Y'": 1, "the catalogue has no system 'no-such-system'": 1}
    with pytest.raises(UsageError, match="nothing to fit: 1 rows: no system is a 'Y'"):
        fit(toy(rows[-1:]))


def test_a_file_gives_back_what_was_fitted(toy: Toy, tmp_path: Path) -> None:
    table = toy(two_chips())
    (found,) = (f for f in fit(table).fits if f.owner == "h100-sxm-80gb")
    tree = updated({}, [found], "slipstick 0", "h100-sxm-80gb")
    check(tree, base_layers())
    path = tmp_path / "mine.yaml"
    path.write_text(text_of(tree, "Made up.\nTwice."), encoding="utf-8")
    assert heading_of(path.read_text(encoding="utf-8")) == "Made up.\nTwice."
    constants = load_system("dgx-h100", calibration=str(path)).kernels.gemm["bf16"]
    assert constants.memory == pytest.approx(found.shared["memory"], rel=1e-3)
    assert constants.overhead_s == pytest.approx(found.by_library["pytorch"]["overhead_s"], rel=1e-3)
    record = read_tree(path.read_text(encoding="utf-8"), "mine")["fit"]
    assert isinstance(record, dict)
    assert "set_H100" in str(record["gemm"])


def test_validating_tells_rows_that_were_fitted(toy: Toy, tmp_path: Path) -> None:
    table = toy([*two_chips(), "bad1,set_H100,H100,pytorch,size1,1000000,99999"])
    fits = [f for f in fit(table).fits if f.owner == "h100-sxm-80gb"]
    path = tmp_path / "mine.yaml"
    path.write_text(text_of(updated({}, fits, "slipstick 0", "mine"), ""), encoding="utf-8")
    outcomes = judge_files([table], [], JudgingSettings(MachineRoom(str(path))))
    for outcome in outcomes:
        expected = Part.FIT if in_first_half("toy", outcome.group) else Part.JUDGED
        if outcome.system != "dgx-h100":
            expected = Part.JUDGED
        assert outcome.part is (Part.EXCLUDED if outcome.row.id == "bad1" else expected)
    assert max(abs(o.error) for o in outcomes if o.part in (Part.FIT, Part.JUDGED) and o.system == "dgx-h100") < 0.02


def test_kinds_that_are_not_fitted_stay_in_a_file(toy: Toy) -> None:
    first = fit(toy(two_chips())).fits[0]
    other = replace(first, kind="fp8")
    tree = updated(updated({}, [other], "slipstick 0", "x"), [first], "slipstick 1", "x")
    assert kinds_in(tree, "kernels") == {"fp8", "bf16"}
    assert kinds_in(tree, "fit") == {"fp8", "bf16"}
    assert "slipstick 0" in str(tree["fit"])
    assert "slipstick 1" in str(tree["fit"])


def kinds_in(tree: Mapping[str, Tree], part: str) -> set[str]:
    classes = tree[part]
    assert isinstance(classes, dict)
    kinds = classes["gemm"]
    assert isinstance(kinds, dict)
    return set(kinds)
