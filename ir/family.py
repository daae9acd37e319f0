"""The structural part of a plan: what a graph is lowered for, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .errors import NotBuiltError, PlanError, UnknownNameError
from .graph import Workload
from .low_inference import SAME
from .optimizer_states import FP32, check_states
from .pipelines import SCHEDULES, SPLIT_BACKWARD
from .precision import check_precision
from .types import DType

# Mesh axes as symbols of a lowered graph, innermost first. `up` is the part of context parallelism that exchanges
# sequence for heads, `fsdp` the replicas that share their states in shards where whole groups of them are replicas of
# one another; `cp` and `dp` are what is left.
AXES = ("tp", "up", "cp", "ep", "fsdp", "dp", "pp")
ORDER = "tp-cp-ep-dp-pp"
# How blocks fall on pipeline stages; a list of numbers is a layout too.
LAYOUTS = ("auto", "even", "balanced")
CP_METHODS = ("allgather", "ring", "ulysses")
OFFLOAD = ("optimizer", "activations", "params")
RECOMPUTE = ("none", "selective", "ops", "full")
_OFFLOADED = ", ".join(OFFLOAD)
RESHARD = ("layer", "microbatch", "step")
# `plain` has one kernel a norm, rotary embedding and activation; `eager` those that the model's own code spells out.
KERNELS = ("plain", "eager", "merged", "torch", "fused")
SERVING_KERNELS = ("eager", "fused")
ATTENTION = ("flash", "unfused")
MLA = ("latent", "expanded")
# Symbols of a lowered graph that are no degrees: rows an expert has room for, and rows of the busiest rank, each over
# the mean.
CAPACITY, IMBALANCE = "cf", "imb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What changes the structure of the graph; inside a family, degrees and batches are numbers.

    `scatter_p2p` has each tensor-parallel rank send a piece of what all of them have to the next stage, which gathers.
    `kernels` says what is kept and what is written in place: what autograd keeps with a kernel for each norm, rotary
    embedding and activation and a loss in one kernel (`plain`) or in PyTorch's two steps (`torch`), with queries, keys
    and values in one tensor (`merged`), with the operators of the model's own code for norms and the like (`eager`; the
    graph is `spelled_out`), or as hand-fused training kernels do (`fused`). In inference `fused` are those of serving
    engines.
    Of experts: `ep` deals them out; `etp` splits them inside over tp, else they are whole, and with `ep` dealt out over
    tp too; `capacity` and `imbalance` bring in the numbers of that name; `dispatch_dtype` is `same` or `fp8`;
    `routing_nodes` limits the nodes that a token is sent to; `exchange` is how rows get to their experts over ep.
    `etp_dp` splits experts inside over data-parallel ranks too: all of these have all tokens then.
    `precision` is the recipe by which the products of weights in layers run, of those for training or for inference;
    in training weights are gathered so too on request, and the first and last layers may stay as they are. `kv_dtype`
    is the type in which inference keeps keys and values: that of the model (`same`), fp8, int8 or fp4.
    `precision_of` are pairs of a pattern over paths of weights and a recipe, which hold over `precision` and over those
    before them, for embedding and head too; `published_of` are those of a checkpoint, which may name nothing.
    `main_params_dtype`, `exp_avg_dtype` and `exp_avg_sq_dtype` are types of optimizer states, `none` for none.
    `mla` says over what latent attention runs in decode: the cached latents, or keys and values made from them anew.
    """

    workload: Workload = Workload.TRAIN
    sp: bool = False
    zero: int = 0
    recompute: str = "none"
    recompute_modules: tuple[str, ...] = ()
    recompute_layers: int = 0
    recompute_every: int = 1
    early_stop: bool = True
    offload: tuple[str, ...] = ()
    tp_plan: str = "megatron"
    cp: str = "none"
    ep: bool = False
    pp: bool = False
    schedule: str = "1f1b"
    pp_layout: str = "auto"
    scatter_p2p: bool = False
    order: str = ORDER
    etp: bool = True
    etp_dp: bool = False
    exchange: str = "alltoall"
    capacity: bool = False
    imbalance: bool = False
    dispatch_dtype: str = "same"
    routing_nodes: int = 0
    grad_dtype: DType = DType.FP32
    fused: bool = True
    replicate_unknown: bool = False
    async_tp: bool = False
    usp: bool = False
    hsdp: bool = False
    reshard: str = "layer"
    reduce_dtype: DType | None = None
    kernels: str = "plain"
    attention: str = "flash"
    mla: str = "latent"
    precision: str = "none"
    fp8_param_gather: bool = False
    bf16_first: int = 0
    bf16_last: int = 0
    kv_dtype: str = SAME
    main_params_dtype: str = "fp32"
    exp_avg_dtype: str = "fp32"
    exp_avg_sq_dtype: str = "fp32"
    published_of: tuple[tuple[str, str], ...] = ()
    precision_of: tuple[tuple[str, str], ...] = ()

    @property
    def states(self) -> tuple[str, str, str]:
        """Types of master weights and of both moments."""
        return self.main_params_dtype, self.exp_avg_dtype, self.exp_avg_sq_dtype


def rank_order(order: str) -> tuple[str, ...]:
    """Return the mesh axes from neighbouring ranks outwards; `up` lies right inside `cp`, `fsdp` inside `dp`.

    >>> rank_order("tp-cp-ep-dp-pp")
    ('tp', 'up', 'cp', 'ep', 'fsdp', 'dp', 'pp')
    """
    names = order.split("-")
    inside = {"cp": "up", "dp": "fsdp"}
    pairs = ((inside.get(n), n) for n in names)
    return tuple(a for pair in pairs for a in pair if a is not None and (a in pair[1:] or a not in names))


