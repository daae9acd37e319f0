"""A row of a table of training steps as a case: what is run, on what, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass

from ...backends.machine.system import System
from ...frontend import config_of
from ...ir.plan import Plan
from ...ir.types import DType
from ..plans import dtype_of, plan_of, stack_of
from ..rows.machines import overrides_of, system_of
from ..rows.models import Architecture, architecture
from ..rows.rows import NotJudged, Row
from .machine_shop import MachineShop
from .network_state import HEALTHY_PORTS, NetworkState, network_state
from .outliers import outlier
from .quantity import step_s
from .sources import SOURCES, Source, completed

# What else a layout may count as a layer: the embedding and the head.
_EDGES = 2


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
    network: NetworkState | None = None


def training_case(row: Row, shop: MachineShop) -> TrainingCase:
    """Read a row; NotJudged, or what the plan's own check says, where it cannot be predicted."""
    refused = SOURCES.get(row.dataset, Source()).refused(row)
    if refused:
        raise NotJudged(refused)
    filled = completed(row)
    row, network = filled.row, network_state(filled.row)
    stack = "nanotron-per-rank" if network is not None and network.per_rank else stack_of(row)
    model = architecture(row)
    row, fewer = _with_chunks(row, model)
    system, overrides = system_of(row), (*overrides_of(row), *(HEALTHY_PORTS if network is not None else ()))
    machine = shop.system(system, overrides, stack)
    return TrainingCase(
        row, group_of(row), config_of(row.text("model") or row.id, model.fields).text, dtype_of(row),
        plan_of(row, machine.stack), system, overrides, stack,
        step_s(row, float(machine.chip.matmul_flop_per_s(str(dtype_of(row))))),
        (*model.assumed, *filled.assumed, *fewer), outlier(row), network,
    )  # fmt: skip


def _with_chunks(row: Row, model: Architecture) -> tuple[Row, tuple[str, ...]]:
    """Take the most chunks that have a layer each, where embedding and head stand in place of layers in a stage."""
    fields, pp, vpp = model.fields, row.number("pp", 1), row.number("vpp", 1)
    layers = int(str(fields.get("num_hidden_layers", fields.get("n_layer", 0))))
    if not layers < pp * vpp <= layers + _EDGES:
        return row, ()
    said = f"vpp {layers // pp} for {vpp} (embedding and head stand in place of layers)"
    return Row({**row.cells, "vpp": str(layers // pp)}, row.line), (said,)


def group_of(row: Row) -> str:
    """Return the configuration of a row: the model with its tensor and pipeline degrees; of MPT, with its sequence.

    All MPT runs split data alone, so that the sequence is what tells them apart.
    """
    if row.text("family") == "mpt":
        return f"{row.text('model')} seq{row.text('seq_len')}"
    return f"{row.text('model')} tp{row.number('tp', 1)} pp{row.number('pp', 1)}"


def machine_of(case: TrainingCase, shop: MachineShop) -> System:
    """Return the machine of a case, its network in the state that the run recorded."""
    system = shop.system(case.system, case.overrides, case.stack)
    if case.network is None:
        return system
    return shop.late(system, case.network.step_latency_s(case.plan.num_gpus))
