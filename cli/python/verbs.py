"""The product in fourteen functions: the verbs of the command line as Python calls that return result objects.

A function takes the flags of its verb as keyword arguments, with the same defaults, and gives the same numbers: a flag
without its dashes, with `_` for `-` (`tp=8`, `kv_dtype="fp8"`, `set={"chip.memory.hbm.bandwidth": "4.8TB/s"}`). Models,
systems and reports may be names, paths, or objects. Errors are those of `slipstick.ir.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast, overload

from ...ir.errors import UsageError
from ...ir.graph import Graph
from ...ir.text.json_text import json_text

if TYPE_CHECKING:
    from typing import Unpack

    from ...backends.machine.system import System
    from ...backends.pricing.roofline import Backend
    from ...cost.flops import Convention
    from ...driver.estimate import Estimate, Lowered
    from ...explore.best import Best
    from ...explore.block import Found
    from ...explore.job import Executor
    from ...explore.runs.ledger import Ledger
    from ...explore.searching import Aimed, Searched
    from ...frontend.example_inputs import Dynamic, Inputs
    from ...frontend.leaves import Leaves, Module
    from ...frontend.runs.model_run import Loss
    from ...ir.graph import Workload
    from ...ir.plan import Plan
    from ...report.compare.saved import Saved
    from ...report.designs.optimised import OptimisedDesigns
    from ...report.results.compiled import CompiledResult
    from ...report.results.mixed import MixedResult
    from ...report.results.policies import PolicyResult
    from ...report.results.posttrain import PostTrainResult
    from ...report.results.result import Result
    from ...report.results.steps import ServeResult, SizeResult, StepResult
    from ...report.results.tables import ComparisonResult, CostResult, SearchResult, SweepResult, TraceResult
    from ...report.results.topologies import TopologyResult
    from . import words  # pyright: ignore[reportMissingModuleSource] - a stub alone


@overload
def estimate(
    model: Graph,
    system: System,
    plan: Plan,
    convention: Convention = ...,
    lowered: Lowered | None = None,
    backends: Sequence[Backend] | None = None,
) -> Estimate: ...


@overload
def estimate(
    model: str | Path | Graph | Module | None, system: str | Path | System | None, **said: Unpack[words.EstimateWords]
) -> StepResult: ...


def estimate(
    model: str | Path | Graph | Module | None, system: str | Path | System | None, *given: object, **said: object
) -> StepResult | Estimate:
    """Estimate one step of a model on a system: how long, whether it fits, where the time goes, what it costs.

    Keyword arguments are the flags of `slipstick estimate` for single steps: `tp=8, gpus=64, seq=8192, gbs=256`.
    `model` and `system` are None where `plan="plan.yaml"` or `launch="train.sh"` names them.
    With a graph, a system and a `Plan` of `make_plan` it returns an `Estimate`, as `driver.estimate` does.

    >>> estimate("gpt2", "dgx-h100", phase="prefill", tp=2, seq=512).plan.num_gpus
    2
    """
    if given or not isinstance(said.get("plan", ""), str | Path):
        from ...driver.estimate import estimate as of_plan

        return cast("Callable[..., Estimate]", of_plan)(model, system, *given, **said)
    if said.get("phase") == "serve":
        raise UsageError('estimate(phase="serve"): a server is another answer: serve(...) takes the same words')
    return cast("StepResult", _asked("estimate", model, system, said))


def serve(
    model: str | Path | Graph | Module | None, system: str | Path | None, **said: Unpack[words.ServeWords]
) -> ServeResult:
    """Estimate a model server under a load: TTFT, TPOT, throughput, memory, cost of tokens.

    Keyword arguments are the flags of `slipstick estimate --phase serve`: `isl=2000, osl=500, request_rate=8`.
    """
    _refuse_loaded("serve", system)
    return cast("ServeResult", _asked("estimate", model, system, {**said, "phase": "serve"}))


def size(model: str | Path, system: str | Path, **said: Unpack[words.SizeWords]) -> SizeResult:
    """Find the smallest deployment that meets `target_rps` requests/s and latency limits: see `slipstick size`."""
    _refuse_loaded("size", system)
    return cast("SizeResult", _asked("size", model, system, said))


def cost(system: str | Path | System, **said: Unpack[words.CostWords]) -> CostResult:
    """Price a system: manufacturing cost, capex, TCO, energy and carbon: see `slipstick cost`."""
    from .calls import answered

    name, objects = _system(system)
    return cast("CostResult", answered("cost", [name], said, objects))


def mixed(model: str | Path | Graph | Module, **said: Unpack[words.MixedWords]) -> MixedResult:
    """Estimate a step whose pipeline stages stand on several systems: see `slipstick mixed`.

    >>> mixed("gpt2", stages="dgx-h100:1,dgx-a100-80gb:1", gpus=16, seq=512, gbs=64).best.plan.pp
    2
    """
    return cast("MixedResult", _asked("mixed", model, None, said))


def posttrain(
    model: str | Path | Graph | Module, system: str | Path | System, **said: Unpack[words.PosttrainWords]
) -> PostTrainResult:
    """Estimate a step of post-training: rollouts, passes, training, days and cost: see `slipstick posttrain`."""
    return cast("PostTrainResult", _asked("posttrain", model, system, said))


def recompute(
    model: str | Path | Graph | Module, system: str | Path | System, **said: Unpack[words.RecomputeWords]
) -> PolicyResult:
    """Find the fastest recomputation and offload policy within a memory limit: see `slipstick recompute`."""
    return cast("PolicyResult", _asked("recompute", model, system, said))


@overload
def search(
    model: Aimed,
    executor: Executor | None = None,
    ledger: Ledger | None = None,
    top: int = 20,
    watch: Callable[[Found, Best], None] | None = None,
) -> Searched: ...


@overload
def search(model: str | Path, system: str | Path, **said: Unpack[words.SearchWords]) -> SearchResult: ...


def search(model: str | Path | Aimed, *given: object, **said: object) -> SearchResult | Searched:
    """Estimate every legal plan of a model on one or several systems and return the best: see `slipstick search`.

    An argument fixes its value in every plan, all others are free; `vary={"system.hbm.bandwidth": "2TB/s:10TB/s:9"}`.
    Given a `PlanJob` instead of a model, it behaves as `explore.searching.search`.
    """
    if not isinstance(model, str | Path):
        from ...explore.searching import search as of_job

        return cast("Callable[..., Searched]", of_job)(model, *given, **said)
    (system,) = given or (said.pop("system", None),)
    _refuse_loaded("search", system)
    return cast("SearchResult", _asked("search", model, cast("str | Path | None", system), said))


def sweep(model: str | Path | Graph | Module | None = None, **said: Unpack[words.SweepWords]) -> SweepResult:
    """Cost a space of chip designs and estimate a model on each; without a model, costs only: see `slipstick sweep`."""
    return cast("SweepResult", _asked("sweep", "none" if model is None else model, None, said))


def optimise(model: str | Path, **said: Unpack[words.OptimiseWords]) -> OptimisedDesigns:
    """Optimise a chip and the plan for a model within budgets, node by node: see `slipstick design optimise`."""
    return cast("OptimisedDesigns", _asked("design optimise", model, None, said))


def topologies(
    model: str | Path | Graph | Module, system: str | Path | System, **said: Unpack[words.TopologiesWords]
) -> TopologyResult:
    """Compare networks of equal cost, power or bandwidth by a step of a model on each: see `slipstick topologies`."""
    return cast("TopologyResult", _asked("topologies", model, system, said))


def compile(
    model: str | Path | Graph | Module, system: str | Path | System | None = None, **said: Unpack[words.CompileWords]
) -> CompiledResult:
    """Compile a model for a plan: the graphs before and after the passes and, given a system, the cost of each node.

    >>> compile("gpt2", phase="prefill", seq=512, tp=2).sharded.axes
    ('dp', 'tp')
    """
    return cast("CompiledResult", _asked("compile", model, system, said))


@overload
def trace(model: str | Path | Graph, **said: Unpack[words.TraceWords]) -> TraceResult: ...


@overload
def trace(
    model: Module,
    inputs: Inputs | None = None,
    dynamic: Dynamic | None = None,
    phase: Workload | str = ...,
    loss: Loss | None = None,
    leaves: Leaves = ...,
    caches: Sequence[str] = (),
    name: str | None = None,
    fixed: Mapping[str, int] = ...,
) -> Graph: ...


def trace(model: str | Path | Graph | Module, *given: object, **said: object) -> TraceResult | Graph:
    """List parameters, regions, operators, FLOPs and bytes of a model: see `slipstick trace`.

    Given a module object it returns its graph, which all functions accept instead of a name: see
    `frontend.module.trace` for the arguments that describe it.
    """
    if not isinstance(model, str | Path | Graph):
        from ...frontend.module import trace as of_module

        return cast("Callable[..., Graph]", of_module)(model, *given, **said)
    return cast("TraceResult", _asked("trace", model, None, said))


def compare(a: object, b: object, fail_on: Sequence[str] = (), threshold: float = 0.1) -> ComparisonResult:
    """Compare two answers and explain the change: results, their documents, or paths of saved files.

    `fail_on` takes gates as `slipstick compare` does; failed gates are reported in `gates` and raise nothing.
    """
    from ...report.compare.comparison import compare as compared
    from ...report.compare.gates import judged
    from ...report.results.tables import ComparisonResult

    found = compared(_report(a, "A"), _report(b, "B"))
    return ComparisonResult(found=found, gates=judged(fail_on, found), floor=threshold / 100)


def explain(answer: StepResult | ServeResult | CostResult, name: str) -> str:
    """Explain a metric, a node, a line of a cost, or the memory in words."""
    return answer.explain(name)


def _asked(
    verb: str, model: str | Path | Graph | Module | None, system: str | Path | System | None, said: Mapping[str, object]
) -> Result:
    """Return the answer of a verb for a model and a system; None where a plan or a launch names it."""
    from .calls import answered

    if not isinstance(model, str | Path | Graph | None):
        from ...frontend.module import trace as of_module

        model = of_module(model, phase=str(said.get("phase", "train")))
    objects: dict[str, object] = {}
    if isinstance(model, Graph):
        objects, said = {"graph": model}, {"phase": str(model.workload), **said}
    # The name of a saved graph: it says all by itself, and there is no config to look at.
    given = [] if model is None else [f"{model.name}.graph" if isinstance(model, Graph) else str(model)]
    if system is not None:
        name, loaded = _system(system)
        return answered(verb, [*given, f"--system={name}"], said, {**objects, **loaded})
    return answered(verb, given, said, objects)


def _system(system: str | Path | System) -> tuple[str, Mapping[str, object]]:
    """Return the name of a system, and the system where it is one already."""
    return (str(system), {}) if isinstance(system, str | Path) else (system.name, {"loaded": system})


def _refuse_loaded(verb: str, system: object) -> None:
    if system is not None and not isinstance(system, str | Path):
        told = "its stack or its numbers are chosen here: name it, or give the path of its file, and set={...}"
        raise UsageError(f"{verb}: a system as an object is as it is, and {told}")


def _report(given: object, name: str) -> Saved:
    """Return one side of a comparison: a file by its path, or the document of a result."""
    from ...report.compare.saved import read_saved, saved
    from ...report.results.result import Result

    if isinstance(given, str | Path):
        return read_saved(str(given))
    if isinstance(given, Result):
        return saved(given.json(), given.command or name)
    if isinstance(given, Mapping):
        return saved(json_text(given), name)
    raise UsageError(f"compare {name}: {type(given).__name__}: a result, its to_dict(), or the path of its JSON")
