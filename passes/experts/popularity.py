"""How popular experts are, and how much more than the mean the busiest of so many ranks gets then."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from ...ir.errors import ParseError, UsageError
from ...ir.plan.case import divisors
from ...ir.plan.experts.power_law import power_law_rows
from ...ir.plan.experts.words import LAW, OF_MODEL
from ...ir.sizes.expr import Expr
from ...ir.sizes.rounding import busiest
from ...ir.text.formats import read_json
from ...ir.text.untrusted import read_text
from .placement import Loads, balanced

# A power law is drawn for so many tokens: of a prompt's step, where experts get many rows each.
LAW_TOKENS = 8192


def loads_of(popularity: str, num_experts: int, top_k: int) -> Loads:
    """Return rows of experts, layers (or draws) x experts.

    Args:
        popularity: `power:X`, or the path of a JSON file: a list a layer of rows an expert, or such a list in
            `logical_count`, as SGLang writes it.
        num_experts: of the model.
        top_k: experts of a token.

    Raises:
        UsageError: a file that cannot be read, or of another number of experts.
        ParseError: no rows.
    """
    if popularity == OF_MODEL:
        raise UsageError(f"expert_popularity={OF_MODEL} is of a model by its name in the catalogue: give power:X")
    if popularity.startswith(LAW):
        return power_law_rows(LAW_TOKENS, num_experts, top_k, float(popularity.removeprefix(LAW))).astype(np.float64)
    found = read_loads(popularity)
    if found.shape[1] != num_experts:
        raise UsageError(f"'{popularity}' has rows of {found.shape[1]} experts, the model has {num_experts}")
    return found


def read_loads(path: str) -> Loads:
    """Return the rows of a file; several counts of the same layers are added up."""
    try:
        tree = read_json(read_text(Path(path)), path)
    except OSError as error:
        raise UsageError(f"cannot read popularity of experts '{path}': {error.strerror}") from error
    counts = tree.get("logical_count") if isinstance(tree, dict) else tree
    try:
        found = np.array(counts, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    found = found.sum(axis=0) if found.ndim == 3 else found
    # Layers without experts have no rows.
    found = found[found.sum(axis=1) > 0] if found.ndim == 2 else found
    if found.ndim != 2 or not found.size or not np.isfinite(found).all() or (found < 0).any():
        raise ParseError(f"{path}: rows of experts are a list of numbers a layer, 0 or more, of equally many experts")
    return found


@lru_cache(maxsize=64)
def busiest_of(
    popularity: str, num_experts: int, top_k: int, redundant: int, eplb: bool, axes: tuple[str, ...]
) -> Expr:
    """Return rows of the busiest rank over the mean, the mean of all layers, by the number of ranks.

    Without `eplb`, experts lie in order; with it, they and their copies are placed for the loads that there are.
    """
    loads = loads_of(popularity, num_experts, top_k)
    ranks = tuple(divisors(num_experts + redundant))
    return busiest(axes, ranks, [_busiest(loads, redundant, eplb, num) for num in ranks])


def _busiest(loads: Loads, redundant: int, eplb: bool, num_ranks: int) -> float:
    if eplb:
        of_ranks = balanced(loads, loads.shape[1] + redundant, num_ranks).rank_loads(loads, num_ranks)
    else:
        of_ranks = loads.reshape(len(loads), num_ranks, -1).sum(axis=2)
    return float((of_ranks.max(axis=1) / of_ranks.mean(axis=1)).mean())
