"""The name of an executor, as people give it, into the executor."""

from __future__ import annotations

from ...ir.errors import UnknownNameError, UsageError
from ..job import Executor, InProcess
from .on_ray import OnRay
from .processes import Processes, check_num_workers

EXECUTORS = ("local", "processes", "ray")
_ALIASES = {"in-process": "local"}


def executor_of(name: str, num_workers: int | None = None, address: str | None = None) -> Executor:
    """Return the executor of a name: `local` (also `in-process`), `processes` or `ray`.

    Args:
        name: of the executor.
        num_workers: how many work at once; None is one a core, and on Ray one for each core of the cluster.
        address: of the Ray cluster to connect to, `HOST:PORT` or `auto`; None starts one on this machine.

    Raises:
        UsageError: an unknown name, fewer workers than one, several in one process, an address without Ray.
    """
    known = _ALIASES.get(name, name)
    if known not in EXECUTORS:
        raise UnknownNameError.of("executor", name, (*EXECUTORS, *_ALIASES))
    if address is not None and known != "ray":
        raise UsageError(f"executor '{name}' takes no address ('{address}'): only ray has machines elsewhere")
    check_num_workers(num_workers)
    if known == "ray":
        return OnRay(address, num_workers)
    if known == "processes":
        return Processes(num_workers)
    if num_workers is not None and num_workers > 1:
        raise UsageError(f"executor '{name}' works alone, {num_workers} workers do not go; processes takes any number")
    return InProcess()
