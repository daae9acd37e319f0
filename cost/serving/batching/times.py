"""What the steps of one replica take: decodes, prompts and both at once, as tables between whose points lines run."""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ....ir.records import dataclass

Array = NDArray[np.float64]
Nums = Array | float


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity over one size, by straight lines between points; beyond the last point the last line runs on.

    Its slopes are worked out once: curves are asked for millions of times in a search.
    """

    at: Array
    value: Array
    _inner: Array = field(init=False, repr=False, compare=False)
    slope: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out the slopes."""
        object.__setattr__(self, "_inner", self.at[1:-1])
        object.__setattr__(self, "slope", np.diff(self.value) / np.diff(self.at))

    def __call__(self, size: Nums) -> Array:
        """Return the value at sizes of any shape.

        >>> Curve(np.array([0.0, 2.0]), np.array([1.0, 3.0]))(np.array([1.0, 4.0]))
        array([2., 5.])
        """
        place = self._inner.searchsorted(size, side="right")
        return np.asarray(self.value[place] + self.slope[place] * (np.asarray(size) - self.at[place]))

    def mean(self, start: Nums, stop: Nums) -> Array:
        """Return the mean between two sizes, exactly: the area under the lines over its width.

        >>> float(Curve(np.array([0.0, 2.0, 4.0]), np.array([0.0, 2.0, 2.0])).mean(1.0, 3.0))
        1.75
        """
        low, high = np.asarray(start, dtype=np.float64), np.asarray(stop, dtype=np.float64)
        return np.asarray((self._area(high) - self._area(low)) / (high - low))

    def _area(self, size: Array) -> Array:
        place, part = _between(self.at, size)
        width = part * (self.at[place + 1] - self.at[place])
        return np.asarray(_areas(self.at, self.value)[place] + width * (self.value[place] + self(size)) / 2)


@dataclass(frozen=True, slots=True)
class Surface:
    """A quantity over two sizes, bilinear between the points of a grid; beyond it the last pieces run on."""

    rows: Array
    columns: Array
    value: Array

    def __call__(self, row: Nums, column: Nums) -> Array:
        """Return the value at pairs of sizes, broadcast against each other."""
        i, u = _between(self.rows, np.asarray(row, dtype=np.float64))
        j, v = _between(self.columns, np.asarray(column, dtype=np.float64))
        # Where the first of the four values around a pair lies in memory, and what of each is before the next column.
        first, left = i * len(self.columns) + j, 1 - v
        below = first + len(self.columns)
        value = self.value.ravel()
        low = value[first] * left + value[first + 1] * v
        high = value[below] * left + value[below + 1] * v
        return np.asarray(low * (1 - u) + high * u)

    def mean(self, row: Nums, start: Nums, stop: Nums) -> Array:
        """Return the mean over columns between two, exactly, at rows."""
        low, high = np.asarray(start, dtype=np.float64), np.asarray(stop, dtype=np.float64)
        if low.ndim == high.ndim == 0:
            return self.mean_curve(low, high)(row)
        return self._means(row, low, high)

    def mean_curve(self, start: Nums, stop: Nums) -> Curve:
        """Return the mean over columns between two numbers, over rows: lines between those of the grid's own rows."""
        return Curve(self.rows, self._means(self.rows, np.asarray(start), np.asarray(stop)))

    def _means(self, row: Nums, low: Array, high: Array) -> Array:
        areas = Surface(self.rows, self.columns, _areas(self.columns, self.value))
        return np.asarray((self._area(areas, row, high) - self._area(areas, row, low)) / (high - low))

    def _area(self, areas: Surface, row: Nums, column: Array) -> Array:
        """Area from the first column: whole pieces, and the part of a piece under its line."""
        place, part = _between(self.columns, column)
        begun, width = self.columns[place], part * (self.columns[place + 1] - self.columns[place])
        return np.asarray(areas(row, begun) + width * (self(row, begun) + self(row, column)) / 2)


