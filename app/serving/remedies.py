"""A server whose memory is too small for a request: what it lacks, and changes of its words that hold one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...ir.errors import InfeasibleError, SlipstickError
from ...ir.units import format_time
from ..request import Request
from .words import Serving

if TYPE_CHECKING:
    from ...driver.serve.server import Server

# So many changes are said.
_MOST = 3


def with_remedies(
    error: InfeasibleError,
    server: Server,
    request: Request,
    serving: Serving,
    made: Callable[[Request], Server],
    framework: str | None = None,
) -> InfeasibleError:
    """Return an error with what a server lacks and the changes that hold weights and one request, the fastest first.

    Of changes of the same words the one on fewest GPUs counts. An error that has another reason than memory comes back
    as it is.

    Args:
        error: why the server is refused.
        server: the server.
        request: what was asked for it.
        serving: requests and limits.
        made: makes the server of another request.
        framework: the engine of the launch it came from, whose settings changes are; None for flags.
    """
    from ...report.advice import lack

    need, have = _needed(server)
    if need <= have:
        return error
    held: dict[frozenset[str], tuple[float, str]] = {}
    for change in _changes(request, server):
        text = _text(change, framework)
        if text is not None and frozenset(change) not in held:
            held |= {frozenset(change): (s, text) for s in _seconds(request.said(change), serving, made)}
    ranked = sorted(held.values())[:_MOST]
    steps = "; or ".join(f"{text} ({format_time(s)} a token)" if s < float("inf") else text for s, text in ranked)
    told = f"Try {steps}" if ranked else f"nothing up to {server.system.node_size} GPUs, a node, holds it: raise --pp"
    return InfeasibleError(f"DOES NOT FIT: needs {lack(need, have)}: {error}. {told}")


def _needed(server: Server) -> tuple[float, float]:
    """Return the bytes of a device that weights, temporaries and one request take, and those the engine may use."""
    from ...cost.serving.capacity import held_bytes

    have = float(server.system.chip.hbm_bytes) * server.engine.scheduler.memory_utilization
    held = float(held_bytes(server.times, server.engine.scheduler, float(server.longest)))
    return have - float(server.times.free_bytes) + held, have


def _changes(request: Request, server: Server) -> Iterator[Mapping[str, object]]:
    """Yield changes by the words of flags, those of the fewest GPUs first."""
    words, inside = request.words, server.system.node_size
    if words.kv_dtype not in ("fp8", "int8", "fp4") and server.times.free_bytes > 0:
        yield {"kv_dtype": "fp8"}
    if words.precision == "none":
        yield {"precision": "fp8"}
    for tp in (2**k for k in range(1, inside.bit_length()) if words.tp < 2**k <= inside):
        yield {"tp": tp, **_gpus(request, tp * words.pp)}
    for pp in (2**k for k in range(1, 5) if 2**k > words.pp):
        yield {"pp": pp, **_gpus(request, words.tp * pp)}


def _gpus(request: Request, ranks: int) -> Mapping[str, object]:
    """Return the GPUs of a server whose replicas have so many ranks, where those asked for are no multiple of them."""
    words = request.words
    needed = ranks * words.cp * (words.dp or 1)
    return {} if words.num_gpus is None or words.num_gpus % needed == 0 else {"gpus": needed}


def _seconds(request: Request, serving: Serving, made: Callable[[Request], Server]) -> Sequence[float]:
    """Return the seconds of a token on a server that holds a request, infinite under too much load; none on others."""
    from ...driver.serve.serve import serve

    try:
        server = made(request)
    except SlipstickError:
        # A degree that does not divide the model, or a type that the chip has not.
        return ()
    need, have = _needed(server)
    if need > have:
        return ()
    try:
        return (serve(server, serving.lengths, serving.load, serving.target).metrics["tpot_s"],)
    except (SlipstickError, KeyError):
        return (float("inf"),)


def _text(change: Mapping[str, object], framework: str | None) -> str | None:
    from ...frameworks.changes import write_flags, write_words
    from ...ir.plan.words import WORDS

    fields = {WORDS[name].field: value for name, value in change.items()}
    return write_flags(fields) if framework is None else write_words(framework, fields)
