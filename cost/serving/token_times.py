"""What a token takes on decode workers: of one kind, or pool by pool of many kinds whose tables are stacked.

A search asks for it thousands of times, and numpy takes longer to be called than to work on few numbers: pools of
workers of all kinds are asked for at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...ir.records import dataclass
from .batching.steps import attention_over, decode_step_s
from .batching.times import Array, Curve, Nums
from .traffic.requests import Lengths
from .workers import Workers


class TokenTimes(Protocol):
    """Seconds from token to token, over the sequences on a decode worker."""

    def tpot_s(self, batch: Nums) -> Array:
        """Return them with so many in flight on a worker; of stacked tables a row a pool."""
        ...

    def flat(self, shape: tuple[int, ...]) -> TokenTimes:
        """Return what is asked for pools of such a table as a line."""
        ...

    def some(self, places: NDArray[np.intp]) -> TokenTimes:
        """Return what is asked for some places of a line."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class OneKind:
    """Of workers of one kind, whatever the pool.

    Attributes:
        decode: the workers.
        lengths: of requests.
        attention: that of `attention_over` their times.
    """

    decode: Workers
    lengths: Lengths
    attention: Curve | None

    @classmethod
    def of(cls, decode: Workers, lengths: Lengths) -> OneKind:
        """Work out the mean attention, where requests are all alike."""
        return cls(decode, lengths, attention_over(decode.times, lengths))

    def tpot_s(self, batch: Nums) -> Array:
        """Return them with so many in flight on a worker."""
        decode, sequences = self.decode, np.maximum(batch, 1.0)
        return decode_step_s(decode.times, decode.engine.overheads, sequences, self.lengths, self.attention)

    def flat(self, shape: tuple[int, ...]) -> OneKind:
        """Return itself: the pool does not matter."""
        return self

    def some(self, places: NDArray[np.intp]) -> OneKind:
        """Return itself."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class ManyKinds:
    """Of pools of several kinds of workers under one engine, the same bits as each kind by itself.

    Attributes:
        at: sequences at the points of all tables.
        pieces: values and slopes of the rest of a step, then of attention, of all pieces of all tables in a line.
        begun: place of a pool's first piece there.
        groups: batches in flight on a worker of a pool.
        pace: from one group to the next over a whole pass.
        host_s: what the host adds to a step, and for each sequence in it.
    """

    at: Array
    pieces: tuple[Array, ...]
    begun: NDArray[np.intp]
    groups: Array
    pace: Array
    host_s: tuple[float, float]

    @classmethod
    def of(cls, kinds: Sequence[TokenTimes], counts: Sequence[int]) -> ManyKinds:
        """Stack the tables of kinds that have so many pools each: of one engine, for requests that are all alike."""
        alone = [kind for kind in kinds if isinstance(kind, OneKind)]
        times, over = [kind.decode.times for kind in alone], alone[0].decode.engine.overheads
        rests = [one.decode_rest for one in times]
        attentions = [kind.attention for kind in alone if kind.attention is not None]
        at = rests[0].at
        assert len(kinds) == len(alone) == len(attentions)
        assert all(np.array_equal(curve.at, at) for curve in (*rests, *attentions))
        assert all(kind.decode.engine.overheads == over for kind in alone)
        kind = np.repeat(np.arange(len(times)), counts)[:, None]
        groups, pace = (
            np.array(each, dtype=np.float64) for each in zip(*((t.groups, t.pace) for t in times), strict=True)
        )
        return cls(
            at,
            tuple(
                np.concatenate(lines)
                for curves in (rests, attentions)
                for lines in ([curve.value[:-1] for curve in curves], [curve.slope for curve in curves])
            ),
            kind * (len(at) - 1),
            groups[kind],
            pace[kind],
            (over.step_s, over.sequence_s),
        )

    def tpot_s(self, batch: Nums) -> Array:
        """Return them with so many in flight on a worker of each pool, as `decode_step_s` has it."""
        groups = np.minimum(np.maximum(batch, 1.0), self.groups)
        each = np.maximum(np.maximum(batch, 1.0) / groups, 1.0)
        place = self.at[1:-1].searchsorted(each, side="right")
        behind, piece = each - self.at[place], place + self.begun
        value, slope, of_attention, steep = self.pieces
        whole = (value[piece] + slope[piece] * behind) + (of_attention[piece] + steep[piece] * behind)
        step_s, sequence_s = self.host_s
        return np.asarray(np.maximum(1.0, groups * self.pace) * whole + (step_s + sequence_s * each))

    def flat(self, shape: tuple[int, ...]) -> ManyKinds:
        """Return what is asked for pools of such a table as a line."""
        begun = np.broadcast_to(self.begun, shape).ravel()
        groups, pace = (np.broadcast_to(column, shape).ravel() for column in (self.groups, self.pace))
        return ManyKinds(self.at, self.pieces, begun, groups, pace, self.host_s)

    def some(self, places: NDArray[np.intp]) -> ManyKinds:
        """Return what is asked for some places of a line."""
        begun, groups, pace = self.begun[places], self.groups[places], self.pace[places]
        return ManyKinds(self.at, self.pieces, begun, groups, pace, self.host_s)
