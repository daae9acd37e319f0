"""Wildcards over module paths, matched without a regular expression of each: plans have hundreds of them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from math import log2

from ...errors import ParseError

REGEX = "re:"
# Escapes and sets of letters, which repeat nothing; what repeats; a group that does.
_ESCAPED = re.compile(r"\\.|\[\^?\]?[^\]]*\]")
_REPEATED, _NESTED = re.compile(r"[*+{]"), re.compile(r"\)[*+{]")
# Bits of the number of ways in which an expression may be tried: a repetition has some 16 over a path, a `?` two.
_MOST_BITS, _BITS_OF_REPEATED, _LONGEST = 19, 4, 1000


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


@lru_cache(maxsize=1024)
def expression(pattern: str) -> re.Pattern[str]:
    """Compile what stands behind `re:`; ParseError for none, and for one that could be tried for ever.

    >>> expression("re:(a+)+b")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    slipstick.ir.errors.ParseError: 're:(a+)+b' matches in too many ways: at most 4 repetitions (* + {), none of a ...
    """
    text = pattern.removeprefix(REGEX)
    bare = _ESCAPED.sub("c", text).replace("(?", "(")
    ways = sum(log2(1 + part.count("|")) for part in re.split(r"[()]", bare)) + bare.count("?")
    ways += _BITS_OF_REPEATED * len(_REPEATED.findall(bare))
    if len(text) > _LONGEST or ways > _MOST_BITS or _NESTED.search(bare):
        raise ParseError(
            f"'{pattern[:80]}' matches in too many ways: at most {_MOST_BITS // _BITS_OF_REPEATED} repetitions "
            f"(* + {{), none of a group, {_MOST_BITS} optional parts (?) and {_LONGEST:,} characters, and less together"
        )
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ParseError(f"'{pattern[:80]}' is no regular expression: {error}") from error
