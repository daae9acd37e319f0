"""Words of a training run, and the run that they describe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..ir.errors import UsageError, did_you_mean
from ..ir.records import dataclass
from ..ir.units import is_digits

if TYPE_CHECKING:
    from ..cost.run.sites import Sites
    from ..cost.run.training_run import Amount, Checkpoints, Failures, TrainingRun, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWords:
    """What a user said of a whole run, as typed."""

    tokens: str | None
    samples: str | None
    steps: str | None
    checkpoint_every: str | None
    checkpoint_bandwidth: str | None
    checkpoint_node_bandwidth: str | None
    checkpoint_bytes: str | None
    checkpoint_stall: str | None
    checkpoint_async: bool | None
    mtbf: str | None
    restart_time: str | None
    sites: int | None = None
    site_bandwidth: str | None = None
    site_latency: str | None = None
    sync_every: int | None = None
    sync_dtype: str | None = None
    sync_fragments: int | None = None
    sync_overlap: int | None = None


_COUNT = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE][+]?[0-9]+)?)\s*([A-Za-z]?)")
_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_STEPS = re.compile(r"([0-9]+)\s*steps?")


def run_of(run: RunWords, phase: str) -> TrainingRun | None:
    """Return the training run that was asked for, if any; UsageError for flags that do not go together."""
    amount, unit = _length(run)
    checkpoints, failures, sites = _checkpoints(run), failures_of(run), _sites(run)
    if amount is None and checkpoints is None and failures is None and sites is None:
        return None
    if phase != "train":
        raise UsageError(f"--tokens, --checkpoint-..., --mtbf, --sites are for training runs, and --phase is {phase}")
    from ..cost.run.training_run import TrainingRun

    return TrainingRun(amount=amount, unit=unit, checkpoints=checkpoints, failures=failures, sites=sites)


def count_of(text: str) -> float:
    """Read a number of things, with K, M, B or T behind it.

    >>> count_of("15.6T"), count_of("2_000"), count_of("1e9"), count_of("3 b")
    (15600000000000.0, 2000.0, 1000000000.0, 3000000000.0)
    """
    match = _COUNT.fullmatch(text.strip())
    scale = None if match is None else _SCALES.get(match[2].upper())
    if match is None or scale is None:
        raise UsageError(f"'{text}' is not a count: write a number and K, M, B or T, as in 15T")
    return float(re.sub("[_,]", "", match[1])) * scale


def _length(run: RunWords) -> tuple[float | None, Amount]:
    units: tuple[tuple[Amount, str | None], ...] = (
        ("tokens", run.tokens),
        ("samples", run.samples),
        ("steps", run.steps),
    )
    given: list[tuple[Amount, str]] = [(unit, text) for unit, text in units if text is not None]
    if not given:
        return None, "tokens"
    if len(given) > 1:
        raise UsageError(f"{' and '.join(f'--{unit}' for unit, _ in given)} all say how long the run is: give one")
    return count_of(given[0][1]), given[0][0]


def _checkpoints(run: RunWords) -> Checkpoints | None:
    given = (
        run.checkpoint_every,
        run.checkpoint_bandwidth,
        run.checkpoint_node_bandwidth,
        run.checkpoint_bytes,
        run.checkpoint_stall,
        run.checkpoint_async,
    )
    if all(flag is None for flag in given):
        return None
    from ..cost.run.training_run import Checkpoints

    every_steps, every_s = _every(run.checkpoint_every)
    return Checkpoints(
        every_steps=every_steps,
        every_s=every_s,
        bytes_per_s=quantity_of(run.checkpoint_bandwidth, "B/s"),
        node_bytes_per_s=quantity_of(run.checkpoint_node_bandwidth, "B/s"),
        num_bytes=quantity_of(run.checkpoint_bytes, "B"),
        stall_s=quantity_of(run.checkpoint_stall, "s", "--checkpoint-stall"),
        asynchronous=bool(run.checkpoint_async),
    )


def _every(text: str | None) -> tuple[int | None, float | None]:
    """Read `auto`, a number of steps, or a time; a bare number could be either."""
    if text is None or text == "auto":
        return None, None
    if match := _STEPS.fullmatch(text.strip()):
        return int(match[1]), None
    if is_digits(text.strip()):
        raise UsageError(f"--checkpoint-every {text}: say {text}steps or {text}min; or auto")
    return None, quantity_of(text, "s", "--checkpoint-every")


def failures_of(run: RunWords) -> Failures | None:
    """Return how often parts fail, if it was said; UsageError for what does not fail, and for a time alone."""
    if run.mtbf is None:
        if run.restart_time is not None:
            raise UsageError("--restart-time counts where something fails: say how often with --mtbf")
        return None
    from ..cost.run.training_run import UNITS, Failures

    text, slash, word = run.mtbf.rpartition("/")
    of: Unit | None = next((unit for unit in UNITS if unit == word), None) if slash else "gpu"
    if of is None:
        near = did_you_mean(word, UNITS)
        raise UsageError(f"--mtbf {run.mtbf}: '{word}' does not fail{near} allowed: {', '.join(UNITS)}")
    mtbf_s, restart_s = (
        quantity_of(value, "s", flag)
        for value, flag in ((text if slash else word, "--mtbf"), (run.restart_time, "--restart-time"))
    )
    assert mtbf_s is not None
    return Failures(mtbf_s=mtbf_s, of=of) if restart_s is None else Failures(mtbf_s=mtbf_s, of=of, restart_s=restart_s)


def _sites(run: RunWords) -> Sites | None:
    if run.sites is None:
        names = ("site_bandwidth", "site_latency", "sync_every", "sync_dtype", "sync_fragments", "sync_overlap")
        given = {f"--{name.replace('_', '-')}": getattr(run, name) for name in names}
        refuse_idle(given, "of several sites: say how many with --sites N")
        return None
    from ..cost.run.sites import Sites

    rate = quantity_of(run.site_bandwidth, "B/s", "--site-bandwidth")
    if rate is None or run.sync_every is None:
        raise UsageError("--sites needs --site-bandwidth, such as 1Gbit/s, and --sync-every, such as 100")
    return Sites(
        num=run.sites,
        every=run.sync_every,
        bytes_per_s=rate,
        latency_s=quantity_of(run.site_latency, "s", "--site-latency") or 0.0,
        dtype=run.sync_dtype or "fp32",
        fragments=run.sync_fragments or 1,
        overlap=run.sync_overlap or 0,
    )


def quantity_of(text: str | None, dimension: str, flag: str = "") -> float | None:
    """Return what a flag says in SI units, None where it says nothing; UsageError for another dimension."""
    from ..ir.units import parse_typed

    return None if text is None else parse_typed(text, dimension, flag)


def refuse_idle(given: Mapping[str, object], told: str) -> None:
    """Raise UsageError for flags that were given, whose value is not None, and that say nothing by themselves."""
    if idle := [flag for flag, value in given.items() if value is not None]:
        raise UsageError(f"{' and '.join(idle)}: {told}")
