"""Tables of `slipstick design`: one budget on several nodes, and dies by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...backends.technology.area import DieAreas, area_of, floorplan
from ...backends.technology.data import Technology
from ...backends.technology.design import Design
from ...backends.technology.speeds import rated_speeds
from ...ir.records import dataclass
from ...ir.sizes.expr import Num
from ...ir.text.json_text import json_text
from ...ir.units import format_bytes, format_bytes_per_s, format_flop_per_s
from ...report.columns import in_columns
from ...report.pictures.picture import Bar, Bars, Picture, StackedBar
from ..output.files import columns


def study_table(designs: Sequence[Design], technology: Technology, form: str) -> str:
    """Return designs as a table or as records, a line each; percentages are parts of rated speeds."""
    speeds = [{name: float(part) for name, part in rated_speeds(d, technology).items()} for d in designs]
    if form == "json":
        records = ({"scaling": technology.scaling, **_record(d)} for d in designs)
        return json_text([one | {"speeds": s} for one, s in zip(records, speeds, strict=True)], indent=2)
    heading = ["node", "SMs", "voltage", "clock", "fp16 peak", "cache", "memory", "FLOP/B", "links"]
    rows = [
        [
            d.budget.node,
            str(d.compute.num_sms),
            f"{d.compute.at.voltage_v:.3f} V",
            f"{d.compute.clock_hz / 1e9:.2f} GHz {s['matrix']:.0%}",
            format_flop_per_s(float(d.compute.flop_per_s)),
            f"{format_bytes(float(d.cache.num_bytes))} {s['caches']:.0%}",
            f"{format_bytes_per_s(float(d.memory.bytes_per_s))} {s['memory']:.0%}",
            f"{d.compute.flop_per_s / d.memory.bytes_per_s:.0f}",
            f"{format_bytes_per_s(float(d.network.bytes_per_s))} {s['links']:.0%}",
        ]
        for d, s in zip(designs, speeds, strict=True)
    ]
    speeds_of = "%: of its rated speed; matrix and vector units have one clock"
    return f"{in_columns([heading, *rows], columns())}\n{speeds_of}\nnodes scaled as: {technology.scaling}"


def study_pictures(designs: Sequence[Design]) -> list[Picture]:
    """Return peak and memory bandwidth of a budget on each node."""
    peaks = [(d.budget.node, float(d.compute.flop_per_s)) for d in designs]
    rates = [(d.budget.node, float(d.memory.bytes_per_s)) for d in designs]
    return [
        Bars("fp16 peak", [Bar(node, value, format_flop_per_s(value)) for node, value in peaks]),
        Bars("memory bandwidth", [Bar(node, value, format_bytes_per_s(value)) for node, value in rates]),
    ]


def _record(d: Design) -> dict[str, str | float | dict[str, float]]:
    areas = {name: float(getattr(d.areas, name)) for name in d.areas.__slots__}
    return {
        "node": d.budget.node,
        "num_sms": int(d.compute.num_sms),
        "voltage_v": float(d.compute.at.voltage_v),
        "clock_hz": float(d.compute.clock_hz),
        "fp16_peak_flop_per_s": float(d.compute.flop_per_s),
        "cache_bytes": float(d.cache.num_bytes),
        "memory_bytes": float(d.memory.num_bytes),
        "memory_bandwidth_bytes_per_s": float(d.memory.bytes_per_s),
        "links_bytes_per_s": float(d.network.bytes_per_s),
        "d2d_bytes_per_s": float(d.interface.bytes_per_s),
        "used_w": float(d.used_w),
        "areas": areas,
    }


def area_table(technology: Technology, die: str | None, node: str | None, form: str) -> str:
    """Return the area of a die by part beside what people found on photos of it, or the areas of all dies."""
    dies = [_Die.of(name, node, technology) for name in ((die,) if die else technology.section.dies)]
    if form == "json":
        return json_text([d.record() for d in dies], indent=2)
    parts = [name for name, _ in dies[0].found.parts()]
    rows = [[part.replace("_", " "), *(cell for d in dies for cell in d.cells(part, len(dies) > 1))] for part in parts]
    rows.append(["total", *(cell for d in dies for cell in d.totals(len(dies) > 1))])
    rows.append(["real die", *(_mm2(d.real_mm2) for d in dies)])
    rows.append(
        ["difference", *(("-" if d.real_mm2 is None else f"{d.found.total_mm2 / d.real_mm2 - 1:+.1%}") for d in dies)]
    )
    heading = ["mm2", *(d.name for d in dies), *(["photo"] if dies[0].photo and die else [])]
    width = len(heading)
    return in_columns([heading, *([*row, *[""] * (width - len(row))] for row in rows)], columns())


def area_pictures(technology: Technology, die: str | None, node: str | None) -> list[Picture]:
    """Return the parts of a die as one bar, or the areas of all dies."""
    if die is None:
        dies = [_Die.of(name, node, technology) for name in technology.section.dies]
        return [
            Bars(
                "area of a die", [Bar(d.name, float(d.found.total_mm2), f"{_mm2(d.found.total_mm2)} mm2") for d in dies]
            )
        ]
    found = _Die.of(die, node, technology).found
    parts = [Bar(name.replace("_", " "), float(area_mm2), "") for name, area_mm2 in found.parts() if area_mm2]
    parts.sort(key=lambda one: -one.value)
    return [StackedBar(f"{die}, {_mm2(found.total_mm2)} mm2", parts, float(found.total_mm2))]


@dataclass(frozen=True, slots=True)
class _Die:
    """A die by part, and what is known of the real one."""

    name: str
    node: str
    found: DieAreas
    real_mm2: float | None
    photo: dict[str, float]

    @classmethod
    def of(cls, name: str, node: str | None, technology: Technology) -> _Die:
        """Look at a die, on another node if one is given: there it has never been made."""
        die, plan = technology.die(name), floorplan(name, technology)
        if node and node != plan.node:
            return cls(name, node, area_of(replace(plan, node=node), technology), None, {})
        photo = {str(part): area.si for part, area in die.photo.items()}
        real_mm2 = None if die.area is None else die.area.si
        return cls(name, plan.node, area_of(plan, technology), real_mm2, photo)

    def cells(self, part: str, among_others: bool) -> list[str]:
        """Return a part as text, beside that of a photo where the die stands alone."""
        area_mm2 = dict(self.found.parts())[part]
        return [_mm2(area_mm2), *([_mm2(self.photo.get(part))] if self.photo and not among_others else [])]

    def totals(self, among_others: bool) -> list[str]:
        """Return the whole die likewise."""
        on_photo = sum(self.photo.values())
        return [_mm2(self.found.total_mm2), *([_mm2(on_photo)] if self.photo and not among_others else [])]

    def record(self) -> dict[str, str | float | dict[str, float] | None]:
        """Return all of it for programs."""
        return {
            "die": self.name,
            "node": self.node,
            "areas": {f"{part}_mm2": float(area_mm2) for part, area_mm2 in self.found.parts()},
            "total_mm2": float(self.found.total_mm2),
            "real_mm2": self.real_mm2,
            "photo": {f"{part}_mm2": area_mm2 for part, area_mm2 in self.photo.items()},
        }


def _mm2(area_mm2: Num | None) -> str:
    return "-" if area_mm2 is None else f"{area_mm2:.1f}"
