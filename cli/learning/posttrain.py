"""`slipstick posttrain`: a step of post-training, with rollouts, passes, training and the change between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING

import click

from ...ir.errors import SlipstickError, UsageError
from ...ir.plan.words import WORDS
from ...ir.records import dataclass
from ..flags.numbers import Named, Whole
from ..flags.request import PlanCommand, Request
from ..flags.run import quantity_of, run_of
from ..help import Section
from ..output.answers import Answering, format_flag, output_flag
from ..plans.file import is_given
from ..plans.software import with_software
from ..prepare import check_model, graph_of, plan_of, sized, system_of, terms_of
from ..serving.serve import machine_of, served_of

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ...driver.rl.step import PostTraining, PostTrainingStep
    from ...driver.serve.server import Server
    from ...ir.plan import Plan
    from ...report.results.posttrain import PostTrainResult
    from ...report.results.result import Result

_ALGORITHMS = ("grpo", "ppo", "distillation", "dpo", "sft")
_PLACEMENTS = ("colocated", "split", "async")
_REFITS = _SHARDS, _WHOLE = ("shards", "whole")
_ROLES = ("reference", "reward", "critic", "teacher")


def _number(*names: str, help: str, metavar: str = "N", default: int | None = None) -> click.Option:
    return click.Option(
        names, type=Whole(min=1), metavar=metavar, default=default, show_default=default is not None, help=help
    )


def _text(*names: str, metavar: str, help: str, default: str | None = None) -> click.Option:
    return click.Option(names, metavar=metavar, default=default, show_default=default is not None, help=help)


_SAMPLES = (
    click.Option(
        ["--algorithm"],
        type=Named(_ALGORITHMS),
        default="grpo",
        show_default=True,
        help="What a step does: rollouts, passes of reference, reward, critic or teacher, and training.",
    ),
    _number("--prompts", default=128, help="Prompts per step (pairs of dpo, samples of sft)."),
    _number("--group", default=1, help="Responses per prompt (group size)."),
    _text(
        "--isl",
        "--prompt-tokens",
        metavar="SIZES",
        default="512",
        help="Prompt length in tokens: 512, 128..1024, or lognormal:MEAN,CV.",
    ),
    _text(
        "--osl",
        "--answer-tokens",
        metavar="SIZES",
        default="lognormal:1024,0.7",
        help="Response length in tokens, as --isl; cutting at --max-tokens keeps the mean.",
    ),
    _number(
        "--max-tokens",
        help="Maximum tokens of prompt and response together, and of a packed sequence.  [default: --seq]",
    ),
    _number("--update-batch", help="Sequences per optimizer step.  [default: all of a step]"),
    _number("--epochs", default=1, help="Epochs over the samples of a step."),
    click.Option(["--packing/--no-packing"], default=True, show_default=True, help="Pack samples into full sequences."),
    click.Option(["--leave-out"], type=Named(_ROLES), multiple=True, help="Leave this model out. Repeatable."),
    _text("--teacher", metavar="MODEL", help="Teacher of a distillation.  [default: of the policy's shape]"),
    _text("--reward-model", metavar="MODEL", help="Reward model of ppo.  [default: of the policy's shape]"),
    _text(
        "--environment-time",
        metavar="TIME",
        help="Time per step spent waiting for rewards from an environment.  [default: none]",
    ),
)
_PLACES = (
    click.Option(
        ["--placement", "engine_placement"],
        type=Named(_PLACEMENTS),
        default="colocated",
        show_default=True,
        help="Placement of trainer and engine: same GPUs in turns (colocated), separate GPUs in lockstep (split), "
        "or the engine ahead of the trainer (async).",
    ),
    _number("--staleness", default=1, help="With async: how many steps old the engine's weights may be."),
    _text("--engine", metavar="NAME|FILE", help="Rollout engine.  [default: the one that usually serves, vllm]"),
    _number("--engine-gpus", help="GPUs of the engine beside those of the trainer (split, async)."),
    _number("--engine-tp", help="Tensor-parallel degree of the engine.  [default: 1]"),
    click.Option(
        ["--offload-trainer/--no-offload-trainer"],
        default=True,
        show_default=True,
        help="Colocated: states of the trainer go to host memory while the engine runs.",
    ),
    click.Option(
        ["--refit"],
        type=Named(_REFITS),
        default=_SHARDS,
        show_default=True,
        help="New weights that an engine's rank receives: its shards, or the whole model (NeMo RL's broadcast).",
    ),
    click.Option(
        ["--find-plans"],
        is_flag=True,
        help="Search the degrees of trainer and engine and the split of --gpus; flags that are given stay fixed.",
    ),
)


@dataclass(frozen=True, slots=True)
class RolloutFlags:
    """What the flags of the engine say, and of the change to it."""

    engine: str | None
    engine_gpus: int | None
    engine_tp: int | None
    offload_trainer: bool
    refit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTrainFlags(RolloutFlags):
    """What a user asked of a step, as typed."""

    algorithm: str
    prompts: int
    group: int
    isl: str
    osl: str
    max_tokens: int | None
    update_batch: int | None
    epochs: int
    packing: bool
    leave_out: tuple[str, ...]
    teacher: str | None
    reward_model: str | None
    environment_time: str | None
    engine_placement: str
    staleness: int
    find_plans: bool


class PostTrainCommand(Answering, PlanCommand):
    """A verb whose flags of samples and of places are one record."""

    more = (("Samples", _SAMPLES), ("Placement", _PLACES))

    def answer(self, ctx: click.Context) -> Result:
        """Run the verb's function on what its flags say together."""
        ctx.params["asked"] = PostTrainFlags(**{f.name: ctx.params.pop(f.name) for f in fields(PostTrainFlags)})
        return super().answer(ctx)

    def sections(self, ctx: click.Context) -> list[Section]:
        """Return the flags of the verb, its own first."""
        return super().sections(ctx)


