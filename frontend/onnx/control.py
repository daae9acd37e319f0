"""If, Loop and Scan: the branch that is taken, bodies written out as often as they run."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from ...ir.errors import NotUnderstoodError, TraceError
from ...ir.graph import Node
from ...ir.ops import OpCall, op_def
from ...ir.sizes.expr import Dim, Expr, total
from ..aten.flat import NodeOrigin
from .builder import LIKELY, Builder
from .call import Call, axis_of
from .shapes.items import Item, constant, stored_item
from .shapes.symbols import flag as flag_of
from .translate import Names, Translation

MAX_TRIPS = 512


def controlled(translation: Translation, call: Call, names: Names) -> Sequence[Item | None]:
    """Write a node that runs bodies."""
    if call.op == "If":
        return _if(translation, call, names)
    return _loop(translation, call, names) if call.op == "Loop" else _scan(translation, call, names)


def _body(call: Call, name: str) -> onnx.GraphProto:
    found = call.attributes.get(name)
    if found is None or not found.HasField("g"):
        raise NotUnderstoodError(f"attribute '{name}' must be a graph")
    return found.g


def _run(
    translation: Translation, body: onnx.GraphProto, given: Sequence[Item | None], outer: Names, origin: NodeOrigin
) -> list[Item | None]:
    if len(given) != len(body.input):
        raise NotUnderstoodError(f"a body of {len(body.input)} inputs is given {len(given)}")
    stored = {t.name: t for t in body.initializer}
    names = Names({name: stored_item(t) for name, t in stored.items()}, outer)
    names.items.update(zip((i.name for i in body.input), given, strict=True))
    translation.deeper().run(body.node, names, stored, origin.scope)
    return [names.find(o.name) for o in body.output]


def _if(translation: Translation, call: Call, names: Names) -> Sequence[Item | None]:
    """A condition that is known takes its branch; else both must give the same shapes, and the costlier one counts."""
    branches = _body(call, "then_branch"), _body(call, "else_branch")
    condition = call.item(0).content
    if condition is not None:
        if condition.size != 1:
            raise NotUnderstoodError("the condition of If must be one flag")
        return _run(translation, branches[0 if condition.reshape(-1)[0] else 1], (), names, call.origin)
    build = call.build
    starts, made = [len(build.flat.nodes)], []
    for branch in branches:
        made.append(_run(translation, branch, (), names, call.origin))
        starts.append(len(build.flat.nodes))
    for a, b in zip(*made, strict=True):
        if not _alike(a, b):
            raise TraceError("the branches of If differ in shape, and which one runs depends on data")
    first = _cost(build, build.flat.nodes[starts[0] : starts[1]])
    second = _cost(build, build.flat.nodes[starts[1] : starts[2]])
    then = first >= second
    build.note(f"If '{call.node.name}' depends on data: its {'then' if then else 'else'} branch, the costlier, counts")
    return made[0 if then else 1]


def _alike(a: Item | None, b: Item | None) -> bool:
    """Whether two branches give tensors of one shape, or as many tensors."""
    if a is None or b is None:
        return a is b
    if a.parts is None or b.parts is None:
        return a.parts is b.parts and a.dims == b.dims
    return len(a.parts) == len(b.parts)


def _cost(build: Builder, nodes: Sequence[Node]) -> float:
    """Bytes and FLOPs of nodes at likely sizes."""
    cost = 0.0
    for n in nodes:
        inputs, outputs = (tuple(build.flat.values[i].type for i in ids) for ids in (n.inputs, n.outputs))
        work = op_def(n.op).work(OpCall(n.op, n.attrs, inputs, outputs))
        cost += float(total((work.num_bytes, work.tensor_flops)).evaluate(LIKELY))
    return cost


def _loop(translation: Translation, call: Call, names: Names) -> Sequence[Item | None]:
    """Loop(trips, condition, carried): written out; how often must be known, and the condition must not change."""
    body, carried = _body(call, "body"), list(call.inputs[2:])
    trips = _trips(call, 0, "Loop")
    scanned: list[list[Item]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    flag: Item | None = call.optional(1) or constant([1])
    for trip in range(trips):
        if flag is None or flag.content is None or flag.content.size != 1:
            raise TraceError(f"when the Loop ends depends on data{_asked(call, 1)}")
        if not bool(flag.content.reshape(-1)[0]):
            break
        origin = NodeOrigin(".".join(filter(None, (call.origin.scope, f"loop.{trip}"))))
        flag, *made = _run(translation, body, (constant([trip]), flag, *carried), names, origin)
        carried = made[: len(carried)]
        _collect(scanned, made[len(carried) :])
    return (*carried, *(call.stack(pieces, 0) if pieces else None for pieces in scanned))


def _trips(call: Call, index: int, what: str) -> int:
    found = call.optional(index)
    if found is None or found.content is None or found.content.size != 1:
        raise TraceError(f"how often the {what} runs depends on data{_asked(call, index)}")
    number = found.content.reshape(-1)[0]
    if isinstance(number, Expr):
        raise TraceError(f"the {what} runs {number} times, one step after another; give the dim a number with --dim")
    return _checked(number, what)


def _checked(number: Dim, what: str) -> int:
    if not isinstance(number, int) or not 0 <= number <= MAX_TRIPS:
        raise TraceError(f"the {what} runs {number} times; 0 to {MAX_TRIPS} are written out")
    return number


def _asked(call: Call, index: int) -> str:
    """Say which number to give, where it is one that is given."""
    return f": --dim {flag_of(f'{call.node.input[index]}[0]')}=NUMBER" if call.has(index) else ""


def _collect(scanned: list[list[Item]], made: Sequence[Item | None]) -> None:
    for pieces, item in zip(scanned, made, strict=True):
        if item is None:
            raise NotUnderstoodError("a body does not give all it says")
        pieces.append(item)


def _scan(translation: Translation, call: Call, names: Names) -> Sequence[Item | None]:
    """Scan(states, sequences): the body once an entry of the sequences, whose number must be known."""
    body, num_scanned = _body(call, "body"), call.int_("num_scan_inputs")
    split = len(call.inputs) - num_scanned
    if not 0 < num_scanned <= len(call.inputs):
        raise NotUnderstoodError(f"num_scan_inputs = {num_scanned} of {len(call.inputs)}")
    states = list(call.inputs[:split])
    sequences = [call.item(k) for k in range(split, len(call.inputs))]
    axes = call.ints("scan_input_axes") or (0,) * num_scanned
    places = [axis_of(a, s.type.rank) for a, s in zip(axes, sequences, strict=True)]
    length = sequences[0].dims[places[0]]
    if isinstance(length, Expr):
        raise TraceError(f"the Scan runs {length} times, one step after another; give the dim a number with --dim")
    made: list[list[Item]] = [[] for _ in range(len(body.output) - split)]
    for step in range(_checked(length, "Scan")):
        entries = [call.slice(s, a, step, 1, drop=True) for s, a in zip(sequences, places, strict=True)]
        origin = NodeOrigin(".".join(filter(None, (call.origin.scope, f"scan.{step}"))))
        results = _run(translation, body, (*states, *entries), names, origin)
        states = results[:split]
        _collect(made, results[split:])
    out_axes = call.ints("scan_output_axes") or (0,) * len(made)
    return (*states, *(call.stack(p, a) if p else None for p, a in zip(made, out_axes, strict=True)))
