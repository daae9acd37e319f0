"""A training plan as DeepSpeed's JSON configuration.

Names were read in deepspeedai/DeepSpeed at commit 00376da49967, docs/_pages/config-json.md, and `tensor_parallel` in
its tutorial of AutoTP for training (ZeRO 0 to 2). Pipelines (ZeRO 0 and 1: runtime/pipe/engine.py), experts and
sequences are split in code there, not by configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ...ir.plan import ORDER
from ...ir.plan.optimizer_states import FP32
from ...ir.plan.precision import NONE
from ...ir.text.json_text import json_text
from ...ir.types import DType
from ..export import Export, ExportSubject, of_workload, unsaid

NAME = "DeepSpeed"
VERSION = "deepspeedai/DeepSpeed 00376da49967"
Json: TypeAlias = "str | int | float | bool | dict[str, Json] | None"
_DTYPES = {DType.FP32: "fp32", DType.BF16: "bf16", DType.FP16: "fp16"}


def deepspeed(subject: ExportSubject) -> Export:
    """Return a training plan as the JSON that deepspeed.initialize takes; UsageError for a plan of inference."""
    of_workload(subject, NAME, train=True)
    plan, family = subject.plan, subject.family
    config: dict[str, Json] = {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.num_micro_batches,
    }
    if subject.dtype in ("bf16", "fp16"):
        # Master weights and optimizer states in bf16, which go together.
        states = (
            {} if not _small_states(subject) else {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
        )
        config[subject.dtype] = {"enabled": True, **states}
    config["data_types"] = {"grad_accum_dtype": _DTYPES[family.grad_dtype]}
    if (reduced := _reduced(subject)) is not None:
        config["communication_data_type"] = reduced
    config["zero_optimization"] = _zero(subject)
    if plan.tp > 1:
        config["tensor_parallel"] = {"autotp_size": plan.tp}
    if family.recompute == "full":
        config["activation_checkpointing"] = {
            "partition_activations": False,
            "cpu_checkpointing": "activations" in family.offload,
        }
    text = json_text(config, indent=2) + "\n"
    return Export(NAME, VERSION, text, tuple(lost(subject)), tuple(_left(subject)), takes_comments=False)


def _small_states(subject: ExportSubject) -> bool:
    family = subject.family
    moments = {family.exp_avg_dtype, family.exp_avg_sq_dtype}
    return subject.dtype == "bf16" and family.zero > 0 and moments == {"bf16"} and family.main_params_dtype == "none"


def _reduced(subject: ExportSubject) -> str | None:
    family = subject.family
    dtype = family.reduce_dtype or (family.grad_dtype if family.zero < 2 else None)
    return None if dtype is None else _DTYPES[dtype]


def _zero(subject: ExportSubject) -> dict[str, Json]:
    family = subject.family
    found: dict[str, Json] = {"stage": family.zero}
    if family.zero:
        found |= {
            "overlap_comm": subject.stack is None or subject.hides("dp"),
            "contiguous_gradients": True,
            "reduce_scatter": True,
        }
    if "optimizer" in family.offload and family.zero:
        found["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if "params" in family.offload:
        found["offload_param"] = {"device": "cpu", "pin_memory": True}
    return found


def lost(subject: ExportSubject) -> Iterator[str]:
    """Yield what a plan says and the framework cannot, a line each: words, a colon, why."""
    plan, family = subject.plan, subject.family
    yield from unsaid(subject, __name__)
    if plan.pp > 1:
        chunks = f", vpp={plan.vpp}" if plan.vpp > 1 else ""
        yield f"pp {plan.pp}{chunks}: in code, PipelineModule(num_stages={plan.pp}), which runs 1F1B without chunks"
        if family.zero > 1:
            yield f"zero {family.zero} with pp {plan.pp}: its pipelines take ZeRO 1 at most"
    if plan.cp > 1:
        yield f"cp {plan.cp} ({plan.cp_method}): in code, by DeepSpeed-Ulysses"
    if plan.ep > 1:
        yield f"ep {plan.ep}: in code, deepspeed.moe.layer.MoE(ep_size={plan.ep})"
    if family.hsdp:
        yield f"dp_shard {plan.dp_shard}: ZeRO shards over all data parallelism"
    if plan.tp > 1 and family.sp:
        yield "sp: AutoTP splits no sequence"
    if plan.tp > 1 and family.zero > 2:
        yield f"zero {family.zero} with tp {plan.tp}: AutoTP takes ZeRO 2 at most"
    if plan.capacity_factor is not None:
        yield f"capacity_factor {plan.capacity_factor:g}: of MoE layers, in code"
    yield from _lost_policy(subject)


def _lost_policy(subject: ExportSubject) -> Iterator[str]:
    family = subject.family
    if family.recompute == "full":
        yield "recompute full: which layers is the model's: gradient_checkpointing_enable() or deepspeed.checkpointing"
    elif family.recompute != "none":
        yield f"recompute {family.recompute}: in the model's code"
    if family.precision != NONE:
        yield f"precision {family.precision}: in the model's code, by TransformerEngine"
    if set(family.states) != {FP32} and not _small_states(subject):
        names = "main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype"
        yield f"{names} {'/'.join(family.states)}: float32, or master weights and moments in bf16 with ZeRO"
    if "optimizer" in family.offload and not family.zero:
        yield "offload optimizer: with ZeRO 1 to 3 alone"
    if "activations" in family.offload and family.recompute != "full":
        yield "offload activations: of checkpoints alone (recompute full)"
    if family.reshard != "layer":
        yield f"reshard {family.reshard}: stage3_max_live_parameters and stage3_max_reuse_distance say what is kept"
    if family.tp_plan != "megatron":
        yield f"tp_plan {family.tp_plan}: AutoTP splits layers by its own patterns"
    if family.order != ORDER:
        yield f"order {family.order}: ranks of tensor parallelism are neighbours, replicas lie outside"
    if family.kernels == "fused" or family.attention == "unfused":
        yield f"kernels {family.kernels}, attention {family.attention}: those of the model's code"
    if family.async_tp:
        yield "async_tp: AutoTP waits for its messages"


def _left(subject: ExportSubject) -> Iterator[str]:
    yield f"seq {subject.plan.seq_len}: the length of what the data loader yields"
    yield "optimizer, scheduler, gradient_clipping; sizes of buckets: allgather_bucket_size, reduce_bucket_size"
    yield f"the launch: deepspeed --num_gpus or a hostfile of {subject.plan.num_gpus} GPUs"
