"""What was found in a block as one row of a ledger, small and with sums that any damage breaks, and back again."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...ir.errors import InternalError, UsageError
from ...ir.text.limits import inflated, limits, too_much
from ..block import Array, Found

_NUMBER, _BITS = np.dtype("<f8"), np.dtype("<u8")


class Head(NamedTuple):
    """What a row says of its block without the plans: cheap to read of many blocks.

    Attributes:
        number: of the block.
        num_legal: candidates that are legal by divisibility.
        pruned: candidates by reason, as JSON.
        crashed: lines on candidates that broke their worker, as JSON.
        num_rows: plans kept.
        least: of each column the least number, nan aside: float64, little endian.
        most: of each column the largest.
        data_sum: checksum of the plans.
    """

    number: int
    num_legal: int
    pruned: str
    crashed: str
    num_rows: int
    least: bytes
    most: bytes
    data_sum: bytes

    @classmethod
    def read(cls, row: Sequence[object]) -> Head | None:
        """Take a row of a head and its checksum; None where it is not what was written."""
        match row:
            case [int(), int(), str(), str(), int(), bytes(), bytes(), bytes(), bytes(written)]:
                head = cls._make(row[:-1])
                return head if head.checksum() == written else None
        return None

    def checksum(self) -> bytes:
        """Return the sum that stands behind it in its row."""
        return checksum(str(part).encode() if isinstance(part, int | str) else part for part in self)

    def counts(self) -> Mapping[str, int]:
        """Return how many candidates were pruned, by reason."""
        found: Mapping[str, int] = json.loads(self.pruned)
        return found

    def crashes(self) -> tuple[str, ...]:
        """Return the lines on candidates that broke their worker."""
        return tuple(json.loads(self.crashed))


def checksum(parts: Iterable[bytes]) -> bytes:
    """Return 16 bytes that tell these parts, in this order and at these borders, from any others."""
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.digest()


def packed(found: Found, names: Sequence[str]) -> tuple[Head, bytes]:
    """Return the head of a row, and its plans as bytes; InternalError where columns are not those of the run.

    Columns of one number are that number. Of the others bytes of equal rank lie together (signs and exponents repeat,
    the last bits of a mantissa do not), then deflate at its quickest looks for runs only: twice the speed of its usual
    way and about the same size where digits are random.
    """
    if found.num_rows and set(found.columns) != set(names):
        raise InternalError(f"block {found.number} has columns {sorted(found.columns)}, the run {sorted(names)}")
    table = _table(found, names)
    bits = table.view(_BITS)
    same = (bits == bits[:, :1]).all(axis=1) if found.num_rows else np.zeros(len(names), dtype=np.bool_)
    ranks = np.ascontiguousarray(table[~same].reshape(-1).view(np.uint8).reshape(-1, 8).T)
    squeeze = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    data = same.tobytes() + bits[same, :1].tobytes() + (squeeze.compress(ranks.data) + squeeze.flush())
    head = Head(
        found.number,
        found.num_legal,
        json.dumps(dict(found.pruned)),
        json.dumps(list(found.crashed)),
        found.num_rows,
        _ends(table, np.fmin).tobytes(),
        _ends(table, np.fmax).tobytes(),
        checksum([data]),
    )
    return head, data


def unpacked(head: Head, data: bytes, names: Sequence[str]) -> Found:
    """Return what was found, bit for bit; head and data must have been held against their checksums.

    Anybody can write a checksum: UsageError for data that are not as many as the head says, ParseError for too many.
    """
    same = np.frombuffer(data, dtype=np.bool_, count=len(names))
    behind = len(names) + int(same.sum()) * _NUMBER.itemsize
    num_bytes = (len(names) - int(same.sum())) * head.num_rows * _NUMBER.itemsize
    if len(names) * head.num_rows * _NUMBER.itemsize > limits().document_bytes:
        raise too_much(f"block {head.number}", f"{head.num_rows:,} plans of {len(names)} columns")
    found, _ = inflated(data[behind:], num_bytes, zlib.MAX_WBITS)
    if len(found) != num_bytes:
        raise UsageError(f"block {head.number} holds other numbers than its head says: start a new run")
    ranks = np.frombuffer(found, dtype=np.uint8).reshape(8, -1)
    table = np.empty((len(names), head.num_rows), dtype=_NUMBER)
    table[same] = np.frombuffer(data[len(names) : behind], dtype=_NUMBER)[:, None]
    table[~same] = np.ascontiguousarray(ranks.T).reshape(-1).view(_NUMBER).reshape(table[~same].shape)
    columns = dict(zip(names, table.astype(np.float64, copy=False), strict=True))
    return Found(head.number, head.counts(), head.num_legal, columns, head.crashes())


def ends(data: bytes) -> Array:
    """Return the least or the largest number of each column, as a head holds them."""
    return np.frombuffer(data, dtype=_NUMBER).astype(np.float64)


def _table(found: Found, names: Sequence[str]) -> Array:
    if not found.num_rows:
        return np.zeros((len(names), 0), dtype=_NUMBER)
    return np.array([found.columns[name] for name in names], dtype=_NUMBER)


def _ends(table: Array, better: np.ufunc) -> Array:
    """Of each column its least or largest number; nan where it has none."""
    if not table.shape[1]:
        return np.full(len(table), np.nan, dtype=_NUMBER)
    found: Array = better.reduce(table, axis=1)
    return found.astype(_NUMBER, copy=False)
