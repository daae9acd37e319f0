"""A plan as a file in the words of the flags: what `--plan FILE` reads back as the same plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from .errors import PlanError
from .family import ORDER, Family
from .graph import Workload
from .low_inference import AS_PUBLISHED, SAME
from .optimizer_states import FP32
from .pipelines import chunks_of
from .plan import Plan
from .precision import NONE
from .structure import unsaid
from .types import DType

SCHEMA = "slipstick/plan/1"
Word: TypeAlias = str | int | float | bool | Sequence[str]
Words: TypeAlias = Mapping[str, Word]
SERVE = "serve"


def plan_yaml(plan: Plan, around: Words, comments: Sequence[str] = (), phase: str | None = None) -> str:
    """Return a plan as YAML.

    Args:
        plan: what is written, every part of it that is not as the flags have it by themselves.
        around: what else flags say, by their words: `model`, `system`, `stack`, `dtype`, `set`, ...; `set` is a list.
        comments: lines above it.
        phase: `serve` for a server whose decode steps run under `plan`; else that of the plan.

    Raises:
        PlanError: flags cannot say this plan.
    """
    import yaml

    told = plan_words(plan, phase)
    words = {"schema": SCHEMA, **_first(around, "model", "system", "stack"), **told}
    words |= {name: word for name, word in around.items() if name not in words}
    clean = {name: list(word) if isinstance(word, tuple) else word for name, word in words.items()}
    head = "".join(f"# {line}\n" for line in comments)
    return head + yaml.safe_dump(clean, sort_keys=False, width=120, allow_unicode=True)


def _first(around: Words, *names: str) -> dict[str, Word]:
    return {name: around[name] for name in names if name in around}


def plan_words(plan: Plan, phase: str | None = None) -> dict[str, Word]:
    """Return what flags say for a plan; what they would choose by themselves is said too, so that nothing is chosen.

    `phase` is `serve` for a server, whose engine says how many sequences run: the plan is that of its decode steps.
    PlanError for a family that flags do not make of these degrees.

    >>> from slipstick.ir.plan import make_plan
    >>> plan_words(make_plan(num_gpus=16, seq_len=4096, family=Family(sp=True, zero=1), tp=8, global_batch=64))
    {'phase': 'train', 'gpus': 16, 'tp': 8, 'mbs': 1, 'gbs': 64, 'seq': 4096, 'sp': True, 'zero': 1, \
'kernels': 'plain', 'scatter_p2p': False}
    """
    _check(plan)
    if phase == SERVE and plan.family.workload is not Workload.DECODE:
        raise PlanError(f"the plan of a server is that of its decode steps, not of {plan.family.workload}")
    whole = dict(_degrees(plan))
    batches = {} if phase == SERVE else dict(_batches(plan))
    return {"phase": phase or str(plan.family.workload), **whole, **batches, **dict(_policy(plan))}


def _degrees(plan: Plan) -> Iterator[tuple[str, Word]]:
    """Yield degrees above one; replicas follow from the others, so that one of them may be given anew."""
    yield "gpus", plan.num_gpus
    for name, degree in (("tp", plan.tp), ("pp", plan.pp), ("vpp", plan.vpp), ("cp", plan.cp), ("ep", plan.ep)):
        if degree > 1:
            yield name, degree
    if plan.family.etp_dp or (plan.tp > 1 and not plan.family.etp):
        yield "etp", plan.etp
    if plan.family.hsdp:
        yield "dp_shard", plan.dp_shard


def _batches(plan: Plan) -> Iterator[tuple[str, Word]]:
    yield "mbs", plan.micro_batch
    if plan.family.workload is Workload.TRAIN:
        yield "gbs", plan.global_batch
    yield "seq", plan.seq_len


def _policy(plan: Plan) -> Iterator[tuple[str, Word]]:
    """Yield what is not as flags have it, and what they have by a rule or from the stack."""
    family = plan.family
    yield "sp", family.sp
    for name, value, usual in (*_structure(plan), *_numbers(family), *_states(family)):
        if value != usual and value is not None:
            yield name, value
    yield "kernels", family.kernels
    yield "scatter_p2p", family.scatter_p2p


def _structure(plan: Plan) -> Iterator[tuple[str, Word | None, Word]]:
    """Yield words of parallelism: their names, values, and what flags have."""
    family = plan.family
    yield "schedule", family.schedule, "1f1b"
    yield "pp_layout", family.pp_layout, "auto"
    yield "order", family.order, ORDER
    yield "cp_method", "allgather" if family.cp == "none" else family.cp, "allgather"
    yield "cp_ulysses", plan.cp_ulysses, 1
    yield "capacity_factor", plan.capacity_factor, 0.0
    yield "expert_imbalance", plan.expert_imbalance, 1.0
    yield "ep_exchange", family.exchange, "alltoall"
    yield "dispatch_dtype", family.dispatch_dtype, SAME
    yield "routing_nodes", family.routing_nodes, 0
    yield "tp_plan", "auto" if family.tp_plan.startswith("auto:") else family.tp_plan, "megatron"
    yield "async_tp", family.async_tp, False
    yield "replicate_unknown", family.replicate_unknown, False
    yield "fuse", family.fused, True


def _numbers(family: Family) -> Iterator[tuple[str, Word | None, Word]]:
    """Yield words of kernels and of the types in which they run."""
    yield "attention", family.attention, "flash"
    yield "mla", family.mla, "latent"
    yield "precision", AS_PUBLISHED if family.published_of else family.precision, NONE
    yield "precision_of", [f"{pattern}={recipe}" for pattern, recipe in family.precision_of], []
    yield "kv_dtype", family.kv_dtype, SAME
    yield "fp8_param_gather", family.fp8_param_gather, False
    yield "bf16_first", family.bf16_first, 0
    yield "bf16_last", family.bf16_last, 0


def _states(family: Family) -> Iterator[tuple[str, Word | None, Word]]:
    """Yield words of gradients, optimizer states and kept activations."""
    yield "zero", family.zero, 0
    yield "reshard", family.reshard, "layer"
    yield "recompute", family.recompute, "none"
    yield "recompute_modules", ",".join(family.recompute_modules), ""
    yield "recompute_layers", family.recompute_layers, 0
    yield "recompute_every", family.recompute_every, 1
    yield "early_stop", family.early_stop, True
    yield "offload", ",".join(family.offload), ""
    yield "grad_dtype", str(family.grad_dtype), str(DType.FP32)
    yield "reduce_dtype", None if family.reduce_dtype is None else str(family.reduce_dtype), ""
    yield "main_params_dtype", family.main_params_dtype, FP32
    yield "exp_avg_dtype", family.exp_avg_dtype, FP32
    yield "exp_avg_sq_dtype", family.exp_avg_sq_dtype, FP32


def _check(plan: Plan) -> None:
    """Raise PlanError where a family says otherwise than flags make of the same degrees."""
    f, train = plan.family, plan.family.workload is Workload.TRAIN
    context = plan.kv_len == (plan.seq_len if f.workload is Workload.DECODE else 0)
    degrees = {"cp": plan.cp, "cp_ulysses": plan.cp_ulysses, "ep": plan.ep, "pp": plan.pp}
    wrong = unsaid(f, degrees) + [
        f"{name} with {given}"
        for name, given, holds in (
            (f"etp={f.etp}", f"tp={plan.tp}", f.etp or plan.tp > 1),
            (f"etp_dp={f.etp_dp}", f"etp={plan.etp}", f.etp_dp == (not train and plan.etp > plan.tp)),
            (f"capacity={f.capacity}", "this capacity_factor", f.capacity == (plan.capacity_factor is not None)),
            (f"imbalance={f.imbalance}", "this expert_imbalance", f.imbalance == (plan.expert_imbalance != 1)),
            (f"tp_plan={f.tp_plan}", f"tp={plan.tp}", _is_of(f.tp_plan, plan.tp)),
            (f"schedule={f.schedule}", f"vpp={plan.vpp}", chunks_of(f.schedule, plan.vpp) == plan.vpp),
            (f"{f.workload}", f"kv={plan.kv_len} and seq={plan.seq_len}", context),
        )
        if not holds
    ]
    if wrong:
        raise PlanError(f"no flags make this plan: a family with {'; with '.join(wrong)}: lower it for its own degrees")


def _is_of(tp_plan: str, tp: int) -> bool:
    """Whether a style of splitting layers was chosen for this degree, or for any."""
    return tp_plan == f"auto:{tp}" or (tp_plan != "auto" and not tp_plan.startswith("auto:"))