def check_family(family: Family) -> None:
    """Raise UnknownNameError for a word that a family does not know, PlanError for options that do not go together."""
    _check_words(family)
    _check_workload(family)
    check_recompute(family.recompute, family.recompute_modules, family.recompute_layers, family.recompute_every)
    check_offload(family.offload)
    _check_data(family)
    check_precision(family)
    check_states(*family.states)
    if sorted(rank_order(family.order)) != sorted(AXES):
        named = ", ".join(ORDER.split("-"))
        raise PlanError(f"order={family.order} must name each of {named} once, innermost first: {ORDER}")
    if family.recompute == "none" and not family.early_stop:
        raise PlanError(
            "no-early-stop says how much is recomputed, and recompute=none: use --recompute, or leave it out"
        )


def _check_workload(family: Family) -> None:
    """Refuse what inference has no use for; a flag is never ignored."""
    if family.mla != "latent" and family.workload is not Workload.DECODE:
        raise PlanError(f"mla={family.mla} says how a decode step attends, and this is {family.workload}: leave it out")
    if family.workload is Workload.TRAIN:
        return
    given = ", ".join(_of_training(family))
    if given:
        raise PlanError(
            f"{given}: of training only; {family.workload} keeps no gradients and no activations: leave it out"
        )
    if family.workload is Workload.DECODE and (family.sp or family.async_tp):
        what = "sp" if family.sp else "async-tp"
        raise PlanError(f"{what} splits the sequence, of which a decode step has one token: leave it out")


def _of_training(family: Family) -> Iterator[str]:
    """What a family says of gradients, states and kept activations."""
    named = (
        ("zero", family.zero, 0), ("recompute", family.recompute, "none"), ("offload", ",".join(family.offload), ""),
        ("grad-dtype", family.grad_dtype, DType.FP32),
        ("reduce-dtype", family.reduce_dtype, None), ("reshard", family.reshard, "layer"),
        ("main-params-dtype", family.main_params_dtype, FP32), ("exp-avg-dtype", family.exp_avg_dtype, FP32),
        ("exp-avg-sq-dtype", family.exp_avg_sq_dtype, FP32),
        ("fp8-param-gather", family.fp8_param_gather, False),
    )  # fmt: skip
    if family.schedule in SPLIT_BACKWARD:
        yield f"schedule={family.schedule}"
    if family.kernels not in (*SERVING_KERNELS, "plain"):
        yield f"kernels={family.kernels}"
    yield from (f"{name}={value}" for name, value, default in named if value != default)
    yield from ["dp-shard"] if family.hsdp else []


def _check_words(family: Family) -> None:
    if family.schedule not in SCHEDULES:
        raise UnknownNameError.of("pipeline schedule", family.schedule, SCHEDULES)
    if family.pp_layout not in LAYOUTS and not all(n.strip().isdigit() for n in family.pp_layout.split(",")):
        raise UnknownNameError.of("pipeline layout", family.pp_layout, (*LAYOUTS, "layers a stage as 9,8,8,7"))
    if family.kernels not in KERNELS:
        raise UnknownNameError.of("kind of kernels", family.kernels, KERNELS)
    if family.attention not in ATTENTION:
        raise UnknownNameError.of("kind of attention", family.attention, ATTENTION)
    if family.mla not in MLA:
        raise UnknownNameError.of("kind of latent attention", family.mla, MLA)
    if family.reshard not in RESHARD:
        raise UnknownNameError.of("reshard policy", family.reshard, RESHARD)


def _check_data(family: Family) -> None:
    """Refuse what a ZeRO stage has no use for; a flag is never ignored."""
    if family.zero not in range(4):
        raise PlanError(f"zero={family.zero}; allowed: 0, 1, 2, 3")
    if "params" in family.offload and family.zero != 3:
        raise PlanError(f"offload of params goes with zero=3, where they lie in shards, not zero={family.zero}")
    if family.reshard != "layer" and family.zero != 3:
        raise PlanError(
            f"reshard={family.reshard} says how long ZeRO 3 keeps gathered parameters, and zero={family.zero} "
            "gathers none: use --zero 3, or leave it out"
        )


def check_recompute(policy: str, modules: Sequence[str] = (), layers: int = 0, every: int = 1) -> None:
    """Check what is recomputed; UnknownNameError for a policy, PlanError for options that do not go together."""
    if policy not in RECOMPUTE:
        raise UnknownNameError.of("recompute policy", policy, RECOMPUTE)
    if layers < 0 or every < 1:
        raise PlanError(f"recompute layers={layers} every={every}: layers are 1 or more (0: all), every is 1 or more")
    if modules and policy != "selective":
        named = ",".join(modules)
        raise PlanError(f"recompute modules {named} go with the policy 'selective', not '{policy}'")
    if (layers or every > 1) and policy != "full":
        raise PlanError(f"recompute layers and every go with the policy 'full', not '{policy}'")
    if layers and every > 1:
        raise PlanError(f"recompute layers={layers} or every={every}, not both: the first layers, or groups of layers")


def check_offload(what: Sequence[str]) -> None:
    """Check what lies in host memory; UnknownNameError, NotBuiltError or PlanError for what cannot."""
    for name in what:
        if name == "gradients":
            raise NotBuiltError("--offload gradients: sums of gradients stay on the device; what can go: " + _OFFLOADED)
        if name not in OFFLOAD:
            raise UnknownNameError.of("thing to offload", name, OFFLOAD)
    if "params" in what and "optimizer" not in what:
        raise PlanError("offload of params goes with that of the optimizer, which then updates them where they lie")
