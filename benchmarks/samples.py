"""What probes share: samples, the machine that they price, graphs that the parent recorded, and clocks."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from time import process_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstick.driver.estimate import Lowered
    from slipstick.ir.graph import Graph

Samples = dict[str, list[float]]
SYSTEM = "dgx-h100"


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of some work."""
    start = process_time()
    work()
    return process_time() - start


def peak_bytes() -> float:
    """Return the most memory that the process had."""
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0)


def cached_graph(model: str) -> Graph:
    """Return the cached graph: the parent has seen to it that there is one."""
    from slipstick.frontend import GraphCache, load

    return load(model, cache=GraphCache.default())


def lowered_once(graph: Graph) -> Lowered:
    """Return a graph lowered for a family of training plans."""
    from slipstick.driver.estimate import lower
    from slipstick.ir.plan import Family

    return lower(graph, Family(sp=True))
