"""Servers whose memory is too small for a request: the nearest that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ir.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from ...driver.serve.server import Server


def with_least_tp(error: InfeasibleError, server: Server, of_tp: Callable[[int], Server]) -> InfeasibleError:
    """Return an error with the least tensor parallelism in a node that holds weights and one request, if any does.

    An error that has another reason than memory comes back as it is.
    """
    if _holds(server):
        return error
    inside = server.system.node_size
    wider = (2**k for k in range(inside.bit_length()) if server.plan.tp < 2**k <= inside)
    found = next((tp for tp in wider if _can(of_tp, tp)), None)
    if found is None:
        return InfeasibleError(f"{error}; no tp up to {inside}, a node, holds it with pp={server.plan.pp}: raise --pp")
    return InfeasibleError(f"{error}; the least that holds it: --tp {found}")


def _can(of_tp: Callable[[int], Server], tp: int) -> bool:
    try:
        return _holds(of_tp(tp))
    except UsageError:
        # A degree that does not divide the model.
        return False


def _holds(server: Server) -> bool:
    from ...cost.serving.capacity import held_bytes

    held = held_bytes(server.times, server.engine.scheduler, float(server.longest))
    return bool(held <= server.times.free_bytes)
