"""A serialised model to the same one without the numbers of its weights, which are never read into memory."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from ....ir.errors import NotUnderstoodError

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
