"""Names of how much more the busiest of some ranks has than the mean one, by how many ranks share the work.

`busy_ep_1at10000_8at13250` is 1 where ep is 1 and 1.325 where it is 8. An expression stays a polynomial: this is a
symbol like any other, whose value follows from that of its axes. A number of `imb` in its place overrules it, as of a
load that people say, or 1 for the mean of all ranks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, TypeAlias, Union

from ..records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# As `expr.Num`, which reads this module.
Number: TypeAlias = Union[float, "NDArray[np.float64]"]
# Rows of the busiest rank over the mean, where that is a number of its own.
IMBALANCE = "imb"
_SCALE = 10_000
_NAME = re.compile(r"busy_([a-z]+(?:x[a-z]+)*)((?:_[0-9]+at[0-9]+)+)")


@dataclass(frozen=True, slots=True)
class Busiest:
    """Loads of the busiest rank over the mean.

    Attributes:
        axes: mesh axes whose degrees, multiplied, are the ranks.
        ranks: numbers of ranks, ascending.
        loads: of the busiest of so many.
    """

    axes: tuple[str, ...]
    ranks: tuple[int, ...]
    loads: tuple[float, ...]

    @property
    def name(self) -> str:
        """The symbol.

        >>> Busiest(("tp", "ep"), (1, 8), (1.0, 1.325)).name
        'busy_tpxep_1at10000_8at13250'
        """
        pairs = zip(self.ranks, self.loads, strict=True)
        return f"busy_{'x'.join(self.axes)}" + "".join(f"_{n}at{round(_SCALE * load)}" for n, load in pairs)

    def value(self, env: Mapping[str, Number]) -> Number:
        """Return the load under degrees, numbers or arrays; of ranks between two known numbers that of the fewer."""
        if IMBALANCE in env:
            return env[IMBALANCE]
        num = prod(env[axis] for axis in self.axes)
        if isinstance(num, int | float):
            return self.loads[max(bisect_right(self.ranks, num) - 1, 0)]
        import numpy as np  # of plans in a table alone, which have loaded it

        return np.array(self.loads)[np.maximum(np.searchsorted(np.array(self.ranks), num, side="right") - 1, 0)]


@lru_cache(maxsize=4096)
def read_busiest(name: str) -> Busiest | None:
    """Return what a symbol of the busiest rank stands for, None for any other symbol.

    >>> read_busiest("busy_ep_1at10000_8at13250").value({"ep": 8.0}), read_busiest("ep")
    (1.325, None)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    pairs = [part.split("at") for part in match.group(2)[1:].split("_")]
    loads = tuple(int(load) / _SCALE for _, load in pairs)
    return Busiest(tuple(match.group(1).split("x")), tuple(int(num) for num, _ in pairs), loads)


def is_imbalance(name: str) -> bool:
    """Whether a symbol is the load of the busiest rank over the mean.

    >>> is_imbalance("imb"), is_imbalance("busy_ep_1at10000"), is_imbalance("ep")
    (True, True, False)
    """
    return name == IMBALANCE or read_busiest(name) is not None
