"""Charts of the nodes of a step: layer by layer, the operators that take longest, all of them under the roofline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...backends.kernels.terms import RESOURCES
from ...ir.records import dataclass
from ...ir.units import format_si, format_time
from ..labels import bound_label
from ..results.table import Panel
from .bars import bars
from .chart import BLUE, GREEN, GREY, NAMES, ORANGE, PURPLE, RED, TEAL, YELLOW, Chart, Datum, Spec, amount, colours
from .read import Document, number, part, records

# Operators that a chart has room for.
_OPS = 18
# Phases that run once a micro-batch; the others run once a step.
_EACH = ("forward", "backward", "recompute")
# What a kernel waits for, and its colour.
_BOUNDS: Mapping[str, str] = MappingProxyType(
    {
        "matrix units": BLUE,
        "vector units": TEAL,
        "HBM bandwidth": ORANGE,
        "L2 bandwidth": YELLOW,
        "launch + fixed work": GREY,
        "host link": GREEN,
        "network": RED,
    }
)


@dataclass(frozen=True, slots=True)
class _Node:
    """A priced node: what it is, seconds of one run, how often a device of the stage shown runs it in a step."""

    name: str
    op: str
    scope: str
    phase: str
    bound: str
    time_s: float
    runs: int
    flops: float
    num_bytes: float

    @property
    def total_s(self) -> float:
        """What it takes in a step."""
        return self.time_s * self.runs


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of the stage that has most to do, and its layers in their order."""

    rows: Sequence[_Node]
    layers_of: Sequence[tuple[str, int]]
    micro_batches: int
    stage: str

    @classmethod
    def of(cls, document: Document) -> Nodes:
        """Read them; none where the document has none."""
        tree = part(document, "nodes")
        micro, num = tree.get("micro_batches"), tree.get("num_stages")
        batches = micro if isinstance(micro, int) else 1
        found = [
            cls._stage(tree, stage, batches, num if isinstance(num, int) else 1) for stage in records(tree, "stages")
        ]
        return max(found, key=lambda one: sum(node.total_s for node in one.rows), default=cls((), (), 1, ""))

    @classmethod
    def _stage(cls, tree: Document, stage: Document, batches: int, num_stages: int) -> Nodes:
        chunks = stage.get("chunks")
        layers = [
            (str(row[0]), int(number(row[1])))
            for chunk in (chunks if isinstance(chunks, list) else [])
            for row in chunk
        ]
        often: dict[str, int] = defaultdict(int)
        for region, _ in layers:
            often[region] += 1
        rows = []
        for row in records(tree, "rows"):
            name, phase = str(row.get("node")), str(row.get("phase"))
            runs = often[name.partition("/")[0]] * (batches if phase in _EACH else 1)
            if runs:
                flops = number(row.get("tensor_flops")) + number(row.get("vector_flops"))
                rows.append(
                    _Node(
                        name,
                        str(row.get("op")),
                        str(row.get("scope")),
                        phase,
                        str(row.get("bound") or "network"),
                        number(row.get("time_s")),
                        runs,
                        flops,
                        number(row.get("num_bytes")),
                    )
                )
        where = f" of stage {stage.get('first')}, which has most to do" if num_stages > 1 else ""
        return cls(rows, layers, batches, where)

    def layers(self) -> Chart:
        """Return the seconds of each layer in a step, by phase."""
        spent: dict[tuple[str, str], float] = defaultdict(float)
        for node in self.rows:
            each = node.time_s * (self.micro_batches if node.phase in _EACH else 1)
            spent[node.name.partition("/")[0], node.phase] += each
        phases = list(dict.fromkeys(node.phase for node in self.rows))
        data: list[Datum] = [
            {
                "place": place,
                "layer": f"{layer}" if layer >= 0 else region,
                "phase": phase,
                "order": phases.index(phase),
                "ms": spent[region, phase] * 1e3,
                "label": format_time(spent[region, phase]),
            }
            for place, (region, layer) in enumerate(self.layers_of)
            for phase in phases
            if spent[region, phase] > 0
        ]
        colors = [BLUE, ORANGE, PURPLE, TEAL, GREEN, YELLOW, RED, GREY]
        spec: Spec = {
            "mark": {"type": "bar", "width": {"band": 0.86}},
            "encoding": {
                "x": {
                    "field": "layer",
                    "type": "nominal",
                    "sort": None,
                    "axis": {**NAMES, "title": "layer", "labelAngle": 0, "labelOverlap": "greedy"},
                },
                "y": amount("ms", {"title": "ms of a step", "tickCount": 4}),
                "order": {"field": "order", "type": "quantitative"},
                "color": colours("phase", phases, colors[: len(phases)]),
                "tooltip": [{"field": "layer"}, {"field": "phase"}, {"field": "label", "title": "time"}],
            },
        }
        told = [[str(row["layer"]), str(row["phase"]), str(row["label"])] for row in data]
        alt = (
            f"Seconds of each layer{self.stage} in a step of {self.micro_batches} micro-batches, without what overlaps."
        )
        return Chart("Layer by layer", alt, spec, data, 220, Panel("", ("layer", "phase", "time"), told))

    def operators(self) -> Chart:
        """Return the operators that take longest, those of one kind at one place of all layers together."""
        spent: dict[tuple[str, str, str], float] = defaultdict(float)
        for node in self.rows:
            spent[node.op, _short(node.scope), node.bound] += node.total_s
        total = sum(spent.values())
        ranked = sorted(spent.items(), key=lambda one: -one[1])
        colors = dict(_BOUNDS)
        data: list[Datum] = [
            {
                "name": f"{op} {where}".strip(),
                "value": seconds,
                "label": f"{format_time(seconds)}, {seconds / total:.1%}",
                "class": _bound(bound),
            }
            for (op, where, bound), seconds in ranked[:_OPS]
        ]
        # A name may stand for two bounds: each is a bar.
        named: dict[object, int] = defaultdict(int)
        for row in data:
            named[row["name"]] += 1
        data = [{**row, "name": f"{row['name']} ({row['class']})"} if named[row["name"]] > 1 else row for row in data]
        colors |= {str(row["class"]): GREY for row in data if row["class"] not in colors}
        more = f" {len(ranked) - len(data)} more take less." if len(ranked) > len(data) else ""
        alt = f"The operators{self.stage}, by what they take in a step; their colour says what bounds them.{more}"
        return bars("Operators", alt, data, ("operator", "time and share", "bound by"), colors, "bound by")

    def roofline(self, peaks: Document) -> Iterator[Chart]:
        """Yield the operators by their FLOPs a byte and their rate, under what the chip can do."""
        peak, hbm = number(peaks.get("matmul_flop_per_s")), number(peaks.get("hbm_bytes_per_s"))
        found = [n for n in self.rows if n.flops > 0 and n.num_bytes > 0 and n.time_s > 0 and n.bound != "network"]
        if not found or not peak > 0 or not hbm > 0:
            return
        longest = max(n.total_s for n in found)
        data: list[Datum] = [
            {
                "op": f"{n.op} {_short(n.scope)}".strip(),
                "phase": n.phase,
                "intensity": n.flops / n.num_bytes,
                "rate": n.flops / n.time_s / 1e12,
                "size": n.total_s / longest,
                "time": format_time(n.total_s),
                "told": format_si(n.flops / n.time_s, "FLOP/s"),
                "bound": _bound(n.bound),
            }
            for n in sorted(found, key=lambda n: -n.total_s)
        ]
        ridge = peak / hbm
        low = min(min(n.flops / n.num_bytes for n in found), ridge) / 2
        roof = [
            {"x": x, "y": min(x * hbm, peak) / 1e12}
            for x in (low, ridge, max(ridge * 20, max(n.flops / n.num_bytes for n in found) * 2))
        ]
        alt = (
            f"Each operator by its FLOPs a byte and its rate, under the roof of {peaks.get('chip')} in "
            f"{peaks.get('dtype')}: {format_si(peak, 'FLOP/s')} and {format_si(hbm, 'B/s')}; as large as its time."
        )
        rows = [[str(row[k]) for k in ("op", "phase", "told", "time", "bound")] for row in data[:40]]
        numbers = Panel("", ("operator", "phase", "rate", "in a step", "bound by"), rows)
        yield Chart("Roofline", alt, {"layer": _under_a_roof(roof, peak, data)}, data, 330, numbers)


