"""A file to a checked ModelProto: weights never read, names sound, nodes in an order that runs."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from ...ir.errors import NotUnderstoodError
from ...ir.text.limits import limits, too_much
from ...ir.text.untrusted import open_regular
from .standard import opset

# Payloads up to this stay: shapes, axes, scalars.
KEPT_BYTES = 64 * 1024
# Field numbers of onnx.proto3.
_GRAPH, _INITIALIZER = 7, 5
_PAYLOADS = frozenset({4, 5, 6, 7, 9, 10, 11})
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10

Field = tuple[int, int, int, int, int]
Inner = Callable[[memoryview], bytes]


def lean(data: memoryview) -> bytes:
    """Return a ModelProto as bytes whose initializers have lost every payload above KEPT_BYTES."""
    return b"".join(_rewritten(data, {_GRAPH}, _graph))


def _graph(data: memoryview) -> bytes:
    return b"".join(_rewritten(data, {_INITIALIZER}, _tensor))


def _tensor(data: memoryview) -> bytes:
    return b"".join(
        bytes(data[start:end])
        for number, _, start, inside, end in _fields(data)
        if number not in _PAYLOADS or end - inside <= KEPT_BYTES
    )


def _rewritten(data: memoryview, numbers: Container[int], inner: Inner) -> Iterator[bytes]:
    """Copy a message with the length-delimited fields of some numbers rewritten."""
    copied = 0
    for number, kind, start, inside, end in _fields(data):
        if number in numbers and kind == _BYTES:
            yield bytes(data[copied:start])
            body = inner(data[inside:end])
            yield _varint(number << 3 | _BYTES) + _varint(len(body)) + body
            copied = end
    yield bytes(data[copied:])


def _fields(data: memoryview) -> Iterator[Field]:
    """Yield number, wire type, and where a field, its content and the next field start."""
    position, size = 0, len(data)
    while position < size:
        key, inside = _read_varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            _, end = _read_varint(data, inside)
        elif kind == _BYTES:
            length, inside = _read_varint(data, inside)
            end = inside + length
        elif kind in (_FIXED64, _FIXED32):
            end = inside + (8 if kind == _FIXED64 else 4)
        else:
            raise NotUnderstoodError(f"damaged at byte {position}: wire type {kind}")
        if end > size:
            raise NotUnderstoodError(f"truncated: a field of {end - inside} bytes where {size - inside} are left")
        yield key >> 3, kind, position, inside, end
        position = end


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for at in range(position, min(position + _MAX_VARINT_BYTES, len(data))):
        byte = data[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
        shift += 7
    raise NotUnderstoodError("truncated or damaged: a number without an end")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


MAX_FILE_BYTES = 2**31  # the limit of protobuf
MAX_DEPTH = 8
MAX_MESSAGE = 2000
_STANDARD = ("", "ai.onnx")


def read_model(path: Path) -> onnx.ModelProto:
    """Return the model of a file; NotUnderstoodError says what is wrong with it. External data is never opened."""
    try:
        model = onnx.ModelProto()
        model.ParseFromString(_lean_bytes(path))
    except (OSError, DecodeError) as error:
        raise NotUnderstoodError(f"'{path}' is not an ONNX model: truncated, damaged or something else") from error
    except NotUnderstoodError as error:
        raise NotUnderstoodError(f"'{path}' is not an ONNX model: {error}") from error
    check_model(model)
    return model


def printable(text: str) -> str:
    r"""Return a text from a file as one line that no terminal obeys, and no longer than a screen.

    >>> printable("a\nb")
    'a\\nb'
    """
    found = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:MAX_MESSAGE])
    return found if len(text) <= MAX_MESSAGE else f"{found}..."


def _lean_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise NotUnderstoodError("there is no such file")
    size = path.stat().st_size
    if not 0 < size <= MAX_FILE_BYTES:
        raise NotUnderstoodError(f"{size} bytes; a model has 1 to {MAX_FILE_BYTES}, its weights may lie beside it")
    with open_regular(path) as file:
        # Not closed by hand: views of it live as long as the error that they raise.
        return lean(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def content_key(path: Path) -> str:
    """Return the digest of the file's bytes; NotUnderstoodError where it cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise NotUnderstoodError(f"'{path}' is not an ONNX model: {error.strerror}") from error


def check_model(model: onnx.ModelProto) -> None:
    """Raise NotUnderstoodError for versions, names and paths that cannot be read."""
    _check_texts(model)
    if not model.HasField("graph") or not model.graph.node:
        raise NotUnderstoodError("the model has no graph, or its graph no nodes")
    opset(model)
    written = [*_graphs(model.graph, 0), *model.functions]
    if sum(len(one.node) for one in written) > limits().nodes:
        raise too_much("the graph", f"more than {limits().nodes:,} nodes")
    for graph in _graphs(model.graph, 0):
        _check_names(graph)
        for tensor in graph.initializer:
            _check_location(tensor)
        if graph.sparse_initializer:
            raise NotUnderstoodError("sparse initializers are not understood; write them dense")


