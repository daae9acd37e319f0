"""Which form an attention call takes: fused over many queries, or over a cache for one or a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..terms import KernelTimes
from .decode import DecodeConstants, decode_times
from .flash import FlashConstants, flash_times
from .sizes import AttentionSizes, Flags

if TYPE_CHECKING:
    from ...machine.chip import Chip

# Queries of a sequence up to which a library may still take its decode kernel: tokens guessed ahead, a short chunk.
FEW_QUERIES = 64.0


def attention_times(
    sizes: AttentionSizes, chip: Chip, fused: FlashConstants, decode: DecodeConstants | None = None
) -> KernelTimes:
    """Return times of attention calls, whatever their numbers of queries.

    With one query the decode form, up to `FEW_QUERIES` the faster of both forms, above the fused one. Without `decode`,
    and in the backward phase, always the fused one.
    """
    several = FEW_QUERIES if decode is not None else 0.0
    few: Flags = np.asarray((sizes.q_len <= several) & ~sizes.backward)
    if decode is None or not few.any():
        return flash_times(sizes, chip, fused)
    over_cache = decode_times(sizes, chip, decode)
    if np.all(few & (sizes.q_len == 1.0)):
        return over_cache
    whole = flash_times(sizes, chip, fused)
    cached = few & ((sizes.q_len == 1.0) | (over_cache.time_s < whole.time_s))
    terms = {name: np.where(cached, over_cache.terms[name], whole.terms[name]) for name in whole.terms}
    return KernelTimes(np.where(cached, over_cache.time_s, whole.time_s), terms)
