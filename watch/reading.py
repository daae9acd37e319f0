"""One look at a run: what was predicted and measured of its steps."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.records import dataclass
from ..ir.units import format_bytes, format_time
from .predicted import StepPrediction


@dataclass(frozen=True, slots=True)
class WatchedStep:
    """Steps of a run beside their prediction.

    Attributes:
        step: number of the last step.
        num_steps: steps that the measured time is the median of.
        step_s: measured seconds of a step.
        prediction: what was predicted; None where the model could not be recorded.
        allocated_bytes: most that was allocated on the device so far; None on a CPU.
        causes: what may be the cause where the run is further off than estimates usually are; the likeliest first.
    """

    step: int
    num_steps: int
    step_s: float
    prediction: StepPrediction | None
    allocated_bytes: float | None = None
    causes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Measured over predicted seconds of a step."""
        return None if self.prediction is None else self.step_s / self.prediction.step_s

    @property
    def mfu(self) -> float | None:
        """Model FLOPs a second of the run over the peak of the predicted chip."""
        if self.prediction is None or self.prediction.mfu is None:
            return None
        return self.prediction.mfu * self.prediction.step_s / self.step_s

    @property
    def memory_ratio(self) -> float | None:
        """Allocated over predicted bytes."""
        if self.prediction is None or self.allocated_bytes is None:
            return None
        return self.allocated_bytes / self.prediction.allocated_bytes

    def numbers(self) -> Mapping[str, float]:
        """Return what trainers log, by name; seconds, bytes and fractions."""
        p = self.prediction
        found = {
            "step_s": self.step_s,
            "predicted_step_s": None if p is None else p.step_s,
            "ratio": self.ratio,
            "mfu": self.mfu,
            "predicted_mfu": None if p is None else p.mfu,
            "max_memory_allocated": self.allocated_bytes,
            "predicted_memory": None if p is None else p.allocated_bytes,
        }
        return {f"slipstick/{name}": value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        told = [f"step {self.step}: {format_time(self.step_s)} measured"]
        if self.prediction is not None:
            told.append(f"{format_time(self.prediction.step_s)} predicted, ratio {self.ratio:.2f}")
        if self.mfu is not None:
            told.append(f"MFU {self.mfu:.1%}")
        if self.allocated_bytes is not None:
            told.append(f"memory {format_bytes(self.allocated_bytes)}")
            if self.prediction is not None:
                told.append(f"{format_bytes(self.prediction.allocated_bytes)} predicted")
        return ", ".join(told)
