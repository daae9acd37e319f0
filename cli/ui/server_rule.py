"""The engine behind the slide rule of servers: latencies, money, curves over load, and the best plan for the limits."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from ...app.plans.text import command_arguments
from ...app.prepare import published_otherwise
from ...app.request import Request
from ...app.serving.serve import answer_for, lowered_of, priced_serving, server_of
from ...app.serving.words import Serving
from ...cost.serving.slo import COARSE, SLO, rate_under
from ...driver.metrics import METRICS, format_metric
from ...driver.serve.answer import ServeEstimate
from ...ir.errors import SlipstickError
from ...ir.plan import Family
from ...ir.records import dataclass
from ...ir.units import format_bytes, format_time
from ...report.bounds import bound_seconds
from ...report.labels import bound_label, request_part_label
from ...report.serving.load_curve import latency_columns, load_curve
from .dragged_server import DraggedServer

if TYPE_CHECKING:
    from ...driver.estimate import Lowered
    from ...driver.serve.server import Server

_TILES = (
    "ttft_s",
    "ttft_tail_s",
    "tpot_s",
    "tpot_tail_s",
    "requests_per_s",
    "concurrency",
    "serve_utilization",
    "tokens_per_s_per_gpu",
    "usd_per_mtok_output",
    "usd_per_mtok",
    "usd_per_gpu_hour",
)
_CLASSES = {"prefill": "compute", "decode": "communication", "host": "host", "transfer": "optimizer"}
_TP, _PP = (1, 2, 4, 8, 16), (1, 2, 4)
# Models that are kept lowered, and servers whose most requests within limits are.
_KEPT = 64
Record = dict[str, object]


@dataclass(slots=True)
class ServerRule:
    """Models that were lowered for serving, so that a drag prices steps only; and how much other degrees answer."""

    lowered: dict[tuple[str, str, Family, bool], Lowered] = field(default_factory=dict)
    most: dict[DraggedServer, float] = field(default_factory=dict)
    last: tuple[object, Server | None] = (None, None)

    def answer(self, asked: DraggedServer) -> Record:
        """Return the answer for a point as a page shows it; where there is none, why, and the best plan there is."""
        found: Record = {"command": shlex.join(["slipstick", "estimate", asked.model, *asked.flags])}
        found["python"] = asked.python
        try:
            request, serving = _asked(asked)
            answer = priced_serving(request, answer_for(request, serving, making=self._server))
            found |= _shown(answer, serving.target, published_otherwise(request))
        except SlipstickError as error:
            found["error"] = str(error)
        return found | self._best(asked)

    def warm(self, asked: DraggedServer) -> int:
        """Work out what one more of the plans answers that the best is chosen from; return how many are left."""
        missing = [one for one in _others(asked) if one not in self.most]
        for one in missing[:1]:
            while len(self.most) >= _KEPT:
                del self.most[next(iter(self.most))]
            self.most[one] = self._most(one)
        return max(len(missing) - 1, 0)

    def _server(self, request: Request, serving: Serving, longest: int) -> Server:
        """Return the server of a request; the last one is kept, for loads and limits are not of it."""
        key = (request, serving.engine, longest)
        if self.last[1] is None or self.last[0] != key:
            self.last = (key, server_of(request, serving, longest, self._lowered))
        assert self.last[1] is not None
        return self.last[1]

    def _lowered(self, request: Request, family: Family) -> Lowered:
        key = (request.source.model, request.words.phase, family, request.words.tp > 1)
        if key not in self.lowered:
            while len(self.lowered) >= _KEPT:
                del self.lowered[next(iter(self.lowered))]
            self.lowered[key] = lowered_of(request, family)
        return self.lowered[key]

    def _most(self, asked: DraggedServer) -> float:
        """Return the most requests a second within the limits, 0 where there is no such server or none are met."""
        try:
            request, serving = _asked(asked)
            server = server_of(request, serving, serving.prompt + serving.output, self._lowered)
            each = rate_under(server.times, server.engine, serving.lengths, serving.target, COARSE)
        except SlipstickError:
            return 0.0
        return float(each.requests_per_s) * server.num_replicas

    def _best(self, asked: DraggedServer) -> Record:
        """Return the degrees that answer most within the limits, of those worked out; `warming` where some are not."""
        others = list(_others(asked))
        found = [(self.most[one], one) for one in others if one in self.most]
        missing = len(others) - len(found)
        most, best = max(found, key=lambda pair: pair[0], default=(0.0, None))
        if missing or best is None or most <= 0.0:
            return {"best": None, "warming": missing}
        told = f"tp{best.tp} pp{best.pp} dp{best.gpus // (best.tp * best.pp)}"
        within = " within the limits" if asked.ttft_ms or asked.tpot_ms else ""
        shown = {"take": {"tp": best.tp, "pp": best.pp}, "told": f"{told}: up to {most:.3g} requests/s{within}"}
        return {"best": shown, "warming": 0}


def _others(asked: DraggedServer) -> Iterator[DraggedServer]:
    """Yield servers of the same GPUs with other degrees; neither load nor price is of them."""
    factors = tuple((name, 1.0 if name == "price" else factor) for name, factor in asked.factors)
    plain = replace(asked, factors=factors, load="request rate", rate=1.0, clients=1)
    for tp in _TP:
        for pp in _PP:
            if asked.gpus % (tp * pp) == 0:
                yield replace(plain, tp=tp, pp=pp)


def _asked(asked: DraggedServer) -> tuple[Request, Serving]:
    """Read a point as the command line that it is."""
    arguments = command_arguments([asked.model, *asked.flags, "--quiet"])
    return Request.of(arguments), Serving.of(arguments)


def _shown(answer: ServeEstimate, target: SLO, notes: tuple[str, ...]) -> Record:
    """Return what a page shows of a server: numbers of the report, and beside them what people read."""
    metrics = {**answer.metrics, **({} if answer.money is None else answer.money.metrics)}
    total, capacity = metrics["e2el_s"], float(answer.server.system.chip.hbm_bytes)
    first, gap = target.seen(answer.found)
    missed = {
        "ttft_tail_s" if target.ttft_share else "ttft_s": float(first) > target.bounds[0],
        "tpot_tail_s" if target.tpot_share else "tpot_s": float(gap) > target.bounds[1],
    }
    labels = {"ttft_tail_s": target.labels[0], "tpot_tail_s": target.labels[1]}
    bounds = bound_seconds(answer.decode)
    step_s = answer.decode.metrics["step_time_s"]
    return {
        "fits": True,
        "metrics": {name: metrics[name] for name in _TILES if name in metrics},
        "tiles": [
            {
                "name": labels.get(name, METRICS[name].label),
                "value": format_metric(name, metrics[name]),
                "bad": missed.get(name, False),
            }
            for name in _TILES
            if name in metrics
        ],
        "breakdown": [
            {
                "name": request_part_label(name),
                "class": _CLASSES.get(name.partition(".")[0], "bubble"),
                "seconds": seconds,
                "told": format_time(seconds),
                "share": seconds / total,
            }
            for name, seconds in sorted(answer.breakdown_s.items(), key=lambda one: -one[1])
            if seconds > 5e-4 * total
        ],
        "bounds": [
            {"name": bound_label(name), "seconds": s, "share": s / step_s, "told": f"{s / step_s:.1%}"}
            for name, s in list(bounds.items())[:6]
            if s > 0
        ],
        "memory": [
            {"name": name.replace("_", " ").replace("kv cache", "KV cache"), "bytes": held, "told": format_bytes(held)}
            for name, held in answer.memory_bytes.items()
            if held > 0
        ],
        "capacity": {"bytes": capacity, "told": format_bytes(capacity)},
        "curves": list(_curves(answer, target)),
        "warnings": [*answer.warnings, *notes],
    }


def _curves(answer: ServeEstimate, target: SLO) -> Iterator[Record]:
    """Yield TTFT and TPOT over requests/s, with percentiles; and tokens/s of a GPU over those of a user."""
    curve, here = load_curve(answer), answer.metrics["requests_per_s"]
    if not curve:
        return
    rates = curve["requests_per_s"]
    for short, limit in zip(("TTFT", "TPOT"), target.bounds, strict=True):
        lines = [
            {"name": name, "y": curve[key].tolist(), "told": [format_time(s) for s in curve[key].tolist()]}
            for name, key in latency_columns(short).items()
            if np.isfinite(curve[key]).all()
        ]
        yield {
            "label": f"{short} over requests/s",
            "names": [f"{rate:.3g}" for rate in rates],
            "x": rates.tolist(),
            "here": here,
            "linear": True,
            "lines": lines,
            **({"limit": limit} if np.isfinite(limit) else {}),
        }
    if np.isfinite(curve["tpot_s"]).all():
        users, tokens = (1.0 / curve["tpot_s"])[::-1], curve["tokens_per_s_per_gpu"][::-1]
        yield {
            "label": "tokens/s/GPU over tokens/s/user",
            "names": [f"{user:.3g}" for user in users],
            "x": users.tolist(),
            "here": answer.metrics["tokens_per_s_per_user"],
            "linear": True,
            "lines": [{"name": "", "y": tokens.tolist(), "told": [f"{one:,.3g}" for one in tokens.tolist()]}],
        }
