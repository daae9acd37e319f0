"""One quick sweep of this machine, shared by the tests that look at what it made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from slipstick.validation.measure.run import DeviceCalibration, MeasurementPlan, calibrate_device


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def measured(folder: Path, one_thread: None) -> DeviceCalibration:
    return calibrate_device(MeasurementPlan("cpu", quick=True, judged=True), folder, lambda line: None)
