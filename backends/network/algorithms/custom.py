"""All-reduce in one kernel, as serving engines have it for small messages inside a node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...kernels.collective import CustomAllReduceConstants
from ..topology.lanes import Pattern, lane
from ..topology.layout import Array
from ..topology.links import LevelTerm, Links, NetworkLink, Price


def one_shot(constants: CustomAllReduceConstants) -> Price:
    """Every rank reads the vectors of all others and reduces by itself: (n - 1)(p O + S/(u1 B))."""
    return lambda volume, links: tuple(_term(x, constants, 1.0, (x.fanout - 1) * volume) for x in links)


def two_shot(constants: CustomAllReduceConstants) -> Price:
    """Every rank reduces its share, then reads those of the others: (n - 1) p O + r O + 2 (n-1)/n S/(u2 B)."""
    return lambda volume, links: tuple(_term(x, constants, 2.0, 2 * (x.fanout - 1) / x.fanout * volume) for x in links)


def _term(link: NetworkLink, constants: CustomAllReduceConstants, passes: float, num_bytes: Array) -> LevelTerm:
    n = link.fanout
    part = constants.one_shot if passes == 1 else constants.two_shot
    overheads = (n - 1) * constants.peer + np.where(n > 1, (passes - 1) * constants.second, 0.0)
    share = lane(Pattern.PEERS, link.share).share
    rate = link.share.part.bytes_per_s * link.share.level.efficiency * share * part
    return LevelTerm(link.share.level.name, overheads * constants.overhead_s, num_bytes / rate)


def innermost_only(links: Links) -> NDArray[np.bool_]:
    """Whether a group stays inside the innermost part of the network, where its members read one another's memory."""
    return links[0].share.spanned >= links[-1].share.spanned
