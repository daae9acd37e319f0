"""Which passes lower a traced graph, in which order and with which options: a family of plans says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from ..ir.graph import Workload
from ..ir.plan import Family
from ..ir.plan.low_inference import SAME
from ..ir.plan.precision import lowers, trains_low
from .base import Pass
from .manager import PassPipeline, pass_class
from .sharding.plans.choose import check_name

# What training kernels keep less of than autograd, or more.
_KERNELS: Mapping[str, Sequence[str]] = MappingProxyType(
    {"torch": ["two_step_loss"], "compiled": ["remat", "compiled_loss"], "fused": ["remat", "inplace"]}
)
# What serving engines make of a traced graph; which nodes become one kernel comes last.
_ENGINE = ("narrow_router", "merge_products", "next_norm", "rotary_tables", "sample")


# A search asks again and again for the same few hundred.
@lru_cache(maxsize=2048)
def pipeline_for(family: Family) -> PassPipeline:
    """Return the passes that lower a traced graph for a family; UnknownNameError for a tensor-parallel plan.

    A pass is imported where a family has it: a command loads no other.
    """
    check_name(family.tp_plan)
    train = family.workload is Workload.TRAIN
    passes = [*_before_shard(family), _shard(family), *(() if train else _inference(family)), *_low_precision(family)]
    passes += [*(_training(family) if train else ()), *_stages(family)]
    return PassPipeline(tuple(passes))


def _before_shard(family: Family) -> Iterator[Pass]:
    """Yield what changes the model itself."""
    if family.workload is Workload.TRAIN:
        yield from _trained_model(family)
    if family.attention == "unfused":
        yield pass_class("unfuse")()
    if family.workload is Workload.DECODE and family.mla == "latent" and family.attention == "flash":
        yield pass_class("absorb")()
    if family.ep or family.etp_dp or family.capacity or trains_low(family):
        from .route import Route

        yield Route(family.capacity, family.redundant_experts if family.ep else 0)


def _trained_model(family: Family) -> Iterator[Pass]:
    if family.mtp_num_layers:
        from .mtp.mtp import Mtp

        yield Mtp(family.mtp_num_layers)
    if family.lora_rank:
        from .adapters.adapt import Adapt

        yield Adapt(family.lora_rank, family.lora_modules, family.lora_base, bool(family.lora_dropout))
    from .optimizer import Accumulate

    yield Accumulate(str(family.grad_dtype))


def _shard(family: Family) -> Pass:
    """Return the pass that shards; what an axis would say that the family lacks is left as by default."""
    from .sharding.shard import ShardPass

    usual, train = ShardPass(), family.workload is Workload.TRAIN
    along = family.tp and family.sp
    return ShardPass(
        # Ranks that share out what is inside of experts do so as the plan splits them, be they of tp or not.
        tp_plan=family.tp_plan if family.tp or family.etp_dp else usual.tp_plan,
        sp=along,
        regather=along,
        zero=family.zero if train else 0,
        cp=family.cp,
        ep=family.ep or family.etp_dp,
        replicate_unknown=family.replicate_unknown,
        usp=family.usp,
        hsdp=family.hsdp and train,
        once=family.reshard == "step" and train,
        reduced=str(family.reduce_dtype or "") if train else "",
        etp=family.etp,
        imbalance=family.imbalance,
        popularity=_popularity(family),
        wire="" if family.dispatch_dtype == SAME else family.dispatch_dtype,
        routing_nodes=family.routing_nodes,
        exchange=family.exchange,
        inside=family.etp_dp,
        tp=family.tp,
    )


def _popularity(family: Family) -> tuple[str, ...]:
    """Return how often experts are chosen, and how they are placed for it."""
    if not family.ep or not family.expert_popularity:
        return ()
    copies = (str(family.redundant_experts),) if family.redundant_experts else ()
    return (family.expert_popularity, *(("eplb",) if family.eplb else ()), *copies)


def _inference(family: Family) -> Iterator[Pass]:
    if family.workload is Workload.DECODE and family.cp != "none":
        yield pass_class("spread_cache")()
    yield pass_class("window")()
    if family.kernels == "fused":
        yield from (pass_class(name)() for name in _ENGINE)


def _low_precision(family: Family) -> Iterator[Pass]:
    """Yield what lowers products, and the cache.

    Hand-fused kernels keep casts as TransformerEngine does; a compiler takes maxima where tensors are made. In
    inference hand-fused kernels write what they make in low precision.
    """
    if lowers(family):
        from .precision.quantise import Quantise

        train = family.workload is Workload.TRAIN
        yield Quantise(
            family.precision,
            keep=family.kernels == "fused" and train,
            fused=family.kernels in (("torch", "compiled") if train else ("fused",)),
            gather=family.fp8_param_gather,
            attend=family.fp8_attention,
            head=family.fp8_output_proj,
            first=family.bf16_first,
            last=family.bf16_last,
            given=tuple(f"{pattern}={recipe}" for pattern, recipe in family.published_of),
            of=tuple(f"{pattern}={recipe}" for pattern, recipe in family.precision_of),
        )
    if family.kv_dtype != SAME:
        from .precision.quantise_cache import QuantiseCache

        yield QuantiseCache(family.kv_dtype)


def _training(family: Family) -> Iterator[Pass]:
    """Yield what a step of training adds, and what its kernels keep."""
    from .bucket import Bucket
    from .optimizer import Optimizer

    if family.kernels == "merged":
        yield pass_class("merge_heads")()
    if family.recompute != "none":
        yield _recompute(family)
    yield Bucket(reshard=family.reshard)
    yield Optimizer(*family.states)
    yield from (pass_class(name)() for name in _KERNELS.get(family.kernels, ()))
    if family.offload:
        from .offload import Offload

        yield Offload(family.offload, family.offload_modules)


def _recompute(family: Family) -> Pass:
    from .recompute.recompute import Recompute

    layers = family.recomputed_layers
    if isinstance(layers, tuple):
        # Stages lay the two kinds of layers anew: one lowered graph serves all lists.
        layers = min(sum(layers), 2) if family.pp else sum(layers)
    return Recompute(
        family.recompute,
        family.recompute_modules,
        family.recompute_save,
        family.recompute_save_rest,
        layers,
        max(family.recompute_every, 1),
        family.early_stop,
    )


def _stages(family: Family) -> Iterator[Pass]:
    """Yield what runs between stages, and which nodes become one kernel."""
    if family.pp:
        from .pipeline import Pipeline

        yield Pipeline(scatter=family.scatter_p2p and not family.sp)
    if family.fused:
        yield pass_class("fuse")()
    if family.workload is not Workload.TRAIN and family.kernels == "fused":
        yield pass_class("one_kernel")()
