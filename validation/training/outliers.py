"""Measured steps that no model should follow: documented by their properties, or by id with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..rows.rows import Row

_ALLOCATOR = "most of the memory is reserved and messages inside the node run at a tenth: allocator or fallback"
_TIMEOUT = "0.8 to 1.3 s a micro-batch where neighbours take 0.02 to 0.2: looks like a time-out"
# By id, of nanotron_h100: no column tells them from their neighbours.
BY_ID: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            (f"nanotron_{run}" for run in (14098602, 14098699, 14098750, 14098755, 14098757, 14098922, 14098877)),
            _ALLOCATOR,
        ),
        **dict.fromkeys(
            (
                f"nanotron_{run}"
                for run in (14099050, 14099194, 14099253, 14099259, 14099271, 14099144, 14099209, 14098842)
            ),
            _TIMEOUT,
        ),
    }
)
_SOFTMAX = (
    "heads of a rank x micro-batch is no multiple of 4, which the fused softmax needs: scores pass through several "
    "kernels, 5 ms a layer whatever its size"
)
BY_ID_VTRAIN: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys((f"vtrain_single_{run}" for run in ("1264", "0283", "1214", "0489", "1150")), _SOFTMAX),
        **dict.fromkeys(
            ("vtrain_multi_043", "vtrain_multi_050"),
            "24 to 26 s where the same model on half as many stages takes 16 to 19",
        ),
        "vtrain_multi_015": "one micro-batch of 131072 tokens takes twice as long: probably short of memory",
    }
)
# A micro-batch of this many hidden values a token, over 32 ranks, made the allocator give back and take again.
THRASHING = 131072


def outlier(row: Row) -> str:
    """Return why a row is left out of the figures, empty for most."""
    if row.id in BY_ID_VTRAIN:
        return BY_ID_VTRAIN[row.id]
    if row.dataset not in _RULES:
        return ""
    return BY_ID.get(row.id, "") or _RULES[row.dataset](row)


def _nanotron(row: Row) -> str:
    if row.number("tp", 1) >= 32 and row.number("micro_batch", 1) * row.number("hidden") >= THRASHING:
        return "tp of 32 or more with micro-batch x hidden of 131072 or more: the allocator thrashes"
    return ""


_RULES: Mapping[str, Callable[[Row], str]] = MappingProxyType({"nanotron_h100": _nanotron})
