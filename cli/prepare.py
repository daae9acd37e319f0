"""What a user asked for, turned into a graph, a plan, a system and a lowered graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..ir.errors import NotBuiltError, UsageError, check_once
from ..ir.low_inference import AS_PUBLISHED
from .options import Request
from .output import writing
from .plan_file import is_given

if TYPE_CHECKING:
    from ..backends.stack import StackConstants
    from ..backends.system import System
    from ..cost.money import Terms
    from ..driver import Estimate, Lowered
    from ..frontend.published import Published
    from ..frontend.runs.asked import Asked
    from ..ir.graph import Graph
    from ..ir.plan import Family, Plan
    from ..passes.base import Pass
    from ..passes.manager import Pipeline

# What configs call the heads that predict tokens behind the next one.
_HEADS = "num_nextn_predict_layers"


def check_model(request: Request) -> None:
    """Refuse a misspelt model or type before anything slow happens."""
    from ..frontend.loading import check

    check(request.model, request.dtype)


def graph_of(request: Request) -> Graph:
    """Load or record the model as its kernels ask for; progress goes to stderr."""
    from ..frontend import GraphCache, load
    from ..ir.graph import Workload
    from ..ir.structure import usual_kernels

    cache = GraphCache.default() if request.cache else None
    train = request.phase == "train"
    spelled_out = train and (request.kernels or usual_kernels(Workload.TRAIN, _stack(request))) == "eager"
    return load(
        request.model, request.phase, request.dtype, cache, _progress(request), dims_of(request.dims),
        request.allow_unpriced, spelled_out=spelled_out, asked=_asked(request), images=request.images,
    )  # fmt: skip


def _asked(request: Request) -> Asked:
    """Return what was said of a factory's module, and the lengths of the plan."""
    from ..frontend.runs.asked import Asked

    return Asked(
        request.inputs, request.loss or "", request.fixed, request.leaves, request.caches,
        {"seq": request.seq, "kv": request.seq, "batch": request.mbs},
    )  # fmt: skip


def sized(request: Request) -> tuple[Graph, Plan]:
    """Load the model and complete the plan, of sizes that the graph holds for: every verb has both from here.

    The length is the one that the graph is of, where no other was typed: a note of the graph says why. The plan is
    looked at first, which is quick.
    """
    plan = plan_of(request)
    graph = graph_of(request)
    if (length := length_for(graph, request.seq)) != request.seq:
        plan = plan_of(replace(request, seq=length))
    check_positions(graph, plan)
    return graph, plan


def length_for(graph: Graph, seq: int) -> int:
    """Return the one length that a graph is of, where no other was typed, else the length that was asked for.

    UsageError for a length that was typed, of a model whose inputs have none.
    """
    from ..ir.fixed_sizes import counts_tokens

    ctx = click.get_current_context(silent=True)
    if ctx is None or is_given(ctx, "seq"):
        typed = ctx is not None and ctx.get_parameter_source("seq") is click.core.ParameterSource.COMMANDLINE
        if typed and not counts_tokens(graph):
            raise UsageError(f"--seq {seq}: '{graph.name}' reads no sequence, its samples are counted; leave --seq out")
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


def _progress(request: Request) -> Callable[[str], None] | None:
    return None if request.quiet else lambda line: click.echo(line, err=True)


def system_of(request: Request) -> System:
    """Load the system with its overrides; UsageError when none was named."""
    from ..backends.system import load_system, system_names

    if request.system is None:
        raise UsageError(f"--system is needed; known: {', '.join(system_names())}, or a path to a YAML file")
    graphs = [] if request.cuda_graph is None else [f"stack.cuda_graph={str(request.cuda_graph).lower()}"]
    overrides = [*graphs, *request.overrides]
    return load_system(request.system, overrides, request.stack, request.calibration, request.prices)


