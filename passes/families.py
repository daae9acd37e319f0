"""Which passes lower a traced graph, in which order and with which options: a family of plans says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from ..ir.graph import Workload
from ..ir.plan import Family
from ..ir.plan.low_inference import SAME
from ..ir.plan.precision import lowers, trains_low
from .manager import PassPipeline, parse_pipeline
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
    """Return the passes that lower a traced graph for a family; UnknownNameError for a tensor-parallel plan."""
    check_name(family.tp_plan)
    train = family.workload is Workload.TRAIN
    serves_fused = not train and family.kernels == "fused"
    names = [f"mtp{{layers={family.mtp_num_layers}}}"] if family.mtp_num_layers and train else []
    names += [_adapters(family)] if family.lora_rank and train else []
    names += [f'accumulate{{dtype="{family.grad_dtype}"}}'] if train else []
    names += ["unfuse"] if family.attention == "unfused" else []
    latent = family.workload is Workload.DECODE and family.mla == "latent" and family.attention == "flash"
    names += ["absorb"] if latent else []
    options = [] if family.tp else ["tp=false"]
    # Ranks that share out what is inside of experts do so as the plan splits them, be they of tp or not.
    options += [f'tp_plan="{family.tp_plan}"'] if family.tp or family.etp_dp else []
    options += ["sp=true", "regather=true"] if family.tp and family.sp else []
    options += _data_options(family) if train else []
    options += [f'cp="{family.cp}"'] if family.cp != "none" else []
    options += ["usp=true"] if family.usp else []
    options += _experts_options(family)
    options += ["replicate_unknown=true"] if family.replicate_unknown else []
    if family.ep or family.etp_dp or family.capacity or trains_low(family):
        routed = ["capacity=true"] if family.capacity else []
        routed += [f"redundant={family.redundant_experts}"] if family.ep and family.redundant_experts else []
        names.append(f"route{{{', '.join(routed)}}}" if routed else "route")
    names.append(f"shard{{{', '.join(options)}}}")
    names += ["spread_cache"] if family.workload is Workload.DECODE and family.cp != "none" else []
    names += [] if train else ["window"]
    names += list(_ENGINE) if serves_fused else []
    names += [_quantise(family)] if lowers(family) else []
    names += [f'quantise_cache{{dtype="{family.kv_dtype}"}}'] if family.kv_dtype != SAME else []
    names += ["merge_heads"] if family.kernels == "merged" and train else []
    names += [_recompute(family)] if family.recompute != "none" and train else []
    bucket = f'bucket{{reshard="{family.reshard}"}}' if family.reshard != "layer" else "bucket"
    names += [bucket, _optimizer(family)] if train else []
    names += _KERNELS.get(family.kernels, []) if train else []
    moved = f", modules=[{_quoted(family.offload_modules)}]" if family.offload_modules else ""
    names += [f"offload{{what=[{_quoted(family.offload)}]{moved}}}"] if family.offload and train else []
    pieces = family.scatter_p2p and not family.sp
    names += ["pipeline{scatter=true}" if pieces else "pipeline"] if family.pp else []
    names += ["fuse"] if family.fused else []
    names += ["one_kernel"] if serves_fused else []
    return parse_pipeline(",".join(names))


def _adapters(family: Family) -> str:
    options = [f"rank={family.lora_rank}"]
    options += [f"modules=[{_quoted(family.lora_modules)}]"] if family.lora_modules else []
    options += [f'base="{family.lora_base}"'] if family.lora_base != SAME else []
    options += ["dropout=true"] if family.lora_dropout else []
    return f"adapt{{{', '.join(options)}}}"


def _experts_options(family: Family) -> list[str]:
    found = ["ep=true"] if family.ep or family.etp_dp else []
    found += [] if family.etp else ["etp=false"]
    found += [f'exchange="{family.exchange}"'] if family.exchange != "alltoall" else []
    found += ["inside=true"] if family.etp_dp else []
    found += ["imbalance=true"] if family.imbalance else []
    if family.ep and family.expert_popularity:
        placed = [*(["eplb"] if family.eplb else []), *([str(copies)] if (copies := family.redundant_experts) else [])]
        found.append(f"popularity=[{_quoted([family.expert_popularity, *placed])}]")
    found += [f'wire="{family.dispatch_dtype}"'] if family.dispatch_dtype != "same" else []
    return found + ([f"routing_nodes={family.routing_nodes}"] if family.routing_nodes else [])


def _data_options(family: Family) -> list[str]:
    """What `shard` is told of data parallelism; nothing that says what it does anyway."""
    options = [f"zero={family.zero}"] if family.zero else []
    options += ["hsdp=true"] if family.hsdp else []
    options += ["once=true"] if family.reshard == "step" else []
    return options + ([f'reduced="{family.reduce_dtype}"'] if family.reduce_dtype is not None else [])


def _quantise(family: Family) -> str:
    """Hand-fused kernels keep casts as TransformerEngine does; a compiler takes maxima where tensors are made.

    In inference hand-fused kernels write what they make in low precision.
    """
    train = family.workload is Workload.TRAIN
    options = [f'recipe="{family.precision}"']
    options += ["keep=true"] if family.kernels == "fused" and train else []
    options += ["fused=true"] if family.kernels in (("torch", "compiled") if train else ("fused",)) else []
    options += ["gather=true"] if family.fp8_param_gather else []
    options += ["attend=true"] if family.fp8_attention else []
    options += ["head=true"] if family.fp8_output_proj else []
    pairs = (("given", family.published_of), ("of", family.precision_of))
    options += [f"{name}=[{_quoted([f'{p}={r}' for p, r in found])}]" for name, found in pairs if found]
    edges = (("first", family.bf16_first), ("last", family.bf16_last))
    return f"quantise{{{', '.join([*options, *(f'{name}={n}' for name, n in edges if n)])}}}"


def _optimizer(family: Family) -> str:
    named = zip(("main", "exp_avg", "exp_avg_sq"), family.states, strict=True)
    options = ", ".join(f'{name}="{dtype}"' for name, dtype in named if dtype != "fp32")
    return f"optimizer{{{options}}}" if options else "optimizer"


def _recompute(family: Family) -> str:
    options = [f'policy="{family.recompute}"']
    options += [f"modules=[{_quoted(family.recompute_modules)}]"] if family.recompute_modules else []
    layers = family.recomputed_layers
    if isinstance(layers, tuple):
        # Stages lay the two kinds of layers anew: one lowered graph serves all lists.
        layers = min(sum(layers), 2) if family.pp else sum(layers)
    options += [f"save=[{_quoted(family.recompute_save)}]"] if family.recompute_save else []
    options += [f"rest=[{_quoted(family.recompute_save_rest)}]"] if family.recompute_save_rest else []
    options += [f"layers={layers}"] if layers else []
    options += [f"every={family.recompute_every}"] if family.recompute_every > 1 else []
    options += [] if family.early_stop else ["early_stop=false"]
    return f"recompute{{{', '.join(options)}}}"


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(map(json.dumps, words))
