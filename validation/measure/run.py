"""A device from its name to files: sweep, tables, system, constants, and the step that judges them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from ...backends.machine.load import load_system
from ...driver.estimate import estimate
from ...frontend import load
from ...ir.errors import UsageError
from ...ir.ops import OpClass
from ...ir.plan import Family, make_plan
from ...ir.records import dataclass
from ...ir.text.files import write_whole
from ...ir.types import DType
from ...report.columns import in_columns
from ..fit.calibrate import KindFit
from .collectives import is_first, join_ranks, leave_ranks, link_of, measure_collectives, num_ranks
from .constants_file import fit_sweep, start_calibration
from .device import Device, Facts, facts_of, open_device
from .kernels.attention import attention_probes
from .kernels.probe import MeasuredProbe, Probe
from .kernels.products import product_probes
from .kernels.rowwise import rowwise_probes
from .kernels.updates import update_probes
from .silicon import Silicon, measure_silicon
from .step import StepSize, StepTime, run_step
from .stopwatch import QUICK, Effort, Tell, measure
from .system_file import write_system

# Measured probes as tables in the format that `slipstick validate` judges.

_FIRST = ("id", "dataset", "source", "status", "accelerator", "framework")
_LAST = ("time_us", "note")
# The columns in which tables differ, in the order of the published ones.
COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gemm": ("kernel", "dtype", "out_dtype", "batch", "m", "n", "k", "layout", "timing_method"),
        "attention": ("kernel", "phase", "dtype", "kv_dtype", "batch", "q_len", "kv_len", "heads", "kv_heads",
                      "head_dim", "causal", "kv_cache_bytes"),
        "elementwise": ("op", "dtype", "rows", "cols", "n_elements", "bytes_moved_min", "timing_method"),
        "collectives": ("collective", "interconnect", "n_gpus", "n_nodes", "gpus_per_node_used", "size_bytes",
                        "size_convention", "library"),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MeasurementOrigin:
    """What every row says of where it comes from.

    Attributes:
        name: of the device, as in names of files: `cpu`.
        accelerator: the system file, which lies beside the tables.
        framework: what ran.
        source: which command, which versions, when.
        timing_method: how it was timed.
    """

    name: str
    accelerator: str
    framework: str
    source: str
    timing_method: str


def rows_of(measured: Sequence[MeasuredProbe], origin: MeasurementOrigin) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each table."""
    tables: dict[str, list[dict[str, str]]] = {}
    for m in measured:
        cells = {
            "id": f"{origin.name}_{m.probe.table}_{m.probe.name}",
            "dataset": f"measured_{m.probe.table}",
            "source": origin.source,
            "status": "measured",
            "accelerator": origin.accelerator,
            "framework": origin.framework,
            **m.probe.cells,
            "time_us": f"{m.time_s * 1e6:.5g}",
            "timing_method": origin.timing_method,
            "note": f"{origin.timing_method}; spread {m.spread:.1%}",
        }
        tables.setdefault(m.probe.table, []).append({name: str(value) for name, value in cells.items()})
    return tables


def write_tables(tables: Mapping[str, Sequence[Mapping[str, str]]], folder: Path) -> tuple[Path, ...]:
    """Write one file a table, each whole; return their paths."""
    paths = []
    for name, rows in tables.items():
        text = io.StringIO()
        writer = csv.DictWriter(
            text, (*_FIRST, *COLUMNS[name], *_LAST), restval="", extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)
        paths.append(folder / f"{name}.csv")
        write_whole(paths[-1], text.getvalue())
    return tuple(paths)


# The whole sweep of a machine: silicon, kernels of every class, collectives where there are ranks.

