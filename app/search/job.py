"""Make the job of a search from its request: systems, families, numbers, goals and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from ...ir.errors import NotBuiltError, PlanError, SystemFileError, UnknownNameError, UsageError
from ...ir.plan.word import SearchAxis, Value
from ...ir.plan.words import WORDS
from ...ir.schedules.registry import ALIASES, USUAL
from ..arguments.options import options_of
from ..prepare import check_model, family_of, graph_of, system_of, terms_of
from ..request import Request
from ..software import with_software
from .axes import ALL, CHOICES, MOST_SYSTEMS, NUMBERS, PARTS, REFUSED, SERVER, SINGLE, Asked
from .memory import MOST_ROWS

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ...explore.plans.degrees import Degrees
    from ...explore.plans.job import PlanJob, PlanMachine
    from ...explore.plans.space import Choices, PlanSpace
    from ...frameworks.runs import StackSpace
    from ...ir.graph import Graph
    from ...ir.plan import Family

_TOPS = (*PARTS, "chip", "node", "network", "stack", "server", "prices", "calibration", "engine")
# Flags that are axes of plans, of which a search of servers has one.
_ONE_OF_SERVERS = ("kernels", "mla", "ep_exchange", "expert_popularity", "eplb", "redundant_experts")
# Chunks of a stage, where they are free and one is too few: more than models have layers.
_MOST_CHUNKS = 129


def check_asked(asked: Asked) -> None:
    """Refuse flags that a search has no use for, and one that lacks what every search needs."""
    for name in asked.flags:
        if name in REFUSED | {"overrides", *options_of(*SERVER)}:
            raise UsageError(f"--{name.replace('_', '-')} says nothing to a search of plans: leave it out")
    if asked.one("phase", "train") == "train" and not asked.axis("gbs"):
        raise UsageError(
            "a search of training plans needs --gbs, sequences a step: plans of other batches do other work"
        )
    if asked.one("tp_plan", "") == "auto":
        raise UsageError("--tp-plan auto is read for one degree, and a search has many: name the plan")
    # Experts are split over all of tp or not at all: another degree would be priced as what it is not.
    tp = asked.axis("tp")
    for value in asked.axis("etp"):
        if value not in (1, "tp") and tp != (value,):
            given = f"tp={','.join(map(str, tp))}" if tp else "tp free"
            same = f", or {tp[0]}, which is tp" if len(tp) == 1 and tp != (1,) else ""
            raise UsageError(
                f"etp={value} with {given}: a search splits experts over all of tp or not at all; allowed: 1 for whole "
                f"experts, tp for experts split like the rest{same}"
            )
    _check_chunked(asked)


def _check_chunked(asked: Asked) -> None:
    """A word for several chunks a stage needs some: without these, the plain schedule would be priced in its place."""
    words, vpp = asked.axis("schedule"), asked.axis("vpp")
    for word in (str(one) for one in words if one in ALIASES):
        name = ALIASES[word].name
        if vpp and not _chunked(vpp):
            raise UsageError(
                f"schedule={word} with vpp={','.join(map(str, vpp))}: stages of one chunk are not {word}: take "
                f"--vpp 2 or more, leave it out to try all, or say --schedule {name}"
            )
        if len(words) > 1 and name not in words:
            raise UsageError(
                f"schedule={','.join(map(str, words))}: {word} is {name} with vpp above 1, and is searched alone or "
                f"beside {name}: add {name}, or search twice"
            )


def _chunked(vpp: Sequence[Value]) -> tuple[int, ...]:
    return tuple(sorted(value for value in vpp if isinstance(value, int) and value > 1))


def job_of(asked: Asked, request: Request, text: str) -> PlanJob:
    """Return the job; `request` has the defaults of all flags.

    Raises:
        UsageError: what was asked contradicts itself, or leaves nothing to search.
        UnknownNameError: a system, a metric or a number of a system that there is not.
    """
    from ...cost.flops import Convention
    from ...explore.goals import MetricLimit, goals_of
    from ...explore.plans.job import PlanJob
    from ...explore.plans.metrics import known_metrics
    from ...ir.sizes.fixed_sizes import check_bounds

    check_asked(asked)
    plain = plain_of(asked, request)
    check_model(plain)
    checked_systems(asked, plain)
    graph = graph_of(plain)
    check_bounds(graph, {"seq": plain.words.seq_len, "kv": plain.words.seq_len})
    machines = tuple(_machines(asked, plain, graph))
    known = known_metrics(graph.workload)
    goals = goals_of(asked.objectives or ("step_time_s",), known)
    limits = tuple(MetricLimit.of(one, known) for one in asked.constraints)
    named = [goal.name for goal in goals] + [limit.name for limit in limits]
    money = any("usd" in name or name in _ENERGY for name in named)
    priced = terms_of(plain) if money or asked.flags.get("basis") or asked.flags.get("rent") else None
    job = PlanJob(
        graph=graph,
        space=_space(asked, plain, graph),
        machines=machines,
        goals=goals,
        limits=limits,
        text=text,
        rows_at_once=asked.rows_at_once or MOST_ROWS,
        terms=priced,
        convention=Convention(plain.flops_convention),
    )
    if any(machine.runner for machine in machines) and not job.has_plans:
        # What is typed leaves no plan that the stack runs: such plans are answered, with a warning.
        job = replace(job, machines=tuple(_machines(asked, plain, graph, excuses=True)))
    _check_some(job, asked)
    return job


_ENERGY = ("average_power_w", "j_per_token", "j_per_token_facility", "kg_co2e_per_mtok", "model_flop_per_s_per_w")


def single(asked: Asked, request: Request) -> Request:
    """Return the request with what a search has one of."""
    values = {name: given[0] for name, given in asked.flags.items() if name in SINGLE and name != "system"}
    own = {name: given[0] for name, given in asked.flags.items() if name in _ONE_OF_SERVERS and len(given) == 1}
    return request.said(values | own)


def plain_of(asked: Asked, request: Request) -> Request:
    """Return the request with what a search has one of; degrees and choices are one and none."""
    chosen = (SearchAxis.NUMBER, SearchAxis.CHOICE)
    free = {name: row.unsaid for name, row in WORDS.items() if row.word.axis in chosen and name != "gpus"}
    shard = 1 if "dp_shard" in asked.flags else None
    return single(asked, request).said({**free, "sp": False, "dp_shard": shard, "system": None, "overrides": ()})


def _machines(asked: Asked, plain: Request, graph: Graph, excuses: bool = False) -> Iterator[PlanMachine]:
    """Every system that was named, with every combination of its numbers."""
    from ...explore.plans.job import PlanMachine

    names = checked_systems(asked, plain)
    overrides = list(varied_paths(asked.paths, plain, names))
    for name in names:
        one = _with_software(asked, plain.said({"system": name}))
        bases, at, runner = tuple(_bases(asked, one)), one.machine, _runner(asked, one, graph, excuses)
        decides = system_of(one).stack.decides
        for own in overrides:
            yield PlanMachine(
                name=name,
                bases=bases,
                decides=decides,
                runner=runner,
                overrides=own,
                stack=at.stack,
                calibration=at.calibration,
                prices=at.book,
                served_by=at.served_by,
                assumed=at.assumed,
            )


def _with_software(asked: Asked, plain: Request) -> Request:
    """Return a request with the software of the whole search: that of the widest of its plans."""
    most = max((value for value in asked.axis("gpus") if isinstance(value, int)), default=1)
    free = (min(most, 2),)
    wide = {
        name: max(value for value in asked.axis(name) or free if isinstance(value, int))
        for name in ("tp", "pp", "cp", "ep")
    }
    found = with_software(plain.said(wide)).machine
    return plain.said({name: getattr(found, name) for name in ("stack", "served_by", "assumed")})


def _runner(asked: Asked, plain: Request, graph: Graph, excuses: bool) -> StackSpace | None:
    """Return what the software of a system runs of the words that are not typed; None where it runs all plans."""
    from ...frameworks.export import config_of
    from ...frameworks.runs import StackSpace
    from ...ir.layers import num_layers

    stack = system_of(plain.said({"overrides": ()})).stack
    if not stack.framework and not stack.runs:
        return None
    # Layers of stages follow from degrees where nobody lays them out.
    free = tuple(name for name in (*NUMBERS, *CHOICES, "pp_layout") if name not in asked.flags or name in asked.usual)
    return StackSpace(
        stack=stack,
        model=plain.source.model,
        dtype=plain.source.dtype,
        free=free,
        excuses=excuses,
        num_blocks=num_layers(graph),
        config=config_of(plain.source.model),
    )


def checked_systems(asked: Asked, plain: Request) -> list[str]:
    """Return the systems named, each once; every one is loaded, so that a misspelt one is told at once."""
    words = [word.strip() for text in asked.flags.get("system", ()) for word in str(text).split(",")]
    names = list(dict.fromkeys(word for word in words if word))
    if not names:
        system_of(plain.said({"system": None}))
    for name in names:
        system_of(plain.said({"system": name, "overrides": ()}))
    return names


def varied_paths(
    paths: Mapping[str, tuple[str, ...]], plain: Request, names: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Yield every combination of the numbers of a system, as assignments; errors as `full_paths`, or too many."""
    full = full_paths(paths, plain, names)
    num = len(names) * prod(len(values) for values in full.values())
    if num > MOST_SYSTEMS:
        raise UsageError(f"--vary makes {num:,} systems: at most {MOST_SYSTEMS:,}; take fewer values")
    # What is set comes before what is varied, in every system.
    order = sorted(full, key=lambda path: len(full[path]) > 1)
    for values in product(*(full[path] for path in order)):
        yield (*plain.machine.graphs, *(f"{path}={value}" for path, value in zip(order, values, strict=True)))


