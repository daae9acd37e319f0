"""Words of verbs of training beyond one step."""

# fmt: off
from pathlib import Path
from typing import Annotated, Literal

from ...ir.records import dataclass
from .options import Listed, Opt, Pairs, Texts


@dataclass(frozen=True, kw_only=True)
class SampleArgs:
    """Samples of a step of post-training."""

    algorithm: Annotated[Literal["grpo", "ppo", "distillation", "dpo", "sft"], Opt(
        "What a step does: rollouts, passes of reference, reward, critic or teacher, and training.",
    )] = "grpo"
    prompts: Annotated[int, Opt("Prompts per step (pairs of dpo, samples of sft).", least=1, metavar="N")] = 128
    group: Annotated[int, Opt("Responses per prompt (group size).", least=1, metavar="N")] = 1
    isl: Annotated[str | float, Opt(
        "Prompt length in tokens: 512, 128..1024, or lognormal:MEAN,CV.",
        also=("--prompt-tokens",), metavar="SIZES",
    )] = "512"
    osl: Annotated[str | float, Opt(
        "Response length in tokens, as --isl; cutting at --max-tokens keeps the mean.",
        also=("--answer-tokens",), metavar="SIZES",
    )] = "lognormal:1024,0.7"
    max_tokens: Annotated[int | None, Opt(
        "Maximum tokens of prompt and response together, and of a packed sequence.  [default: --seq]",
        least=1, metavar="N",
    )] = None
    update_batch: Annotated[int | None, Opt(
        "Sequences per optimizer step.  [default: all of a step]",
        least=1, metavar="N",
    )] = None
    epochs: Annotated[int, Opt("Epochs over the samples of a step.", least=1, metavar="N")] = 1
    packing: Annotated[bool, Opt("Pack samples into full sequences.")] = True
    leave_out: Annotated[Texts, Opt(
        "Leave this model out. Repeatable.",
        choices=("reference", "reward", "critic", "teacher"),
    )] = ()
    teacher: Annotated[str | None, Opt(
        "Teacher of a distillation.  [default: of the policy's shape]",
        metavar="MODEL",
    )] = None
    reward_model: Annotated[str | None, Opt(
        "Reward model of ppo.  [default: of the policy's shape]",
        metavar="MODEL",
    )] = None
    environment_time: Annotated[str | float | None, Opt(
        "Time per step spent waiting for rewards from an environment.  [default: none]",
        metavar="TIME",
    )] = None


@dataclass(frozen=True, kw_only=True)
class PlacementArgs:
    """Devices of rollouts."""

    placement: Annotated[Literal["colocated", "split", "async"], Opt(
        "Placement of trainer and engine: same GPUs in turns (colocated), separate GPUs in lockstep (split), or the "
        "engine ahead of the trainer (async).",
        name="engine_placement",
    )] = "colocated"
    staleness: Annotated[int, Opt(
        "With async: how many steps old the engine's weights may be.",
        least=1, metavar="N",
    )] = 1
    engine: Annotated[str | Path | None, Opt(
        "Rollout engine.  [default: the one that usually serves, vllm]",
        metavar="NAME|FILE",
    )] = None
    engine_gpus: Annotated[int | None, Opt(
        "GPUs of the engine beside those of the trainer (split, async).",
        least=1, metavar="N",
    )] = None
    engine_tp: Annotated[int | None, Opt(
        "Tensor-parallel degree of the engine.  [default: 1]",
        least=1, metavar="N",
    )] = None
    offload_trainer: Annotated[bool, Opt(
        "Colocated: states of the trainer go to host memory while the engine runs.",
    )] = True
    refit: Annotated[Literal["shards", "whole"], Opt(
        "New weights that an engine's rank receives: its shards, or the whole model (NeMo RL's broadcast).",
    )] = "shards"
    find_plans: Annotated[bool, Opt(
        "Search the degrees of trainer and engine and the split of --gpus; flags that are given stay fixed.",
    )] = False


@dataclass(frozen=True, kw_only=True)
class MixedArgs:
    """Systems under the stages of a pipeline."""

    stages: Annotated[str, Opt(
        "Systems with their pipeline stages, from the first stage on, as dgx-h100:5,dgx-a100-80gb:3; their sum is "
        "--pp, and each stage has --gpus / --pp devices.",
        metavar="SYSTEM:N,...", catalogue="systems",
    )]
    link: Annotated[str | float | None, Opt(
        "Bandwidth per GPU between two systems, e.g. 25Gbit/s.  [default: the slower of their outermost networks]",
        metavar="RATE",
    )] = None
    link_latency: Annotated[str | float | None, Opt(
        "Latency of a message between two systems, e.g. 1ms.  [default: that of the slower network]",
        metavar="TIME",
    )] = None


@dataclass(frozen=True, kw_only=True)
class RecomputeArgs:
    """Which memory policies are looked for."""

    memory_limit: Annotated[str | None, Opt(
        "Memory limit per GPU, e.g. 70GiB.  [default: all of the chip's]",
        name="limit", metavar="BYTES",
    )] = None
    offloading: Annotated[bool, Opt("Allow offloading of activations to host memory.")] = True
    by_stage: Annotated[bool, Opt("Allow a different number of recomputed layers in each pipeline stage.")] = True
    runs_on: Annotated[Literal["megatron", "torchtitan", "maxtext", "deepspeed"] | None, Opt(
        "Only policies that the settings of this framework can express.  [default: that of --stack, else any policy]",
    )] = None


@dataclass(frozen=True, kw_only=True)
class TopologyArgs:
    """Networks of a comparison."""

    topologies: Annotated[Listed | None, Opt(
        "Topologies with their numbers: torus=16x16x16, fat_tree=2 (oversubscription), dragonfly=16x32x8 (hosts, "
        "routers, groups), hyperx, hypercube, ...; node/torus joins nodes.  [default: "
        "fat_tree,fat_tree=2,rail_optimised,dragonfly,torus,hyperx, of the most cubic shapes]",
        metavar="LIST",
    )] = None
    equal: Annotated[Literal["cost", "power", "bandwidth"], Opt(
        "What is equal: links are as fast as the budget allows.",
    )] = "cost"
    budget: Annotated[str | None, Opt(
        "Of a GPU: 5000USD of network, 150W, or 100GB/s.  [default: of the first topology with one port a link]",
        metavar="QUANTITY",
    )] = None
    vary: Annotated[Pairs, Opt(
        "Values of a word of the plan, as ep=16,32,64: each topology has its fastest plan that fits. Repeatable.",
        metavar="WORD=LIST",
    )] = ()
