"""The fewest devices that answer so many requests a second in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from ...ir.errors import InfeasibleError, PlanError, SlipstickError, UsageError
from ...ir.records import dataclass
from ..prepare import check_model
from ..request import Request
from ..run_words import count_of
from ..sources import VerbArguments
from ..systems import systems_named
from .serve import ServeRequest, machine_of, priced_serving, served_of
from .words import Serving

if TYPE_CHECKING:
    from ...cost.serving.traffic.day import Day
    from ...driver.serve.answer import ServeEstimate
    from ...driver.serve.sizes.shapes import ReplicaShape
    from ...driver.serve.sizes.sizing import Sizing
    from ...driver.serve.tables import ServedModel
    from ...ir.plan import Plan
    from ...report.results.result import Result
    from ...report.serving.fleets import FleetChoice, FleetComparison

# Words of plans that are kept where they are given, and searched where they are not.
DEGREES = ("tp", "pp", "ep", "cp")
# Plans that are simulated where limits are to be confirmed.
_CONFIRMED = 3
# The most rates of a range.
_MOST_DOUBLED = 40
# Words that say nothing here.
OF_STEPS = ("seq", "mbs", "gbs", "gpus", "dp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What a user wants of a size, as typed."""

    target_rps: str
    pools: str
    max_gpus: int | None
    top: int
    aim: str
    confirm: str
    spare: int
    by_evidence: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest(ServeRequest):
    """A server, and how much it has to answer."""

    sought: Sought

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return what is said of the server and of its size."""
        return {"serving": Serving.of(arguments), "sought": arguments.take(Sought)}


def size_server(request: SizeRequest) -> Result:
    """Find the plans of a system for a rate; of several systems or rates, or over a day, the best fleet of each."""
    from ...report.results.steps import SizeResult

    _check(request)
    check_model(request)
    sought = request.sought
    days, serving = days_of(sought.target_rps, request.serving)
    request = replace(request, serving=serving)
    systems = systems_named(request.machine.system or "")
    if len(days) * len(systems) > 1 or not days[0].is_flat:
        from ...report.serving.fleets import fleet_result

        return fleet_result(compared_fleets(request, days))
    found = _sizes(request, only_first=False)(days[0].peak_per_s)
    return SizeResult(found=found, answers=[priced_serving(request, one) for one in found.answers(sought.top)])


def _sizes(request: SizeRequest, only_first: bool) -> Callable[[float], Sizing]:
    """Return what finds the plans of a system for a rate, or the first of them; the model is lowered once for all."""
    from ...cost.flops import Convention
    from ...driver.serve.sizes.confirm import confirmed, spared
    from ...driver.serve.sizes.shapes import shapes_of
    from ...driver.serve.sizes.size import size
    from ...driver.serve.sizes.sizing import Question
    from ...frameworks.runs import runs_server

    serving, sought = request.serving, request.sought
    system, engine, asked = machine_of(request, serving.engine)
    lowered = _lowered(asked.said({"seq": serving.prompt}))
    given = {name: (getattr(request.words, name),) if request.arguments.is_given(name) else () for name in DEGREES}
    free = tuple(name for name in (*DEGREES, "dp", "etp") if not given.get(name))
    runs = partial(runs_server, system.stack, model=request.source.model, dtype=request.source.dtype, free=free)
    every = shapes_of(system, _has_experts(lowered), **given)
    shapes = tuple(shape for shape in every if _is_run(shape, lowered, runs))

    def of_rate(rate: float) -> Sizing:
        question = Question(
            requests_per_s=rate,
            target=serving.target,
            lengths=serving.lengths,
            engine=serving.limited(engine, serving.prompt + serving.output),
            most_gpus=sought.max_gpus or 10**6,
            convention=Convention(request.flops_convention),
        )
        found = size(question, system, shapes, lowered, sought.pools)
        simulates = sought.confirm == "on" or (sought.confirm == "auto" and serving.target.of_tails)
        found = confirmed(found, _CONFIRMED, only_first) if simulates and serving.target else found
        return spared(found, sought.spare) if sought.spare else found

    return of_rate


def _is_run(
    shape: ReplicaShape, lowered: Callable[[ReplicaShape], tuple[ServedModel, Plan]], runs: Callable[[Plan], bool]
) -> bool:
    """Return whether an engine runs a shape; one that is no legal plan is left to the search, which says why."""
    if shape.dp == shape.ep == shape.pp == 1:
        return True
    try:
        return runs(lowered(shape)[1])
    except PlanError:
        return True


def plan_text(request: SizeRequest, found: Sizing) -> str:
    """Return the first deployment under the rate that was asked for, as a file that `estimate --plan` takes."""
    from ...ir.plan.files import SERVE, plan_words
    from ..plans.text import words_around, words_text

    choice, serving = found.choices[0], request.serving
    plan, apart = plan_words(choice.server.plan, SERVE), serving.apart
    if choice.pools is not None:
        first = choice.pools.prefill.plan
        del plan["gpus"]  # pools say how many workers there are
        apart = replace(
            apart,
            disagg=f"{choice.pools.prefill.num_replicas}:{choice.server.num_replicas}",
            prefill_tp=first.tp,
            prefill_pp=first.pp,
            prefill_ep=first.ep,
            prefill_etp=None if first.words.etp == choice.server.plan.words.etp else first.etp,
            prefill_batch=choice.pools.batch,
        )
    serving = replace(serving, request_rate=f"{found.question.requests_per_s!r}", apart=apart)
    return words_text({**words_around(request, serving), **plan})


def days_of(text: str, serving: Serving) -> tuple[tuple[Day, ...], Serving]:
    """Read `10,200`, `10:1000` (doubled), `diurnal:500,100` or a file of requests, which says how long they are."""
    from ...cost.serving.traffic.day import curve_of, diurnal, flat, of_trace
    from ...cost.serving.traffic.traffic_text import FILES, parse_sizes, parse_traffic

    curve = curve_of(text)
    if curve is not None:
        return (diurnal(*curve),), serving
    if text.lower().endswith(FILES):
        traffic = parse_traffic(text, parse_sizes("1", "1"))
        prompt, output = (round(float(n.mean())) for n in (traffic.requests.prompt, traffic.requests.output))
        return (of_trace(text, traffic),), replace(serving, isl=f"{prompt}", osl=f"{output}")
    first, colon, last = text.partition(":")
    if colon:
        low, high = count_of(first), count_of(last)
        doubled = [low * 2**k for k in range(_MOST_DOUBLED) if 0 < low * 2**k <= high]
        if not doubled:
            raise UsageError(f"--target-rps {text}: first:last doubles from the first up to the last, as in 10:1000")
        return tuple(flat(rate) for rate in doubled), serving
    return tuple(flat(count_of(one)) for one in text.split(",")), serving


def compared_fleets(request: SizeRequest, days: Sequence[Day]) -> FleetComparison:
    """Find the best plan of every system for the peak of every day; InfeasibleError where none has one."""
    from ...backends.prices.book import books_of
    from ...report.serving.fleets import AIMS, FleetComparison, ranked

    systems = systems_named(request.machine.system or "")
    usual, *others = books_of(request.machine.book)
    request = request.said({"prices": usual, "year": None}) if others else request
    serving, sought = request.serving, request.sought
    # What is wrong with the requests is no fault of a system.
    target, _ = serving.target, serving.lengths
    fleets: list[list[FleetChoice]] = [[] for _ in days]
    left_out: list[dict[str, str]] = [{} for _ in days]
    with request.progress(len(systems) * len(days)) as bar:
        for name in systems:
            own = request.said({"system": name})
            of_rate: Callable[[float], Sizing] | None = None
            for place, day in enumerate(days):
                try:
                    of_rate = of_rate or _sizes(own, only_first=True)
                    fleets[place].append(_fleet(own, name, of_rate(day.peak_per_s), day))
                except SlipstickError as error:
                    left_out[place][name] = str(error)
                bar.advance(1, name)
    if not any(fleets):
        told = "; ".join(f"{name}: {why}" for name, why in left_out[0].items())
        raise InfeasibleError(f"no system answers so many requests in time: {told}")
    aim = AIMS[sought.aim]
    return FleetComparison(
        model=request.source.model,
        days=tuple(days),
        asked=f"isl {serving.prompt}, osl {serving.output}" + (f", {serving.target}" if serving.target else ""),
        target=target,
        fleets=[[one.item for one in ranked(each, aim, sought.by_evidence).candidates] for each in fleets],
        left_out=left_out,
        aim=aim,
        by_evidence=sought.by_evidence,
        book=usual,
        others={
            book: [[_repriced(one, request.said({"prices": book}), serving) for one in each] for each in fleets]
            for book in others
        },
    )


def _repriced(fleet: FleetChoice, request: Request, serving: Serving) -> FleetChoice:
    """Return a fleet under the prices of a request; plans do not depend on them."""
    system, _, _ = machine_of(request.said({"system": fleet.system}), serving.engine)
    server = fleet.answer.server
    server = replace(server, system=replace(server.system, own_prices=system.own_prices))
    return replace(fleet, answer=priced_serving(request, replace(fleet.answer, server=server, warnings=())))


def _fleet(request: Request, name: str, found: Sizing, day: Day) -> FleetChoice:
    """Price the first plan of a system, owned and, where somebody rents it out, rented."""
    from ...cost.money import Terms
    from ...driver.serve.money import worth_serving
    from ...report.serving.fleets import FleetChoice, over_day, usd_per_hour

    [answer] = found.answers(1)
    choice = found.choices[0]

    def at(rate_per_s: float) -> ServeEstimate:
        return priced_serving(request, choice.answer(replace(found.question, requests_per_s=rate_per_s)))

    try:
        rented = usd_per_hour(worth_serving(answer, Terms(rented=True)))
    except UsageError:
        rented = None
    return FleetChoice(
        system=name,
        choice=choice,
        answer=priced_serving(request, answer),
        rented_usd_per_hour=rented,
        over_day=None if day.is_flat else over_day(day, at),
    )


def _check(request: SizeRequest) -> None:
    """Raise UsageError for words that a search has no use for."""
    wrong = [name for name in (*OF_STEPS, "phase") if request.arguments.is_given(name)]
    if wrong:
        flags = " and ".join(f"--{name}" for name in wrong)
        raise UsageError(f"{flags}: size finds the GPUs and the batch itself; it takes --target-rps, --isl, --osl")


def _lowered(request: Request) -> Callable[[ReplicaShape], tuple[ServedModel, Plan]]:
    """Lower a model once for each structure that shapes have."""
    from ...ir.plan import make_plan

    @cache
    def served(tp: bool, pp: bool, ep: bool, etp: bool) -> tuple[ServedModel, Plan]:
        shape = request.said(
            {
                "tp": 2 if tp else 1,
                "pp": 2 if pp else 1,
                "ep": 2 if ep else 1,
                "dp": 2 if ep and etp else 1,
                "gpus": None,
                "etp": None if etp else 1,
            }
        )
        return served_of(shape)

    def of_shape(shape: ReplicaShape) -> tuple[ServedModel, Plan]:
        found, like = served(shape.tp > 1, shape.pp > 1, shape.ep > 1, shape.tp == 1 or shape.ep == 1)
        family = like.family
        plan = make_plan(
            num_gpus=shape.num_gpus,
            seq_len=request.words.seq_len,
            family=family,
            tp=shape.tp,
            pp=shape.pp,
            cp=shape.cp,
            ep=shape.ep,
            dp=shape.dp,
            etp=None if family.etp else 1,
            kv_len=request.words.seq_len,
        )
        return found, plan

    return of_shape


def _has_experts(lowered: Callable[[ReplicaShape], tuple[ServedModel, Plan]]) -> bool:
    """Whether the model has experts to deal out."""
    from ...driver.serve.sizes.shapes import ReplicaShape
    from ...ir.ops import Trait, has

    graph = lowered(ReplicaShape())[0].decode.source
    return any(has(node, Trait.HOLDS_EXPERTS) for region in graph.regions for node in region.nodes)
