"""Requests of a server as the events of a Chrome trace: the life of one, or simulated steps and requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ....cost.serving.simulate.book import SimulatedSteps
from ....ir.records import dataclass
from ...labels import request_part_label
from .events import complete, counter, nanoseconds, process, thread

if TYPE_CHECKING:
    from ....driver.serve.answer import ServeEstimate

# Decode steps of a request, and requests of a simulation, that are shown one by one.
STEPS, REQUESTS = 256, 500
_PHASES, _PARTS = 1, 2
Pieces = Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class ServingTrace:
    """What is written of a server."""

    answer: ServeEstimate

    @property
    def num_processes(self) -> int:
        """The requests, and the replicas that a simulation shows."""
        return 1 + len(self._lanes())

    def processes(self) -> Iterator[Iterator[str]]:
        """Yield the events of the requests, then those of one replica after the other."""
        run = self.answer.simulated
        if run is None:
            yield self._life()
            return
        yield self._requests()
        for place, lane in enumerate(self._lanes(), 1):
            yield self._replica(place, [step for step in run.steps if step.lane == lane], lane)

    def about(self) -> Mapping[str, object]:
        """Say what the trace is of, and what it leaves out."""
        server, run = self.answer.server, self.answer.simulated
        found: dict[str, object] = {
            "schema": "slipstick/trace/1",
            "model": server.served.decode.source.name,
            "system": server.system.name,
            "plan": server.plan.degrees,
            "engine": server.engine.name,
            "metrics": dict(self.answer.metrics),
            "breakdown_s": dict(self.answer.breakdown_s),
        }
        if run is not None:
            found |= {"steps": run.num_steps, "steps_shown": sum(step.num for step in run.steps)}
        return found

    @property
    def left_out(self) -> Sequence[str]:
        """What a reader of the trace does not see, in words."""
        run = self.answer.simulated
        if run is None:
            more = int(self.answer.lengths.gaps) - STEPS
            return (f"{more:,} of the decode steps are one slice",) if more > 0 else ()
        steps, requests = sum(step.num for step in run.steps), len(run.served.output)
        told = (("steps", run.num_steps, steps), ("requests", requests, min(requests, REQUESTS)))
        return tuple(f"{shown:,} of {num:,} {what}" for what, num, shown in told if shown < num)

    def _lanes(self) -> Sequence[int]:
        run = self.answer.simulated
        return () if run is None else sorted({step.lane for step in run.steps})

    def _life(self) -> Iterator[str]:
        """One request: its overhead, what it waits for, its prefill, and its decode steps, each in its parts."""
        parts, m, gaps = self.answer.breakdown_s, self.answer.metrics, int(self.answer.lengths.gaps)
        yield from process(0, "request", 0)
        yield from thread(0, _PHASES, "phases")
        yield from thread(0, _PARTS, "parts of steps")
        way_in, waits = parts.get("host.request", 0.0), parts.get("queue", 0.0)
        first = m["ttft_s"] - way_in - waits
        at = 0.0
        for name, seconds in (("request overhead", way_in), ("waits", waits), ("prefill", first)):
            if name == "prefill":
                prompt = [(request_part_label(k), s) for k, s in parts.items() if k.startswith("prefill.")]
                yield from _row(_PARTS, at, _with_host(prompt, seconds))
            yield from _row(_PHASES, at, [(name, seconds)])
            at += seconds
        if not gaps:
            return
        step = [(request_part_label(k), s / gaps) for k, s in parts.items() if k.startswith(("decode.", "interf"))]
        shown = min(gaps, STEPS)
        for token in range(shown):
            yield from _row(_PHASES, at, [(f"token {token + 2}", m["tpot_s"])])
            yield from _row(_PARTS, at, _with_host(step, m["tpot_s"]))
            at += m["tpot_s"]
        if gaps > shown:
            yield from _row(_PHASES, at, [(f"{gaps - shown:,} more tokens", (gaps - shown) * m["tpot_s"])])

    def _requests(self) -> Iterator[str]:
        """The first requests, each on a row of its own."""
        run = self.answer.simulated
        assert run is not None
        served = run.served
        yield from process(0, "requests", 0)
        start = float(served.arrived_s.min())
        for k in range(min(len(served.output), REQUESTS)):
            moments = [float(a[k]) - start for a in (served.arrived_s, served.start_s, served.first_s, served.finish_s)]
            yield from thread(0, k + 1, f"request {k + 1}")
            args = f'"prompt":{int(served.prompt[k])},"output":{int(served.output[k])}'
            for name, since, until in zip(("waits", "prefill", "decode"), moments, moments[1:], strict=False):
                yield complete(0, k + 1, name, "request", nanoseconds(since), nanoseconds(until), args)

    def _replica(self, place: int, steps: Sequence[SimulatedSteps], lane: int) -> Iterator[str]:
        """Steps of one replica, and what they hold."""
        run = self.answer.simulated
        assert run is not None
        origin = float(run.served.arrived_s.min())
        yield from process(place, f"replica {lane}", place)
        yield from thread(place, 1, "steps")
        for step in steps:
            since = nanoseconds(step.start_s - origin)
            until = nanoseconds(step.start_s + step.length_s - origin)
            name = f"{f'{step.num} x ' if step.num > 1 else ''}decode {step.batch}" if step.batch else "prompts"
            name += f" + {step.prompt_tokens} of prompts" if step.prompt_tokens and step.batch else ""
            args = {"batch": step.batch, "prompts": step.prompts, "prompt_tokens": step.prompt_tokens}
            yield complete(place, 1, name, "step", since, until, json.dumps(args)[1:-1])
            yield counter(place, "batch", since, {"sequences": step.batch})
            yield counter(place, "KV cache", until, {"bytes": step.kv_bytes})


def _with_host(parts: Pieces, seconds: float) -> Pieces:
    """Parts of a step, and the host for the rest of it."""
    rest = seconds - sum(s for _, s in parts)
    return [*parts, ("host", rest)] if rest > 1e-12 else parts


def _row(row: int, at_s: float, pieces: Pieces) -> Iterator[str]:
    """Slices of one row, one behind the other."""
    for name, seconds in pieces:
        start, end = nanoseconds(at_s), nanoseconds(at_s + seconds)
        if end > start:
            yield complete(0, row, name, "request", start, end)
        at_s += seconds