# A dtype is swept where its products reach this part of the rate of the fastest: others no unit computes.
_WORTH = 0.5


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was measured of a machine."""

    device: Device
    facts: Facts
    silicon: Silicon
    measured: tuple[MeasuredProbe, ...]
    when: str


@dataclass(frozen=True, slots=True)
class Files:
    """What a sweep was written to."""

    system: Path
    tables: tuple[Path, ...]
    origin: MeasurementOrigin


def run_sweep(device: Device, effort: Effort, tell: Tell) -> Sweep:
    """Measure everything; progress goes to `tell`."""
    if num_ranks() > 1:
        join_ranks(device)
    when = datetime.now(UTC).date().isoformat()
    tell(f"measuring {device.kind}: peaks and bandwidth")
    silicon = measure_silicon(device, effort)
    found = measure(_probes(device, silicon, effort.quick), effort, device, tell)
    if num_ranks() > 1:
        found += measure_collectives(device, effort, tell)
        leave_ranks()
    return Sweep(device, facts_of(device), silicon, found, when)


def write_sweep(sweep: Sweep, folder: Path) -> Files:
    """Write the system file and the tables."""
    name = sweep.device.kind
    system, origin = folder / f"{name}.yaml", _origin(sweep)
    link = link_of(sweep.measured)
    write_system(system, sweep.device, sweep.facts, sweep.silicon, link, sweep.when, f"{name}.calibration.yaml")
    return Files(system, write_tables(rows_of(sweep.measured, origin), folder), origin)


def _probes(device: Device, silicon: Silicon, quick: bool) -> tuple[Probe, ...]:
    # The dtypes worth a sweep, the one that models train in first: bf16 on an accelerator, fp32 on a
    # CPU.
    first = DType.BF16 if device.is_cuda else DType.FP32
    rates = silicon.flop_per_s
    others = [d for d in (DType.FP32, DType.BF16) if d is not first and rates[d] > _WORTH * rates[first]]
    swept = (first, *others)
    main = swept[0]
    return (
        *product_probes(device, swept, quick),
        *attention_probes(device, main, quick),
        *rowwise_probes(device, main, quick),
        *update_probes(device, main, quick),
    )


def _origin(sweep: Sweep) -> MeasurementOrigin:
    device, facts = sweep.device, sweep.facts
    clock = "wall time" if device.is_cuda or device.threads > 1 else "time of the process"
    return MeasurementOrigin(
        device.kind,
        f"{device.kind}.yaml",
        facts.versions.split(",")[0],
        f"slipstick calibrate --device {device.kind}; {facts.name}; {facts.versions}; {sweep.when}",
        f"torch.utils.benchmark, {clock}, median, least of the rounds; operands warm",
    )


# A measured machine put to the test: a training step predicted from the sweep, and the same step run.

SMALL = StepSize(512, 1408, 4, 8, 4, 8192, 1, 256)
MEDIUM = StepSize(1024, 2816, 4, 16, 8, 8192, 1, 512)
TINY = StepSize(256, 704, 2, 4, 2, 2048, 2, 128)
# A block of an 8-billion Llama with its step, on a GPU.
LARGE = StepSize(4096, 14336, 1, 32, 8, 32000, 1, 4096)


@dataclass(frozen=True, slots=True)
class Check:
    """A step as predicted and as measured, in seconds, whole and by class of op."""

    size: StepSize
    predicted_s: float
    predicted_by_class: Mapping[OpClass, float]
    measured: StepTime

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_s / self.measured.time_s

    def table(self) -> list[list[str]]:
        """Return a line for each class, what lies between ops, and the step."""
        kinds = sorted(
            {*self.predicted_by_class, *self.measured.by_class}, key=lambda k: -self.measured.by_class.get(k, 0.0)
        )
        lines = [["class of ops", "predicted", "measured", "ratio"]]
        for kind in kinds:
            ours, theirs = self.predicted_by_class.get(kind, 0.0), self.measured.by_class.get(kind, 0.0)
            if not ours and not theirs:
                continue
            lines.append([LABELS.get(kind, kind.value), *_cells(ours, theirs)])
        lines.append(["between ops", "", f"{self.measured.rest_s * 1e3:.2f} ms", ""])
        return [*lines, ["step", *_cells(self.predicted_s, self.measured.time_s)]]

    def text(self) -> str:
        """Return the table with what was run, for people."""
        spread = f"quartiles {self.measured.spread:.1%} apart"
        return (
            f"Llama of {self.size.title}: {self.ratio:.2f} of the measured time, {spread}\n{in_columns(self.table())}"
        )


LABELS: Mapping[OpClass, str] = {OpClass.MEMORY: "lookups and copies"}


def check_sizes(device: Device, quick: bool) -> Sequence[StepSize]:
    """Return the steps that judge a sweep."""
    return device.sizes(quick, (TINY,), (SMALL, MEDIUM), (LARGE,))


def check(system: Path, size: StepSize, device: Device, num_steps: int, tell: Tell) -> Check:
    """Predict a step on a measured system, then run it."""
    dtype = DType.BF16 if device.is_cuda else DType.FP32
    whole, parts = predict(system, size, dtype)
    return Check(size, whole, parts, run_step(size, device, dtype, num_steps, tell))


def predict(system: Path, size: StepSize, dtype: DType) -> tuple[float, Mapping[OpClass, float]]:
    """Estimate a step of one rank as `slipstick estimate` does; seconds, whole and by class of op."""
    with TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        size.write(config)
        graph = load(str(config), dtype=dtype)
    # Eager PyTorch fuses nothing, and sums gradients in the type of the weights.
    family = Family(grad_dtype=dtype, fused=False)
    plan = make_plan(num_gpus=1, seq_len=size.seq, family=family, micro_batch=size.batch, global_batch=size.batch)
    answer = estimate(graph, load_system(system), plan)
    parts = answer.table.timing.sums(lambda entry: entry.kind)
    return answer.metrics["step_time_s"], {kind: float(t[0]) for kind, t in parts.items()}


def _cells(predicted_s: float, measured_s: float) -> list[str]:
    ratio = f"{predicted_s / measured_s:.2f}" if measured_s and predicted_s else "-"
    return [f"{predicted_s * 1e3:.2f} ms", f"{measured_s * 1e3:.2f} ms", ratio]


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """What to measure: a kind of device, threads of the host, few sizes or all; whether a step judges the result."""

    device: str
    threads: int = 1
    quick: bool = False
    judged: bool = False


@dataclass(frozen=True, slots=True)
class DeviceCalibration:
    """What came of it: the files, how near each kind of kernel was fitted, and the steps that judge."""

    files: tuple[Path, ...]
    fits: tuple[KindFit, ...]
    checks: tuple[Check, ...]


def calibrate_device(wanted: MeasurementPlan, folder: Path, tell: Tell) -> DeviceCalibration:
    """Measure the machine at hand and write what was found to a folder, each file whole.

    Under `torchrun` every rank takes part, and the first one fits and writes.

    Raises:
        UsageError: there is no such device, fewer than one thread, or no scipy to fit with.
    """
    if wanted.threads < 1:
        raise UsageError(f"--threads {wanted.threads}: 1 or more")
    device = open_device(wanted.device, wanted.threads, wanted.quick)
    effort = QUICK if wanted.quick else Effort()
    sweep = run_sweep(device, effort, tell)
    if not is_first():
        return DeviceCalibration((), (), ())
    constants = folder / f"{device.kind}.calibration.yaml"
    start_calibration(constants, device)
    written = write_sweep(sweep, folder)
    fits = fit_sweep(rows_of(sweep.measured, written.origin), written.system, constants, tell)
    sizes = check_sizes(device, wanted.quick) if wanted.judged else ()
    checks = tuple(check(written.system, size, device, 5 if wanted.quick else 15, tell) for size in sizes)
    return DeviceCalibration((written.system, constants, *written.tables), fits, checks)
