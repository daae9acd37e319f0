"""Limits of what is read from files of users: size, nesting, digits, values, runs, and how much is unpacked."""

from __future__ import annotations

import os
import zlib
from dataclasses import fields

from ..errors import ParseError, UsageError
from ..records import dataclass
from ..units import is_digits

RAISE = "SLIPSTICK_LIMITS"
_GZIP = b"\x1f\x8b"
GZIP = 31


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that is read; far above what people and tools write, and below what takes a machine's memory.

    Attributes:
        settings_bytes: of a file that people write: systems, plans, spaces, configs, launches. The largest of the
            catalogue has 60 kB.
        settings_values: of such a file, with each use of a part that is named counted; the largest has some 3,000.
        document_bytes: of a file that a tool wrote: graphs, reports, tables, logs, a model in an archive; of a packed
            one, of what is in it. The graph of a model with a thousand layers of several kinds has some 20 MB.
        document_values: of such a file: cells of a table, values of JSON.
        graph_lines: lines of a graph.
        nodes: operators of a model of ONNX or of an exported program, as they stand in the file.
        trace_bytes: of a trace of a profiler, which is read in a stream; of a packed one, of what is in it.
        archive_members: files in an archive.
        depth: of brackets within brackets, or of lists and mappings in one another.
        digits: of one whole number: a float holds each of so many.
        runs: times that regions of a graph may run, added up: each is a layer, and models have some hundred.
    """

    settings_bytes: int = 4_000_000
    settings_values: int = 200_000
    document_bytes: int = 256_000_000
    document_values: int = 10_000_000
    graph_lines: int = 1_000_000
    nodes: int = 50_000
    trace_bytes: int = 4_000_000_000
    archive_members: int = 1_000_000
    depth: int = 100
    digits: int = 300
    runs: int = 2_500


def limits() -> Limits:
    """Return the limits that hold: SLIPSTICK_LIMITS=N raises all of them N times.

    >>> limits().depth
    100
    """
    text = os.environ.get(RAISE) or "1"
    if not (is_digits(text) and len(text) <= 6 and int(text)):
        raise UsageError(f"{RAISE}='{text[:40]}': a whole number from 1 to 999999, by which limits of files are raised")
    return Limits(**{field.name: getattr(Limits(), field.name) * int(text) for field in fields(Limits)})


def too_much(where: str, what: str) -> ParseError:
    """Return the error of a limit that is reached, which says how to raise it."""
    return ParseError(f"{where}: {what}; {RAISE}=N raises all limits of files N times")


def unpacked(data: bytes, where: str) -> bytes:
    """Return what gzip packed; ParseError for more than any document has, or for what is cut off or none."""
    most = limits().document_bytes
    found, rest = bytearray(), data
    while rest:
        # A file may hold several members, one behind the other.
        try:
            part, behind = inflated(rest, most - len(found), GZIP)
        except zlib.error as error:
            told = "Not a gzipped file" if rest[:2] != _GZIP else error
            raise ParseError(f"{where}: {told}") from error
        if len(found) + len(part) > most:
            raise too_much(where, f"more than {most:,} bytes are packed in it")
        if behind is None:
            raise ParseError(f"{where}: it is cut off before its end")
        found += part
        rest = behind
    return bytes(found)


def inflated(data: bytes, most: int, form: int) -> tuple[bytes, bytes | None]:
    """Unpack one stream of deflate, and never more than a byte beyond `most`; zlib.error for what is none.

    Args:
        data: the stream, and what may follow it.
        most: bytes that are allowed in it.
        form: what stands around it, as `zlib` numbers it: `GZIP`, or zlib.MAX_WBITS.

    Returns:
        What was packed, and what follows; None where the stream does not end.
    """
    unpacker = zlib.decompressobj(wbits=form)
    found = unpacker.decompress(data, most + 1)
    return found, unpacker.unused_data if unpacker.eof else None
