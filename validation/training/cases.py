"""A row of a table of training steps as a case: what is run, on what, and how long it took."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...frontend import config_of
from ...ir.plan import Plan
from ...ir.types import DType
from ..machines import overrides_of, system_of
from ..models import architecture
from ..plans import dtype_of, plan_of, stack_of
from ..rows import NotJudged, Row
from .machine_shop import MachineShop
from .outliers import outlier
from .quantity import step_s
from .sources import SOURCES, Source, completed

_BUS = re.compile(r"all-reduce bus bandwidth ([\d.]+) GB/s at this world size, intra-node ([\d.]+)")


@dataclass(frozen=True, slots=True)
class Network:
    """What an all-reduce reached in the run itself: bus bandwidth over all its GPUs, and inside of one node."""

    world_bus_bytes_per_s: float
    node_bus_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """One measured step.

    Attributes:
        row: the row with every setting in its cells.
        group: the configuration; a split into what is fitted and what judges keeps it whole.
        config: canonical text of the model's config; equal ones share a graph.
        dtype: type of weights and activations.
        plan: degrees, batch and family.
        system: name of the catalogue's system.
        overrides: what the machine has other than that system.
        stack: software of the catalogue.
        measured_s: seconds of a step.
        assumed: settings that are not published, in words.
        outlier: why no sane model fits it, empty for most.
        network: the state of the network, where the run recorded it.
    """

    row: Row
    group: str
    config: str
    dtype: DType
    plan: Plan
    system: str
    overrides: tuple[str, ...]
    stack: str
    measured_s: float
    assumed: tuple[str, ...] = ()
    outlier: str = ""
    network: Network | None = None


def training_case(row: Row, shop: MachineShop) -> TrainingCase:
    """Read a row; NotJudged, or what the plan's own check says, where it cannot be predicted."""
    unknown = SOURCES.get(row.dataset, Source()).unknown
    if unknown:
        raise NotJudged(unknown)
    filled = completed(row)
    row, stack = filled.row, stack_of(filled.row)
    model = architecture(row)
    system, overrides = system_of(row), overrides_of(row)
    machine = shop.system(system, overrides, stack)
    return TrainingCase(
        row, group_of(row), config_of(row.text("model") or row.id, model.fields).text, dtype_of(row),
        plan_of(row, machine.stack), system, overrides, stack,
        step_s(row, machine.chip.matmul_flop_per_s(str(dtype_of(row)))), (*model.assumed, *filled.assumed),
        outlier(row), network_of(row),
    )  # fmt: skip


def group_of(row: Row) -> str:
    """Return the configuration of a row: the model with its tensor and pipeline degrees; of MPT, with its sequence.

    All MPT runs split data alone, so that the sequence is what tells them apart.
    """
    if row.text("family") == "mpt":
        return f"{row.text('model')} seq{row.text('seq_len')}"
    return f"{row.text('model')} tp{row.number('tp', 1)} pp{row.number('pp', 1)}"


def network_of(row: Row) -> Network | None:
    """Read the all-reduce bandwidths that a run measured before it trained; None where it did not."""
    found = _BUS.search(row.text("note"))
    return None if found is None else Network(float(found[1]) * 1e9, float(found[2].rstrip(".")) * 1e9)