def full_paths(
    paths: Mapping[str, tuple[str, ...]], plain: Request, names: Sequence[str], num_good: int = 2
) -> dict[str, tuple[str, ...]]:
    """Return the values of the numbers of a system by full path, in order; all first and all last ones are tried.

    UnknownNameError for a number that there is not; UsageError for values that it cannot have, where fewer than
    `num_good` of these two systems can be.
    """
    first = plain.said({"system": names[0], "overrides": ()})
    system = system_of(first) if any(key.split(".")[0] not in _TOPS for key in paths) else None
    full = {_full(key, system): values for key, values in paths.items()}
    wrong: list[SystemFileError] = []
    for at in (0, -1):
        try:
            system_of(first.said({"overrides": tuple(f"{path}={values[at]}" for path, values in full.items())}))
        except SystemFileError as error:
            wrong.append(error)
    if 2 - len(wrong) < num_good:
        raise wrong[0]
    return full


def _full(key: str, system: System | None) -> str:
    """The path of a number by its end, where one alone ends so: `system.hbm.bandwidth`."""
    if key.split(".")[0] in _TOPS or system is None:
        return key
    from ...backends.machine.load import system_numbers

    end = key.removeprefix("system.")
    paths = [number.path for number in system_numbers(system)]
    found = [path for path in paths if path == end or path.endswith(f".{end}")]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UnknownNameError.of(f"number of system '{system.name}'", key, paths)
    raise UsageError(f"'{key}' is the end of {len(found)} numbers: write one of {', '.join(found)}")


