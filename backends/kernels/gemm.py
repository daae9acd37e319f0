"""Matrix products: sizes, a chip and constants to seconds.

The product is cut into tiles of the result, and along k into splits; the best cut of a few is what a library is taken to
choose. Tiles run in waves over the SMs, each at the pace of its tensor core or of the on-chip memory that feeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import numpy as np

from .limits import Limit, Scope
from .terms import Array, KernelTimes

if TYPE_CHECKING:
    from ..system import Chip

# Tiles that libraries hold kernels for, rows x columns of the result (CUTLASS's profiler lists them).
TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256))
SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)
SHORTEST_SPLIT = 128  # of k
K_STEP = 32  # k is walked in whole steps
_HALF_WARM = 0.3  # part of `warm` below which all operands are found in the cache
_REFERENCE = 128 * 128  # tile that loses nothing for being small
TERMS = ("launch", "tensor", "memory", "split", "sustained", "quantise")
_CHUNK = 1024  # rows whose tiles and splits stay in a core's cache

# Bytes of an element with its scales: nvfp4 has one of a byte for 16 elements, mxfp4 for 32, int4 one of two for 128.
OPERAND_BYTES = MappingProxyType(
    {
        "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp6": 0.75,
        "fp4": 0.5, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.515625,
    }
)  # fmt: skip
# What multiplies formats that are storage alone.
UNITS = MappingProxyType({"nvfp4": "fp4", "mxfp4": "fp4"})


@dataclass(frozen=True, slots=True)
class GemmConstants:
    """Constants of a product at one precision of its operands.

    Attributes:
        overhead_s: O, launch and fixed work.
        sustained: u_s, part of the peak that power and clocks allow for long.
        memory: u_m, part of the memory's bandwidth.
        quantise: u_q, part of the memory's bandwidth in the kernel that quantises activations.
        warm: part of the last-level cache below which operands are still there from the call before; 0 for a model,
            whose weights come by once a pass, more for one product measured again and again.
        tensor: u_c, part of the peak inside of a tile.
        prologue: k0, the start and end of a tile in units of k.
        feed: lambda, on-chip bandwidth over that of the memory.
        small: time that a tile of half of 128 x 128 loses, as a part of its own.
        split_s: the second pass that adds up splits of k.
        waves: 1 where the last wave takes as long as a full one, 0 where work is dealt out evenly (stream-K).
        smallest_tile: elements of the smallest tile there is.
        largest_tile: elements of the largest.
        most_splits: splits of k at most.
    """

    overhead_s: Annotated[float, Limit(Scope.LIBRARY, 5e-7, 2e-4)]
    sustained: Annotated[float, Limit(Scope.LIBRARY, 0.2, 1.0)]
    quantise: Annotated[float, Limit(Scope.LIBRARY, 0.05, 1.0)]
    warm: Annotated[float, Limit(Scope.LIBRARY, 0.0, 1.0)]
    memory: Annotated[float, Limit(Scope.CHIP, 0.4, 0.95)]
    tensor: Annotated[float, Limit(Scope.KERNEL, 0.3, 1.0)]
    prologue: Annotated[float, Limit(Scope.KERNEL, 0.0, 4000.0)]
    feed: Annotated[float, Limit(Scope.KERNEL, 0.5, 50.0)]
    small: Annotated[float, Limit(Scope.KERNEL, 0.0, 2.0)]
    split_s: Annotated[float, Limit(Scope.KERNEL, 0.0, 1e-5)]
    waves: Annotated[float, Limit(Scope.KERNEL, 0.0, 1.0)]
    smallest_tile: Annotated[float, Limit(Scope.KERNEL, 4096, 16384)]
    largest_tile: Annotated[float, Limit(Scope.KERNEL, 16384, 65536)]
    most_splits: Annotated[float, Limit(Scope.KERNEL, 1, 32)]


@dataclass(frozen=True, slots=True)
class GemmSizes:
    """Products C[m, n] = A[m, k] B[k, n], `batch` of each; arrays broadcast, one unit multiplies them all.

    Attributes:
        m: rows of the result.
        n: its columns.
        k: what is summed over.
        unit: dtype whose peak counts, `bf16`; that of the activations where only weights are stored in fewer bits.
        batch: products in one call.
        a_bytes: bytes of an element of A as stored, its scales included.
        b_bytes: the same of B.
        c_bytes: bytes moved for an element of C: 2 for bf16 written, 8 for fp32 added to.
        quantised: 1 where A is quantised from 2 bytes by a kernel of its own before.
    """

    m: Array
    n: Array
    k: Array
    unit: str
    batch: Array
    a_bytes: Array
    b_bytes: Array
    c_bytes: Array
    quantised: Array


def gemm_sizes(
    m: Array | Sequence[float] | float,
    n: Array | Sequence[float] | float,
    k: Array | Sequence[float] | float,
    dtype: str = "bf16",
    *,
    weights: str | None = None,
    batch: Array | float = 1.0,
    c_bytes: Array | float = 2.0,
    quantised: Array | float = 0.0,
) -> GemmSizes:
    """Return the sizes of products by the dtypes of their operands; with `weights` those of B differ.

    KeyError for a dtype that is not in OPERAND_BYTES.

    >>> float(gemm_sizes(16, 4096, 4096, "bf16", weights="int4").b_bytes)
    0.515625
    """
    a, b = OPERAND_BYTES[dtype], OPERAND_BYTES[weights or dtype]
    numbers = (np.asarray(x, dtype=np.float64) for x in (m, n, k, batch, a, b, c_bytes, quantised))
    first, second, third, *rest = numbers
    return GemmSizes(first, second, third, UNITS.get(dtype, dtype), *rest)


def gemm_times(sizes: GemmSizes, chip: Chip, constants: GemmConstants) -> KernelTimes:
    """Return the time of products in seconds.

        T = O + (T_tile^8 + T_cap^8)^(1/8) + T_quant
        T_tile = min over tiles (bm, bn) and splits s of (c^2 + q^2)^(1/2) + [s > 1] (split + 8 s m n / (lambda BW))
        c = waves(tiles s / SM) (tc^2 + tl^2)^(1/2), the tiles padded to whole ones, waves rounded up
        tc = 2 bm bn (k_s + k0) SM / (u_c P) (1 + small (128^2 / (bm bn) - 1)), the last for tiles below 128 x 128
        tl = (bm a_bytes + bn b_bytes) k_s SM / (lambda BW)
        q = (m k a_bytes + k n b_bytes + m n c_bytes) / (u_m BW), at lambda BW for the part that the cache still holds
        T_cap = 2 m n k / (u_s P)
        T_quant = m k (2 + a_bytes) / (u_q BW)

    P is the peak of the chip's matrix units, BW the bandwidth of its memory, k_s the part of k of one split in whole
    steps. The form comes from fits to published tables (vidur, aiconfigurator, SimuMax, LLMCompass, DeepGEMM).

    Terms: `launch` O, `tensor` c of the best cut, `memory` q, `split` its second pass, `sustained` T_cap, `quantise`.

    UnknownNameError where the chip has no such unit.
    """
    arrays = [np.asarray(getattr(sizes, f.name)) for f in fields(sizes) if f.name != "unit"]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    rows = np.stack([np.broadcast_to(a, shape).reshape(-1) for a in arrays])
    machine = _machine(chip, sizes.unit, constants)
    out = np.empty((1 + len(TERMS), rows.shape[1]))
    for start in range(0, rows.shape[1], _CHUNK):
        part = slice(start, start + _CHUNK)
        _solve(rows[:, part], machine, constants, out[:, part])
    time_s, *terms = (row.reshape(shape) for row in out)
    return KernelTimes(time_s, MappingProxyType(dict(zip(TERMS, terms, strict=True))))


@dataclass(frozen=True, slots=True)
class _Machine:
    """A chip under constants: rates of the whole chip, and the tiles there are."""

    num_sms: int
    tensor_flop_per_s: float
    sustained_flop_per_s: float
    memory_bytes_per_s: float
    feed_bytes_per_s: float
    quantise_bytes_per_s: float
    warm_bytes: float
    tile_m: Array
    tile_n: Array
    splits: Array


def _machine(chip: Chip, unit: str, constants: GemmConstants) -> _Machine:
    peak, bandwidth, c = chip.matmul_flop_per_s(unit), chip.hbm_bytes_per_s, constants
    tiles = np.array([t for t in TILES if c.smallest_tile <= t[0] * t[1] <= c.largest_tile], dtype=np.float64)
    return _Machine(
        chip.num_sms, peak * c.tensor, peak * c.sustained, bandwidth * c.memory, bandwidth * c.feed,
        bandwidth * c.quantise, chip.l2_bytes * c.warm, tiles[:, 0, None, None], tiles[:, 1, None, None],
        np.array([[s] for s in SPLITS if s <= c.most_splits], dtype=np.float64),
    )  # fmt: skip


def _solve(rows: Array, machine: _Machine, constants: GemmConstants, out: Array) -> None:
    """Fill time and terms of a few rows."""
    m, n, k, batch, a_bytes, _, _, quantised = rows
    memory = _memory_s(rows, machine)
    tiles = _tiles_squared(rows, machine, constants)
    second = _second_pass_s(rows, machine, constants)
    total = np.sqrt(tiles + memory * memory)
    total += second
    best = total.argmin(axis=0)[None]
    cut = np.take_along_axis(total, best, 0)[0]
    sustained = 2.0 * m * n * k * batch / machine.sustained_flop_per_s
    quantise = quantised * m * k * batch * (2.0 + a_bytes) / machine.quantise_bytes_per_s
    out[0] = constants.overhead_s + _norm8(cut, sustained) + quantise
    out[1] = constants.overhead_s
    out[2] = np.sqrt(np.take_along_axis(tiles, best, 0)[0])
    out[3] = memory
    out[4] = np.take_along_axis(second, best, 0)[0]
    out[5], out[6] = sustained, quantise


def _memory_s(rows: Array, machine: _Machine) -> Array:
    """Compulsory traffic; of what the cache still holds, at the pace of the cache."""
    m, n, k, batch, a_bytes, b_bytes, c_bytes, _ = rows
    moved = (m * k * a_bytes + k * n * b_bytes + m * n * c_bytes) * batch
    cold = moved / machine.memory_bytes_per_s
    if machine.warm_bytes == 0.0:
        return cold
    held = np.clip((1.0 - moved / machine.warm_bytes) / (1.0 - _HALF_WARM), 0.0, 1.0)
    return cold * (1.0 - held) + held * moved / max(machine.feed_bytes_per_s, machine.memory_bytes_per_s)


def _tiles_squared(rows: Array, machine: _Machine, constants: GemmConstants) -> Array:
    """Square of the time of all waves under the best tile: splits x rows."""
    m, n, k, batch, a_bytes, b_bytes, _, _ = rows
    tile_m, tile_n = machine.tile_m, machine.tile_n
    steps = K_STEP * np.ceil(np.ceil(k / machine.splits) / K_STEP)
    reach = steps + constants.prologue
    area = tile_m * tile_n
    small = 1.0 + constants.small * np.maximum(_REFERENCE / area - 1.0, 0.0)
    compute = 2.0 * area * small * (machine.num_sms / machine.tensor_flop_per_s)
    feed = (tile_m * a_bytes + tile_n * b_bytes) * (machine.num_sms / machine.feed_bytes_per_s)
    squared = (compute * compute) * (reach * reach)
    squared += (feed * feed) * (steps * steps)
    count = np.ceil(m / tile_m) * np.ceil(n / tile_n) * batch / machine.num_sms
    waves = _waves(count * machine.splits, constants.waves)
    waves *= waves
    squared *= waves
    least: Array = squared.min(axis=0)
    return least


def _waves(loads: Array, whole: float) -> Array:
    """Turns of all SMs that tiles take; between whole turns and work dealt out evenly."""
    if whole == 1.0:
        return np.ceil(loads, out=loads)
    even = np.maximum(loads, 1.0)
    return even + whole * (np.ceil(loads) - even)


def _second_pass_s(rows: Array, machine: _Machine, constants: GemmConstants) -> Array:
    """What adding up splits takes, none for one split, no end where splits would be too short: splits x rows."""
    m, n, k, batch, *_ = rows
    splits = machine.splits
    partial_bytes = 8.0 * m * n * batch  # fp32, written and read
    found = constants.split_s + splits * (partial_bytes / machine.feed_bytes_per_s)
    found[0] = 0.0
    np.copyto(found, np.inf, where=(splits > 1.0) & (k < SHORTEST_SPLIT * splits))
    return found


def _norm8(a: Array, b: Array) -> Array:
    """The greater of two times, a little more where they are close; squares and roots, which round alike everywhere."""
    a, b = a * a, b * b
    a, b = a * a, b * b
    summed: Array = np.sqrt(np.sqrt(np.sqrt(a * a + b * b)))
    return summed