def priced(request: Request, answer: Estimate) -> Estimate:
    """Price an estimate; a system that cannot be priced says so among the warnings, and has its times all the same."""
    from ..driver import worth

    try:
        return worth(answer, terms_of(request))
    except UsageError as error:
        if request.rent or request.basis == "build":
            raise
        return replace(answer, warnings=(*answer.warnings, f"not priced: {error}"))


def terms_of(request: Request) -> Terms:
    """Say how the system is come by."""
    from ..cost.money import Terms

    return Terms(basis="build" if request.basis == "build" else "market", rented=request.rent)


def _stack(request: Request) -> StackConstants | None:
    """The software asked for: that of the system, one named alone, or none."""
    if request.system is not None:
        return system_of(request).stack
    if request.stack is None:
        return None
    from ..backends.system import load_stack

    return load_stack(request.stack)


def family_of(request: Request) -> Family:
    """Return the structural part of the plan: what was asked for, and what follows from degrees and the stack."""
    from ..ir.structure import Defaults

    open_words = (request.kernels, request.scatter_p2p if request.phase == "train" else False)
    stack = _stack(request) if None in open_words else None
    left_open = Defaults(
        stack, _policy(request), request.cp_method, request.sp, request.kernels, request.scatter_p2p
    )  # fmt: skip
    return left_open.family(
        seq_len=request.seq, tp=request.tp, pp=request.pp, cp=request.cp, ep=request.ep, etp=request.etp,
        vpp=request.vpp, cp_ulysses=request.cp_ulysses, dp_shard=request.dp_shard,
        capacity_factor=request.capacity_factor, expert_imbalance=request.expert_imbalance,
    )  # fmt: skip


def _policy(request: Request) -> Family:
    """Return what the flags say that neither degrees nor the stack decide."""
    from ..ir.graph import Workload
    from ..ir.plan import Family
    from ..ir.precision import read_pair
    from ..ir.types import DType

    published = _precision(request)
    return Family(
        workload=Workload(request.phase), zero=request.zero, recompute=request.recompute,
        attention=request.attention, mla=request.mla,
        recompute_modules=_listed(request.recompute_modules), recompute_layers=_given(request.recompute_layers, 0),
        recompute_every=_given(request.recompute_every, 1), early_stop=request.early_stop,
        offload=_listed(request.offload), schedule=request.schedule, pp_layout=request.pp_layout, order=request.order,
        dispatch_dtype=request.dispatch_dtype, routing_nodes=request.routing_nodes, exchange=request.ep_exchange,
        tp_plan=request.tp_plan, grad_dtype=DType.parse(request.grad_dtype), fused=request.fuse,
        precision=published.recipe, published_of=published.of, precision_of=tuple(map(read_pair, request.precision_of)),
        kv_dtype=request.kv_dtype, fp8_param_gather=request.fp8_param_gather,
        bf16_first=request.bf16_first, bf16_last=request.bf16_last,
        replicate_unknown=request.replicate_unknown, async_tp=request.async_tp,
        main_params_dtype=request.main_params_dtype, exp_avg_dtype=request.exp_avg_dtype,
        exp_avg_sq_dtype=request.exp_avg_sq_dtype, reshard=request.reshard,
        reduce_dtype=None if request.reduce_dtype is None else DType.parse(request.reduce_dtype),
    )  # fmt: skip


def _precision(request: Request) -> Published:
    """Return the recipe asked for; those of the checkpoint as engines run it on the system, where there is one."""
    from ..frontend.published import Published, published_recipes
    from ..ir.errors import PlanError

    if request.precision != AS_PUBLISHED:
        return Published(request.precision)
    if request.phase == "train":
        raise PlanError(f"precision={AS_PUBLISHED}: of inference only; name the recipe, or leave it out")
    if request.system is None:
        return published_recipes(request.model)
    of_chip = tuple(text for text in request.overrides if text.startswith("chip."))
    chip = system_of(replace(request, overrides=of_chip)).chip
    return published_recipes(request.model, tuple(chip.peak_flop_per_s.by_dtype()))


