"""Layers and the ops in them: a row is a whole layer of a GPT, forward or backward, or one op of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from types import MappingProxyType

from ...backends.machine.load import load_system
from ...driver.estimate import estimate_many, lower
from ...frontend import GraphCache, config_of, load_config
from ...ir.errors import InternalError, SlipstickError, UsageError
from ...ir.plan import Family, Plan, make_plan
from ...ir.records import dataclass
from ...ir.types import DType
from ..results.outcomes import Outcome, Part
from ..rows.machine_room import MachineRoom
from ..rows.models import architecture
from ..rows.rows import NotJudged, Row
from ..rows.tables import RowFault, Table
from ..rows.words import system_of
from .elementwise import op_seconds

TABLE = "layer"
# How a whole layer was run, by the words behind `whole transformer layer:`.
_POLICIES: Mapping[str, tuple[str, bool]] = MappingProxyType(
    {
        "baseline, no recompute": ("none", False),
        "full recompute": ("full", False),
        "selective recompute": ("selective", False),
        "sequence parallelism": ("none", True),
        "selective recompute + sequence parallelism": ("selective", True),
    }
)
_WHOLE = "whole transformer layer: "
# A model of this many layers less one of so many is so many layers, without embedding and head.
_MORE, _FEWER = 4, 2
# What whole layers of these tables ran in: Korthikanti et al., arXiv 2205.05198, table 4.
_STACK, _VOCAB = "megatron-2022", 51200


@dataclass
class LayerJudge:
    """Judges rows of layers: whole layers through the model, ops through the kernels that they are."""

    room: MachineRoom
    cache: GraphCache | None = None
    report: Callable[[str], None] | None = None
    _layers: dict[tuple[str, ...], tuple[float, float]] = field(default_factory=dict)

    def outcomes(self, table: Table, faults: list[RowFault]) -> list[Outcome]:
        """Return the outcome of every row, in order; cells that are no numbers are added to `faults`."""
        found = []
        for row in table.rows:
            try:
                found.append(self._outcome(row))
            except InternalError:
                raise
            except UsageError as error:
                faults.append(RowFault(table.path, row, str(error)))
            except SlipstickError as reason:
                found.append(Outcome(row=row, table=TABLE, part=Part.SKIPPED, reason=str(reason).splitlines()[0]))
        return found

    def _outcome(self, row: Row) -> Outcome:
        measured_us = row.measured("time_us")
        if measured_us is None:
            raise NotJudged("time_us is not given")
        whole = row.text("op").startswith(_WHOLE)
        predicted = self._layer_s(row) if whole else op_seconds(row, self.room)
        return Outcome(
            row=row,
            table=TABLE,
            part=Part.JUDGED,
            predicted=predicted,
            measured=measured_us * 1e-6,
            system=system_of(row),
            kind="layer" if whole else "op",
            group=row.text("model"),
        )

    def _layer_s(self, row: Row) -> float:
        """Seconds of one layer in the row's phase: that of a longer model less that of a shorter one, a layer."""
        key = tuple(row.text(c) for c in ("accelerator", "op", "tp", "batch", "seq_len", "hidden", "heads", "dtype"))
        if key not in self._layers:
            more, fewer = self._phases_s(row, _MORE), self._phases_s(row, _FEWER)
            forward, backward = ((a - b) / (_MORE - _FEWER) for a, b in zip(more, fewer, strict=True))
            self._layers[key] = forward, backward
        phase = row.text("phase").split(" ")[0]
        if phase not in ("forward", "backward"):
            raise NotJudged(f"the phase '{row.text('phase')}' is neither forward nor backward")
        return self._layers[key][phase == "backward"]

    def _phases_s(self, row: Row, layers: int) -> tuple[float, float]:
        cells = {**row.cells, "family": "gpt", "layers": str(layers), "vocab": str(_VOCAB)}
        named = config_of(row.text("model"), architecture(replace(row, cells=cells)).fields)
        dtype = DType.FP16 if row.text("dtype") == "fp16" else DType.BF16
        graph = load_config(named, element=dtype, cache=self.cache, report=self.report)
        plan = _plan(row)
        system = load_system(system_of(row), (), _STACK, self.room.calibration)
        step = estimate_many(lower(graph, plan.family), system, [plan]).step
        return float(step.forward_s[0]), float(step.backward_s[0])


def _plan(row: Row) -> Plan:
    words = row.text("op").removeprefix(_WHOLE)
    if words not in _POLICIES:
        raise NotJudged(f"a layer with '{words}' is not modelled")
    recompute, sp = _POLICIES[words]
    family = Family(recompute=recompute, sp=sp, attention="unfused", kernels="fused")
    tp, batch = row.number("tp"), row.number("batch")
    return make_plan(num_gpus=tp, tp=tp, micro_batch=batch, seq_len=row.number("seq_len"), family=family)
