"""Wildcards over module paths, matched without a regular expression of each: plans have hundreds of them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache


# A search shards one model for many families and plans, with the same few hundred paths and patterns.
@lru_cache(maxsize=1 << 15)
def matches(path: str, pattern: str) -> bool:
    """Return what `fnmatch.fnmatchcase` does; where a star is the only wildcard, the pieces between are looked up.

    >>> matches("model.layers.3.mlp.up_proj", "*.layers.*.mlp.*"), matches("lm_head", "*.lm_head")
    (True, False)
    >>> matches("ab", "a*b*b"), matches("Layer", "layer"), matches("block7", "block?")
    (False, False, True)
    """
    if "?" in pattern or "[" in pattern:
        return fnmatchcase(path, pattern)
    first, *middle = pattern.split("*")
    if not middle:
        return path == pattern
    last = middle.pop()
    end = len(path) - len(last)
    if end < len(first) or not path.startswith(first) or not path.endswith(last):
        return False
    place = len(first)
    for piece in middle:
        # The earliest place of each piece leaves most to those behind it.
        place = path.find(piece, place, end)
        if place < 0:
            return False
        place += len(piece)
    return True
