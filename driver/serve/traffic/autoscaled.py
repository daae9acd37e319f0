"""Autoscaling as people write it, `1:8,target=32,startup=90s`, and what it came to beside a fixed fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from ....cost.serving.simulate.autoscale import (
    DOWN_S,
    INTERVAL_S,
    STARTUP_S,
    TOLERANCE,
    UP_S,
    Autoscaling,
    ScaledReplicas,
)
from ....cost.serving.simulate.result import SimulatedServing
from ....cost.serving.slo import SLO
from ....cost.serving.traffic.requests import Lengths
from ....cost.serving.traffic.traffic import Traffic
from ....ir.errors import UsageError, did_you_mean
from ....ir.units import format_time, is_digits, number_of, parse_quantity, parse_typed
from ..answer import ServeEstimate
from ..load import most_within
from ..server import Server

# Of the requests in flight that a replica may have: `container-concurrency-target-percentage` of Knative.
USUAL_SHARE = 0.7
MOST_REPLICAS = 10_000
_TIMES = {"interval": INTERVAL_S, "up": UP_S, "down": DOWN_S, "startup": STARTUP_S}
_WORDS = ("target", "rps", "initial", "tolerance", *_TIMES)
# Sums over replicas.
_SUMS = ("requests_per_s", "tokens_per_s", "total_tokens_per_s", "concurrency")
_FORM = "MIN:MAX[,target=N or rps=R][,interval=TIME][,up=TIME][,down=TIME][,startup=TIME][,initial=N][,tolerance=X]"


def most_replicas(text: str) -> int:
    """Return MAX of `MIN:MAX...`: the replicas that a server needs to have.

    >>> most_replicas("1:8,target=32")
    8
    """
    return _bounds(text)[1]


def with_autoscaling(server: Server, text: str, traffic: Traffic, target: SLO) -> Server:
    """Return a server whose replicas come and go as `text` says, up to all that it has.

    Where no target of a replica is said, it is 70 % of the requests in flight that a closed form has within a limit on
    latencies, else of those with which a replica answers most. UsageError where replicas share experts.
    """
    if server.times.coupled > 1:
        raise UsageError("--autoscale: replicas that share experts come and go together; allowed: --ep 1")
    least, most, said = *_bounds(text), _words(text)
    if "target" in said and "rps" in said:
        raise UsageError("--autoscale: target= is of requests in flight and rps= of those a second: give one")
    if "rps" in said:
        of, aim = "rps", parse_quantity(said["rps"], "Hz").value_si
    else:
        of, aim = "concurrency", _number(said["target"]) if "target" in said else _usual(server, traffic, target)
    interval_s, up_s, down_s, startup_s = (
        parse_typed(said[word], "s", word) if word in said else usual for word, usual in _TIMES.items()
    )
    rule = Autoscaling(
        least=least,
        most=most,
        target=aim,
        of=of,
        interval_s=interval_s,
        up_s=up_s,
        down_s=down_s,
        startup_s=startup_s,
        tolerance=_number(said["tolerance"]) if "tolerance" in said else TOLERANCE,
        initial=_count(said["initial"]) if "initial" in said else None,
    )
    if most != server.num_replicas:
        raise UsageError(
            f"--autoscale {least}:{most} of a plan of {server.num_replicas} replicas: leave --gpus and --dp out, or "
            f"give --dp {most}"
        )
    return replace(server, autoscaling=rule)


def _bounds(text: str) -> tuple[int, int]:
    least, colon, most = text.split(",")[0].partition(":")
    if not colon:
        raise UsageError(f"--autoscale {text[:40]}: {_FORM}, as in 1:8,target=32")
    return _count(least), _count(most)


def _words(text: str) -> dict[str, str]:
    found = dict[str, str]()
    for one in text.split(",")[1:]:
        word, equals, value = one.partition("=")
        if word not in _WORDS or not equals or word in found:
            raise UsageError(f"--autoscale: '{one[:40]}'{did_you_mean(word, _WORDS)} allowed, each once: {_FORM}")
        found[word] = value
    return found


def _count(text: str) -> int:
    if not is_digits(text.strip()) or len(text) > 9 or int(text) > MOST_REPLICAS:
        raise UsageError(f"--autoscale: replicas are 0 to {MOST_REPLICAS:,}, not '{text[:40]}'; allowed: {_FORM}")
    return int(text)


def _number(text: str) -> float:
    try:
        return number_of(text)
    except ValueError:
        raise UsageError(f"--autoscale: '{text[:40]}' is no number; allowed: {_FORM}") from None


def _usual(server: Server, traffic: Traffic, target: SLO) -> float:
    requests = traffic.requests
    lengths = Lengths(float(round(requests.prompt.mean())), float(round(requests.output.mean())))
    if server.engine.scheduler.batching == "static":
        raise UsageError("--autoscale of static batches: say how many requests a replica shall have, with target=N")
    found = most_within(server.times, server.engine.at_random, lengths, target) if target else server.most(lengths)
    return max(1.0, USUAL_SHARE * float(found.concurrency))


def beside_fixed(answer: ServeEstimate, fixed: SimulatedServing, fixed_s: float, target: SLO) -> ServeEstimate:
    """Return an answer with what its replicas came to, beside a fleet that always has all of them for `fixed_s`.

    Sums over replicas are of those that are there: of the mean, as its closed form is of one of them.
    """
    run, rule, gpus = answer.simulated, answer.server.autoscaling, answer.num_gpus // answer.server.num_replicas
    assert run is not None
    assert rule is not None
    scaled, share = run.scaled[0], run.scaled[0].mean / rule.most
    sums = {name: answer.metrics[name] * share for name in _SUMS}
    hours = {
        "gpu_hours": gpus * scaled.mean * scaled.span_s / 3600.0,
        "gpu_hours_fixed": gpus * rule.most * fixed_s / 3600.0,
    }
    metrics = {**answer.metrics, **sums, **hours, **dict(_fleet_metrics(scaled, fixed))}
    if target:
        metrics["fixed_goodput_share"] = fixed.goodput(*target.bounds).share
    note = _note(rule, scaled, metrics)
    return replace(answer, metrics=metrics, warnings=(*answer.warnings, note))


def _fleet_metrics(scaled: ScaledReplicas, fixed: SimulatedServing) -> Iterator[tuple[str, float]]:
    yield "replicas_mean", scaled.mean
    yield "replicas_serving", scaled.mean_serving
    yield "replicas_most", float(scaled.most)
    yield "replica_starts", float(scaled.starts)
    for name, one in (("ttft", fixed.ttft), ("tpot", fixed.tpot)):
        for part, value in (("p50", one.median), ("p90", one.p90), ("p99", one.p99)):
            if not np.isnan(value):
                yield f"fixed_{name}_{part}_s", value


def _note(rule: Autoscaling, scaled: ScaledReplicas, metrics: Mapping[str, float]) -> str:
    hours, fixed_hours = metrics["gpu_hours"], metrics["gpu_hours_fixed"]
    looks = f"{rule.target:.4g} {'in flight' if rule.of == 'concurrency' else 'requests/s'} a replica"
    worse = ", ".join(
        f"{name.upper()} p99 {format_time(metrics[f'{name}_p99_s'])} ({format_time(metrics[f'fixed_{name}_p99_s'])})"
        for name in ("ttft", "tpot")
        if f"fixed_{name}_p99_s" in metrics
    )
    return (
        f"{rule.least} to {rule.most} replicas at {looks}, looked at every {format_time(rule.interval_s)}, "
        f"{format_time(rule.startup_s)} to start: {scaled.mean:.2f} on average, {1.0 - hours / fixed_hours:.1%} fewer "
        f"GPU-hours than a fixed fleet of {rule.most}; {worse} (in brackets: of the fixed fleet)"
    )
