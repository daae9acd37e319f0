"""The product in functions: the verbs of the command line as calls of Python that return result objects.

A function takes the words of its verb as keyword arguments, with the same defaults, and gives the same numbers: a flag
without its dashes, with `_` for `-` (`tp=8`, `kv_dtype="fp8"`, `set={"chip.memory.hbm.bandwidth": "4.8TB/s"}`). Models,
systems and reports may be names, paths, or objects. Errors are those of `slipstick.ir.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.text.json_text import json_text
from ..arguments.verbs import (
    ChooseWords,
    CompileWords,
    CostWords,
    EstimateWords,
    ExportWords,
    MixedWords,
    OperatorsWords,
    OptimiseWords,
    PosttrainWords,
    RecomputeWords,
    SearchWords,
    ServeWords,
    SizeWords,
    SweepWords,
    TopologiesWords,
)
from ..sources import Setting, Source, VerbArguments
from .calls import verb

if TYPE_CHECKING:
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


@verb(EstimateWords)
def estimate(asked: VerbArguments) -> StepResult:
    """Estimate one step of a model on a system: how long, whether it fits, where the time goes, what it costs.

    `model` and `system` are None where `plan="plan.yaml"` or `launch="train.sh"` names them. An estimate of a graph
    under a `Plan` of `make_plan` is `slipstick.driver.estimate.estimate`.

    >>> estimate("gpt2", "dgx-h100", phase="prefill", tp=2, seq=512).plan.num_gpus
    2
    """
    from ..estimate import EstimateRequest, estimate_step

    if asked.get("phase") == "serve":
        raise UsageError('estimate(phase="serve"): a server is another answer: serve(...) takes the same words')
    return estimate_step(EstimateRequest.of(asked))


@verb(ServeWords, of="estimate")
def serve(asked: VerbArguments) -> ServeResult:
    """Estimate a model server under a load: TTFT, TPOT, throughput, memory, cost of tokens."""
    from ..serving.serve import ServeRequest, serve_model

    served = Setting("serve", Source.TYPED)
    return serve_model(ServeRequest.of(asked.changed(phase=served)))


@verb(SizeWords)
def size(asked: VerbArguments) -> SizeResult:
    """Find the smallest deployment on a system that meets `target_rps` requests/s and latency limits.

    Of several systems or rates, and over a day, `choose` compares the fleets.
    """
    from ...report.results.steps import SizeResult
    from ..serving.size import SizeRequest, size_server

    found = size_server(SizeRequest.of(asked))
    if not isinstance(found, SizeResult):
        raise UsageError("size is of one system and one rate: choose(model, systems, rps=...) compares fleets")
    return found


@verb(CostWords)
def cost(asked: VerbArguments) -> CostResult:
    """Price a system: manufacturing cost, capex, TCO, energy and carbon."""
    from ...report.results.tables import CostResult
    from ..cost import CostRequest, price_system

    found = price_system(CostRequest.of(asked))
    if not isinstance(found, CostResult):
        raise UsageError("cost is of one system: call it once for each")
    return found


@verb(SearchWords)
def search(asked: VerbArguments) -> SearchResult:
    """Estimate every legal plan of a model on one or several systems and return the best.

    An argument fixes its value in every plan, all others are free; `vary={"system.hbm.bandwidth": "2TB/s:10TB/s:9"}`.
    A `PlanJob` is searched by `slipstick.explore.searching.search`.
    """
    from ..search.asked import SearchRequest
    from ..search.search import search_plans

    return search_plans(SearchRequest.of(asked))


@verb(ChooseWords)
def choose(asked: VerbArguments) -> Result:
    """Choose a cluster for a training run, or with `rps` a fleet that serves a model, among several systems.

    `system` names them, with commas or as a list; `all` are those of the catalogue.
    """
    from ..search.choose import ChooseRequest, choose_cluster

    return choose_cluster(ChooseRequest.of(asked))


@verb(MixedWords)
def mixed(asked: VerbArguments) -> MixedResult:
    """Estimate a step whose pipeline stages stand on several systems.

    >>> mixed("gpt2", stages="dgx-h100:1,dgx-a100-80gb:1", gpus=16, seq=512, gbs=64).best.plan.pp
    2
    """
    from ..training.mixed import MixedRequest, estimate_mixed

    return estimate_mixed(MixedRequest.of(asked))


@verb(PosttrainWords)
def posttrain(asked: VerbArguments) -> PostTrainResult:
    """Estimate a step of post-training: rollouts, passes, training, days and cost."""
    from ..training.posttrain import PostTrainRequest, estimate_posttrain

    return estimate_posttrain(PostTrainRequest.of(asked))


@verb(RecomputeWords)
def recompute(asked: VerbArguments) -> PolicyResult:
    """Find the fastest recomputation and offload policy within a memory limit."""
    from ..training.recompute import RecomputeRequest, find_recompute_policy

    return find_recompute_policy(RecomputeRequest.of(asked))


@verb(OptimiseWords)
def optimise(asked: VerbArguments) -> OptimisedDesigns:
    """Optimise a chip and the plan for a model within budgets, node by node: see `slipstick design optimise`."""
    from ..designs.optimise import OptimiseRequest, optimise_design

    return optimise_design(OptimiseRequest.of(asked))


@verb(SweepWords)
def sweep(asked: VerbArguments) -> SweepResult:
    """Cost a space of chip designs and estimate a model on each; without a model, costs only."""
    from ..designs.sweep import NO_MODEL, SweepRequest, sweep_designs

    model = asked.settings["model"]
    named = model if model.value else Setting(NO_MODEL, Source.DEFAULT)
    return sweep_designs(SweepRequest.of(asked.changed(model=named)))


@verb(TopologiesWords)
def topologies(asked: VerbArguments) -> TopologyResult:
    """Compare networks of equal cost, power or bandwidth by a step of a model on each."""
    from ..designs.topologies import TopologyRequest, compare_topologies

    return compare_topologies(TopologyRequest.of(asked))


@verb(CompileWords)
def compile(asked: VerbArguments) -> CompiledResult:
    """Compile a model for a plan: the graphs before and after the passes and, given a system, the cost of each node.

    >>> compile("gpt2", phase="prefill", seq=512, tp=2).sharded.axes
    ('dp', 'tp')
    """
    from ..compile import compile_model
    from ..request import Request

    return compile_model(Request.of(asked))


@verb(OperatorsWords, of="trace")
def operators(asked: VerbArguments) -> TraceResult:
    """List parameters, regions, operators, FLOPs and bytes of a model; its graph is there as well."""
    from ..trace import TraceRequest, trace_model

    return trace_model(TraceRequest.of(asked))


@verb(ExportWords)
def export(asked: VerbArguments) -> str:
    """Write a plan, or with `phase="serve"` a server, as flags or the config of a framework that runs it."""
    from ...frameworks.export import written
    from ..export import ExportRequest, export_plan

    return written(*export_plan(ExportRequest.of(asked)))


def models() -> tuple[str, ...]:
    """Name the models of the catalogue."""
    from ...frontend.huggingface.configs.models import names

    return tuple(names())


def systems() -> tuple[str, ...]:
    """Name the systems of the catalogue."""
    from ...backends.machine.load import system_names

    return tuple(system_names())


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
