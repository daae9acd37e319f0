"""Step times of a replica as plain numbers: one step, many decode steps at once, how many of them fit into a time.

The tables are the same as those of the closed forms; here they are asked for one step at a time, a million times, so
that lists and bisection take the place of arrays. Between two points of a table the time of a decode step is a line
in the context, and contexts grow evenly: the time of many steps is a sum of arithmetic series, exact.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from ....backends.machine.software.engine import Overheads
from ..batching.times import Array, StepTimes
from .rounds import Rounds

# Where a chunk of a prompt starts and stops.
Chunk = tuple[int, int]
# Values at the points of a table, and slopes between them.
Row = tuple[list[float], list[float]]


class Speeds:
    """Seconds of steps of one group of a replica, its host's part included.

    Args:
        times: what kernels and messages take.
        overheads: what the host takes.
        rounds: how decode steps make more than one token, if they do.
    """

    __slots__ = (
        "_attended",
        "_columns",
        "_overheads",
        "_prompt_at",
        "_prompt_columns",
        "_prompt_s",
        "_rounds",
        "_rows",
        "_times",
    )

    def __init__(self, times: StepTimes, overheads: Overheads, rounds: Rounds | None = None) -> None:
        self._times, self._overheads, self._rounds = times, overheads, rounds
        self._columns = times.decode_attention.columns.tolist()
        self._rows: dict[int, Row] = {}
        self._prompt_at, self._prompt_s = (
            times.prompt_rest.at.tolist(),
            _row_of(times.prompt_rest.at, times.prompt_rest.value),
        )
        self._prompt_columns = times.prompt_attention.columns.tolist()
        self._attended: dict[int, Row] = {}

    @property
    def interference(self) -> float:
        """Seconds that prefills of other requests add to decodes, over what they take."""
        return self._overheads.interference

    def tokens(self, batch: int) -> int:
        """Tokens of a step in which `batch` sequences decode."""
        return batch if self._rounds is None else batch * (self._rounds.length + 1)

    def decode_s(self, batch: int, context: float) -> float:
        """One step of `batch` sequences that look at `context` tokens on average, without the host's part."""
        return _line(self._columns, self._row(batch), context)

    def host_s(self, batch: int) -> float:
        """What the host adds to a step in which `batch` sequences decode."""
        return self._overheads.step_s + self._overheads.sequence_s * batch

    def decodes_s(self, batch: int, context: float, growth: float, num: int, slower: float = 1.0) -> float:
        """`num` steps in a row; the mean context starts at `context` and grows by `growth` a step.

        `slower` stretches what devices take, not what the host takes.
        """
        values, slopes = self._rows.get(batch) or self._row(batch)
        at, total, left, last = self._columns, 0.0, num, len(slopes) - 1
        while left > 0:
            i = bisect_right(at, context, 1, last + 1) - 1
            steps = left
            if left > 1 and growth > 0.0 and i < last:
                steps = min(left, max(1, math.ceil((at[i + 1] - context) / growth)))
            total += steps * (values[i] + slopes[i] * (context - at[i] + growth * (steps - 1) / 2.0))
            context += growth * steps
            left -= steps
        return slower * total + num * (self._overheads.step_s + self._overheads.sequence_s * batch)

    def steps_until(self, batch: int, context: float, growth: float, time_s: float, most: int, slower: float) -> int:
        """The fewest steps that take `time_s` or longer, 1 at least and `most` at most."""
        first_s = self.decodes_s(batch, context, growth, 1, slower)
        high = min(most, max(1, math.ceil(time_s / first_s)))
        if high < most and self.decodes_s(batch, context, growth, high, slower) < time_s:
            high = most
        last_s = self.decodes_s(batch, context + growth * high, growth, 1, slower)
        # Steps grow longer, so that neither bound is far off; where they do not, the search starts from nothing.
        low = max(0, min(int(time_s / last_s) - 1, high - 1)) if last_s > 0 else 0
        if low and self.decodes_s(batch, context, growth, low, slower) >= time_s:
            low = 0
        while high - low > 1:
            middle = (low + high) // 2
            enough = self.decodes_s(batch, context, growth, middle, slower) >= time_s
            low, high = (low, middle) if enough else (middle, high)
        return high

    def prompts_s(self, batch: int, chunks: Sequence[Chunk]) -> float:
        """What chunks of prompts take beside `batch` decodes, without the host's part.

        Beside decodes it is what the step grows by, as in `StepTimes.step_s`, times the engine's interference. Alone
        it is no less than a decode step that looks at as many tokens.
        """
        tokens, num = sum(stop - start for start, stop in chunks), len(chunks)
        attention = sum(self._attention_s(num, start, stop) for start, stop in chunks)
        if batch:
            decodes = self.tokens(batch)
            grown = self._rest_s(decodes + tokens) - self._rest_s(decodes)
            return self._overheads.interference * (max(grown, 0.0) + attention)
        least = 0.0 if self._rounds else self.decode_s(num, sum(stop for _, stop in chunks) / num)
        return max(self._rest_s(tokens) + attention, least)

    def _attention_s(self, num: int, start: int, stop: int) -> float:
        """The share of one of `num` chunks that run together in what their attention takes."""
        row = self._attended.get(num)
        if row is None:
            columns = self._times.prompt_attention.columns
            row = self._attended[num] = _row_of(columns, self._times.prompt_attention(float(num), columns))
        before = _line(self._prompt_columns, row, start) if start else 0.0
        return max(_line(self._prompt_columns, row, stop) - before, 0.0) / num

    def _rest_s(self, tokens: int) -> float:
        return _line(self._prompt_at, self._prompt_s, tokens)

    def _row(self, batch: int) -> Row:
        """Decode steps of a batch at the contexts of the table; made when the batch is first seen."""
        found = self._rows.get(batch)
        if found is None:
            columns = self._times.decode_attention.columns
            rounds = self._rounds
            values = (
                self._times.decode_s(float(batch), columns)
                if rounds is None
                else rounds.round_s(self._times, batch, columns)
            )
            found = self._rows[batch] = _row_of(columns, values)
        return found


def _row_of(at: Array, values: Array) -> Row:
    return values.tolist(), (np.diff(values) / np.diff(at)).tolist()


def _line(at: Sequence[float], row: Row, size: float) -> float:
    # Between its bounds the search finds a piece for whatever lies beside the table, too.
    i = bisect_right(at, size, 1, len(at) - 1) - 1
    return row[0][i] + row[1][i] * (size - at[i])
