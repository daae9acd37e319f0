"""Matrix products: sizes, a chip and constants to seconds.

The product is cut into tiles of the result, and along k into splits; the best cut of a few is what a library is taken
to choose. Tiles run in waves over the SMs, each at the pace of its tensor core or of the on-chip memory that feeds it.

Tiles are those of the libraries that were measured, and so are their times where a chip is like the measured ones. No
library keeps them on a chip where they are what takes the time: whatever the chip, a product takes no more than the
roofline of its rows, padded as its units pad them, by what the worst measured product took above its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ...ir.records import dataclass
from .dequantise import THIN_TILES, converts_fp4, widen_clocks, widens
from .limits import ConstantRange, Overhead, Scope
from .operands import OPERAND_BYTES, unit_of
from .padded import PaddedRoofline, ingest_of
from .terms import Array, KernelTimes

if TYPE_CHECKING:
    from ...ir.sizes.expr import Num
    from ..machine.chip import Chip

# Tiles that libraries hold kernels for, rows x columns of the result (CUTLASS's profiler lists them).
TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256))
SPLITS = (1, 2, 3, 4, 6, 8, 16)
SHORTEST_SPLIT = 128  # of k; below it a split saves nothing
K_STEP = 32  # k is walked in whole steps
_ALL_WARM = 0.3  # part of what `warm` gives below which all operands are found in the cache
_REFERENCE = 128 * 128  # tile that loses nothing for being small
TERMS = ("overhead", "tensor", "ingest", "memory", "split", "sustained", "ramp", "quantise")
_CHUNK = 2048  # rows whose tiles and splits stay in a core's cache


@dataclass(frozen=True, slots=True)
class GemmConstants:
    """Constants of a product at one precision of its operands.

    Attributes:
        overhead_s: O, launch and fixed work.
        sustained: u_s, part of the peak that power and clocks allow for long.
        quantise: u_q, part of the memory's bandwidth in the kernel that quantises activations.
        warm: part of a partition of the last-level cache below which operands are still there from the call before;
            0 in a model, whose weights come by once a pass, more for one product measured again and again.
        memory: u_m, part of the memory's bandwidth.
        tensor: u_c, part of the peak inside of a tile.
        prologue: k0, the start and end of a tile in units of k.
        feed: phi, bytes that on-chip memory brings to the matrix units in the time of one FLOP at the peak.
        cache: lambda, bandwidth of the last-level cache over that of the memory.
        pace: clocks that a step of one along k takes at least.
        draw: bytes that an SM draws from memory in a clock at most: requests in flight over their latency.
        small: time that a tile of half of 128 x 128 loses, as a part of its own.
        split_s: start of the second pass that adds up splits of k.
        waves: 1 where the last wave takes as long as a full one, 0 where work is distributed evenly (stream-K).
        smallest_tile: elements of the smallest tile there is.
        largest_tile: elements of the largest.
        most_splits: splits of k at most.
        slack: part of its own roofline that the slowest measured product took above it, besides `ramp_s`.
        ramp_s: time that the units take to fill and drain around one product.
    """

    overhead_s: Overhead
    sustained: Annotated[float, ConstantRange(Scope.LIBRARY, 0.2, 1.0)]
    quantise: Annotated[float, ConstantRange(Scope.LIBRARY, 0.05, 1.0)]
    warm: Annotated[float, ConstantRange(Scope.LIBRARY, 0.0, 1.0)]
    memory: Annotated[float, ConstantRange(Scope.CHIP, 0.4, 1.0)]
    tensor: Annotated[float, ConstantRange(Scope.KERNEL, 0.3, 1.0)]
    prologue: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 4000.0)]
    feed: Annotated[float, ConstantRange(Scope.KERNEL, 1e-3, 1.0)]
    cache: Annotated[float, ConstantRange(Scope.KERNEL, 1.0, 20.0)]
    pace: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 10.0)]
    draw: Annotated[float, ConstantRange(Scope.KERNEL, 5.0, 1000.0)]
    small: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 2.0)]
    split_s: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 1e-5)]
    waves: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 1.0)]
    smallest_tile: Annotated[float, ConstantRange(Scope.KERNEL, 4096, 16384)]
    largest_tile: Annotated[float, ConstantRange(Scope.KERNEL, 16384, 65536)]
    most_splits: Annotated[float, ConstantRange(Scope.KERNEL, 1, 16)]
    slack: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 10.0)]
    ramp_s: Annotated[float, ConstantRange(Scope.KERNEL, 0.0, 2e-5)]


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
    return GemmSizes(first, second, third, unit_of(dtype), *rest)


def stacked(sizes: Sequence[GemmSizes]) -> GemmSizes:
    """Return products of one unit, each of one size, as one table of them."""
    names = [f.name for f in fields(GemmSizes) if f.name != "unit"]
    columns = {name: np.array([getattr(s, name) for s in sizes], dtype=np.float64) for name in names}
    return GemmSizes(unit=sizes[0].unit, **columns)


def gemm_times(sizes: GemmSizes, chip: Chip, constants: GemmConstants) -> KernelTimes:
    """Return the time of products in seconds: see `GemmMachine.times`; UnknownNameError where there is no such unit."""
    return GemmMachine.of(chip, sizes.unit, constants).times(sizes)


@dataclass(frozen=True, slots=True)
class GemmMachine:
    """A chip under constants, or a table of chips: rates of the whole chip, and the tiles and splits there are.

    Attributes:
        constants: what it was made from.
        machines: the shape of numbers that differ by machine; empty for one chip.
        num_sms: units that take tiles.
        sustained_flop_per_s: of long calls.
        memory_bytes_per_s: as drawn by all SMs.
        most: the roofline of padded rows, which bounds the time whatever the tiles.
        cache_bytes_per_s: of what is still there.
        quantise_bytes_per_s: of the kernel that quantises.
        warm_bytes: up to which operands may still be there.
        tile_m: rows of each tile, as (tile, 1, 1).
        tile_n: its columns, in the same way.
        compute_squared: square of the time of a step along k of the products of a tile, in the same way.
        feed_s: time for a byte of a step along k from on-chip memory.
        pace_squared: square of the least time of such a step.
        splits: parts that k may be cut into, as (split, 1).
        shortest: the least length of k in each, in the same way.
        widen_s: time to widen one weight on an SM, 0 where the matrix units take them as they are.
    """

    constants: GemmConstants
    machines: tuple[int, ...]
    num_sms: Num
    sustained_flop_per_s: Num
    memory_bytes_per_s: Num
    cache_bytes_per_s: Num
    quantise_bytes_per_s: Num
    warm_bytes: Num
    tile_m: Array
    tile_n: Array
    compute_squared: Array
    feed_s: Num
    pace_squared: Num
    splits: Array
    shortest: Array
    widen_s: Num
    most: PaddedRoofline

    @classmethod
    def of(cls, chip: Chip, unit: str, constants: GemmConstants, weights: str | None = None) -> GemmMachine:
        """Put a chip and constants together, for weights of another type where given.

        UnknownNameError where the chip has no such unit.
        """
        wide = widens(unit, weights)
        # Kernels that widen weights deal tiles out evenly (Marlin's stripes); so do compilers over systolic arrays,
        # which copies feed at the rate of the memory, and which have no steps of threads to wait for.
        c = replace(constants, waves=0.0) if wide else constants
        c = c if chip.has_threads else replace(c, waves=0.0, pace=0.0, small=0.0, prologue=0.0)
        peak, bandwidth = chip.matmul_flop_per_s(unit), chip.hbm_bytes_per_s
        units, matrix_hz, ingest = chip.num_sms, chip.matrix_hz, ingest_of(chip, c.draw)
        # Two limits on traffic: what the memory gives, and what the SMs can have in flight at once, which grows with
        # their number and clock. Neither hides the other fully where they are close, so their squares add up.
        memory_s = np.hypot(1.0 / (bandwidth * c.memory), 1.0 / ingest)
        # Each partition of the L2 holds what its own SMs read: operands that all SMs need are there once a partition.
        warm_bytes = chip.l2_bytes / chip.l2_partitions * c.warm
        machines = np.shape(memory_s + peak + warm_bytes + matrix_hz)  # of a sum: that of any column in it
        tried = (*THIN_TILES, *TILES) if wide else TILES
        tiles = np.array([t for t in tried if c.smallest_tile <= t[0] * t[1] <= c.largest_tile], dtype=np.float64)
        area = (tiles[:, 0] * tiles[:, 1])[:, None, None]
        # A small tile loads more bytes and waits more often for each FLOP than one of 128 x 128, which is the
        # reference.
        small = 1.0 + c.small * np.maximum(_REFERENCE / area - 1.0, 0.0)
        # As wide as the machines of a table, which may differ in the clock alone.
        compute = 2.0 * area * small * (units / (peak * c.tensor)) + np.zeros(machines)
        # However small the tile, a step along k takes so many clocks: its threads wait for one another.
        pace = c.pace / matrix_hz
        splits = np.array([[s] for s in SPLITS if s <= c.most_splits], dtype=np.float64)
        return cls(
            c, machines, units, peak * c.sustained, 1.0 / memory_s, bandwidth * c.cache, bandwidth * c.quantise,
            warm_bytes, tiles[:, 0, None, None], tiles[:, 1, None, None], compute * compute,
            units / (peak * c.feed), pace * pace, splits, np.where(splits > 1.0, SHORTEST_SPLIT, 0.0),
            widen_clocks(weights, converts_fp4(chip)) / chip.matrix_hz if wide and weights else 0.0,
            PaddedRoofline.of(chip, bandwidth * c.memory, ingest, peak * c.sustained),
        )  # fmt: skip

    def times(self, sizes: GemmSizes) -> KernelTimes:
        """Return the time of products in seconds.

            T = O + min((T_tile^8 + T_cap^8)^(1/8), T_most) + T_quant
            T_tile = min over tiles (bm, bn) and splits s of (c^2 + q^2)^(1/2) + [s > 1] (split + 8 s m n / (lambda BW))
            T_most = ramp + (1 + slack) max(X / (u_m BW), X / I, W, min(2 [m n k] batch / (u_s P), 2 m n k batch / P_v))
            c = ceil(ceil(m / bm) ceil(n / bn) batch s / SM) (tc^2 + tl^2 + tp^2 + tw^2)^(1/2)
            tc = 2 bm bn (k_s + k0) SM / (u_c P) (1 + small max(128^2 / (bm bn) - 1, 0))
            tl = (bm a_bytes + bn b_bytes) k_s SM / (phi P)
            tp = pace k_s / clock
            tw = bn k_s clocks / clock, of weights that are widened
            q = X ((u_m BW)^-2 + I^-2)^(1/2), or from the cache at lambda BW
            X = batch (m k a_bytes + k n b_bytes + m n c_bytes), I = draw SM clock
            T_cap = 2 m n k batch / (u_s P)
            T_quant = m k batch (2 + a_bytes) / (u_q BW)

        P is the peak of the chip's matrix units, P_v half of that of its vector units, BW the bandwidth of its memory,
        I what its units take in, W the widening of weights on all of them, k_s the part of k in one split in whole
        steps, in a split no fewer than 128. [m n k] is padded as the units do: `PaddedRoofline`. On-chip feeds are
        sized to the matrix units on all chips measured, so phi carries over where bytes a second do not. Groups: one; a
        batch shares nothing. Operands stored the other way round show no difference beyond the spread of one shape
        (SimuMax: NN, NT, TN), and so have no term.

        Terms: `overhead` O, `tensor` and `ingest` of the best cut, whose squares and that of `memory` add up: products;
        what on-chip memory feeds, draws and widens; X / (u_m BW). `split` its second pass, `sustained` T_cap,
        `quantise`. Where T_most is less, these are its own: the largest of `tensor`, `ingest` and `memory`, slack
        included, and `ramp` add up.
        """
        given = (sizes.m, sizes.n, sizes.k, sizes.batch, sizes.a_bytes, sizes.b_bytes, sizes.c_bytes, sizes.quantised)
        shape = np.broadcast_shapes(*(a.shape for a in given))
        out = self._under_all(given, shape) if self.machines else self._in_chunks(given, shape)
        return KernelTimes(out[0], MappingProxyType(dict(zip(TERMS, out[1:], strict=True))))

    def _in_chunks(self, given: Sequence[Array], shape: tuple[int, ...]) -> Array:
        """Time and terms of all products in a row, on one chip."""
        columns = [_flat(a, shape) for a in given]
        out = np.empty((1 + len(TERMS), math.prod(shape)))
        for start in range(0, out.shape[1], _CHUNK):
            part = slice(start, start + _CHUNK)
            # Sizes of a few products, as wide as all of them.
            rows = np.empty((len(columns), out[0, part].size))
            for i, column in enumerate(columns):
                rows[i] = column[part] if column.ndim else column
            _solve(rows, self, out[:, part])
        return out.reshape(-1, *shape)

    def _under_all(self, given: Sequence[Array], shape: tuple[int, ...]) -> Array:
        """Time and terms of one product after the other on all machines, along the last axis."""
        sizes = np.stack([np.broadcast_to(a, shape) for a in given])
        sizes = sizes.reshape(len(given), -1, shape[-1] if shape else 1)
        out = np.empty((1 + len(TERMS), sizes.shape[1], *self.machines))
        for k in range(sizes.shape[1]):
            _solve(sizes[:, k], self, out[:, k])
        return out.reshape(-1, *shape[:-1], *self.machines)


def _flat(numbers: Array, shape: tuple[int, ...]) -> Array:
    """One number, or one for each product in a row."""
    if numbers.ndim == 0:
        return numbers
    return (numbers if numbers.shape == shape else np.broadcast_to(numbers, shape)).reshape(-1)


def _solve(rows: Array, machine: GemmMachine, out: Array) -> None:
    """Fill time and terms of a few rows."""
    m, n, k, batch, a_bytes, b_bytes, c_bytes, quantised = rows
    moved = (m * k * a_bytes + k * n * b_bytes + m * n * c_bytes) * batch
    memory = _memory_s(moved, machine)
    # Best tile and best split are chosen by the whole time, as a library with a good heuristic does: a split of k
    # fills SMs that would be idle, and pays for it with a second pass over its partial sums.
    tiles, products = _tiles_squared(rows, machine)
    total = np.sqrt(tiles + memory * memory)
    second = _second_pass_s(rows, machine)
    total += second
    tiles, products, second = (_as_wide(one, total) for one in (tiles, products, second))
    best = total.argmin(axis=0), np.arange(total.shape[1])
    sustained = 2.0 * m * n * k * batch / machine.sustained_flop_per_s
    quantise = quantised * m * k * batch * (2.0 + a_bytes) / machine.quantise_bytes_per_s
    # The greater of two times, a little more where they are close; squares and roots, which round alike everywhere.
    a = total[best]
    b = sustained
    a, b = a * a, b * b
    a, b = a * a, b * b
    summed: Array = np.sqrt(np.sqrt(np.sqrt(a * a + b * b)))
    c, roofline = machine.constants, machine.most
    computed, ingest, loaded = (c.slack * s + s for s in roofline.seconds(m, n, k, batch, moved))
    ingest = np.maximum(ingest, (1.0 + c.slack) * machine.widen_s * (k * n * batch / machine.num_sms))
    most = c.ramp_s + np.maximum(np.maximum(computed, ingest), loaded)
    is_most = most < summed
    out[0] = c.overhead_s + np.where(is_most, most, summed) + quantise
    out[1] = c.overhead_s
    from_memory = np.minimum(memory, moved / roofline.memory_bytes_per_s)
    tiled = tiles[best], products[best]
    fed = np.sqrt(np.maximum(tiled[0] - tiled[1] + (memory * memory - from_memory * from_memory), 0.0))
    out[2] = np.where(is_most, computed, np.sqrt(tiled[1]))
    out[3] = np.where(is_most, ingest, fed)
    out[4] = np.where(is_most, loaded, from_memory)
    out[5], out[6] = np.where(is_most, 0.0, second[best]), np.where(is_most, 0.0, sustained)
    out[7], out[8] = np.where(is_most, c.ramp_s, 0.0), quantise


def _as_wide(values: Array, table: Array) -> Array:
    """Repeat what is the same on all machines."""
    return values if values.shape == table.shape else np.broadcast_to(values, table.shape)


def _memory_s(moved: Array, machine: GemmMachine) -> Array:
    """Compulsory traffic; of what the cache still holds, at the pace of the cache."""
    cold: Array = moved / machine.memory_bytes_per_s
    if np.all(machine.warm_bytes <= 0.0):
        return cold
    # All of it is warm up to a part of the capacity and nothing beyond all of it; between the two, the warm part
    # falls evenly, so that no size is a cliff.
    held = np.clip((machine.warm_bytes - moved) / np.maximum(machine.warm_bytes * (1.0 - _ALL_WARM), 1.0), 0.0, 1.0)
    found: Array = cold * (1.0 - held) + held * moved / machine.cache_bytes_per_s
    return found


def _tiles_squared(rows: Array, machine: GemmMachine) -> tuple[Array, Array]:
    """Square of the time of all waves under the best tile, and of its products alone: splits x rows."""
    m, n, k, batch, a_bytes, b_bytes, _, _ = rows
    tile_m, tile_n = machine.tile_m, machine.tile_n
    # Along k a tile goes in whole steps of the matrix unit, also where k ends within one.
    steps = np.maximum(K_STEP * np.ceil(np.ceil(k / machine.splits) / K_STEP), machine.shortest)
    # Before the first product the pipeline of copies fills: as long as so many more elements of k.
    reach = steps + machine.constants.prologue
    feed = (tile_m * a_bytes + tile_n * b_bytes) * machine.feed_s
    # Products, feeds from on-chip memory, turns of threads and the widening of weights run in one loop and hide
    # behind one another, but not fully: squares of their times add up.
    products = machine.compute_squared * (reach * reach)
    widen = tile_n * machine.widen_s
    squared = products + (feed * feed + machine.pace_squared + widen * widen) * (steps * steps)
    loads = np.ceil(m / tile_m) * np.ceil(n / tile_n) * batch * machine.splits
    # Divided last, so that whole waves are whole numbers.
    loads = np.divide(loads, machine.num_sms, out=None if machine.machines else loads)
    # Turns of all SMs that tiles take; between whole turns and work distributed evenly.
    whole = machine.constants.waves
    if whole == 1.0:
        waves = np.ceil(loads, out=loads)
    else:
        even = np.maximum(loads, 1.0)
        found: Array = even + whole * (np.ceil(loads) - even)
        waves = found
    waves *= waves
    squared *= waves
    best = squared.argmin(axis=0)[None]
    chosen = (np.take_along_axis(_as_wide(one, squared), best, 0)[0] for one in (squared, products, waves))
    least, computed, turns = chosen
    return least, computed * turns


def _second_pass_s(rows: Array, machine: GemmMachine) -> Array:
    """What adding up splits takes, nothing for one: splits x rows."""
    m, n, _, batch, *_ = rows
    partial_bytes = 8.0 * m * n * batch  # fp32, written and read
    found: Array = machine.constants.split_s + machine.splits * (partial_bytes / machine.cache_bytes_per_s)
    found[0] = 0.0
    return found
