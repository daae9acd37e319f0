"""The exact choice of what to keep, offload and recompute: an integer program over the results of layers.

Variables are 0 or 1: k and o of each name (kept on the device, or offloaded), r of each result (made again). What the
backward phase reads, and what making a result again reads, is kept, offloaded, or made again itself:

    minimise   sum r t + e_f + e_b                     seconds added to a micro-batch
    so that    k + o + r >= 1                          of each result that the backward phase reads
               k + o + r' >= r                         of each result r' that making r again reads
               sum k b - o h <= limit,  k + o <= 1
               e_f >= sum o (b + h) / v - T_f              copies down that the forward phase does not hide
               e_b >= sum o (b + h) / v - T_b - sum r t    copies up that the backward phase does not hide

with t seconds, b bytes, h bytes handed to the next layer, which are kept in any case, v bytes per second of the link
and T seconds of a phase. Rematerialisation as such a program is
that of Jain et al., Checkmate (arXiv 1910.02653); HiGHS solves it (Huangfu, Hall, 2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import UsageError
from ...ir.records import dataclass
from .results import LayerResults

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[np.float64]
# Seconds and bytes are scaled to one, in which the solver is exact to about a millionth.
_EXACT = 1e-6


@dataclass(frozen=True, slots=True)
class KeptChoice:
    """What layers keep and offload by name; all else is made again.

    Seconds and bytes are of all layers, bytes over those of the layers' inputs: below none where these are offloaded.
    """

    keep: tuple[str, ...]
    offload: tuple[str, ...]
    seconds: float
    num_bytes: float


def need_solver() -> None:
    """Raise UsageError where scipy is not installed."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError:
        raise UsageError("the optimizer of memory policies needs scipy: pip install 'slipstick[calibrate]'") from None


def best_choice(layers: LayerResults, limit_bytes: float) -> KeptChoice | None:
    """Return the choice of fewest seconds that keeps no more bytes, and of those the one of fewest bytes.

    None where nothing does.
    """
    program = _Program.of(layers)
    fastest = program.solve(program.seconds, limit_bytes)
    if fastest is None:
        return None
    smallest = program.solve(program.bytes, limit_bytes, at_most_s=float(program.seconds @ fastest))
    return program.choice(fastest if smallest is None else smallest)


def front(layers: LayerResults, step: float = 0.0) -> Iterator[KeptChoice]:
    """Yield the choices that nothing beats in both, from most bytes to fewest, each smaller by a share of all bytes."""
    everything = sum(r.num_bytes + r.handed_bytes for r in layers.results)
    found = best_choice(layers, everything)
    while found is not None:
        yield found
        found = best_choice(layers, found.num_bytes - max(step * everything, 2.0 * _EXACT * everything, 1.0))


@dataclass(frozen=True, slots=True)
class _Program:
    """The matrix of the program; columns are k and o of each name, r of each result, e_f and e_b."""

    layers: LayerResults
    seconds: Array
    bytes: Array
    matrix: csr_array
    least: Array

    @classmethod
    def of(cls, layers: LayerResults) -> _Program:
        from scipy.sparse import csr_array

        rows = list(_rows(layers))
        data = [(row, column, value) for row, (terms, _) in enumerate(rows) for column, value in terms.items()]
        at, column, value = (list(part) for part in zip(*data, strict=True)) if data else ([], [], [])
        width = 2 * len(layers.names) + len(layers.results) + 2
        matrix = csr_array((np.array(value, dtype=float), (at, column)), shape=(len(rows), width))
        names, again = layers.names, [r.seconds for r in layers.results]
        sizes = [layers.bytes_of(name) for name in names]
        seconds = np.array([*[0.0] * (2 * len(names)), *again, 1.0, 1.0])
        spared = [-layers.handed_bytes_of(name) for name in names]
        num_bytes = np.array([*sizes, *spared, *[0.0] * (len(again) + 2)])
        return cls(layers, seconds, num_bytes, matrix, np.array([least for _, least in rows]))

    def solve(self, cost: Array, limit_bytes: float, at_most_s: float | None = None) -> Array | None:
        """Return the best 0 and 1, and seconds exposed; None where nothing holds."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        num, scale = len(self.layers.names), float(np.abs(cost).sum()) or 1.0
        size, time_s = float(np.abs(self.bytes).sum()) or 1.0, float(self.seconds.sum())
        held = [LinearConstraint(self.matrix, lb=self.least)] if len(self.least) else []
        held.append(LinearConstraint(self.bytes[None] / size, ub=limit_bytes / size))
        if at_most_s is not None:
            held.append(LinearConstraint(self.seconds[None] / time_s, ub=at_most_s / time_s + _EXACT * 1e-2))
        upper = np.ones(len(cost))
        upper[num : 2 * num] = float(self.layers.bytes_per_s is not None)
        upper[-2:] = np.inf
        whole = np.ones(len(cost), dtype=np.int64)
        whole[-2:] = 0
        found = milp(cost / scale, constraints=held, integrality=whole, bounds=Bounds(0.0, upper))
        if found.x is None:
            return None
        return np.where(whole > 0, np.round(found.x), found.x)

    def choice(self, x: Array) -> KeptChoice:
        """Name what is kept and offloaded."""
        names = self.layers.names
        keep, offload = (
            tuple(n for n, v in zip(names, part, strict=True) if v > 0.5)
            for part in (x[: len(names)], x[len(names) : 2 * len(names)])
        )
        return KeptChoice(keep, offload, float(self.seconds @ x), float(self.bytes @ x))


def _rows(layers: LayerResults) -> Iterator[tuple[dict[int, float], float]]:
    """Yield the rows of the program: factors by column, and the least that they add up to."""
    place = {name: k for k, name in enumerate(layers.names)}
    num, first = len(place), 2 * len(place)

    def there(result: int) -> dict[int, float]:
        name = layers.results[result].name
        held = {place[name]: 1.0, num + place[name]: 1.0} if name else {}
        return {**held, first + result: 1.0}

    for k, result in enumerate(layers.results):
        if result.needed:
            yield there(k), 1.0
        for read in result.reads:
            yield {**there(read), first + k: -1.0}, 0.0
    yield from (({k: -1.0, num + k: -1.0}, -1.0) for k in range(num))
    if layers.bytes_per_s is None:
        return
    sent = {name: layers.bytes_of(name) + layers.handed_bytes_of(name) for name in place}
    copies = {num + k: -sent[name] / layers.bytes_per_s for name, k in place.items()}
    end = first + len(layers.results)
    again = {first + k: r.seconds for k, r in enumerate(layers.results)}
    yield {**copies, end: 1.0}, -layers.forward_s
    yield {**copies, **again, end + 1: 1.0}, -layers.backward_s
