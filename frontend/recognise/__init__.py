"""Graphs in single steps to the graphs that the recorder writes: fused operators where their patterns stand."""

from __future__ import annotations

from ..aten.flat import Flat
from ..aten.tidy import tidy
from .activations import gelu, growing_cache, result_in_order, silu, softmax, turned_ones
from .attention import attention
from .norms import bare_norm, scaled_norm
from .rewrite import Pattern, put
from .rope import rope_by_complex, rope_by_copy, rope_by_parts

# Longer patterns come before those they hold: a norm with weight before one without, softmax before attention.
PATTERNS: tuple[Pattern, ...] = (
    scaled_norm,
    bare_norm,
    gelu,
    silu,
    rope_by_copy,
    rope_by_parts,
    rope_by_complex,
    softmax,
    growing_cache,
    attention,
)


def recognise(flat: Flat) -> Flat:
    """Return the tidy graph with attention, norms, activations, softmax and rotations as one node each.

    Only forward nodes are looked at, and only patterns whose inner values nobody else reads: a graph whose backward
    nodes read these keeps them. What is not recognised stays as it is.
    """
    flat = tidy(put(tidy(flat), turned_ones))
    for pattern in PATTERNS:
        flat = put(flat, pattern)
    return tidy(put(tidy(flat), result_in_order))
