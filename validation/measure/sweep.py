"""The whole sweep of a machine: silicon, kernels of every class, collectives where there are ranks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ...ir.types import DType
from .collectives import join_ranks, leave_ranks, link_of, measure_collectives, num_ranks
from .device import Device, Facts, facts_of
from .kernels.attention import attention_probes
from .kernels.probe import Measured, Probe
from .kernels.products import product_probes
from .kernels.rowwise import rowwise_probes
from .kernels.updates import update_probes
from .silicon import Silicon, measure_silicon
from .stopwatch import Effort, Tell, measure
from .system_file import write_system
from .tables import Origin, rows_of, write_tables

# A dtype is swept where its products reach this part of the rate of the fastest: others no unit computes.
_WORTH = 0.5


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was measured of a machine."""

    device: Device
    facts: Facts
    silicon: Silicon
    measured: tuple[Measured, ...]
    when: str


@dataclass(frozen=True, slots=True)
class Files:
    """What a sweep was written to."""

    system: Path
    tables: tuple[Path, ...]
    origin: Origin


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
    swept = _swept(device, silicon)
    main = swept[0]
    return (
        *product_probes(device, swept, quick),
        *attention_probes(device, main, quick),
        *rowwise_probes(device, main, quick),
        *update_probes(device, main, quick),
    )


def _swept(device: Device, silicon: Silicon) -> tuple[DType, ...]:
    """The dtypes worth a sweep, the one that models train in first: bf16 on an accelerator, fp32 on a CPU."""
    first = DType.BF16 if device.is_cuda else DType.FP32
    rates = silicon.flop_per_s
    others = [d for d in (DType.FP32, DType.BF16) if d is not first and rates[d] > _WORTH * rates[first]]
    return (first, *others)


def _origin(sweep: Sweep) -> Origin:
    device, facts = sweep.device, sweep.facts
    clock = "wall time" if device.is_cuda or device.threads > 1 else "time of the process"
    return Origin(
        device.kind, f"{device.kind}.yaml", facts.versions.split(",")[0],
        f"slipstick calibrate --device {device.kind}; {facts.name}; {facts.versions}; {sweep.when}",
        f"torch.utils.benchmark, {clock}, median, least of the rounds; operands warm",
    )  # fmt: skip
