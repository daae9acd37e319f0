"""Traffic and lengths as people type them: `poisson:4,n=1000`, `diurnal:9,2`, `closed:32`, `trace.csv`; `128..1024`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ....ir.errors import UsageError, did_you_mean
from ....ir.units import number_of, parse_quantity, parse_typed
from .sizes import MOST_REQUESTS, MOST_TOKENS, Fixed, Length, LengthMix, LengthSource, Lognormal, Uniform
from .trace_files import read_sizes, read_trace
from .traffic import Traffic, burst, closed, poisson, poisson_for
from .varying import diurnal_traffic, stepped_traffic

FORMS = (
    "poisson:RATE[,n=N|duration=TIME][,burstiness=B][,seed=K]",
    "closed:CLIENTS[,n=N][,think=TIME][,ramp=TIME][,seed=K]",
    "burst:N[,seed=K]",
    "diurnal:PEAK,LOW[,period=TIME][,duration=TIME][,seed=K]",
    "steps:RATE@TIME+RATE@TIME...[,seed=K]",
    "FILE.csv|FILE.jsonl[,n=N][,speed=X]",
)
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
FILES = (".csv", ".jsonl", ".ndjson")


def parse_traffic(text: str, sizes: LengthSource) -> Traffic:
    """Read what `--serve` says; lengths are those of `sizes`, or those of the trace.

    UsageError: a kind or an option that is not known, a number that is none.

    >>> traffic = parse_traffic("poisson:2/s,n=3,seed=1", LengthMix(Fixed(100), Uniform(10, 20)))
    >>> len(traffic), traffic.requests.prompt
    (3, array([100, 100, 100]))
    >>> parse_traffic("closed:8,think=500ms", LengthMix(Fixed(100), Fixed(10))).think_s
    0.5
    """
    head, *options = text.split(",")
    if head.lower().endswith(FILES):
        return _trace(Path(head), _options(text, options, ("n", "speed")))
    kind, colon, value = head.partition(":")
    makers: Mapping[str, tuple[Callable[[str, Mapping[str, str], LengthSource], Traffic], tuple[str, ...]]] = {
        "poisson": (_poisson, ("n", "duration", "burstiness", "seed")),
        "closed": (_closed, ("n", "think", "ramp", "seed")),
        "burst": (_burst, ("seed",)),
        "diurnal": (_diurnal, ("low", "period", "duration", "seed")),
        "steps": (_steps, ("seed",)),
    }
    if not colon or kind not in makers:
        raise UsageError(f"traffic is not '{text}'{did_you_mean(kind, list(makers))} allowed: {'; '.join(FORMS)}")
    make, known = makers[kind]
    if kind == "diurnal" and options and "=" not in options[0]:
        options[0] = f"low={options[0]}"
    return make(value, _options(text, options, known), sizes)


def parse_sizes(prompt: str, output: str, cached: float = 0.0, cached_tokens: int = 0) -> LengthSource:
    """Read the lengths of prompts and answers; where the first is a file, both are drawn from it.

    >>> parse_sizes("512", "100..200")
    LengthMix(prompt=Fixed(tokens=512), output=Uniform(low=100, high=200), cached=0.0, cached_tokens=0)
    """
    if prompt.lower().endswith(FILES):
        return read_sizes(Path(prompt))
    return LengthMix(parse_length(prompt), parse_length(output), cached, cached_tokens)


def parse_length(text: str) -> Length:
    """Read one length: `512`, a range `128..1024`, or `lognormal:MEAN,CV`.

    >>> parse_length("lognormal:512,0.8")
    Lognormal(mean=512.0, cv=0.8)
    """
    if text.startswith("lognormal:"):
        mean, comma, cv = text.removeprefix("lognormal:").partition(",")
        return Lognormal(_number("mean", mean), _number("cv", cv if comma else "1"))
    low, dots, high = text.partition("..")
    if dots:
        return Uniform(*(_count(name, end, most=MOST_TOKENS) for name, end in (("low", low), ("high", high))))
    tokens = _count("a length", text, most=MOST_TOKENS)
    if tokens < 1:
        raise UsageError(f"a length must be 1 token or more, and is {tokens}")
    return Fixed(tokens)


def _poisson(rate: str, options: Mapping[str, str], sizes: LengthSource) -> Traffic:
    per_s, seed = parse_quantity(rate, "Hz").value_si, _seed(options)
    burstiness = _number("burstiness", options.get("burstiness", "1"))
    if "duration" not in options:
        return poisson(per_s, sizes, _count("n", options.get("n", "1000"), 1), seed, burstiness)
    if "n" in options:
        raise UsageError("poisson takes a number of requests or a duration, not both")
    return poisson_for(per_s, sizes, parse_typed(options["duration"], "s", "duration"), seed, burstiness)


def _closed(clients: str, options: Mapping[str, str], sizes: LengthSource) -> Traffic:
    think_s, ramp_s = (parse_typed(options.get(name, "0"), "s", name) for name in ("think", "ramp"))
    num, seed = (
        _count("the number of requests", options["n"], 1) if "n" in options else 0,
        _seed(options),
    )
    return closed(_count("clients", clients), sizes, num, seed, think_s, ramp_s)


def _burst(num: str, options: Mapping[str, str], sizes: LengthSource) -> Traffic:
    return burst(_count("the number of requests", num, 1), sizes, _seed(options))


def _diurnal(peak: str, options: Mapping[str, str], sizes: LengthSource) -> Traffic:
    if "low" not in options:
        raise UsageError("diurnal takes two rates, the peak and the least: diurnal:PEAK,LOW")
    period_s = parse_typed(options.get("period", "24h"), "s", "period")
    duration_s = parse_typed(options["duration"], "s", "duration") if "duration" in options else period_s
    peak_per_s, low_per_s = (parse_quantity(text, "Hz").value_si for text in (peak, options["low"]))
    return diurnal_traffic(peak_per_s, low_per_s, period_s, duration_s, sizes, _seed(options))


def _steps(text: str, options: Mapping[str, str], sizes: LengthSource) -> Traffic:
    pairs = [step.partition("@") for step in text.split("+")]
    if not all(at for _, at, _ in pairs):
        raise UsageError(f"steps:{text[:40]}: rates, each with its time, as in steps:2@60s+10@5min")
    found = [(parse_quantity(rate, "Hz").value_si, parse_typed(time, "s", "a step")) for rate, _, time in pairs]
    return stepped_traffic(found, sizes, _seed(options))


def _trace(path: Path, options: Mapping[str, str]) -> Traffic:
    traffic = read_trace(path, _number("speed", options.get("speed", "1")))
    return traffic.first(_count("the number of requests", options.get("n", str(len(traffic))), 1))


def _options(text: str, given: Sequence[str], known: Sequence[str]) -> Mapping[str, str]:
    pairs = {}
    for one in given:
        key, equals, value = one.partition("=")
        if key not in known or not equals:
            hint = did_you_mean(key, known)
            raise UsageError(f"'{one}' is no option of '{text}'{hint} allowed: {', '.join(f'{k}=' for k in known)}")
        pairs[key] = value
    return pairs


def _count(name: str, text: str, least: int = 0, most: int = MOST_REQUESTS) -> int:
    if not _WHOLE.fullmatch(text):
        raise UsageError(f"{name} must be a whole number, and is '{text[:40]}'")
    # Python reads no number of some thousand digits.
    number = int(text) if len(text) < 40 else most + 1
    if number < least:
        raise UsageError(f"{name} must be {least} or more, and is {number}")
    if number > most:
        raise UsageError(f"{name} must be at most {most:,}, and is {text[:40]}")
    return number


def _seed(options: Mapping[str, str]) -> int:
    return _count("seed", options.get("seed", "0"), most=2**63 - 1)


def _number(name: str, text: str) -> float:
    try:
        return number_of(text)
    except ValueError:
        raise UsageError(f"{name} must be a number, and is '{text[:40]}'") from None
