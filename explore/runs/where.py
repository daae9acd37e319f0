"""Conditions on the rows of a run, read from text such as `step_time_s<20s` or `recompute=none,full`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...ir.errors import UnknownNameError, UsageError
from ...ir.units import parse_typed
from ..block import Array
from ..goals import ALIASES

GRAMMAR = (
    "a condition is a column, one of < <= > >= = !=, and a number with or without its unit, as in step_time_s<20s or "
    "peak_mem_bytes<=70GiB; behind = and != also a word, or several values with commas, as in recompute=none,full"
)
_CONDITION = re.compile(r"\s*([^<>=!\s]+)\s*(<=|>=|!=|==|<|>|=)\s*([^<>=!]*[^<>=!\s])\s*")
_UNITS = (("_bytes", "B"), ("_bytes_per_s", "B/s"), ("_s", "s"), ("_w", "W"), ("_usd", "USD"))


@dataclass(frozen=True, slots=True)
class Condition:
    """A column, how it must compare, and with what: one number, or any of some behind `=` and `!=`."""

    name: str
    relation: str
    values: tuple[float, ...]

    @classmethod
    def of(cls, text: str, columns: Sequence[str], words: Mapping[str, Sequence[str]]) -> Condition:
        """Read a condition on these columns, some of which stand for words.

        Raises:
            UsageError: no condition, with the grammar; a number or a unit that is none.
            UnknownNameError: a column or a word that there is not.

        >>> Condition.of("step_time_s<2min", ["step_time_s"], {})
        Condition(name='step_time_s', relation='<', values=(120.0,))
        """
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise UsageError(f"'{text}' is no condition: {GRAMMAR}")
        name, relation = match[1], match[2].replace("==", "=")
        if name not in columns:
            name = ALIASES.get(name, name)
        if name not in columns:
            raise UnknownNameError.of("column", match[1], columns)
        texts = [word.strip() for word in match[3].split(",")]
        if relation not in ("=", "!=") and (len(texts) > 1 or name in words):
            raise UsageError(f"'{text}': {relation} holds one number against another; {GRAMMAR}")
        return cls(name, relation, tuple(_value(word, name, words) for word in texts))

    def holds(self, column: Array) -> NDArray[np.bool_]:
        """Return for which numbers of the column it holds; for nan only `!=` does."""
        if self.relation in ("=", "!="):
            return np.isin(column, self.values, invert=self.relation == "!=")
        compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[self.relation]
        return np.asarray(compare(column, self.values[0]))


def _value(text: str, name: str, words: Mapping[str, Sequence[str]]) -> float:
    if name not in words:
        return parse_typed(text, _unit(name), name)
    if text not in words[name]:
        raise UnknownNameError.of(name, text, words[name])
    return float(words[name].index(text))


def _unit(name: str) -> str:
    """The unit that a column's name ends in; plain numbers where it says none."""
    if "_per_" in name and not name.endswith("_bytes_per_s"):
        return "1"
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), "1")
