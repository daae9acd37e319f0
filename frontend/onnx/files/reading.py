"""A file to a checked ModelProto: weights left where they are, names sound, nodes in an order that runs."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from ....ir.errors import NotUnderstoodError
from .lean import lean
from .lifting import opset

MAX_FILE_BYTES = 2**31  # the limit of protobuf
MAX_NODES = 500_000
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
    with path.open("rb") as file:
        # Not closed by hand: views of it live as long as the error that they raise.
        return lean(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def content_key(path: Path) -> str:
    """Return the digest of the file's bytes; NotUnderstoodError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise NotUnderstoodError(f"'{path}' is not an ONNX model: {error.strerror}") from error


def check_model(model: onnx.ModelProto) -> None:
    """Raise NotUnderstoodError for versions, names and paths that cannot be read."""
    _check_texts(model)
    if not model.HasField("graph") or not model.graph.node:
        raise NotUnderstoodError("the model has no graph, or its graph no nodes")
    opset(model)
    if sum(len(g.node) for g in _graphs(model.graph, 0)) > MAX_NODES:
        raise NotUnderstoodError(f"more than {MAX_NODES} nodes")
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