@click.command("posttrain", cls=PostTrainCommand, params=[format_flag(), output_flag()])
@click.pass_context
def posttrain_command(ctx: click.Context, request: Request, asked: PostTrainFlags) -> PostTrainResult:
    """Estimate a step of post-training of MODEL, and with --steps a run: PPO, GRPO, DPO, distillation, fine-tuning.

    Plan flags set the trainer; its --mbs counts packs of --max-tokens. Rollouts are simulated request by request,
    with stragglers; models that only look at samples run forward under the trainer's plan.

    \b
    slipstick posttrain qwen3-32b --system dgx-h100 --gpus 32 --tp 4 --pp 4 --zero 1 --prompts 64 --group 32 \\
        --isl 150 --osl lognormal:3056,0.5 --max-tokens 4096 --update-batch 512 \\
        --engine-tp 4
    """  # noqa: D301
    from ...driver.rl.step import post_training_step
    from ...report.results.posttrain import PostTrainResult

    if request.words.phase != "train":
        raise UsageError(f"--phase {request.words.phase}: posttrain trains, and prices its rollouts itself")
    check_model(request)
    longest = asked.max_tokens or request.words.seq_len
    work = _work(request, asked, longest)
    run = run_of(request.run, "train")
    if run is not None and (run.unit != "steps" or run.checkpoints is not None):
        raise UsageError(
            "a run of post-training is as long as its steps: --steps N, without --checkpoint-... and --mtbf"
        )
    request = with_software(request.said({"seq": longest, "gbs": None}))
    system = system_of(request)
    if asked.find_plans:
        step, tried = _found(ctx, request, asked, work, system)
    else:
        graph, plan = sized(request, system.stack)
        server = _server(request, asked, plan.num_gpus, asked.engine_tp or 1) if work.algorithm.rolls_out else None
        step, tried = post_training_step(work, graph, system, plan, server), 0
    steps = None if run is None or run.amount is None else int(run.amount)
    return PostTrainResult(
        step=step, model=step.trainer.table.lowered.source.name, steps=steps, tried=tried, terms=terms_of(request)
    )