def _check_texts(message: Message) -> None:
    """Every text is one: protobuf hands out bytes for what is no UTF-8."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                _check_texts(inner)
        elif field.type == field.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                if not isinstance(text, str):
                    raise NotUnderstoodError(f"{field.full_name} is {text!r:.80}, which is no text")


def _graphs(graph: onnx.GraphProto, depth: int) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the bodies inside it."""
    if depth > MAX_DEPTH:
        raise NotUnderstoodError(f"bodies are nested more than {MAX_DEPTH} deep")
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from _graphs(body, depth + 1)


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs that a node runs: branches, loop bodies."""
    found: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        found += [attribute.g] if attribute.HasField("g") else []
        found += attribute.graphs
    return found


def _check_names(graph: onnx.GraphProto) -> None:
    seen = {i.name for i in graph.input}
    if len(seen) != len(graph.input):
        raise NotUnderstoodError("two inputs of a graph have one name")
    stored = {t.name for t in graph.initializer}
    if len(stored) != len(graph.initializer):
        raise NotUnderstoodError("two initializers of a graph have one name")
    sizes = {t.name: list(t.dims) for t in graph.initializer}
    for info in graph.input:
        # As older versions have it, a stored value that a caller may replace by another of its shape.
        if info.name in stored and info.type.tensor_type.HasField("shape"):
            said = [d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim]
            own = sizes[info.name]
            if len(said) != len(own) or any(d not in (None, size) for d, size in zip(said, own, strict=True)):
                raise NotUnderstoodError(f"'{info.name}' is stored with dims {own}, and is an input of {said}")
    seen |= stored
    for node in graph.node:
        for name in filter(None, node.output):
            if name in seen:
                raise NotUnderstoodError(f"'{name}' is made twice, the second time by {place(node)}")
            seen.add(name)


def _check_location(tensor: onnx.TensorProto) -> None:
    """Weights lie beside the model: a location that is absolute or climbs out of the folder is refused, not opened."""
    for entry in tensor.external_data:
        if entry.key != "location":
            continue
        posix, windows = PurePosixPath(entry.value), PureWindowsPath(entry.value)
        rooted = posix.is_absolute() or windows.drive or windows.root
        if not entry.value or rooted or ".." in windows.parts or "\0" in entry.value:
            raise NotUnderstoodError(
                f"external data of '{tensor.name}' at '{entry.value}': only files in the folder of the model or below"
            )


def place(node: onnx.NodeProto) -> str:
    """Return how messages name a node."""
    kind = f"{node.domain}.{node.op_type}" if node.domain not in _STANDARD else node.op_type
    name = node.name or next(iter(node.output), "")
    return f"{kind} node '{name}'"


def ordered(nodes: Sequence[onnx.NodeProto], known: Iterator[str] | Sequence[str]) -> list[onnx.NodeProto]:
    """Return the nodes so that each comes behind what it reads; NotUnderstoodError for a circle or a missing input."""
    made = set(known)
    if _is_ordered(nodes, made):
        return list(nodes)
    maker = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    waits = [{maker[n] for n in reads(node) if n in maker} for node in nodes]
    readers: dict[int, list[int]] = {}
    for k, sources in enumerate(waits):
        for source in sources:
            readers.setdefault(source, []).append(k)
    ready = [k for k, sources in enumerate(waits) if not sources]
    order: list[int] = []
    for k in ready:
        order.append(k)
        for reader in readers.get(k, ()):
            waits[reader].discard(k)
            if not waits[reader]:
                ready.append(reader)
    if len(order) < len(nodes):
        stuck = next(k for k, sources in enumerate(waits) if sources)
        raise NotUnderstoodError(f"{place(nodes[stuck])} waits for itself: the graph has a circle")
    return [nodes[k] for k in order]


def _is_ordered(nodes: Sequence[onnx.NodeProto], known: set[str]) -> bool:
    made = set(known)
    local = {name for node in nodes for name in node.output}
    for node in nodes:
        if any(name in local and name not in made for name in reads(node)):
            return False
        made.update(node.output)
    return True


def reads(node: onnx.NodeProto, depth: int = 0) -> set[str]:
    """Return the names a node reads, those that its bodies take from around them included."""
    found = {name for name in node.input if name}
    if depth > MAX_DEPTH:
        return found
    for body in bodies(node):
        own = {i.name for i in body.input} | {t.name for t in body.initializer}
        own.update(name for n in body.node for name in n.output)
        found |= {name for n in body.node for name in reads(n, depth + 1)} - own
        found |= {o.name for o in body.output} - own
    return found