def _areas(at: Array, value: Array) -> Array:
    """Area under lines through points on the last axis, from the first to each."""
    pieces = np.diff(at) * (value[..., 1:] + value[..., :-1]) / 2
    return np.concatenate([np.zeros_like(value[..., :1]), np.cumsum(pieces, axis=-1)], axis=-1)


def _between(at: Array, size: Array) -> tuple[NDArray[np.intp], Array]:
    """The piece that each size lies on, and how far along it.

    The piece is the number of inner points up to the size, so that the ends need no clipping.
    """
    place = np.asarray(at[1:-1].searchsorted(size, side="right"))
    start = at[place]
    return place, (size - start) / (at[place + 1] - start)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of the kernels and messages of a step on one replica; what the engine's host adds is not in them.

    A replica is what holds the model once: tp x pp x cp ranks, and with attention data parallelism one of its ranks
    with its share of the experts. All sizes are of one replica, and of one of the `groups` that pass through pipeline
    stages one behind the other.

    Attributes:
        decode_rest: everything of a decode step but attention, over the sequences in it.
        decode_attention: attention of a decode step, over sequences and the mean number of tokens each looks at.
        prompt_rest: everything but attention of a step of prompts, over its tokens.
        prompt_attention: attention of whole prompts in one step, over their number and the tokens of each.
        kv_bytes: bytes of KV cache that one sequence holds on the fullest device, over its tokens.
        free_bytes: what that device has left for the cache: memory less weights, temporaries and what is reserved.
        groups: batches in flight, one a pipeline stage.
        coupled: replicas whose steps begin and end together, since they share experts.
        shared: part of the work of prompts that such replicas share: experts, and the way to them.
        pace: time from one group to the next over the time of a whole pass: 1 without stages.
    """

    decode_rest: Curve
    decode_attention: Surface
    prompt_rest: Curve
    prompt_attention: Surface
    kv_bytes: Curve
    free_bytes: float
    groups: int = 1
    pace: float = 1.0
    coupled: int = 1
    shared: float = 0.0

    def step_s(self, batch: Nums, context: Nums, tokens: Nums = 0.0, attention_s: Nums = 0.0) -> Array:
        """Return the time of a step with `batch` decodes over `context` tokens each beside `tokens` of prompts.

        Tokens of prompts ride on the weights that decodes read anyway: they cost what the step grows by,
        `rest(batch + tokens) - rest(batch)`. `attention_s` is that of the prompts: see `chunk_attention_s`.
        """
        b, n = np.asarray(batch, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
        grown = self.prompt_rest(b + n) - np.where(b > 0, self.prompt_rest(b), 0.0)
        prompts = np.where(n > 0, np.maximum(grown, 0.0) + attention_s, 0.0)
        return np.asarray(np.where(b > 0, self.decode_s(b, context), 0.0) + prompts)

    def decode_s(self, batch: Nums, context: Nums) -> Array:
        """Return the time of a step of `batch` sequences that each look at `context` tokens on average."""
        return np.asarray(self.decode_rest(batch) + self.decode_attention(batch, context))

    def prefill_s(self, prompt: Nums, cached: Nums = 0.0, num: Nums = 1.0) -> Array:
        """Return the time of a step of `num` whole prompts, of which the first `cached` tokens are in the cache."""
        fresh = np.asarray(prompt, dtype=np.float64) - cached
        return np.asarray(self.prompt_rest(fresh * num) + self.chunk_attention_s(cached, prompt, num))

    def chunk_attention_s(self, start: Nums, stop: Nums, num: Nums = 1.0) -> Array:
        """Return the attention of the tokens of `num` prompts from `start` to `stop`, over all before them.

        `A(stop) - A(start)` of whole prompts: chunks add up to the prompt, whatever their sizes.
        """
        begun = np.asarray(start, dtype=np.float64)
        before = np.where(begun > 0, np.maximum(self.prompt_attention(num, begun), 0.0), 0.0)
        return np.asarray(np.maximum(self.prompt_attention(num, stop) - before, 0.0))
