"""The engine behind the slide rule: one point answered, the curves around it, and the best plan for its numbers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from ...app.plans.text import command_file_text
from ...backends.machine.system import System
from ...backends.machine.system_table import tabled
from ...cost.money import Terms
from ...driver.estimate import (
    Estimate,
    Lowered,
    estimate,
    evaluate,
    evaluate_machines,
    lower,
    screen,
    worth,
)
from ...driver.metrics import METRICS, format_metric
from ...frontend import GraphCache, load
from ...ir.errors import SlipstickError, UsageError
from ...ir.graph import Graph
from ...ir.plan import Family, Plan, PlanTable, plan_of
from ...ir.records import dataclass
from ...ir.units import format_bytes, format_time
from ...report.bounds import bound_seconds
from ...report.charts.steps import part_class
from ...report.cost.money import metrics_of
from ...report.labels import bound_label, part_label
from .dragged import Dragged, moved_paths, moved_system
from .dragged_server import DraggedServer, Point
from .server_rule import ServerRule

# Points of a curve over a number of the machine, from a quarter of it to four times as much.
_CURVE = np.geomspace(0.25, 4.0, 11)
# Numbers of the machine that have a curve.
_MOVED = (("hbm", "HBM bandwidth"), ("outer", "bandwidth between nodes"), ("clock", "clock"))
_TILES = ("step_time_s", "mfu", "tokens_per_s_per_gpu", "peak_mem_bytes", "usd_per_mtok", "usd_per_gpu_hour")
# Degrees and micro-batches among which the best plan is looked for.
_TP, _PP, _MBS = (1, 2, 4, 8, 16), (1, 2, 3, 4, 6, 7, 8, 9, 12, 14, 16, 18, 21, 24, 32), (1, 2, 4, 8)
Record = dict[str, object]


@dataclass(slots=True)
class SlideRule:
    """Models that were loaded and lowered, so that a drag only evaluates."""

    graphs: dict[str, Graph] = field(default_factory=dict)
    lowered: dict[tuple[str, Family], Lowered] = field(default_factory=dict)
    last: tuple[object, dict[Family, list[Plan]]] = (None, {})
    around: tuple[object, Record] = (None, {})
    servers: ServerRule = field(default_factory=ServerRule)

    def answer(self, asked: Point) -> Record:
        """Return the answer for a point as a page shows it; where it is no legal plan, why, and the best that is."""
        if isinstance(asked, DraggedServer):
            return self.servers.answer(asked)
        system = moved_system(asked.system, asked.overrides, asked.stack)
        found: Record = {
            "command": shlex.join(["slipstick", "estimate", asked.model, *asked.flags]),
            "python": _python(asked),
        }
        plan: Plan | None = None
        try:
            plan = plan_of(asked.words, system.stack)
            found |= _shown(self._estimate(asked, system, plan))
        except SlipstickError as error:
            found["error"], plan = str(error), None
        return found | self._around(asked, system, plan)

    def plan_file(self, asked: Point) -> str:
        """Return a point as the text of a plan file."""
        return command_file_text([asked.model, *asked.flags])

    def _around(self, asked: Dragged, system: System, plan: Plan | None) -> Record:
        """Return the best plan and the curves; a price changes neither.

        What prices plans on this system comes first: a lowered model stays bound to one system at a time.
        """
        key = (replace(asked, factors=tuple(pair for pair in asked.factors if pair[0] != "price")), plan)
        if key != self.around[0] or self.around[1]["warming"]:
            gpus = [] if plan is None else [self._over_gpus(asked, system, plan)]
            found = self._best(asked, system)
            found |= {} if plan is None else {"curves": [*gpus, *self._over_machines(asked, system, plan)]}
            self.around = (key, found)
        return self.around[1]

    def warm(self, asked: Point) -> int:
        """Lower the model for one more family of the plans that the best is chosen from; return how many are left."""
        if isinstance(asked, DraggedServer):
            return self.servers.warm(asked)
        missing = self._missing(
            asked, self._candidates(asked, moved_system(asked.system, asked.overrides, asked.stack))
        )
        if missing:
            self._lowered(asked.model, missing[0])
        return max(len(missing) - 1, 0)

    def _graph(self, model: str) -> Graph:
        if model not in self.graphs:
            self.graphs[model] = load(model, cache=GraphCache.default())
        return self.graphs[model]

    def _lowered(self, model: str, family: Family) -> Lowered:
        """Return a model lowered for a family; the few that were used last are kept."""
        key = (model, family)
        if key not in self.lowered:
            while len(self.lowered) >= 48:
                del self.lowered[next(iter(self.lowered))]
            self.lowered[key] = lower(self._graph(model), family)
        return self.lowered[key]

    def _estimate(self, asked: Dragged, system: System, plan: Plan) -> Estimate:
        answer = estimate(self._graph(asked.model), system, plan, lowered=self._lowered(asked.model, plan.family))
        try:
            return worth(answer, Terms())
        except UsageError as error:
            return replace(answer, warnings=(*answer.warnings, f"not priced: {error}"))

    def _over_machines(self, asked: Dragged, system: System, plan: Plan) -> list[Record]:
        """Return the step time over numbers of the machine: all machines as one table."""
        lowered = self._lowered(asked.model, plan.family)
        moved = [(label, paths) for name, label in _MOVED if (paths := moved_paths(system, name))]
        columns = {
            path: number * np.concatenate([_CURVE if place == k else np.ones(len(_CURVE)) for k in range(len(moved))])
            for place, (_, paths) in enumerate(moved)
            for path, number in paths.items()
        }
        times = evaluate_machines(lowered, tabled(system, columns), plan).metrics["step_time_s"]
        names = [f"{x:.2g}x" for x in _CURVE]
        return [
            _curve(label, names, _CURVE.tolist(), part.tolist(), 1.0)
            for (label, _), part in zip(moved, np.split(times, len(moved)), strict=True)
        ]

    def _over_gpus(self, asked: Dragged, system: System, here: Plan) -> Record:
        plans: list[Plan] = []
        for power in range(-6, 7):
            try:
                plan = plan_of(replace(asked.words, num_gpus=max(round(asked.gpus * 2.0**power), 1)), system.stack)
            except SlipstickError:
                continue
            if plan.family == here.family and plan.num_gpus not in {p.num_gpus for p in plans}:
                plans.append(plan)
        lowered = self._lowered(asked.model, here.family)
        times = evaluate(lowered, system, PlanTable.of(plans)).metrics["step_time_s"]
        counts = [float(plan.num_gpus) for plan in plans]
        return _curve("GPUs", [f"{plan.num_gpus:,}" for plan in plans], counts, times.tolist(), float(asked.gpus))

    def _candidates(self, asked: Dragged, system: System) -> dict[Family, list[Plan]]:
        """Return the legal plans among which the best is: all tp, pp and mbs, with what else was asked for."""
        words = replace(asked.words, tp=1, pp=1, micro_batch=1)
        key = (words, system.name, system.stack.name)
        if key == self.last[0]:
            return self.last[1]
        found: dict[Family, list[Plan]] = {}
        for tp in _TP:
            for pp in _PP:
                if asked.gpus % (tp * pp * asked.cp):
                    continue
                for mbs in _MBS:
                    try:
                        plan = plan_of(replace(words, tp=tp, pp=pp, micro_batch=mbs), system.stack)
                    except SlipstickError:
                        continue
                    found.setdefault(plan.family, []).append(plan)
        self.last = (key, found)
        return found

    def _missing(self, asked: Dragged, families: Mapping[Family, Sequence[Plan]]) -> list[Family]:
        return [family for family in families if (asked.model, family) not in self.lowered]

    def _best(self, asked: Dragged, system: System) -> Record:
        """Return the fastest plan that fits, of families that are lowered already; `warming` where some are not."""
        families = self._candidates(asked, system)
        found: list[tuple[float, float, Plan]] = []
        for family, plans in families.items():
            if (asked.model, family) not in self.lowered:
                continue
            lowered = self.lowered[asked.model, family]
            screened = screen(lowered, system, PlanTable.of(plans))
            fitting = screened.fitting()
            if fitting is None:
                continue
            metrics = evaluate(lowered, system, fitting.plans, prepared=fitting).metrics
            at = int(np.argmin(metrics["step_time_s"]))
            plan = plans[int(np.flatnonzero(screened.fits)[at])]
            found.append((float(metrics["step_time_s"][at]), float(metrics["mfu"][at]), plan))
        shown: Record | None = None
        if found:
            time_s, mfu, plan = min(found, key=lambda one: one[0])
            told = f"{plan.degrees} mbs {plan.micro_batch}: {format_time(time_s)}, MFU {format_metric('mfu', mfu)}"
            take = {"tp": plan.tp, "pp": plan.pp, "mbs": plan.micro_batch}
            shown = {"take": take, "told": told, "step_time_s": time_s}
        return {"best": shown, "warming": len(self._missing(asked, families))}


def _curve(label: str, names: Sequence[str], x: Sequence[float], times: Sequence[float], here: float) -> Record:
    return {
        "label": f"step time over {label}",
        "names": list(names),
        "x": [float(v) for v in x],
        "here": here,
        "lines": [{"name": "", "y": [float(v) for v in times], "told": [format_time(float(v)) for v in times]}],
    }


def _shown(answer: Estimate) -> Record:
    """Return what a page shows of an estimate: numbers of the report, and beside them what people read."""
    metrics = {**answer.metrics, **metrics_of(answer.money)}
    capacity = float(answer.table.system.chip.hbm_bytes)
    step_s = metrics["step_time_s"]
    return {
        "fits": answer.fits,
        "metrics": {name: metrics[name] for name in _TILES if name in metrics},
        "tiles": [
            {
                "name": METRICS[name].label,
                "value": format_metric(name, metrics[name]),
                "bad": name == "peak_mem_bytes" and not answer.fits,
            }
            for name in _TILES
            if name in metrics
        ],
        "breakdown": [
            {
                "name": part_label(name),
                "class": part_class(name),
                "seconds": seconds,
                "told": format_time(seconds),
                "share": seconds / step_s,
            }
            for name, seconds in sorted(answer.breakdown_s.items(), key=lambda one: -one[1])
            if seconds > 0
        ],
        "bounds": [
            {
                "name": bound_label(name),
                "seconds": seconds,
                "share": seconds / step_s,
                "told": f"{seconds / step_s:.1%}",
            }
            for name, seconds in list(bound_seconds(answer).items())[:6]
            if seconds > 0
        ],
        "memory": [
            {"name": name.replace("_", " "), "bytes": held, "told": format_bytes(held)}
            for name, held in answer.memory_bytes.items()
            if held > 0
        ],
        "capacity": {"bytes": capacity, "told": format_bytes(capacity)},
        "warnings": list(answer.warnings),
    }


def _python(asked: Dragged) -> str:
    words = {
        "stack": asked.stack,
        "gpus": asked.gpus,
        "tp": asked.tp,
        "pp": asked.pp,
        "cp": asked.cp,
        "ep": asked.ep,
        "mbs": asked.mbs,
        "gbs": asked.gbs,
        "seq": asked.seq,
        "zero": asked.zero,
        "recompute": asked.recompute,
    }
    moved = dict(text.split("=", 1) for text in asked.overrides)
    said = "".join(f", {name}={value!r}" for name, value in words.items())
    more = f", set={moved!r}" if moved else ""
    return f"import slipstick\n\nslipstick.estimate({asked.model!r}, {asked.system!r}{said}{more})"
