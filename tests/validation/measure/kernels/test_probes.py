"""Probes: what they run, what their rows say, and that no size of the steps that judge is among them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from slipstick.ir.types import DType
from slipstick.validation.measure.device import Device
from slipstick.validation.measure.kernels.attention import attention_probes
from slipstick.validation.measure.kernels.probe import MeasuredProbe, Probe
from slipstick.validation.measure.kernels.products import product_probes
from slipstick.validation.measure.kernels.rowwise import KERNELS, rowwise_probes
from slipstick.validation.measure.kernels.updates import layer_shapes, update_probes
from slipstick.validation.measure.run import MEDIUM, SMALL, MeasurementOrigin, rows_of, write_tables

CPU = Device("cpu", 1, 4)


def _cells(probe: Probe, *names: str) -> tuple[int, ...]:
    return tuple(int(probe.cells[name]) for name in names)


@pytest.mark.parametrize("make", [attention_probes, rowwise_probes, update_probes])
def test_the_first_call_of_each_kind_runs(make: Callable[[Device, DType, bool], Iterator[Probe]]) -> None:
    kinds: set[object] = set()
    for probe in make(CPU, DType.FP32, True):
        kind = probe.cells.get("op", probe.cells.get("phase"))
        if kind not in kinds:
            probe.prepare()()
        kinds.add(kind)
    assert len(kinds) >= 2


def test_a_product_is_as_large_as_its_row_says() -> None:
    for probe in product_probes(CPU, (DType.FP32,), quick=True):
        out = probe.prepare()()
        assert isinstance(out, torch.Tensor)
        assert out.shape == _cells(probe, "m", "n")


def test_bytes_of_a_sum_are_two_reads_and_a_write() -> None:
    sums = [p for p in rowwise_probes(CPU, DType.FP32, quick=True) if p.cells["op"] == "add"]
    for probe in sums:
        assert probe.cells["bytes_moved_min"] == 12 * _cells(probe, "rows")[0] * _cells(probe, "cols")[0]


def test_bytes_of_a_norm_are_those_of_its_node() -> None:
    # x and the result, the weight, one fp32 number a row.
    probe = next(p for p in rowwise_probes(CPU, DType.FP32, quick=True) if p.cells["op"] == "rmsnorm")
    rows, cols = _cells(probe, "rows", "cols")
    assert probe.cells["bytes_moved_min"] == 4 * (2 * rows * cols + cols + rows)


def test_the_step_of_a_layer_is_counted_by_its_weights() -> None:
    numel = sum(torch.Size(s).numel() for s in layer_shapes(8, 12))
    assert numel == 8 * 8 * 2 + 4 * 8 * 2 + 3 * 8 * 12 + 2 * 8


def test_names_are_unique_in_a_table() -> None:
    probes = [*rowwise_probes(CPU, DType.FP32, quick=False), *update_probes(CPU, DType.FP32, quick=False)]
    assert len({p.name for p in probes}) == len(probes)


def test_no_product_of_a_step_that_judges_is_measured_before() -> None:
    sizes = {(s.hidden_size, s.seq) for s in (SMALL, MEDIUM)}
    for probe in product_probes(CPU, (DType.FP32,), quick=False):
        m, n, k = _cells(probe, "m", "n", "k")
        assert not any({hidden, tokens} <= {m, n, k} for hidden, tokens in sizes)


def test_kinds_are_those_of_the_model() -> None:
    assert {"rmsnorm", "rope", "loss", "embedding", "silu", "mul", "add"} <= set(KERNELS)


def test_rows_are_written_whole(tmp_path: Path) -> None:
    probe = Probe("gemm", "fp32_NN_2_3_4", {"dtype": "fp32", "m": 2, "n": 3, "k": 4}, lambda: print)
    origin = MeasurementOrigin("cpu", "A core", "PyTorch 2", "slipstick", "median")
    (path,) = write_tables(rows_of([MeasuredProbe(probe, 12.5e-6, 0.01)], origin), tmp_path)
    header, line = path.read_text().splitlines()
    assert header.startswith("id,dataset,source,status,accelerator")
    assert line.startswith("cpu_gemm_fp32_NN_2_3_4,measured_gemm,slipstick,measured,A core,PyTorch 2,,fp32")
    assert line.endswith(",median,12.5,median; spread 1.0%")
