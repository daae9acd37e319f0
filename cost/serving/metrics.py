"""What users of a server see, in the field's words: TTFT, TPOT, ITL, E2EL, tokens a second."""

from __future__ import annotations

import numpy as np

from ...ir.records import dataclass
from .batching.times import Array, Nums


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ServingMetrics:
    """Latencies and rates of one replica under a load; each a number or an array, means over requests.

    Attributes:
        concurrency: requests that clients have in flight.
        batch: requests that run; the rest waits.
        decodes: those of them that decode in a step between two tokens; the rest is at its prompt.
        prompt: tokens of each prompt.
        output: tokens of each answer.
        ttft_s: from sending a request to its first token.
        ttft_low_s: the least of it: one prompt by itself.
        ttft_high_s: the most of it: that prompt behind all others that came at the same moment.
        tpot_s: time of an output token behind the first; not a number where there is none.
        requests_per_s: requests that are answered.
        tokens_per_gap: tokens that come at once: more than one with speculative decoding.
        stall_s: the longest gap between two tokens: a step that also holds as much of a prompt as fits.
        ttft_tail_s: TTFT at the percentile of a limit, of requests that come at random; not a number where none is.
        tpot_tail_s: likewise TPOT, a mean over the answer of each request.
    """

    concurrency: Array
    batch: Array
    decodes: Array
    prompt: Array
    output: Array
    ttft_s: Array
    ttft_low_s: Array
    ttft_high_s: Array
    tpot_s: Array
    requests_per_s: Array
    stall_s: Array
    tokens_per_gap: Nums = 1.0
    ttft_tail_s: Nums = np.nan
    tpot_tail_s: Nums = np.nan

    @property
    def e2el_s(self) -> Array:
        """From sending a request to its last token: `TTFT + (output - 1) TPOT`."""
        return self.ttft_s + np.where(self.output > 1, (self.output - 1) * np.nan_to_num(self.tpot_s), 0.0)

    @property
    def itl_s(self) -> Array:
        """Time between two moments at which tokens come."""
        return np.asarray(self.tpot_s * self.tokens_per_gap)

    @property
    def output_tokens_per_s(self) -> Array:
        """Tokens that are generated."""
        return self.requests_per_s * self.output

    @property
    def total_tokens_per_s(self) -> Array:
        """Tokens of prompts and answers; cached ones count."""
        return self.requests_per_s * (self.prompt + self.output)

    @property
    def tokens_per_s_per_user(self) -> Array:
        """1 / TPOT: how fast one reader's text grows."""
        return np.asarray(1.0 / self.tpot_s)
