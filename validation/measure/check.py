"""A measured machine put to the test: a training step predicted from the sweep, and the same step run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ...backends.machine.load import load_system
from ...driver.estimate import estimate
from ...frontend import load
from ...ir.ops import OpClass
from ...ir.plan import Family, make_plan
from ...ir.types import DType
from ...report.columns import in_columns
from .device import Device
from .step import StepSize, StepTime, run_step
from .stopwatch import Tell

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
        kinds = sorted({*self.predicted_by_class, *self.measured.by_class},
                       key=lambda k: -self.measured.by_class.get(k, 0.0))  # fmt: skip
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
    if quick:
        return (TINY,)
    return (LARGE,) if device.is_cuda else (SMALL, MEDIUM)


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
