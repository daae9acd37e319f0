"""A plan of serving as the command `vllm serve`.

Names are those of vLLM 0.25: flags are fields of vllm/config (parallel.py, cache.py, scheduler.py, model.py), words
of --quantization stand in vllm/model_executor/layers/quantization/__init__.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ...ir.errors import SlipstickError
from ...ir.graph import Workload
from ...ir.plan.precision import NONE
from ...ir.text.json_text import json_text
from ..export import Export, ExportSubject, Flag, command, of_workload, unsaid

NAME = "vLLM"
VERSION = "vLLM 0.25"
_DTYPES: Mapping[str, str] = MappingProxyType({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"})
_CACHE: Mapping[str, str] = MappingProxyType({"fp8": "fp8", "int8": "int8_per_token_head", "fp4": "nvfp4"})
# Recipes that it can make of weights in 16 bits while it loads them; the others are read from a checkpoint.
_ONLINE: Mapping[str, str] = MappingProxyType(
    {
        "fp8": "fp8_per_tensor",
        "fp8-rowwise": "fp8_per_channel",
        "fp8-block": "fp8_per_block",
        "mxfp8": "mxfp8",
        "w8a16": "int8_per_channel_weight_only",
        "nvfp4": "nvfp4_per_token",
    }
)


def vllm(
    subject: ExportSubject, hub_name: str | None = None, speculation: Mapping[str, int | str] | None = None
) -> Export:
    """Return a plan of serving as the flags of `vllm serve`; UsageError for a training plan.

    `hub_name` is the model's name where weights are kept, `speculation` what stands in --speculative-config.
    """
    of_workload(subject, NAME, train=False)
    flags = [*_parallel(subject), *_limits(subject), *_types(subject)]
    if speculation:
        flags.append(("--speculative-config", json_text(dict(speculation))))
    text = command(f"vllm serve {hub_name or subject.model}", flags)
    return Export(NAME, VERSION, text, tuple(lost(subject)), tuple(_left(subject, hub_name)))


def _parallel(subject: ExportSubject) -> Iterator[Flag]:
    plan = subject.plan
    spread = plan.cp if _spreads_cache(subject) else 1
    yield "--tensor-parallel-size", plan.tp * spread
    if spread > 1:
        yield "--decode-context-parallel-size", spread
    if plan.pp > 1:
        yield "--pipeline-parallel-size", plan.pp
    if _together(subject) and plan.dp > 1:
        yield "--data-parallel-size", plan.dp
    if subject.family.ep:
        yield "--enable-expert-parallel", None
        if subject.family.exchange == "allgather":
            yield "--all2all-backend", "allgather_reducescatter"


def _spreads_cache(subject: ExportSubject) -> bool:
    """Whether context parallelism is of decode steps, which its ranks of tensor parallelism do in groups."""
    return subject.is_server or subject.family.workload is Workload.DECODE


def _together(subject: ExportSubject) -> bool:
    """Whether replicas are one server: with experts they would share them, so replicas that share none stand alone."""
    has_experts = subject.number("n_routed_experts", "num_local_experts", "num_experts") is not None
    return not has_experts or subject.family.ep or subject.family.etp_dp


def _limits(subject: ExportSubject) -> Iterator[Flag]:
    at, longest = subject.scheduler, subject.longest
    if longest is None and not subject.is_server:
        plan = subject.plan
        longest = plan.kv_len + 1 if subject.family.workload is Workload.DECODE else plan.seq_len
    if longest is not None:
        yield "--max-model-len", longest
    if at is None:
        yield "--max-num-seqs", subject.plan.micro_batch
        return
    yield "--max-num-seqs", at.max_num_seqs
    yield "--max-num-batched-tokens", at.max_batched_tokens
    if not at.chunked_prefill:
        yield "--no-enable-chunked-prefill", None
    yield "--gpu-memory-utilization", at.memory_utilization
    yield "--block-size", at.block_tokens


def _types(subject: ExportSubject) -> Iterator[Flag]:
    family = subject.family
    if subject.dtype in _DTYPES:
        yield "--dtype", _DTYPES[subject.dtype]
    if family.precision in _ONLINE and not family.published_of:
        yield "--quantization", _ONLINE[family.precision]
    if family.kv_dtype in _CACHE:
        yield "--kv-cache-dtype", _CACHE[family.kv_dtype]
    if subject.stack is not None and not subject.stack.cuda_graph:
        yield "--enforce-eager", None


def _published(subject: ExportSubject) -> str:
    """Return what a model's weights were published in, as far as there is a recipe of it."""
    from ...frontend.huggingface.configs.published import published_precision

    if subject.config is None:
        return NONE
    try:
        return published_precision(subject.model)
    except SlipstickError as error:
        return str(error)


def lost(subject: ExportSubject) -> Iterator[str]:
    """Yield what a plan says and the framework cannot, a line each: words, a colon, why."""
    plan, family = subject.plan, subject.family
    ranks = plan.tp * plan.dp
    yield from unsaid(subject, __name__)
    if plan.ep > 1 and plan.ep != ranks:
        yield f"ep {plan.ep} with tp {plan.tp} and dp {plan.dp}: experts are sharded over all {ranks} ranks"
    if plan.ep > 1 and plan.tp > 1 and family.etp:
        yield f"etp {plan.tp} with ep {plan.ep}: experts are whole on a rank"
    if not _together(subject) and plan.dp > 1:
        yield f"dp {plan.dp} with ep {plan.ep}: start {plan.dp} such servers; as one they would share experts"
    if plan.cp > 1 and not _spreads_cache(subject):
        yield f"cp {plan.cp}: a prompt is not split over GPUs"
    if family.sp:
        yield "sp: of its compiler passes (--compilation-config)"
    if family.precision == NONE and (published := _published(subject)) != NONE:
        yield f"precision none: its checkpoint was published in {published}, and is loaded so"
    for pattern, recipe in family.precision_of:
        yield f"precision_of {pattern}={recipe}: as a checkpoint has it"
    if plan.capacity_factor is not None:
        yield f"capacity_factor {plan.capacity_factor:g}: no row of an expert is left out"
    if family.kv_dtype == "int8":
        yield "kv_dtype int8 with one scale a tensor: there is one with a scale for each token and head"
    if family.tp_plan != "megatron":
        yield f"tp_plan {family.tp_plan}: layers are split in its own way"
    if family.kernels != "fused":
        yield f"kernels {family.kernels}: its own are fused"
    if family.attention == "unfused" or family.mla == "expanded":
        yield "attention and mla: its kernels are fused, and run over cached latents"


def _left(subject: ExportSubject, hub_name: str | None) -> Iterator[str]:
    family = subject.family
    if hub_name is None:
        yield "where the weights are: a name on the hub or a folder in place of the model"
    if family.precision not in (NONE, *_ONLINE) or family.published_of:
        yield f"precision {family.precision}: a checkpoint that was quantised so, whose config says how"
    if subject.plan.ep > 1 and family.exchange == "alltoall":
        yield "--all2all-backend: how rows get to their experts; its own choice may gather all tokens"
    if not subject.is_server:
        yield "limits of the scheduler: the plan is of a step; a plan of --phase serve has them"