def _under_a_roof(roof: Sequence[Datum], peak: float, data: Sequence[Datum]) -> list[Spec]:
    """Return the roof as a line, and each operator as a circle as large as its time, in the colour of its bound."""
    x = {"type": "quantitative", "scale": {"type": "log"}, "title": "FLOP a byte of memory"}
    y = {"type": "quantitative", "scale": {"type": "log", "domainMax": 2 * peak / 1e12}, "title": "TFLOP/s"}
    found = {str(row["bound"]) for row in data}
    names = [*(name for name in _BOUNDS if name in found), *sorted(found - _BOUNDS.keys())]
    line: Spec = {
        "data": {"values": roof},
        "mark": {"type": "line", "color": GREY, "strokeWidth": 2},
        "encoding": {"x": {**x, "field": "x"}, "y": {**y, "field": "y"}},
    }
    circles: Spec = {
        "mark": {"type": "circle", "opacity": 0.72, "stroke": "#fff", "strokeWidth": 0.6},
        "encoding": {
            "x": {**x, "field": "intensity"},
            "y": {**y, "field": "rate"},
            "size": {
                "field": "size",
                "type": "quantitative",
                "legend": None,
                "scale": {"range": [14, 700], "domain": [0, 1]},
            },
            "color": colours(
                "bound", names, [_BOUNDS.get(n, GREY) for n in names], {"title": "bound by", "orient": "top"}
            ),
            "tooltip": [
                {"field": "op"},
                {"field": "phase"},
                {"field": "time", "title": "in a step"},
                {"field": "told", "title": "rate"},
                {"field": "intensity", "title": "FLOP/byte", "format": ".3~s"},
                {"field": "bound", "title": "bound by"},
            ],
        },
    }
    return [line, circles]


def _bound(name: str) -> str:
    """Return what a kernel waits for, of the term of its time that is greatest.

    >>> _bound("sustained"), _bound("network")
    ('matrix units', 'network')
    """
    return bound_label(str(RESOURCES.get(name, name)))


def _short(scope: str) -> str:
    """Return the end of a module path, without numbers of layers.

    >>> _short("model.layers.*.mlp.down_proj")
    'mlp.down_proj'
    """
    return ".".join([name for name in scope.split(".") if name != "*"][-2:])
