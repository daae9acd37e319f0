"""Prepare a request: its graph, plan, system and lowered graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir.errors import NotBuiltError, UsageError, check_once
from ..ir.plan.low_inference import AS_PUBLISHED
from .request import Request

if TYPE_CHECKING:
    from ..backends.machine.software.stack import StackConstants
    from ..backends.machine.system import System
    from ..cost.money import Terms
    from ..driver.estimate import Estimate, Lowered
    from ..frontend.huggingface.configs.published import Published
    from ..frontend.runs.options import TraceOptions
    from ..ir.graph import Graph
    from ..ir.plan import Family, Plan, PlanWords
    from ..passes.base import Pass
    from ..passes.manager import PassPipeline
    from .sources import VerbArguments

# What configs call the heads that predict tokens behind the next one.
_HEADS = "num_nextn_predict_layers"


def check_model(request: Request) -> None:
    """Refuse a misspelt model or type before anything slow happens."""
    from ..frontend.loading import check

    check(request.source.model, request.source.dtype)


def check_finished(request: Request) -> None:
    """Raise UsageError for a lowering that stops before its end: it has no time."""
    if request.compiler.stop_after is not None:
        raise UsageError("--stop-after leaves an unfinished graph; see it with `slipstick compile --emit sharded`")


def graph_of(request: Request, stack: StackConstants | None = None) -> Graph:
    """Load or record the model as its kernels ask for; progress goes to stderr.

    The software decides the kernels where none are named; it is loaded where it is not given.
    """
    source = request.source
    if source.graph is not None:
        # A graph that was given; UsageError where it is of another phase.
        graph = source.graph
        phase = request.words.phase
        if str(graph.workload) != phase:
            raise UsageError(
                f"phase={phase}: graph '{graph.name}' is of {graph.workload}: ask for that, or name the model"
            )
        return graph
    from ..ir.sizes.fixed_sizes import fixed_sizes

    spelled_out = _spelled_out(request, stack)
    key = (source, request.words.phase, spelled_out)
    # A graph of fixed sizes was recorded at those of its plan.
    if key not in source.recorded or fixed_sizes(source.recorded[key]) != (None, None):
        source.recorded[key] = _loaded(request, spelled_out)
    return source.recorded[key]


def _spelled_out(request: Request, stack: StackConstants | None) -> bool:
    """Whether norms and the like are recorded as the model's own code runs them: for training with eager kernels."""
    from ..ir.graph import Workload
    from ..ir.plan.structure import usual_kernels

    train = request.words.phase == "train"
    return train and (request.words.kernels or usual_kernels(Workload.TRAIN, stack or _stack(request))) == "eager"


def _loaded(request: Request, spelled_out: bool) -> Graph:
    from ..frontend.cache import GraphCache
    from ..frontend.loading import load_model

    source = request.source
    return load_model(
        source.model,
        request.words.phase,
        source.dtype,
        GraphCache.default() if request.cache else None,
        None if request.quiet else request.arguments.talk.say,
        trace_options(request, spelled_out),
    )


def trace_options(request: Request, spelled_out: bool = False) -> TraceOptions:
    """Return how the model is recorded, in any phase and type: what was said of it, and the lengths of the plan."""
    from ..frontend.runs.options import TraceOptions

    source, seq = request.source, request.words.seq_len
    return TraceOptions(
        dims=dims_of(source.dims),
        images=source.images,
        allow_unpriced=source.allow_unpriced,
        spelled_out=spelled_out,
        inputs=source.inputs,
        loss=source.loss or "",
        fixed=source.fixed,
        leaves=source.leaves,
        caches=source.caches,
        sizes={"seq": seq, "kv": seq, "batch": request.words.micro_batch},
    )


def sized(request: Request, stack: StackConstants | None = None) -> tuple[Graph, Plan]:
    """Load the model and complete the plan, of sizes that the graph holds for: every verb has both from here.

    The length is the one that the graph is of, where no other was typed: a note of the graph says why. The plan is
    looked at first, which is quick.
    """
    plan = plan_of(request, stack)
    graph = graph_of(request, stack)
    if (length := length_for(graph, request.words.seq_len, request.arguments)) != request.words.seq_len:
        plan = plan_of(request.said({"seq": length}), stack)
    check_positions(graph, plan)
    return graph, plan


