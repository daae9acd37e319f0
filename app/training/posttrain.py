"""A step of post-training, with rollouts, passes, training and the change between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ...ir.errors import SlipstickError, UsageError
from ...ir.plan.words import WORDS
from ...ir.records import dataclass
from ..prepare import check_model, graph_of, plan_of, sized, system_of, terms_of
from ..request import Request
from ..run_words import quantity_of, run_of
from ..serving.serve import machine_of, served_of
from ..software import with_software
from ..sources import VerbArguments

if TYPE_CHECKING:
    from ...backends.machine.system import System
    from ...driver.rl.step import PostTraining, PostTrainingStep
    from ...driver.serve.server import Server
    from ...ir.plan import Plan
    from ...report.results.posttrain import PostTrainResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutWords:
    """What is said of the engine, and of the change to it."""

    engine: str | None
    engine_gpus: int | None
    engine_tp: int | None
    offload_trainer: bool
    refit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTrainWords(RolloutWords):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTrainRequest(Request):
    """A trainer with its plan, and what a step of post-training does."""

    asked: PostTrainWords

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return what is said of the step."""
        return {"asked": arguments.take(PostTrainWords)}


def estimate_posttrain(request: PostTrainRequest) -> PostTrainResult:
    """Estimate a step of post-training, and of a number of steps the run."""
    from ...driver.rl.step import post_training_step
    from ...report.results.posttrain import PostTrainResult

    if request.words.phase != "train":
        raise UsageError(f"--phase {request.words.phase}: posttrain trains, and prices its rollouts itself")
    check_model(request)
    asked = request.asked
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
        step, tried = _found(request, asked, work, system)
    else:
        graph, plan = sized(request, system.stack)
        server = _server(request, asked, plan.num_gpus, asked.engine_tp or 1) if work.algorithm.rolls_out else None
        step, tried = post_training_step(work, graph, system, plan, server), 0
    steps = None if run is None or run.amount is None else int(run.amount)
    return PostTrainResult(
        step=step, model=step.trainer.table.lowered.source.name, steps=steps, tried=tried, terms=terms_of(request)
    )


def _work(request: Request, asked: PostTrainWords, longest: int) -> PostTraining:
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
        whole_refit=asked.refit == "whole",
        environment_s=quantity_of(asked.environment_time, "s", "--environment-time") or 0.0,
        others={role: graph_of(request.said({"model": model})) for role, model in models.items() if model is not None},
    )


def _server(request: Request, asked: PostTrainWords, trainer_gpus: int, tp: int) -> Server:
    """The engine that was asked for, under its own stack and with none of the trainer's words."""
    apart = asked.engine_placement != "colocated"
    if asked.engine_gpus is not None and not apart:
        raise UsageError(f"--engine-gpus {asked.engine_gpus}: colocated, the engine has the GPUs of the trainer")
    gpus = trainer_gpus if asked.engine_gpus is None else asked.engine_gpus
    if gpus % tp:
        raise UsageError(f"--engine-tp {tp} does not divide the {gpus} GPUs of the engine")
    return _engine(request, asked, gpus, tp)


def _engine(request: Request, asked: PostTrainWords, gpus: int, tp: int) -> Server:
    from ...driver.serve.server import Server

    kept = {"seq", "phase"}
    # A word that is not said has its default.
    plain: dict[str, object] = {name: None for name in WORDS if name not in kept}
    own = request.said({**plain, "stack": None, "assumed": (), "gpus": gpus, "tp": tp, "phase": "decode"})
    system, engine, words = machine_of(own, asked.engine)
    served, plan = served_of(words)
    return Server.of(served, system, plan, engine, request.words.seq_len)


def _found(request: Request, asked: PostTrainWords, work: PostTraining, system: System) -> tuple[PostTrainingStep, int]:
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
        for tp in ([request.words.tp] if request.arguments.is_given("tp") else wide)
        for pp in ([request.words.pp] if request.arguments.is_given("pp") else (1, 2, 4, 8))
    ]

    def plans(num_gpus: int) -> Iterator[Plan]:
        for tp, pp in degrees:
            try:
                yield plan_of(request.said({"gpus": num_gpus, "tp": tp, "pp": pp}), system.stack)
            except SlipstickError:
                continue

    return find_step(work, graph, system, request.words.num_gpus, Candidates(plans, servers))
