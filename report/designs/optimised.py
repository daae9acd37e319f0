"""Designs optimised within their budgets, node by node: tables with their speeds and fronts, JSON, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...backends.technology.claims import Claim, claims_of
from ...backends.technology.speeds import PARTS, rated_speeds
from ...ir.errors import UnknownNameError
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes_per_s, format_flop_per_s
from ..columns import in_columns
from ..results.result import DRAWN, Result
from ..results.table import Line, Panel, Row
from ..search.front import Front
from ..search.plans import plan_label
from .designs_table import label, told

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ...backends.technology.design import Budget, Design
    from ...explore.designs.optimise import Optimum
    from ...explore.designs.setting import DesignSetting
    from ...explore.goals import Goal
    from ..pictures.picture import Picture

SCHEMA = "slipstick/optimised/1"
BUDGETS = {"power": ("power_w", "W"), "area": ("area_mm2", "mm2"), "edge": ("edge_mm", "mm")}
# Designs of the front that a table has room for, spread over all of them.
_MOST = 12
_WORDS = ("num_dies", "unit", "memory", "link", "d2d", "cooling")
_USUAL = "shares of the unit"
_MOSTLY = {"less": "least", "more": "most"}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class OptimisedDesigns(Result):
    """The best design of each node.

    Attributes:
        model: what runs on them.
        setting: what stands around them.
        goal: what is best.
        limits: the budgets.
        found: the answers, in the order of the nodes.
        num_plans: plans that were looked at.
    """

    forms: ClassVar[tuple[str, ...]] = (*Result.forms, *DRAWN[:1])
    model: str
    setting: DesignSetting
    goal: Goal
    limits: Sequence[Budget]
    found: Sequence[Optimum]
    num_plans: int

    @cached_property
    def best(self) -> Optimum:
        """The best of all nodes."""
        return min(self.found, key=lambda one: one.columns[self.goal.name] * self.goal.sign)

    @cached_property
    def machine(self) -> System:
        """The machine of the best."""
        from ...explore.designs.machines import machine_of

        return machine_of(self.best.form, self.best.design, self.setting)

    def system(self) -> str:
        """Return the machine of the best as YAML."""
        from ...explore.designs.machines import machine_text

        return machine_text(self.best.form, self.best.design, self.setting)

    def json(self) -> str:
        """Return the document."""
        document = {
            "schema": SCHEMA,
            "model": self.model,
            "objective": ("+" if self.goal.sign < 0 else "") + self.goal.name,
            "area_mm2": max(float(one.area_mm2) for one in self.limits),
            "power_w": max(float(one.power_w) for one in self.limits),
            "num_plans": self.num_plans,
            "designs": [self._record(one) for one in self.found],
        }
        return json_text(document, indent=2)

    def _record(self, one: Optimum) -> dict[str, object]:
        usual = one.usual_design
        return {
            **self._row(one),
            "num_designs": one.num_designs,
            "speeds": self._speeds(one.design),
            "usual_speeds": {} if usual is None else self._speeds(usual),
            "parts": [
                {
                    "part": claim.part,
                    **{field: getattr(claim, field) for field, _ in BUDGETS.values()},
                    f"rate_{claim.unit.lower().replace('b', 'bytes')}_per_s": claim.rate,
                    "joules": claim.joules,
                    "rest_w": claim.rest_w,
                    "speed": claim.speed,
                }
                for claim in self.claims(one.design)
            ],
            "columns": _plain(one.columns),
            "usual": _plain(one.usual),
            "front": list(one.front),
        }

    def claims(self, design: Design) -> tuple[Claim, ...]:
        """Return who owns the budgets of one device."""
        return claims_of(design, self.setting.technology)

    def _speeds(self, design: Design) -> dict[str, float]:
        return {part: float(speed) for part, speed in rated_speeds(design, self.setting.technology).items()}

    def _row(self, one: Optimum) -> dict[str, str | float | int | None]:
        chip, budget, name = one.design, one.design.budget, self.goal.name
        words = {word: getattr(one.form, word) for word in ("node", *_WORDS, "joint")}
        usual = one.usual.get(name)
        return words | {
            "plan": plan_label(one.job.plan),
            name: one.columns[name],
            f"usual_{name}": usual,
            "area_mm2": float(budget.area_mm2),
            "power_w": float(budget.power_w),
            "num_sms": int(chip.compute.num_sms),
            "voltage_v": float(chip.compute.at.voltage_v),
            "clock_hz": float(chip.compute.clock_hz),
            "fp16_flop_per_s": float(chip.compute.flop_per_s),
            "num_stacks": int(chip.memory.num_stacks * budget.num_ranks),
            "hbm_bytes_per_s": float(chip.memory.bytes_per_s),
            "num_lanes": int(chip.network.num_lanes),
            "link_bytes_per_s": float(chip.network.bytes_per_s),
        }

    def rows(self) -> Sequence[Row]:
        """Return a row a node: the design, its plan, and every number that a sweep has."""
        return [{**self._row(one), **_plain(one.columns)} for one in self.found]

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the designs, how fast their parts run, and the front."""
        return (
            "\n".join(
                line
                for panel in self.panels()
                for line in ("", panel.title, in_columns([panel.head, *panel.rows], columns))
            ).strip("\n")
            + f"\n{self._notes()}"
        )

    def _notes(self) -> str:
        num = sum(one.num_designs for one in self.found)
        return (
            f"{num:,} designs and {self.num_plans:,} plans; evidence: data sheets and constants of measured chips, no "
            "design was measured"
        )

    @property
    def _within(self) -> str:
        areas, powers = ({float(getattr(one, field)) for one in self.limits} for field in ("area_mm2", "power_w"))
        return f"{max(areas):g} mm2 and {max(powers):g} W"

    def panels(self) -> Sequence[Panel]:
        """Return the designs, the speeds and watts of their parts, and the front."""
        name, shown = self.goal.name, [w for w in _WORDS if len({getattr(one, w) for one in self.limits}) > 1]
        head = ["node", *map(label, shown), "plan", label(name), _USUAL, "SMs", "voltage", "fp16", "stacks", "HBM"]
        rows = [self._cells(one, shown) for one in self.found]
        title = f"{self.model}: {_MOSTLY[self.goal.better]} {self.goal.label} within {self._within}"
        own = [Panel(title, [*head, "lanes", "links", "area", "power"], rows)]
        designs = [
            (one.form.node, shares, made)
            for one in self.found
            for shares, made in (("optimised", one.design), (_USUAL, one.usual_design))
            if made is not None
        ]
        parts = tuple(dict.fromkeys(claim.part for *_, made in designs for claim in self.claims(made)))
        speeds = Panel(
            "Part of its rated speed that each component runs at, and the power that each owns",
            ("node", "shares", *PARTS, *(f"{part}, W" for part in parts), "of"),
            [[node, shares, *self._owned(made, parts)] for node, shares, made in designs],
        )
        return [*own, speeds, self._front_panel()]

    def _cells(self, one: Optimum, words: Sequence[str]) -> list[str]:
        row, name = self._row(one), self.goal.name
        value, usual = one.columns[name], one.usual.get(name)
        beside = "-" if usual is None else f"{told(name, usual)} ({value / usual - 1:+.1%})"
        return [
            str(row["node"]),
            *(str(row[word]) or "-" for word in words),
            str(row["plan"]),
            told(name, value),
            beside,
            str(row["num_sms"]),
            f"{row['voltage_v']:.3f} V",
            format_flop_per_s(float(one.design.compute.flop_per_s)),
            str(row["num_stacks"]),
            format_bytes_per_s(float(one.design.memory.bytes_per_s)),
            str(row["num_lanes"]),
            format_bytes_per_s(float(one.design.network.bytes_per_s)),
            f"{row['area_mm2']:,.4g} mm2",
            f"{row['power_w']:,.4g} W",
        ]

    def _owned(self, made: Design, parts: Sequence[str]) -> list[str]:
        speeds, watts = self._speeds(made), {claim.part: claim.power_w for claim in self.claims(made)}
        of = f"{sum(watts.values()):.4g} of {float(made.power_w):.4g} W"
        shown = (f"{watts[part]:.1f}" if part in watts else "-" for part in parts)
        return [*(f"{speeds[part]:.0%}" for part in PARTS), *shown, of]

    @cached_property
    def front(self) -> Front:
        """What no other design of any node beats in time, money, power and area."""
        from ...explore.designs.optimise import FRONT
        from ...explore.goals import Goal

        rows = [row for one in self.found for row in one.front]
        time_s, power_w, area_mm2, usd = FRONT
        goals = [Goal(name) for name in (time_s, usd, power_w, area_mm2)]
        columns = {goal.name: np.array([float(row[goal.name]) for row in rows]) for goal in goals}
        labels = [f"{row['node']} {row['num_stacks']:.0f} x {row['memory']} {row['plan']}" for row in rows]
        found = Front.of(goals, labels, columns, f"{self.model}: designs that no other beats")
        return replace(found, num_evaluated=sum(one.num_designs for one in self.found))

    def _front_panel(self) -> Panel:
        front, names = self.front, [goal.name for goal in self.front.goals]
        best = front.best
        some = best[np.unique(np.linspace(0, len(best) - 1, min(_MOST, len(best))).round().astype(int))]
        rows = [[front.labels[k], *(told(name, float(front.columns[name][k])) for name in names)] for k in some]
        title = f"Designs that no other beats in time, money, power and area, {len(rows)} of {len(best)}"
        return Panel(title, ("design", *map(label, names)), rows)

    def explain(self, wanted: str) -> str:
        """Return who owns a budget of the best design, or why a metric of its step is what it is."""
        if wanted not in BUDGETS:
            return self._explain_step(wanted)
        field, unit = BUDGETS[wanted]
        made = self.best.design
        claims = self.claims(made)
        budget = made.budget
        ranks = float(budget.num_ranks)
        given = {"power": made.power_w, "area": budget.area_mm2 / ranks, "edge": budget.edge_mm / ranks}[wanted]
        taken = sum(getattr(claim, field) for claim in claims)
        whose = f"of a device of {self.best.form.node}"
        lines = [f"{wanted} {whose}: {taken:.4g} {unit} of {float(given):.4g} {unit}"]
        for claim in claims:
            why = f" = {claim.reason}, {claim.speed:.0%} of its rated speed" if wanted == "power" else ""
            lines.append(f"  {claim.part:<7} {getattr(claim, field):.4g} {unit}{why}")
        left = max(float(given) - taken, 0.0)
        rest = "that no part takes" if wanted == "power" else "for wires, control and all that the engine leaves out"
        return "\n".join([*lines, f"  {'rest':<7} {left:.4g} {unit} {rest}"])

    def _explain_step(self, wanted: str) -> str:
        from ...cost.money import Terms
        from ...driver.estimate import estimate, worth
        from ..explain.explain import explain_text

        job = self.best.job
        answer = estimate(job.lowered.source, self.machine, job.plan, job.convention, job.lowered)
        try:
            return explain_text(worth(answer, Terms(basis=self.setting.basis)), wanted)
        except UnknownNameError as error:
            raise UnknownNameError(f"{error}; or {', '.join(BUDGETS)}") from None

    def pictures(self) -> Sequence[Picture]:
        """Return the front."""
        from ..pictures.answers import front_picture

        return [front_picture(self.front)]

    def svg(self) -> str:
        """Return the front as a picture."""
        from ..search.front_svg import front_svg

        return front_svg(self.front)

    def summary(self) -> Sequence[Line]:
        """Return the best design of all nodes, and what was looked at."""
        one = self.best
        usual = one.usual.get(self.goal.name)
        beside = "" if usual is None else f", {told(self.goal.name, usual)} with the {_USUAL}"
        return [
            (self.model, f"designs within {self._within}"),
            ("best", f"{one.form.node}, {plan_label(one.job.plan)}"),
            (self.goal.label, f"{told(self.goal.name, one.columns[self.goal.name])}{beside}"),
            ("looked at", self._notes()),
        ]


def _plain(columns: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if np.isfinite(value) else None for name, value in columns.items()}