def length_for(graph: Graph, seq: int, arguments: VerbArguments) -> int:
    """Return the one length that a graph is of, where no other was given, else the length that was asked for.

    UsageError for a length that was typed, of a model whose inputs have none.
    """
    from ..ir.sizes.fixed_sizes import counts_tokens

    if arguments.is_typed("seq") and not counts_tokens(graph):
        raise UsageError(f"--seq {seq}: '{graph.name}' reads no sequence, its samples are counted; leave --seq out")
    if arguments.is_given("seq"):
        return seq
    return next((b.low for b in graph.bounds if b.name == "seq" and b.low == b.high), seq)


def dims_of(given: Sequence[str]) -> dict[str, str]:
    """Read NAME=SIZE pairs; UsageError for what is none."""
    pairs = [text.partition("=") for text in given]
    for (name, _, size), text in zip(pairs, given, strict=True):
        if not name or not size:
            raise UsageError(f"--dim {text}: NAME=SIZE, as in --dim past_len=kv")
    check_once("--dim", [name for name, _, _ in pairs])
    return {name: size for name, _, size in pairs}


def system_of(request: Request) -> System:
    """Load the system with its software, as `with_software` fills it in, and overrides.

    UsageError without a name, or where the software does not run the phase.
    """
    from ..backends.machine.load import load_system, system_names
    from ..backends.machine.software.phases import check_phase

    at = request.machine
    if at.loaded is not None:
        if at.assignments or at.stack or at.calibration or at.book:
            told = "name it, and its stack and numbers may be given"
            raise UsageError(f"system '{at.loaded.name}' was given as an object, which is as it is: {told}")
        return at.loaded
    if at.system is None:
        raise UsageError(f"--system is needed; known: {', '.join(system_names())}, or a path to a YAML file")
    system = load_system(at.system, at.assignments, at.stack, at.calibration, at.book)
    if at.served_by is not None:
        from ..backends.machine.software.engine_file import load_engine

        engine = load_engine(at.dated(at.served_by), system.chip.name, at.of_engine)
        check_phase(engine, request.words.phase, "engine")
        system = engine.under(system)
    check_phase(system.stack, request.words.phase)
    return replace(system, assumed=at.assumed) if at.assumed else system


def priced(request: Request, answer: Estimate) -> Estimate:
    """Price an estimate; a system that cannot be priced says so among the warnings, and has its times all the same."""
    from ..driver.estimate import worth

    try:
        return worth(answer, terms_of(request))
    except UsageError as error:
        if request.rent or request.basis == "build":
            raise
        return replace(answer, warnings=(*answer.warnings, f"not priced: {error}"))


def terms_of(request: Request) -> Terms:
    """Return the ownership model: bought, built or rented."""
    from ..cost.money import Terms

    return Terms(basis="build" if request.basis == "build" else "market", rented=request.rent)


def _stack(request: Request) -> StackConstants | None:
    """The software asked for: that of the system, one named alone, or none."""
    if request.machine.system is not None:
        return system_of(request).stack
    if request.machine.stack is None:
        return None
    from ..backends.machine.load import load_stack
    from ..backends.machine.software.phases import check_phase

    stack = load_stack(request.machine.stack)
    check_phase(stack, request.words.phase)
    return stack


def family_of(request: Request) -> Family:
    """Return the structural part of the plan: what was asked for, and what follows from degrees and the stack."""
    from ..ir.plan import structure_of

    return structure_of(resolved_words(request), _deciding(request))


def _deciding(request: Request) -> StackConstants | None:
    """Return the software, where it decides something."""
    from ..ir.plan.structure import OPEN

    words = request.words
    left_open = [words.kernels, *(getattr(words, name) for name in OPEN if words.phase == "train")]
    return _stack(request) if None in left_open else None


def resolved_words(request: Request) -> PlanWords:
    """Return the words of the plan, with what is known of the model in the place of `as-published` and `model`."""
    from ..frontend.huggingface.configs.models import popularity_of

    found, words = _precision(request), request.words
    popularity = popularity_of(request.source.model, words.expert_popularity)
    return replace(words, precision=found.recipe, published_of=found.of, expert_popularity=popularity)


