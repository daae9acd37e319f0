"""A quick sweep of this machine: files that are read back, and a real step that they predict within a wide band."""

import csv
import json
from pathlib import Path
from statistics import median

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.cli import run
from slipstick.ir.errors import UsageError
from slipstick.ir.ops import OpClass
from slipstick.validation.measure.run import DeviceCalibration, MeasurementPlan, calibrate_device

pytestmark = pytest.mark.slow


def test_a_real_training_step_takes_about_as_long_as_predicted(measured: DeviceCalibration) -> None:
    # Wide: a quick sweep has few sizes, and others may use the machine.
    (step,) = measured.checks
    assert 0.5 < step.ratio < 2.0


def test_every_class_of_ops_is_predicted_and_measured(measured: DeviceCalibration) -> None:
    (step,) = measured.checks
    assert set(step.measured.by_class) <= set(step.predicted_by_class)
    matmul = step.measured.by_class[OpClass.MATMUL]
    assert 0.5 < step.predicted_by_class[OpClass.MATMUL] / matmul < 2.0


def test_the_system_and_its_constants_are_read_back(measured: DeviceCalibration, folder: Path) -> None:
    system = load_system(folder / "cpu.yaml")
    assert system.chip.num_sms == 1
    # A core does from a few to a few hundred GFLOP/s, and moves 1 to 200 GB/s.
    assert 2e9 < system.chip.matmul_flop_per_s("fp32") < 1e12
    assert 1e9 < system.chip.hbm_bytes_per_s < 2e11
    kinds = {"rmsnorm", "rmsnorm_bwd", "rope", "loss", "optimizer", "accumulate"}
    assert kinds <= set(system.kernels.rowwise)
    assert "sdpa" in system.kernels.attention
    assert "fp32" in system.kernels.gemm


def test_fitted_kernels_come_near_what_was_measured(measured: DeviceCalibration) -> None:
    errors = {(fit.cls, fit.kind): fit.fit.median for fit in measured.fits}
    assert errors["gemm", "fp32"] < 0.3
    # Three sizes a kind, each timed once: single kinds may be far off where others use the machine.
    assert median(errors.values()) < 0.15


def test_tables_have_the_columns_of_published_ones(measured: DeviceCalibration, folder: Path) -> None:
    published = Path(__file__).parents[2] / "validation"
    for name in ("gemm", "attention", "elementwise"):
        with (folder / f"{name}.csv").open() as ours, (published / f"{name}.csv").open() as theirs:
            assert set(next(csv.reader(ours))) <= set(next(csv.reader(theirs)))


def test_rows_say_where_they_come_from(measured: DeviceCalibration, folder: Path) -> None:
    with (folder / "gemm.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["status"] for row in rows} == {"measured"}
    assert all("PyTorch" in row["source"] and float(row["time_us"]) > 0 for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)


@pytest.mark.parametrize("threads", [0, -1])
def test_there_is_at_least_one_thread(threads: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 or more"):
        calibrate_device(MeasurementPlan("cpu", threads=threads), tmp_path, print)


def test_a_device_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError, match="no CUDA device"):
        calibrate_device(MeasurementPlan("cuda"), tmp_path, print)
    assert not list(tmp_path.iterdir())


def test_measured_tables_are_judged_beside_their_system(
    measured: DeviceCalibration, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [str(folder / f"{name}.csv") for name in ("gemm", "attention", "elementwise")]
    assert run(["validate", *tables, "--format", "json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)["datasets"]
    assert set(found) == {"measured_gemm", "measured_attention", "measured_elementwise"}
    assert all(of["n"] > 0 and of["skipped"] == 0 for of in found.values())
    by_kind = {fit.kind: fit.fit.median for fit in measured.fits if fit.cls == "attention"}
    # What validate says of a table is what the fit said of it; the file keeps four digits.
    assert found["measured_attention"]["median_ape"] == pytest.approx(by_kind["sdpa"], abs=0.01)