def published_otherwise(request: Request) -> tuple[str, ...]:
    """Say so where a model that was published quantised is served in the model's type."""
    from ..frontend.loading import has_config
    from ..frontend.published import published_precision

    if request.phase == "train" or request.precision != "none" or request.precision_of or not has_config(request.model):
        return ()
    try:
        found = published_precision(request.model)
    except NotBuiltError as error:
        return (str(error),)
    if found == "none":
        return ()
    return (f"{request.model} was published in {found}, and is estimated in {request.dtype}: --precision as-published",)


def no_heads(request: Request, heads: int | None) -> tuple[str, ...]:
    """Say so where heads of a model draft, and its config names none."""
    from ..frontend.loading import has_config
    from ..frontend.models import read_config

    if not heads or not has_config(request.model) or json.loads(read_config(request.model).text).get(_HEADS):
        return ()
    return (
        f"{request.model} has no heads that predict further tokens (no {_HEADS} in its config): --mtp takes one as "
        "large as its last layer, which would have to be trained",
    )


def _listed(text: str | None) -> tuple[str, ...]:
    """Read words separated by commas, each once."""
    return tuple(dict.fromkeys(word for part in (text or "").split(",") if (word := part.strip())))


def _given(number: int | None, default: int) -> int:
    """Return what was asked for; PlanError for a number below one, which no default stands for."""
    from ..ir.errors import PlanError

    if number is not None and number < 1:
        raise PlanError(f"recompute layers or every = {number}: 1 or more")
    return default if number is None else number


def check_positions(graph: Graph, plan: Plan) -> None:
    """Raise UsageError for sizes that a graph is not of, and for tokens beyond the positions of a model that infers.

    Training may go on to learn more positions.
    """
    from ..ir.fixed_sizes import check_sizes
    from ..ir.graph import Workload

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


def plan_of(request: Request) -> Plan:
    """Check and complete the plan."""
    from ..ir.plan import make_plan

    decode = request.phase == "decode"
    return make_plan(
        num_gpus=request.num_gpus, tp=request.tp, pp=request.pp, cp=request.cp, ep=request.ep, etp=request.etp,
        dp=request.dp, vpp=request.vpp, micro_batch=request.mbs, global_batch=request.gbs, seq_len=request.seq,
        kv_len=request.seq if decode else 0, cp_ulysses=request.cp_ulysses, dp_shard=request.dp_shard,
        capacity_factor=request.capacity_factor, expert_imbalance=request.expert_imbalance, family=family_of(request),
    )  # fmt: skip


def lower_of(request: Request, graph: Graph, family: Family) -> Lowered:
    """Lower a graph with the pipeline, the stop and the dumps that were asked for."""
    from ..driver import lower, pipeline_for

    pipeline = pipeline_of(request, family)
    if request.passes is not None and str(pipeline) != (own := str(pipeline_for(family))):
        click.echo(f"warning: --passes runs '{pipeline}' instead of the plan's own '{own}'", err=True)
    done = lower(graph, family, pipeline, request.stop_after, _dump(request))
    if request.time_passes:
        click.echo(f"pipeline {pipeline}", err=True)
        for t in done.pass_times:
            click.echo(f"  {t.name:<12} {t.time_s * 1e3:8.2f} ms{'' if t.changed else '  (no change)'}", err=True)
    return done


def pipeline_of(request: Request, family: Family) -> Pipeline:
    """Return the pipeline given, or the family's own."""
    from ..driver import pipeline_for
    from ..passes.manager import parse_pipeline

    return pipeline_for(family, request.tp > 1) if request.passes is None else parse_pipeline(request.passes)


def _dump(request: Request) -> Callable[[int, Pass, Graph], None] | None:
    if request.dump_after is None:
        return None
    from ..ir.files import save_graph
    from ..passes.manager import pass_class

    if request.dump_after != "all":
        pass_class(request.dump_after)

    def write(number: int, step: Pass, graph: Graph) -> None:
        if request.dump_after in ("all", step.name):
            path = Path(request.dump_dir) / f"{number:02d}_{step.name}.graph"
            with writing(path):
                save_graph(graph, path)

    return write
