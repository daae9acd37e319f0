"""Results of estimates: one step of a model, and a server of requests; and of the sizing of servers."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, cast

from ...driver.metrics import METRICS, format_metric
from ...ir.records import dataclass
from ...ir.units import format_bytes, format_time, format_usd
from ..labels import part_label, request_part_label
from .result import DRAWN, FILE_COLUMNS, Result
from .table import Cell, Line, Panel, Row, flat

if TYPE_CHECKING:
    from ...cost.money import StepMoney
    from ...driver.estimate import Estimate
    from ...driver.serve.answer import ServeEstimate, ServeMoney
    from ...driver.serve.sizes.sizing import Sizing
    from ...driver.uncertainty.bands import Interval
    from ...ir.plan import Plan
    from ..advice import Advice, Origin
    from ..pictures.picture import Picture

# Metrics of a step and of a server that a few lines have room for.
_OF_STEPS = ("step_time_s", "mfu", "tokens_per_s_per_gpu")
_LATENCIES = ("ttft_s", "tpot_s")
_OF_SERVERS = (*_LATENCIES, "requests_per_s")
_DIGESTS = "_sha256"


class MetricValue:
    """A metric of a result as an attribute of its name; AttributeError where the result has none, as without prices."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, result: _Estimated, owner: type) -> float:
        """Return the metric, in SI units."""
        if self._name not in result.metrics:
            raise AttributeError(f"this result has no {self._name}; its metrics: {', '.join(result.metrics)}")
        return result.metrics[self._name]


