"""Speculative decoding: several tokens are drafted cheaply, and one step of the model checks them all.

With `g` drafted tokens, of which each is accepted with probability `a` if those before it were, a round makes
`(1 - a^(g + 1)) / (1 - a)` tokens: the accepted ones, and one that the check itself gives. It takes `g` steps of the
drafter and one of the model over `g + 1` tokens of each sequence, which reads weights and cache once.

Source: Leviathan, Kalman, Matias, arXiv 2211.17192, equation 1; as heads of the model itself DeepSeek-V3, arXiv
2412.19437, section 2.2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....backends.machine.software.engine import Engine, Overheads
from ....ir.errors import UsageError
from ....ir.records import dataclass
from ..blend import scaled_curve, scaled_surface, sum_curves, sum_surfaces
from ..metrics import ServingMetrics
from .times import Array, Nums, StepTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """What drafts: a small model, a head of the model itself, or a look-up that takes no time (neither is given).

    Attributes:
        times: of a draft model on the same devices.
        share: of a prediction head (MTP, Medusa, EAGLE): its step over one of the model, about 1 / layers each; it
            keeps as much of a cache, and sees prompts too.
        weight_bytes: that the drafter takes from the cache on the fullest device.
        step_s: what the host adds to each drafted token.
    """

    times: StepTimes | None = None
    share: float = 0.0
    weight_bytes: float = 0.0
    step_s: float = 0.0

    def __post_init__(self) -> None:
        """UsageError for numbers out of range, and for two drafters at once."""
        for name in ("share", "weight_bytes", "step_s"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name}={getattr(self, name):g} of a drafter; allowed: 0 or more")
        if self.times is not None and self.share:
            raise UsageError(f"share={self.share:g} is of a head of the model, beside a draft model: give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How far ahead is drafted, and how often it is right.

    Attributes:
        drafter: what drafts.
        length: tokens that are drafted a round; 0 does nothing.
        acceptance: probability that a drafted token is accepted if all before it were.
    """

    drafter: Drafter
    length: int
    acceptance: float

    def __post_init__(self) -> None:
        """UsageError for numbers out of range."""
        if self.length < 0:
            raise UsageError(f"length={self.length} of a draft; allowed: whole numbers, 0 or more")
        if not 0 <= self.acceptance <= 1:
            raise UsageError(f"acceptance={self.acceptance:g}; allowed: a probability, 0 to 1")

    @property
    def tokens(self) -> float:
        """Tokens a round."""
        return float(tokens_per_round(self.acceptance, self.length))


def tokens_per_round(acceptance: Nums, length: Nums) -> Array:
    """Return `1 + a + a^2 + .. + a^g`, the mean number of tokens of a round.

    >>> [round(float(tokens_per_round(0.8, drafted)), 4) for drafted in (0, 4, 8)]
    [1.0, 3.3616, 4.3289]
    """
    a, g = np.asarray(acceptance, dtype=np.float64), np.asarray(length, dtype=np.float64)
    sure = a >= 1.0
    below = np.where(sure, 0.0, a)
    return np.where(sure, g + 1.0, (1.0 - np.power(below, g + 1.0)) / (1.0 - below))


@dataclass(frozen=True, slots=True, eq=False)
class Speculated:
    """A replica with speculation, in terms of tokens: its decode step is a round over the tokens of a round.

    Static batches, steady states, rates and limits take `times` and `engine` as they take those of a replica without.
    """

    times: StepTimes
    engine: Engine
    tokens: float

    def seen(self, metrics: ServingMetrics) -> ServingMetrics:
        """Return metrics that were found with these times, with tokens that come several at once."""
        return replace(metrics, tokens_per_gap=self.tokens)


def speculate(times: StepTimes, engine: Engine, speculation: Speculation) -> Speculated:
    """Return a replica's times and engine with speculation; a draft of length 0 changes nothing."""
    drafter, tokens = speculation.drafter, speculation.tokens
    if speculation.length == 0:
        return Speculated(times, engine, 1.0)
    # Times of the drafter, as those of a model; None where it takes none.
    if drafter.times is not None or not drafter.share:
        draft = drafter.times
    else:
        draft = replace(
            times,
            decode_rest=scaled_curve(times.decode_rest, drafter.share),
            decode_attention=scaled_surface(times.decode_attention, drafter.share),
            prompt_rest=scaled_curve(times.prompt_rest, drafter.share),
            prompt_attention=scaled_surface(times.prompt_attention, drafter.share),
            kv_bytes=scaled_curve(times.kv_bytes, drafter.share),
        )
    wide, drafted = speculation.length + 1.0, speculation.length / tokens
    rest = scaled_curve(times.decode_rest, 1.0 / tokens, wide)
    attention = scaled_surface(times.decode_attention, 1.0 / tokens)
    free = replace(times, free_bytes=times.free_bytes - drafter.weight_bytes)
    host = _host(engine.overheads, speculation)
    if draft is None:
        return Speculated(replace(free, decode_rest=rest, decode_attention=attention), host_of(engine, host), tokens)
    both = replace(
        free,
        decode_rest=sum_curves(rest, draft.decode_rest, drafted),
        decode_attention=sum_surfaces(attention, draft.decode_attention, drafted),
        prompt_rest=sum_curves(times.prompt_rest, draft.prompt_rest),
        prompt_attention=sum_surfaces(times.prompt_attention, draft.prompt_attention),
        kv_bytes=sum_curves(times.kv_bytes, draft.kv_bytes),
    )
    return Speculated(both, host_of(engine, host), tokens)


def host_of(engine: Engine, overheads: Overheads) -> Engine:
    """Return an engine with other overheads."""
    return replace(engine, overheads=overheads)


def _host(overheads: Overheads, speculation: Speculation) -> Overheads:
    """The host's work of a round, spread over its tokens."""
    round_s = overheads.step_s + speculation.length * speculation.drafter.step_s
    tokens = speculation.tokens
    return replace(overheads, step_s=round_s / tokens, sequence_s=overheads.sequence_s / tokens)