def _precision(request: Request) -> Published:
    """Return the recipe asked for; those of the checkpoint as engines run it on the system, where there is one."""
    from ..frontend.huggingface.configs.published import Published, published_recipes
    from ..ir.errors import PlanError

    if request.words.precision != AS_PUBLISHED:
        return Published(request.words.precision)
    if request.words.phase == "train":
        raise PlanError(f"precision={AS_PUBLISHED}: of inference only; name the recipe, or leave it out")
    if request.machine.system is None:
        return published_recipes(request.source.model)
    of_chip = tuple(text for text in request.machine.overrides if text.startswith("chip."))
    chip = system_of(request.said({"overrides": of_chip})).chip
    return published_recipes(request.source.model, tuple(chip.peak_flop_per_s.by_dtype()))


def published_otherwise(request: Request) -> tuple[str, ...]:
    """Say so where a model that was published quantised is served in the model's type."""
    from ..frontend.forms import has_config
    from ..frontend.huggingface.configs.published import published_precision

    words, model = request.words, request.source.model
    if words.phase == "train" or words.precision != "none" or words.precision_of or not has_config(model):
        return ()
    try:
        found = published_precision(model)
    except NotBuiltError as error:
        return (str(error),)
    if found == "none":
        return ()
    return (f"{model} was published in {found}, and is estimated in {request.source.dtype}: --precision as-published",)


def no_heads(request: Request, heads: int | None) -> tuple[str, ...]:
    """Say so where heads of a model draft, and its config names none."""
    from ..frontend.forms import has_config
    from ..frontend.huggingface.configs.models import read_config

    model = request.source.model
    if not heads or not has_config(model) or json.loads(read_config(model).text).get(_HEADS):
        return ()
    return (
        f"{model} has no heads that predict further tokens (no {_HEADS} in its config): --mtp takes one as "
        "large as its last layer, which would have to be trained",
    )


def check_positions(graph: Graph, plan: Plan) -> None:
    """Raise UsageError for sizes that a graph is not of, and for tokens beyond the positions of a model that infers.

    Training may go on to learn more positions.
    """
    from ..ir.graph import Workload
    from ..ir.sizes.fixed_sizes import check_sizes

    check_sizes(graph, plan)
    most = graph.max_positions
    if not most or graph.workload is Workload.TRAIN:
        return
    decode = graph.workload is Workload.DECODE
    context = plan.kv_len + 1 if decode else plan.seq_len
    if context > most:
        told = f"{plan.kv_len:,} cached tokens and one more" if decode else f"a prompt of {context:,} tokens"
        raise UsageError(
            f"--seq: {told} are beyond the {most:,} positions of '{graph.name}'; at most --seq {most - decode}"
        )


def plan_of(request: Request, stack: StackConstants | None = None) -> Plan:
    """Check and complete the plan; the software is loaded where it is not given and decides something."""
    from ..ir.plan import plan_of

    return plan_of(resolved_words(request), _deciding(request) if stack is None else stack)


def lower_of(request: Request, graph: Graph, family: Family) -> Lowered:
    """Lower a graph with the pipeline, the stop and the dumps that were asked for."""
    from ..driver.estimate import lower, pipeline_for

    pipeline, say = pipeline_of(request, family), request.arguments.talk.say
    if request.compiler.passes is not None and str(pipeline) != (own := str(pipeline_for(family))):
        say(f"warning: --passes runs '{pipeline}' instead of the plan's own '{own}'")
    done = lower(graph, family, pipeline, request.compiler.stop_after, _dump(request))
    if request.compiler.time_passes:
        say(f"pipeline {pipeline}")
        for t in done.pass_times:
            say(f"  {t.name:<12} {t.time_s * 1e3:8.2f} ms{'' if t.changed else '  (no change)'}")
    return done


def pipeline_of(request: Request, family: Family) -> PassPipeline:
    """Return the pipeline given, or the family's own."""
    from ..driver.estimate import pipeline_for
    from ..passes.manager import parse_pipeline

    given = request.compiler.passes
    return pipeline_for(family) if given is None else parse_pipeline(given)


def _dump(request: Request) -> Callable[[int, Pass, Graph], None] | None:
    if request.compiler.dump_after is None:
        return None
    from ..ir.text.files import save_graph
    from ..passes.manager import pass_class

    if request.compiler.dump_after != "all":
        pass_class(request.compiler.dump_after)

    def write(number: int, step: Pass, graph: Graph) -> None:
        if request.compiler.dump_after in ("all", step.name):
            path = Path(request.compiler.dump_dir) / f"{number:02d}_{step.name}.graph"
            with request.arguments.talk.writing(path):
                save_graph(graph, path)

    return write
