"""A training run as lines of text, as records of JSON, and as explanations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..driver.metrics import METRICS, format_metric
from ..ir.units import format_bytes, format_time
from .columns import in_columns

if TYPE_CHECKING:
    from ..cost.run.training_run import Failures, RunEstimate, Saving
    from ..driver.estimate import Estimate


def run_lines(answer: Estimate, columns: int | None = None) -> list[str]:
    """Return what a screen says of the training run: nothing where none was asked for."""
    if answer.run is None:
        return []
    run = answer.run
    rows = [*_length(answer, run), *_sites(run), *_time(run), *_goodput(run), *_saving(run), *_failures(run)]
    return ["Training run", *in_columns(rows, columns).splitlines()]


def _length(answer: Estimate, found: RunEstimate) -> Iterator[tuple[str, str]]:
    if found.run.amount is None:
        return
    num_sites = 1 if found.run.sites is None else found.run.sites.num
    tokens = answer.plan.global_batch * answer.plan.seq_len * num_sites
    yield "steps", f"{found.metrics['num_steps']:,.0f} of {tokens:,} tokens"


def _sites(found: RunEstimate) -> Iterator[tuple[str, str]]:
    """What sites exchange, how long each waits, and how much of the time they compute."""
    exchange = found.exchange
    if exchange is None:
        return
    at, part = exchange.sites, "" if exchange.sites.fragments == 1 else f"{exchange.sites.fragments} fragments of "
    waits = f"each takes {format_time(exchange.fragment_s)}, of which sites wait {format_time(exchange.exposed_s)}"
    yield "sites", f"{at.num}, {format_bytes(exchange.sent_bytes)} sent by each every {at.every:,} steps"
    yield "exchanges", f"{part}all weights in {at.dtype}: {waits}"
    yield "compute utilisation", f"{exchange.utilisation:.2%}"
    yield "outer optimizer", f"{format_bytes(exchange.outer_bytes)} of the host's memory for each GPU"


def _time(found: RunEstimate) -> Iterator[tuple[str, str]]:
    """Time and GPU-hours, and what they would be if nothing failed and nothing were saved."""
    if found.run.amount is None:
        return
    time_s, steps_s = found.metrics["train_time_s"], found.metrics["productive_time_s"]
    hours = found.metrics["gpu_hours"]
    without = found.shares is None
    yield "time to train", _long(time_s) + ("" if without else f", of which steps {_long(steps_s)}")
    yield "GPU-hours", _count(hours) + ("" if without else f", of which steps {_count(hours * steps_s / time_s)}")


def _goodput(found: RunEstimate) -> Iterator[tuple[str, str]]:
    if found.shares is None:
        return
    lost = asdict(found.shares)
    rest = ", ".join(f"{name} {share:.2%}" for name, share in lost.items() if name != "steps" and share)
    yield "goodput", f"{found.shares.steps:.2%}" + (f"; {rest}" if rest else "")
    yield "effective tokens/s", f"{found.metrics['effective_tokens_per_s']:,.0f}"


def _saving(found: RunEstimate) -> Iterator[tuple[str, str]]:
    saving = found.saving
    if saving is None:
        return
    every = f"every {saving.every_steps:,} steps ({format_time(saving.every_s)}{', the best' if saving.chosen else ''})"
    yield "checkpoint", f"{format_bytes(saving.num_bytes)} {every}, {_waiting(saving)}"


def _waiting(saving: Saving) -> str:
    if not saving.late_s:
        return f"waits {format_time(saving.stall_s)}"
    return f"waits {format_time(saving.stall_s)} of {format_time(saving.write_s)} in which it is written"


def _failures(found: RunEstimate) -> Iterator[tuple[str, str]]:
    failing = found.run.failures
    if failing is None:
        return
    often = f"one in {_long(found.metrics['job_mtbf_s'])}"
    hours = failing.mtbf_s / 3600
    mean = f"{hours:,.0f} h" if hours >= 100 else format_time(failing.mtbf_s)
    alone = "" if failing.of == "job" else f" (of a {failing.of.replace('gpu', 'GPU')}: {mean})"
    num = f"{_count(found.metrics['num_failures'])}, " if "num_failures" in found.metrics else ""
    yield "failures", f"{num}{often}{alone}, restart in {format_time(failing.restart_s)}"


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _long(seconds: float) -> str:
    """A time of weeks or years, of which all days are of interest."""
    return f"{seconds / 86400:,.0f} days" if seconds >= 1e3 * 86400 else format_time(seconds)


def run_inputs(found: RunEstimate) -> Mapping[str, object]:
    """Return what was asked of the run, for JSON: counts and SI numbers, None where nothing was said."""
    run = found.run
    return {
        "amount": run.amount,
        "unit": None if run.amount is None else run.unit,
        "checkpoints": None if run.checkpoints is None else asdict(run.checkpoints),
        "failures": None if run.failures is None else asdict(run.failures),
        "sites": None if run.sites is None else asdict(run.sites),
    }


def run_records(found: RunEstimate) -> Mapping[str, object]:
    """Return what became of it, for JSON: the shares of the time, which add up to 1, and the checkpoints."""
    return {
        "time_shares": None if found.shares is None else asdict(found.shares),
        "checkpoints": None if found.saving is None else asdict(found.saving),
    }


def explain_run(found: RunEstimate, name: str, step: Mapping[str, float]) -> str:
    """Explain a metric of the run, whose step has such metrics: value, meaning, and the formula with its numbers."""
    value = found.metrics[name]
    lines = [f"{name} = {value:.6g} ({format_metric(name, value)})", f"  {METRICS[name].meaning}"]
    return "\n".join([*lines, *(f"  {line}" for line in _formula(found, name, step))])


def _formula(found: RunEstimate, name: str, step: Mapping[str, float]) -> Iterator[str]:
    saving, failing, m = found.saving, found.run.failures, found.metrics
    if name == "num_steps":
        unit, num = found.run.unit, 1 if found.run.sites is None else found.run.sites.num
        counted = {"tokens": step["tokens_per_s"], "samples": step.get("samples_per_s", step["tokens_per_s"])}
        each = 1.0 if unit == "steps" else counted[unit] * step["step_time_s"] * num
        yield f"= ceil( {found.run.amount:.15g} {unit} / {each:,.15g} a step )"
    elif name == "productive_time_s":
        yield f"= {m['num_steps']:,.0f} steps x {m['productive_time_s'] / m['num_steps']:.7g} s"
    elif name == "train_time_s":
        shared = f" / {m['train_goodput']:.7g} of goodput" if saving is not None else ""
        yield f"= {m['num_steps']:,.0f} steps x {m['productive_time_s'] / m['num_steps']:.7g} s{shared}"
    elif name == "gpu_hours":
        gpus = m["gpu_hours"] / m["train_time_s"] * 3600.0
        yield f"= {m['train_time_s']:.7g} s / 3600 x {gpus:,.10g} GPUs"
    elif name == "effective_tokens_per_s":
        each, goodput = m["effective_tokens_per_s"] / m["train_goodput"], m["train_goodput"]
        yield f"= {each:.7g} tokens/s x {goodput:.7g} of goodput"
    elif name == "num_failures":
        yield f"= {m['train_time_s']:.7g} s / {m['job_mtbf_s']:.7g} s between two"
    elif name == "checkpoint_every_s" and saving is not None:
        yield f"= {saving.every_steps:,} steps x {saving.every_s / saving.every_steps:.7g} s"
        if saving.chosen:
            yield "the whole number of steps of the largest goodput, where exp((tau + delta) / M) (1 - tau / M) = 1"
            yield "sources: Young, CACM 17(9), 1974; Daly, FGCS 22(3), 2006"
    elif name == "job_mtbf_s" and failing is not None:
        count, of = failing.mtbf_s / m["job_mtbf_s"], failing.of.replace("gpu", "GPU")
        yield f"= {failing.mtbf_s / 3600:,.7g} h x 3600 / {count:,.10g} {of}{'' if count == 1 else 's'}"
    if name in ("train_goodput", "effective_tokens_per_s", "train_time_s", "gpu_hours") and saving is not None:
        yield from _share_of_steps(saving, failing, m, "= " if name == "train_goodput" else "goodput = ")


def _share_of_steps(saving: Saving, failing: Failures | None, m: Mapping[str, float], called: str) -> Iterator[str]:
    tau, delta = f"{saving.every_s:.7g} s", f"{saving.stall_s:.7g} s"
    if failing is None:
        yield f"{called}{tau} / ({tau} + {delta})"
        yield "goodput = tau / (tau + delta), of steps and of waiting"
        return
    mean, restart = f"{m['job_mtbf_s']:.7g} s", f"{failing.restart_s + saving.late_s:.7g} s"
    yield f"{called}{tau} / ({mean} x exp({restart} / {mean}) x (exp(({tau} + {delta}) / {mean}) - 1))"
    late = f", late = {format_time(saving.late_s)} of steps while one is written" if saving.late_s else ""
    yield f"goodput = tau / (M exp((R{' + late' if late else ''}) / M) (exp((tau + delta) / M) - 1)){late}"
    yield "source: Daly, FGCS 22(3), 2006"
