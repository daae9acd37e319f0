"""Text to a graph: reads exactly what `print_graph` writes; errors name the line."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from ..errors import ParseError, SlipstickError
from ..graph import (
    NO_ATTRS,
    Attrs,
    Constraint,
    Graph,
    Hint,
    LengthBound,
    Node,
    Phase,
    Port,
    Region,
    Role,
    Run,
    Value,
    Workload,
)
from ..ops import op_def
from ..placement import AxisGroup, MeshAxis, Placement, parse_placement
from ..sizes.expr import Dim, as_dim
from ..sizes.expr_text import parse_expr
from ..types import DType, TensorType
from ..units import is_digits
from .attrs_text import parse_attrs
from .formats import check_characters
from .limits import limits, too_much
from .printer import HEADER

_STRING = r'"(?:[^"\\]|\\.)*"'
_SOURCE = re.compile(rf"%([0-9]+) = (\w+) ({_STRING}) : (.+)")
_NODE = re.compile(
    r"(?P<outs>%[0-9, %]+) = (?P<op>\w+)\((?P<ins>[^)]*)\)(?: \{(?P<attrs>.*)\})? : (?P<types>.*?)"
    r"(?: @(?P<scope>\S+))?(?: (?P<phase>prepare|backward|recompute|reduce|optimizer))?(?: of %(?P<forward>[0-9]+))?"
    r"(?: in %(?P<kernel>[0-9]+))?"
)
_VALUE = re.compile(r"(\w+)\[([^\]]*)\](?: ~([0-9]+))?( saved)?(?: <(.*)>)?")
_CONSTRAINT = re.compile(rf"constraint (.+) % ([\w+]+)( copied)? ({_STRING})")
_HINT = re.compile(rf"hint (\w+) ({_STRING}) (\w+)")
_BOUND = re.compile(rf"bound (\w+) ([0-9]+) to ([0-9]+) by ([0-9]+)(?: but ([0-9,]+))? ({_STRING})")
# Words of which a second line would take the place of the first.
_ONCE = frozenset({"graph", "positions", "axes", "schedule", "spelled_out"})
_RUN = re.compile(r"(.*?[^,])(?: x([0-9]+))?")


class _Reader:
    """The state of one pass over the lines."""

    def __init__(self) -> None:
        self.headed = False
        self.words: set[str] = set()
        self.name, self.workload, self.dtype = "", Workload.TRAIN, DType.BF16
        self.notes: list[str] = []
        self.max_positions = 0
        self.hints: list[Hint] = []
        self.spelled_out = False
        self.bounds: list[LengthBound] = []
        self.axes: tuple[MeshAxis, ...] = ()
        self.schedule: tuple[Run, ...] = ()
        self.constraints: list[Constraint] = []
        self.regions: list[Region] = []
        self.region: str | None = None
        self.values: list[Value] = []
        self.nodes: list[Node] = []
        self.outputs: list[Port] = []
        self.grads: list[tuple[int, int]] = []

    def read(self, line: str) -> None:
        """Take one line."""
        word, _, rest = line.partition(" ")
        if line.startswith("  ") or word == "end":
            self._inside(line.strip())
        elif self.region is not None:
            raise ParseError(f"region '{self.region}' has no end")
        elif word in _ONCE and word in self.words:
            raise ParseError(f"'{word}' is given twice")
        elif word == "graph":
            self._head(rest)
        elif word == "note":
            self.notes.append(_string(rest))
        elif word == "positions":
            self.max_positions = int(rest)
        elif word == "hint":
            match = _HINT.fullmatch(line)
            if match is None:
                raise ParseError("not a hint")
            self.hints.append(Hint(MeshAxis(match.group(1)), _string(match.group(2)), match.group(3)))
        elif word == "spelled_out":
            self.spelled_out = True
        elif word == "bound":
            self.bounds.append(_bound(line))
        elif word == "axes":
            self.axes = tuple(map(MeshAxis, rest.split(", ")))
        elif word == "schedule":
            self.schedule = tuple(_run(part) for part in rest.split(" | "))
        elif word == "constraint":
            self.constraints.append(_constraint(line))
        elif word == "region":
            self.region, self.values, self.nodes, self.outputs, self.grads = rest, [], [], [], []
        else:
            raise ParseError(f"unknown word '{word}'")
        self.words.add(word)

    def _head(self, rest: str) -> None:
        self.headed = True
        name, _, kind = rest.rpartition('" ')
        workload, _, dtype = kind.partition(" ")
        self.name, self.workload, self.dtype = _string(name + '"'), Workload(workload), DType.parse(dtype)

    def _inside(self, line: str) -> None:
        if self.region is None:
            raise ParseError("not inside a region")
        if line == "end":
            self.regions.append(
                Region(self.region, tuple(self.values), tuple(self.nodes), tuple(self.outputs), tuple(self.grads))
            )
            self.region = None
        elif line.startswith("out "):
            name, _, value = line[4:].rpartition(" = %")
            self.outputs.append(Port(_string(name), int(value)))
        elif line.startswith("grad "):
            param, _, grad = line[6:].partition(" = %")
            self.grads.append((int(param), int(grad)))
        elif match := _SOURCE.fullmatch(line):
            ident, role, name, value = match.groups()
            self.values.append(_value(int(ident), value, Role(role), _string(name)))
        elif match := _NODE.fullmatch(line):
            self._node(match)
        else:
            raise ParseError("not a value, a node, an output or a gradient")

    def _node(self, match: re.Match[str]) -> None:
        outs, ins = _ids(match["outs"]), _ids(match["ins"])
        types = match["types"].split(" ; ")
        if len(outs) != len(types):
            raise ParseError(f"{len(outs)} outputs have {len(types)} types")
        self.values.extend(_value(ident, text) for ident, text in zip(outs, types, strict=True))
        kind = op_def(match["op"]).attrs
        attrs = NO_ATTRS if kind is Attrs else parse_attrs(kind, match["attrs"] or "")
        forward, kernel = (None if match[k] is None else int(match[k]) for k in ("forward", "kernel"))
        phase = Phase(match["phase"] or "forward")
        self.nodes.append(Node(match["op"], ins, outs, attrs, match["scope"] or "", phase, forward, kernel))

    def graph(self) -> Graph:
        """Return what was read; ParseError when the text ends too early."""
        missing = {n for run in self.schedule for n in run.regions} - {r.name for r in self.regions}
        if not self.headed:
            raise ParseError("the text has no line 'graph'")
        if self.region is not None or missing:
            raise ParseError(f"the text ends before region '{self.region or min(missing)}' does")
        return Graph(
            self.name,
            self.workload,
            self.dtype,
            tuple(self.regions),
            self.schedule,
            tuple(self.constraints),
            self.axes,
            tuple(self.notes),
            self.max_positions,
            tuple(self.hints),
            self.spelled_out,
            tuple(self.bounds),
        )


def parse_graph(text: str) -> Graph:
    """Read a graph; ParseError says which line cannot be read and why."""
    if text.count("\n") > limits().graph_lines:
        raise too_much("the graph", f"more than {limits().graph_lines:,} lines")
    check_characters(text, "the graph")
    # Not at other marks that Python takes for the end of a line.
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if lines[0] != HEADER:
        raise ParseError(f"line 1: a graph file starts with '{HEADER}', this starts with '{lines[0][:80]}'")
    reader = _Reader()
    for number, line in enumerate(lines[1:], 2):
        try:
            reader.read(line)
        except (SlipstickError, ValueError, KeyError) as error:
            raise ParseError(f"line {number}: {error}: {line.strip()[:120]}") from error
    try:
        return reader.graph()
    except ParseError as error:
        raise ParseError(f"line {len(lines)}: {error}") from error


def _run(text: str) -> Run:
    match = _RUN.fullmatch(text)
    if match is None:
        raise ParseError(f"'{text}' is not a run of regions")
    return Run(tuple(match.group(1).split(", ")), int(match.group(2) or "1"))


def _constraint(line: str) -> Constraint:
    match = _CONSTRAINT.fullmatch(line)
    if match is None:
        raise ParseError("not a constraint")
    dim, axis, copied, where = match.groups()
    return Constraint(_dim(dim), AxisGroup(axis), _string(where), copied is not None)


def _bound(line: str) -> LengthBound:
    match = _BOUND.fullmatch(line)
    if match is None:
        raise ParseError("not a bound")
    name, low, high, step, gaps, where = match.groups()
    return LengthBound(
        name, int(low), int(high), int(step), tuple(map(int, (gaps or "").split(",") if gaps else ())), _string(where)
    )


def _value(ident: int, text: str, role: Role = Role.RESULT, name: str = "") -> Value:
    match = _VALUE.fullmatch(text)
    if match is None:
        raise ParseError(f"'{text}' is not a type")
    dtype, dims, storage, saved, placements = match.groups()
    tensor = TensorType(tuple(_dim(d) for d in dims.split(", ") if d), DType.parse(dtype))
    where = _placements(placements) if placements else ()
    return Value(ident, tensor, int(storage or ident), role, name, saved is not None, where)


def _placements(text: str) -> tuple[tuple[MeshAxis, Placement], ...]:
    pairs = (part.split("=") for part in text.split(", "))
    return tuple((MeshAxis(axis), parse_placement(p)) for axis, p in pairs)


@lru_cache(maxsize=4096)
def _dim(text: str) -> Dim:
    return int(text) if is_digits(text) else as_dim(parse_expr(text))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part[1:]) for part in text.split(", ") if part)


def _string(text: str) -> str:
    value = json.loads(text)
    if not isinstance(value, str):
        raise ParseError(f"{text} is not a string")
    return value
