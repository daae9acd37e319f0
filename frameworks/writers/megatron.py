"""A training plan as flags of Megatron-LM's pretrain_gpt.py.

Names were read in NVIDIA/Megatron-LM at commit d98e8a64ddf3: megatron/training/arguments.py; those of `--cp-comm-type`
in megatron/core/transformer/transformer_config.py, what Megatron-FSDP needs in its user guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from types import MappingProxyType

from ...ir.plan import ORDER
from ...ir.plan.optimizer_states import FP32
from ...ir.plan.precision import NONE
from ...ir.plan.training.decisions import MEGATRON_MODULES
from ...ir.types import DType
from ..export import Export, ExportSubject, Flag, command, lost_schedule, of_workload, torchrun, unsaid
from .megatron_model import shape_flags, shape_left

NAME = "Megatron-LM"
VERSION = "NVIDIA/Megatron-LM d98e8a64ddf3"
_SHARDING: Mapping[int, str] = MappingProxyType({2: "optim_grads", 3: "optim_grads_params"})
_CP: Mapping[str, str] = MappingProxyType({"ring": "p2p", "allgather": "all_gather", "ulysses": "a2a"})
_FP8: Mapping[str, str] = MappingProxyType(
    {"fp8": "tensorwise", "fp8-delayed": "delayed", "fp8-block": "blockwise", "mxfp8": "mxfp8"}
)
_MOMENTS = ("fp32", "fp16", "bf16", "fp8")
_ROUNDS = "{} micro-batches do not go in whole rounds of a micro-batch a stage"
_TP_INSIDE_PP = "tp-cp-ep-pp-dp"


def megatron(subject: ExportSubject) -> Export:
    """Return a training plan as flags of pretrain_gpt.py; UsageError for a plan of inference."""
    of_workload(subject, NAME, train=True)
    flags = [
        *_parallel(subject),
        *_batches(subject),
        *_data_parallel(subject),
        *_experts(subject),
        *_recompute(subject),
        *_precision(subject),
        *_optimizer(subject),
        *_overlap(subject),
        *shape_flags(subject),
    ]
    text = command(torchrun(subject, "pretrain_gpt.py"), flags)
    return Export(NAME, VERSION, text, tuple(lost(subject)), tuple(_left(subject)))


def _parallel(subject: ExportSubject) -> Iterator[Flag]:
    plan, family = subject.plan, subject.family
    yield "--tensor-model-parallel-size", plan.tp
    if family.sp and plan.tp > 1:
        yield "--sequence-parallel", None
    yield "--pipeline-model-parallel-size", plan.pp
    if plan.pp > 1:
        yield from _stages(subject)
    if plan.cp > 1:
        yield "--context-parallel-size", plan.cp
        if plan.cp_ulysses > 1:
            yield "--cp-comm-type", "a2a+p2p"
            yield "--hierarchical-context-parallel-sizes", f"{plan.cp_ulysses} {plan.cp // plan.cp_ulysses}"
        else:
            yield "--cp-comm-type", _CP[plan.cp_method]
    if family.order == _TP_INSIDE_PP:
        yield "--use-tp-pp-dp-mapping", None
    if family.mtp_num_layers:
        yield "--mtp-num-layers", family.mtp_num_layers


def _stages(subject: ExportSubject) -> Iterator[Flag]:
    """Layers of stages: nothing to say where all have as many, a layout where they do not."""
    plan, layers = subject.plan, subject.layers
    if not subject.is_even:
        yield "--pipeline-model-parallel-layout", layout_text(layers, subject.family.mtp_num_layers)
    elif plan.vpp > 1 and layers:
        yield "--num-layers-per-virtual-pipeline-stage", layers[0]
    elif plan.vpp > 1:
        yield "--num-virtual-stages-per-pipeline-rank", plan.vpp
    if plan.vpp > 1 and subject.stack is not None and not subject.hides("pp"):
        yield "--no-overlap-p2p-communication", None


def layout_text(layers: tuple[int, ...], mtp: int = 0) -> str:
    """Return layers of chunks as `--pipeline-model-parallel-layout` has them: E embedding, t a layer, L the loss.

    Layers of multi-token prediction, m, stand in front of the loss.

    >>> layout_text((7, 8, 8, 7)), layout_text((1, 2, 2, 2, 1, 0), mtp=1)
    ('Et*7|(t*8|)*2t*7L', 'Et|(t*2|)*3t|mL')
    """
    chunks = [f"t*{n}" if n > 1 else "t" * n for n in layers]
    inner = [(text, len(list(same))) for text, same in groupby(chunks[1:-1])]
    middle = "".join(f"({text}|)*{num}" if num > 1 else f"{text}|" for text, num in inner)
    return f"E{chunks[0]}|{middle}{chunks[-1]}{'m' * mtp}L"


def _batches(subject: ExportSubject) -> Iterator[Flag]:
    plan = subject.plan
    yield "--micro-batch-size", plan.micro_batch
    yield "--global-batch-size", plan.global_batch
    yield "--seq-length", plan.seq_len


def _data_parallel(subject: ExportSubject) -> Iterator[Flag]:
    """ZeRO 1 is the distributed optimizer, 2 and 3 are Megatron-FSDP."""
    plan, family = subject.plan, subject.family
    if not family.zero:
        return
    yield "--use-distributed-optimizer", None
    if family.zero > 1:
        yield "--use-megatron-fsdp", None
        yield "--data-parallel-sharding-strategy", _SHARDING[family.zero]
        yield "--no-gradient-accumulation-fusion", None
        yield "--ckpt-format", "fsdp_dtensor"
        if family.reduce_dtype is not None:
            yield "--megatron-fsdp-grad-comm-dtype", str(family.reduce_dtype)
    if family.hsdp and plan.ep == 1 and plan.dp > plan.dp_shard:
        yield "--num-distributed-optimizer-instances", plan.dp // plan.dp_shard


def _experts(subject: ExportSubject) -> Iterator[Flag]:
    plan = subject.plan
    if plan.ep > 1:
        yield "--expert-model-parallel-size", plan.ep
        yield "--moe-token-dispatcher-type", "alltoall"
    if plan.tp > 1 and not subject.family.etp:
        yield "--expert-tensor-parallel-size", 1
    if plan.capacity_factor is not None:
        yield "--moe-expert-capacity-factor", plan.capacity_factor
        yield "--moe-pad-expert-input-to-capacity", None


def _recompute(subject: ExportSubject) -> Iterator[Flag]:
    family = subject.family
    if family.recompute == "selective":
        yield "--recompute-granularity", "selective"
        modules = [name for name in family.recompute_modules if name in MEGATRON_MODULES]
        if modules:
            yield "--recompute-modules", " ".join(modules)
    if family.recompute == "full":
        yield "--recompute-granularity", "full"
        method, number = (
            ("block", family.recompute_layers) if family.recompute_layers else ("uniform", family.recompute_every)
        )
        yield "--recompute-method", method
        yield "--recompute-num-layers", number
    if "activations" in family.offload and subject.number("num_hidden_layers"):
        yield "--cpu-offloading-num-layers", max(int(subject.number("num_hidden_layers") or 0) - 1, 1)


def _precision(subject: ExportSubject) -> Iterator[Flag]:
    family = subject.family
    if subject.dtype in ("bf16", "fp16"):
        yield f"--{subject.dtype}", None
    if family.grad_dtype is DType.BF16:
        yield "--grad-reduce-in-bf16", None
    if family.precision in _FP8:
        # Scales of blocks leave gradients room enough in e4m3: TransformerEngine's default of both recipes.
        yield "--fp8-format", "e4m3" if family.precision in ("fp8-block", "mxfp8") else "hybrid"
        yield "--fp8-recipe", _FP8[family.precision]
    if family.precision == "nvfp4":
        yield "--fp4-format", "e2m1"
        yield "--fp4-recipe", "nvfp4"
    if family.fp8_param_gather:
        yield f"--{'fp4' if family.precision == 'nvfp4' else 'fp8'}-param-gather", None
        if family.precision == "mxfp8" and family.zero < 3:
            yield "--reuse-grad-buf-for-mxfp8-param-ag", None
    if family.fp8_attention:
        yield "--fp8-dot-product-attention", None
    if family.fp8_output_proj:
        yield "--fp8-output-proj", None
    if family.bf16_first or family.bf16_last:
        yield "--first-last-layers-bf16", None
        yield "--num-layers-at-start-in-bf16", family.bf16_first
        yield "--num-layers-at-end-in-bf16", family.bf16_last


def _optimizer(subject: ExportSubject) -> Iterator[Flag]:
    family = subject.family
    offload = "optimizer" in family.offload
    if offload:
        yield "--optimizer-cpu-offload", None
    states = (
        ("--main-params-dtype", family.main_params_dtype, ("fp32", "fp16")),
        ("--exp-avg-dtype", family.exp_avg_dtype, _MOMENTS),
        ("--exp-avg-sq-dtype", family.exp_avg_sq_dtype, _MOMENTS),
    )
    said = [(name, dtype) for name, dtype, known in states if dtype != FP32 and dtype in known]
    if said or offload:
        yield "--use-precision-aware-optimizer", None
    yield from said


def _overlap(subject: ExportSubject) -> Iterator[Flag]:
    """What the stack hides is asked for; what it does not is off by default."""
    plan, family = subject.plan, subject.family
    if plan.dp * plan.cp > 1 and subject.hides("dp"):
        yield "--overlap-grad-reduce", None
        if family.zero:
            yield "--overlap-param-gather", None
    if plan.tp > 1 and family.sp and (family.async_tp or subject.hides("tp")):
        yield "--tp-comm-overlap", None
    if plan.ep > 1 and subject.hides("batches"):
        yield "--overlap-moe-expert-parallel-comm", None
    elif plan.ep > 1 and subject.hides("ep") and subject.number("n_shared_experts"):
        yield "--moe-shared-expert-overlap", None
    if family.attention == "unfused":
        yield "--attention-backend", "unfused"


def lost(subject: ExportSubject) -> Iterator[str]:
    """Yield what a plan says and the framework cannot, a line each: words, a colon, why."""
    plan, family = subject.plan, subject.family
    yield from unsaid(subject, __name__)
    yield from lost_schedule(subject, "megatron", NAME)
    if plan.vpp > 1 and plan.num_micro_batches % plan.pp:
        yield f"vpp {plan.vpp} with pp {plan.pp} and mbs {plan.micro_batch}: {_ROUNDS.format(plan.num_micro_batches)}"
    if plan.pp > 1 and plan.tp > 1 and not family.sp and family.scatter_p2p:
        yield "scatter_p2p: each rank sends the next stage all that it has"
    if family.order not in (ORDER, _TP_INSIDE_PP):
        yield f"order {family.order}: there are {ORDER} and {_TP_INSIDE_PP}"
    if plan.cp_ulysses > 1 and plan.cp_method != "ring":
        yield f"cp_ulysses {plan.cp_ulysses} with cp_method {plan.cp_method}: a2a+p2p passes keys and values in a ring"
    if family.tp_plan != "megatron":
        yield f"tp_plan {family.tp_plan}: layers are split in its own way"
    if family.kernels != "fused":
        yield f"kernels {family.kernels}: its own are hand-fused (TransformerEngine)"
    if family.hsdp and plan.ep > 1:
        yield f"dp_shard {plan.dp_shard} with ep {plan.ep}: copies of the optimizer lie over all data parallelism"
    if family.reshard != "layer":
        yield f"reshard {family.reshard}: Megatron-FSDP frees gathered parameters behind each layer"
    if family.routing_nodes and subject.number("n_group") is None:
        yield f"routing_nodes {family.routing_nodes}: of the router: --moe-router-num-groups, --moe-router-group-topk"
    yield from _lost_policy(subject)


def _lost_policy(subject: ExportSubject) -> Iterator[str]:
    family = subject.family
    if family.recompute == "ops":
        yield "recompute ops: there are selective modules and whole layers"
    unknown = [name for name in family.recompute_modules if name not in MEGATRON_MODULES]
    if unknown:
        yield f"recompute_modules {', '.join(unknown)}: known are {', '.join(MEGATRON_MODULES)}"
    if family.recompute != "none" and family.early_stop:
        yield "early_stop: layers and modules are run again to their end"
    if family.precision not in (NONE, "nvfp4", *_FP8):
        yield f"precision {family.precision}: recipes are {', '.join((*_FP8, 'nvfp4'))}"
    if family.zero < 2 and family.reduce_dtype not in (None, family.grad_dtype):
        yield f"reduce_dtype {family.reduce_dtype} beside sums in {family.grad_dtype}"
    if family.main_params_dtype == "none":
        yield "main_params_dtype none: there are always master weights"
    for name, dtype in (("exp_avg_dtype", family.exp_avg_dtype), ("exp_avg_sq_dtype", family.exp_avg_sq_dtype)):
        if dtype not in _MOMENTS:
            yield f"{name} {dtype}: known are {', '.join(_MOMENTS)}"
    if "params" in family.offload:
        yield "offload params: weights stay on the device"
    if subject.dtype not in ("bf16", "fp16", "fp32"):
        yield f"dtype {subject.dtype}"


def _left(subject: ExportSubject) -> Iterator[str]:
    yield from shape_left(subject)
    yield "data, tokenizer and its vocabulary, learning rate, checkpoints"
    if subject.stack is None:
        yield "what is hidden (--overlap-grad-reduce, ...): no system was named"
    elif subject.stack.cuda_graph:
        yield "CUDA graphs, which the plan was priced with: --cuda-graph-impl"
