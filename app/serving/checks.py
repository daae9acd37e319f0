"""Words that go together in no answer of a server, with those that do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.schedules.registry import USUAL
from ..arguments.machine import RunArgs
from ..arguments.options import options_of
from ..arguments.serving import DraftArgs, PoolArgs, RequestsServedArgs

if TYPE_CHECKING:
    from ..request import Request
    from ..sources import VerbArguments
    from .words import Serving

_INSTEAD = "; a step has --mbs (sequences per replica and pass) and --gbs (sequences of all replicas)"
# Replicas fail as training jobs do.
_OF_FAILURES = ("mtbf", "restart_time")
# Words that say nothing of the other kind of estimate; some are of the screen.
OF_SERVING = tuple(options_of(RequestsServedArgs, PoolArgs, DraftArgs))
OF_STEPS = (
    "seq",
    "mbs",
    "gbs",
    "trace_detail",
    "trace_stages",
    "sensitivity",
    "allow_infeasible",
    *(name for name in options_of(RunArgs) if name not in _OF_FAILURES),
)


def check_phase(request: Request) -> None:
    """Raise UsageError for a word of servers with another phase, or one of single steps with a server."""
    phase = request.words.phase
    given = [name for name in (OF_STEPS if phase == "serve" else OF_SERVING) if request.arguments.is_given(name)]
    if given:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        told = "of single steps: a server takes --isl, --osl and --concurrency, --request-rate or --batch"
        if phase == "serve":
            raise UsageError(f"{flags}: {told}")
        raise UsageError(f"{flags}: needs --phase serve, not {phase}{_INSTEAD if given == ['batch'] else ''}")


def check_requests(arguments: VerbArguments, serving: Serving) -> None:
    """Raise UsageError for flags of requests that nothing would look at."""
    from ...cost.serving.traffic.traffic_text import FILES

    if serving.serve is None:
        if serving.cut:
            raise UsageError(f"--cut {serving.cut:g}: of simulated requests: add --serve TRAFFIC")
        return
    if serving.shared_prefix:
        raise UsageError("--shared-prefix: of closed forms; with --serve each request holds its cache by itself")
    of_sizes = ("osl", "cached", "prefix_hit")
    if serving.serve.split(",")[0].lower().endswith(FILES):
        _refuse_given(arguments, ("isl", *of_sizes), f"the trace {serving.serve.split(',')[0]} says it of each request")
    elif serving.isl.lower().endswith(FILES):
        _refuse_given(arguments, of_sizes, f"--isl {serving.isl} says it of each request")


def _refuse_given(arguments: VerbArguments, names: tuple[str, ...], told: str) -> None:
    given = [name for name in names if arguments.is_given(name)]
    if given:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{flags}: {told}: leave {'it' if len(given) == 1 else 'them'} out")


def check_degrees(request: Request) -> None:
    """Raise UsageError for degrees and schedules of training, which servers have no use for."""
    if request.words.vpp > 1:
        raise UsageError(
            f"--vpp {request.words.vpp}: stages of a server pass whole batches on, and none has several pieces; "
            "allowed: --vpp 1"
        )
    if request.words.schedule != USUAL:
        raise UsageError(f"--schedule {request.words.schedule}: of training steps; a server has none: leave it out")