def _bases(asked: Asked, plain: Request) -> Iterator[Family]:
    """The families that have all that is no axis of every space: types, kernels, layouts, what is offloaded."""
    from ...backends.network.topology.placement import placements_of

    names = [name for name in asked.flags if name not in SINGLE and name not in NUMBERS and name not in CHOICES]
    axes = {name: asked.words(name) for name in names}
    if asked.flags.get("placement") == (ALL,):
        axes["placement"] = placements_of(system_of(plain).levels)
    every = any(asked.flags[name] == (ALL,) for name in axes)
    seen: dict[Family, None] = {}
    wrong: list[PlanError | NotBuiltError] = []
    kernels = family_of(plain).kernels
    for values in product(*axes.values()):
        try:
            family = family_of(plain.said({"kernels": kernels, **dict(zip(axes, values, strict=True))}))
        except (PlanError, NotBuiltError) as error:
            # Of all words, those that a phase does not have are none.
            if not every:
                raise
            wrong.append(error)
            continue
        seen[family] = None
    if not seen and wrong:
        raise wrong[0]
    yield from seen


def _space(asked: Asked, plain: Request, graph: Graph) -> PlanSpace:
    from ...explore.plans.space import PlanSpace
    from ...ir.plan.structure import OPEN

    decode = plain.words.phase == "decode"
    return PlanSpace(
        degrees=_degrees(asked),
        choices=_choices(asked, graph),
        seq_len=plain.words.seq_len,
        kv_len=plain.words.seq_len if decode else 0,
        capacity_factor=plain.words.capacity_factor,
        expert_imbalance=plain.words.expert_imbalance,
        left_open=tuple(name for name in OPEN if name not in asked.flags) if plain.words.phase == "train" else (),
    )


def _degrees(asked: Asked) -> Degrees:
    from ...explore.plans.degrees import Degrees

    given = {
        NUMBERS[name]: tuple(sorted(value for value in asked.axis(name) if isinstance(value, int)))
        for name in asked.flags
        if name in NUMBERS
    }
    if not given.get("num_gpus"):
        raise PlanError("a search of plans needs a number of GPUs: --gpus 1024")
    if all(word in ALIASES for word in asked.flags.get("schedule") or (USUAL,)):
        given["vpp"] = _chunked(given.get("vpp", ())) or tuple(range(2, _MOST_CHUNKS))
    return Degrees(**given)


def _choices(asked: Asked, graph: Graph) -> Choices:
    from ...explore.plans.space import Choices

    usual = Choices.usual(graph.workload)
    given = {field: asked.axis(name) for name, field in CHOICES.items() if asked.axis(name)}
    if "cp_method" in given:
        given["cp"] = given.pop("cp_method")
    if "schedule" in given:
        words = (ALIASES[word].name if word in ALIASES else word for word in map(str, given["schedule"]))
        given["schedule"] = tuple(dict.fromkeys(words))
    etp = tuple(dict.fromkeys(value != 1 for value in asked.axis("etp")))
    named = {f.name: getattr(usual, f.name) for f in fields(Choices)}
    named.update(given | ({"etp": etp} if etp else {}))
    return Choices(**named)


def _check_some(job: PlanJob, asked: Asked) -> None:
    """Raise PlanError where the space holds no candidate, with what is fixed."""
    from ...ir.plan.divisibility import has_experts

    experts = has_experts(job.graph)
    told = [job.space.why_none(base, experts, decides) for base, decides, _ in job.starts]
    fixed = ", ".join(
        f"{name.replace('_', '-')}={','.join(map(str, values))}"
        for name, values in asked.flags.items()
        if values and (name not in SINGLE or (name in WORDS and WORDS[name].word.section == "Plan"))
    )
    if all(told):
        raise PlanError(f"the space is empty: what is fixed contradicts itself, {fixed}: {told[0]}")
    if not any(job.blocks()):
        raise PlanError(
            f"the space is empty: no plan has {fixed}; degrees must divide the GPUs, and micro-batches the batch: free "
            "one of them"
        )