class _Estimated(Result):
    """What results of one plan have in common: all is in their document, and its first metrics are attributes."""

    tokens_per_s, tokens_per_s_per_gpu, mfu = MetricValue(), MetricValue(), MetricValue()
    average_power_w, j_per_token, kg_co2e_per_mtok = MetricValue(), MetricValue(), MetricValue()
    usd_per_gpu_hour, usd_per_mtok, tokens_per_usd = MetricValue(), MetricValue(), MetricValue()

    @property
    @abstractmethod
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name."""

    def rows(self) -> Sequence[Row]:
        """Return one row: inputs, metrics, then the parts of time and memory by their path."""
        return [row_of(self.to_dict())]

    def panels(self) -> Sequence[Panel]:
        """Return metrics, times, memory, notes and inputs."""
        return list(panels_of(self.to_dict()))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class StepResult(_Estimated):
    """One step: time, memory and cost. `answer` is the whole estimate, as `driver.estimate` returns it."""

    forms: ClassVar[tuple[str, ...]] = (*Result.forms, *DRAWN)
    step_time_s, peak_mem_bytes, usd_per_step = MetricValue(), MetricValue(), MetricValue()
    answer: Estimate
    overrides: tuple[str, ...] = ()
    sensitivity: bool | None = None
    settings: Callable[[], str] | None = None
    origin: Callable[[], Origin] | None = None

    @property
    def plan(self) -> Plan:
        """The complete plan."""
        return self.answer.plan

    @property
    def fits(self) -> bool:
        """Whether the plan fits in the memory of the device, and what it offloads in that of the host."""
        return self.answer.fits

    @property
    def verdict(self) -> str | None:
        """What the plan lacks in memory; None where it fits."""
        from ..advice import verdict

        return verdict(self.answer)

    @cached_property
    def remedies(self) -> Sequence[Advice]:
        """The three changes that fit and cost least time, of a plan that does not fit."""
        from ..advice import find_advice

        return find_advice(self.answer, None if self.origin is None or self.fits else self.origin())

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name, in SI units, including those of cost and of a training run."""
        from ..cost.money import metrics_of

        run = {} if self.answer.run is None else self.answer.run.metrics
        return {**self.answer.metrics, **run, **metrics_of(self.answer.money)}

    @property
    def intervals(self) -> Mapping[str, Interval]:
        """Prediction intervals of metrics: 50 % from `low` to `high`, 90 % from `least` to `most`."""
        from ...driver.uncertainty.answers import intervals, step_bands

        return intervals(self.metrics, step_bands(self.answer))

    @property
    def breakdown_s(self) -> Mapping[str, float]:
        """Seconds of the step by part; the parts add up to the step time."""
        return self.answer.breakdown_s

    @property
    def memory_bytes(self) -> Mapping[str, float]:
        """Peak memory of the fullest device by part; the parts add up."""
        return self.answer.memory_bytes

    @property
    def money(self) -> StepMoney | None:
        """Cost of the step; None for a system without prices, with a warning."""
        return self.answer.money

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the answer."""
        return self.answer.warnings

    def json(self) -> str:
        """Return the report."""
        from ..json_report import report_json

        return report_json(self.answer, self.overrides, bool(self.sensitivity), self.remedies)

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen."""
        from ..tables import report_text

        with_sensitivity = self.sensitivity is not False
        return report_text(self.answer, columns or FILE_COLUMNS, color, with_sensitivity, self.remedies)

    def pictures(self) -> Sequence[Picture]:
        """Return the time of the step and the memory of a GPU."""
        from ..pictures.answers import step_pictures

        return [*step_pictures(self.answer)]

    def whole_document(self) -> Mapping[str, object]:
        """Return the report with its elasticities, and the step on the clock."""
        from ..charts.timeline import timeline_record
        from ..json_report import report_json

        tree: dict[str, object] = json.loads(report_json(self.answer, self.overrides, True, self.remedies))
        return {**tree, "timeline": timeline_record(self.answer)}

    def explain(self, name: str) -> str:
        """Return why a node, a metric or the memory is what it is; see `slipstick estimate --explain`."""
        from ..explain.explain import explain_text

        if name == "settings" and self.settings is not None:
            return self.settings()

        return explain_text(self.answer, name)

    def summary(self) -> Sequence[Line]:
        """Return the lines of the estimate, and its money."""
        from ...driver.uncertainty.answers import step_bands

        (title, *lines), money = self.answer.summary(step_bands(self.answer)), self.money
        cost = () if money is None else (("cost", _cost(self.metrics)),)
        lacks = () if self.verdict is None else (("memory", self.verdict),)
        return [title, *lacks, *(("try", one.line) for one in self.remedies), *lines, *cost]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ServeResult(_Estimated):
    """A server under a load: latencies, rates, memory, money. `answer` is the whole estimate of it."""

    forms: ClassVar[tuple[str, ...]] = (*Result.forms, *DRAWN)
    ttft_s, tpot_s, e2el_s, requests_per_s, usd_per_mtok_output = (MetricValue() for _ in range(5))
    answer: ServeEstimate
    overrides: tuple[str, ...] = ()
    settings: Callable[[], str] | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name, in SI units; those of money with them."""
        return {**self.answer.metrics, **({} if self.money is None else self.money.metrics)}

    @property
    def intervals(self) -> Mapping[str, Interval]:
        """Prediction intervals of metrics: 50 % from `low` to `high`, 90 % from `least` to `most`."""
        from ...driver.uncertainty.answers import intervals, server_bands

        return intervals(self.metrics, server_bands(self.answer))

    @property
    def money(self) -> ServeMoney | None:
        """Cost of requests; None for a system without prices, with a warning."""
        return self.answer.money

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the answer."""
        return self.answer.warnings

    def json(self) -> str:
        """Return the report."""
        from ..serving.json import serving_json

        return serving_json(self.answer, self.overrides)

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen."""
        from ..serving.screen import serving_text

        return serving_text(self.answer, columns or FILE_COLUMNS, color)

    def pictures(self) -> Sequence[Picture]:
        """Return the time of a request, and latencies under load."""
        from ...cost.serving.slo import SLO
        from ..pictures.answers import server_pictures

        return [*server_pictures(self.answer, SLO())]

    def whole_document(self) -> Mapping[str, object]:
        """Return the report, and what the latencies become under more load."""
        from ..charts.servers import load_record

        return {**self.to_dict(), "load_curve": load_record(self.answer)}

    def explain(self, name: str) -> str:
        """Return why a metric of the server is what it is."""
        from ..explain.serving import explain_serving

        if name == "settings" and self.settings is not None:
            return self.settings()

        return explain_serving(self.answer, name)

    def summary(self) -> Sequence[Line]:
        """Return model, machine, load, latencies, memory and money."""
        from ...driver.uncertainty.answers import server_bands
        from ...driver.uncertainty.figures import figure
        from ..serving.screen import plan_text, requests_text

        answer, server, bands = self.answer, self.answer.server, server_bands(self.answer)
        of_latencies = {name: bands[name] for name in _LATENCIES if name in bands}
        graph, chip, m = server.served.decode.source, server.system.chip, answer.metrics
        used, room = sum(answer.memory_bytes.values()), float(chip.hbm_bytes)
        return [
            (graph.name, f"served in {graph.dtype} by {server.engine.name}"),
            ("machine", f"{answer.num_gpus} x {chip.name} ({server.system.name})  {plan_text(answer)}"),
            ("requests", requests_text(answer)),
            ("answer", ", ".join(figure(n, m[n], of_latencies.get(n)) for n in _OF_SERVERS if n in m)),
            ("memory", f"{format_bytes(used)} of {format_bytes(room)} a GPU"),
            *(() if self.money is None else (("cost", _cost(self.metrics)),)),
        ]


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class SizeResult(Result):
    """The smallest deployments for a request rate: plans that meet it, the best first."""

    forms: ClassVar[tuple[str, ...]] = (*Result.forms, *DRAWN)
    found: Sizing
    answers: Sequence[ServeEstimate]

    def json(self) -> str:
        """Return the document."""
        from ..serving.sizing import sizing_json

        return sizing_json(self.found, self.answers)

    def whole_document(self) -> Mapping[str, object]:
        """Return the plans, and what the latencies of the first become under more load."""
        from ..charts.servers import load_record

        tree: dict[str, object] = json.loads(self.json())
        first, *rest = cast("list[dict[str, object]]", tree["choices"])
        return {**tree, "choices": [{**first, "load_curve": load_record(self.answers[0])}, *rest]}

    def text(self, columns: int | None = None, color: bool = False) -> str:
        """Return the screen."""
        from ..serving.sizing import sizing_text

        return sizing_text(self.found, self.answers, columns or FILE_COLUMNS, color)

    def pictures(self) -> Sequence[Picture]:
        """Return those of the first plan, with the limits that were asked for."""
        from ..pictures.answers import server_pictures

        return [*server_pictures(self.answers[0], self.found.question.target)]

    def rows(self) -> Sequence[Row]:
        """Return a row for each plan that answers in time."""
        choices = self.to_dict()["choices"]
        assert isinstance(choices, list)
        own = ("name", "num_gpus", "most_requests_per_s", "headroom")
        return [{**{name: one[name] for name in own}, **row_of(one)} for one in choices]

    def panels(self) -> Sequence[Panel]:
        """Return the plans, and the server that the first one is."""
        target, plans = self.found.question.target, []
        for choice, one in zip(self.found.choices, self.answers, strict=False):
            usd = {} if one.money is None else one.money.metrics
            ttft_s, tpot_s = choice.at_limits(one, target)
            costs = (format_usd(usd[name]) if name in usd else "-" for name in ("usd_per_mtok_output", "usd_per_mtok"))
            latencies = ("-" if s != s else format_time(s) for s in (ttft_s, tpot_s))
            most = f"{choice.most_per_s:.3g}"
            plans.append((choice.name, f"{choice.num_gpus}", *latencies, most, *costs))
        heads = ("plan", "GPUs", *target.labels, "most requests/s", "1M tokens out", "1M tokens in and out")
        return [
            Panel("Plans that meet the target", heads, plans),
            *ServeResult(answer=self.answers[0]).panels(),
        ]

    def summary(self) -> Sequence[Line]:
        """Return what was asked, and the first plan."""
        asked, choice, best = self.found.question, self.found.choices[0], ServeResult(answer=self.answers[0])
        (model, _), _, requests, answer, *rest = best.summary()
        system = best.answer.server.system
        return [
            (model, f"sized for {asked.requests_per_s:g} requests/s  {asked.target}".rstrip()),
            ("plan", f"{choice.num_gpus} x {system.chip.name} ({system.name}): {choice.name}"),
            requests,
            answer,
            *rest,
        ]


def _cost(metrics: Mapping[str, float]) -> str:
    """Return the sums that people ask for first."""
    names = ("usd_run", "usd_per_step", "usd_per_mtok", "usd_per_mtok_input", "usd_per_mtok_output", "usd_per_request")
    shown = ((METRICS[n].label, format_usd(metrics[n])) for n in (*names, "usd_per_gpu_hour") if n in metrics)
    return ", ".join(f"{label.removeprefix('cost of ')} {usd}" for label, usd in islice(shown, 3))


def row_of(document: Mapping[str, object]) -> dict[str, Cell]:
    """Return the document of an estimate as one row: inputs and metrics, then times and memory by their part."""
    found: dict[str, Cell] = {}
    for name, prefix in (("inputs", ""), ("metrics", ""), ("breakdown", "breakdown_s."), ("memory", "memory_bytes.")):
        found |= {key: value for key, value in flat(_part(document, name), prefix) if not key.endswith(_DIGESTS)}
    return {"feasible": document.get("feasible") is not False, **found}


def panels_of(document: Mapping[str, object]) -> Iterator[Panel]:
    """Yield the panels of an estimate from its document."""
    metrics, times, memory = (
        {key: float(value) for key, value in _part(document, name).items() if isinstance(value, int | float)}
        for name in ("metrics", "breakdown", "memory")
    )
    known = [(METRICS[name].label, format_metric(name, value)) for name, value in metrics.items() if name in METRICS]
    yield Panel("Result", ("", ""), known)
    served = "e2el_s" in metrics
    label = request_part_label if served else part_label
    of = "Where the time of a request goes" if served else "Where the time of a step goes"
    yield _parts(of, {label(name): value for name, value in times.items()}, format_time)
    held = {name.replace("_", " "): value for name, value in memory.items() if name != "capacity"}
    of = f", of {format_bytes(memory['capacity'])}" if "capacity" in memory else ""
    yield _parts(f"Memory of a GPU{of}", held, format_bytes)
    if (remedies := document.get("remedies")) and isinstance(remedies, list):
        seconds = ["-" if one["step_time_s"] is None else format_time(one["step_time_s"]) for one in remedies]
        rows = [
            (one["change"], time, format_bytes(one["peak_mem_bytes"]))
            for one, time in zip(remedies, seconds, strict=True)
        ]
        yield Panel(str(document.get("verdict")), ("change", "step time", "memory"), rows)
    if (warnings := document.get("warnings")) and isinstance(warnings, list):
        yield Panel("Notes", ("",), [(str(line),) for line in warnings])
    if isinstance(money := document.get("money"), Mapping):
        yield Panel("What the cost rests on", ("", ""), [(n, str(v)) for n, v in flat(money) if n != "gpu_hour.parts"])
    inputs = flat(_part(document, "inputs"))
    yield Panel("Inputs", ("", ""), [(n, str(v)) for n, v in inputs if v is not None])


def _part(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return a part of the document of an estimate; none where it is left out, as an older version may have done."""
    part = document.get(name)
    return part if isinstance(part, Mapping) else {}


def _parts(title: str, parts: Mapping[str, float], shown: object) -> Panel:
    form = format_bytes if shown is format_bytes else format_time
    total = sum(parts.values())
    kept = {name: value for name, value in parts.items() if value > 0}
    rows = [(name, form(value), f"{value / total:.1%}") for name, value in kept.items()]
    return Panel(title, ("", "", ""), rows, [value / total for value in kept.values()])