def _work(request: Request, asked: PostTrainFlags, longest: int) -> PostTraining:
    from ...cost.serving.traffic.traffic_text import parse_length
    from ...driver.rl.algorithm import algorithm
    from ...driver.rl.rollout import Rollouts
    from ...driver.rl.step import PostTraining

    kind = algorithm(asked.algorithm)
    idle = [name for name in asked.leave_out if name not in kind.looks]
    if idle:
        raise UsageError(f"--leave-out {idle[0]}: of {kind.name} there is none; allowed: {', '.join(kind.looks)}")
    models = {"teacher": asked.teacher, "reward": asked.reward_model}
    for role, model in models.items():
        if model is not None and role not in kind.looks:
            raise UsageError(f"--{role}{'-model' * (role == 'reward')} {model}: {kind.name} has no {role} model")
    return PostTraining(
        algorithm=kind.without(asked.leave_out),
        rollouts=Rollouts(
            prompts=asked.prompts,
            group=asked.group,
            prompt=parse_length(asked.isl),
            answer=parse_length(asked.osl),
            longest=longest,
        ),
        batch=asked.update_batch,
        epochs=asked.epochs,
        packed=asked.packing,
        placement=asked.engine_placement,
        staleness=asked.staleness,
        moves_states=asked.offload_trainer,
        whole_refit=asked.refit == _WHOLE,
        environment_s=quantity_of(asked.environment_time, "s", "--environment-time") or 0.0,
        others={role: graph_of(request.said({"model": model})) for role, model in models.items() if model is not None},
    )


def _server(request: Request, asked: PostTrainFlags, trainer_gpus: int, tp: int) -> Server:
    """The engine that was asked for, under its own stack and with none of the trainer's words."""
    apart = asked.engine_placement != "colocated"
    if asked.engine_gpus is not None and not apart:
        raise UsageError(f"--engine-gpus {asked.engine_gpus}: colocated, the engine has the GPUs of the trainer")
    gpus = trainer_gpus if asked.engine_gpus is None else asked.engine_gpus
    if gpus % tp:
        raise UsageError(f"--engine-tp {tp} does not divide the {gpus} GPUs of the engine")
    return _engine(request, asked, gpus, tp)


def _engine(request: Request, asked: PostTrainFlags, gpus: int, tp: int) -> Server:
    from ...driver.serve.server import Server

    kept = {"seq", "phase"}
    # A word that is not said has its default.
    plain: dict[str, object] = {name: None for name in WORDS if name not in kept}
    own = request.said({**plain, "stack": None, "assumed": (), "gpus": gpus, "tp": tp, "phase": "decode"})
    system, engine, words = machine_of(own, asked.engine)
    served, plan = served_of(words)
    return Server.of(served, system, plan, engine, request.words.seq_len)


def _found(
    ctx: click.Context, request: Request, asked: PostTrainFlags, work: PostTraining, system: System
) -> tuple[PostTrainingStep, int]:
    from ...driver.rl.search import Candidates, find_step

    if request.words.num_gpus is None:
        raise UsageError("--find-plans shares GPUs out: say how many with --gpus")
    graph = graph_of(request)
    wide = [2**k for k in range(system.node_size.bit_length()) if 2**k <= system.node_size]
    tps = [asked.engine_tp] if asked.engine_tp else wide
    servers: list[Server] = []
    for tp in tps if work.algorithm.rolls_out else ():
        # A degree that does not divide the model, or whose weights do not fit, is no candidate.
        with suppress(SlipstickError):
            servers.append(_engine(request, asked, tp, tp))
    degrees = [
        (tp, pp)
        for tp in ([request.words.tp] if is_given(ctx, "tp") else wide)
        for pp in ([request.words.pp] if is_given(ctx, "pp") else (1, 2, 4, 8))
    ]

    def plans(num_gpus: int) -> Iterator[Plan]:
        for tp, pp in degrees:
            try:
                yield plan_of(request.said({"gpus": num_gpus, "tp": tp, "pp": pp}), system.stack)
            except SlipstickError:
                continue

    return find_step(work, graph, system, request.words.num_gpus, Candidates(plans, servers))
