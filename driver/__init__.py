"""Model, plan and system to an estimate, a training run, its money, or a server's answer."""

from __future__ import annotations

from .estimate import (
    Estimate,
    Estimates,
    Lowered,
    MachineEstimates,
    Screened,
    compiled,
    estimate,
    estimate_many,
    evaluate,
    evaluate_machines,
    lower,
    screen,
    train,
    worth,
)

__all__ = [
    "Estimate",
    "Estimates",
    "Lowered",
    "MachineEstimates",
    "Screened",
    "compiled",
    "estimate",
    "estimate_many",
    "evaluate",
    "evaluate_machines",
    "lower",
    "screen",
    "train",
    "worth",
]
