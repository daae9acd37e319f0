"""A training plan as flags of torchtitan.

Names were read in the wheel torchtitan 0.3.0: torchtitan/config/configs.py, distributed/activation_checkpoint.py,
distributed/pipeline_parallel.py; that context parallelism gathers keys and values,
models/common/decoder_sharding.py. Its main branch counts batches in tokens instead (`num_tokens_per_train_step`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ...ir.plan.optimizer_states import FP32
from ...ir.plan.precision import NONE
from ...ir.types import DType
from ..export import Export, ExportSubject, Flag, command, lost_schedule, of_workload, torchrun, unsaid

NAME = "torchtitan"
VERSION = "torchtitan 0.3.0"
# Configurations that it ships for models of our catalogue: --module, --config.
_CONFIGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "llama-3.1-8b": ("llama3", "llama3_8b"),
        "llama-3.1-70b": ("llama3", "llama3_70b"),
        "llama-3.1-405b": ("llama3", "llama3_405b"),
        "deepseek-v3": ("deepseek_v3", "deepseek_v3_671b"),
    }
)
_RECOMPUTE: Mapping[str, str] = MappingProxyType({"none": "none", "ops": "selective", "full": "full"})
# Every word that its own default answers to, in groups from neighbours outwards: pp outermost, then replicas.
_ORDERS = ("tp-cp-ep-dp-pp",)


def torchtitan(subject: ExportSubject) -> Export:
    """Return a training plan as flags of torchtitan's train.py; UsageError for a plan of inference."""
    of_workload(subject, NAME, train=True)
    flags = [*_model(subject), *_parallel(subject), *_pipeline(subject), *_batches(subject), *_policy(subject)]
    text = command(torchrun(subject, "-m torchtitan.train"), flags)
    return Export(NAME, VERSION, text, tuple(lost(subject)), tuple(_left(subject)))


def _model(subject: ExportSubject) -> Iterator[Flag]:
    if subject.model in _CONFIGS:
        module, config = _CONFIGS[subject.model]
        yield "--module", module
        yield "--config", config


def _parallel(subject: ExportSubject) -> Iterator[Flag]:
    """ZeRO 0 replicates, 3 == FSDP, with resharding or without; sharded groups and copies of them are HSDP."""
    plan, family = subject.plan, subject.family
    shard = (plan.dp_shard if family.hsdp else plan.dp) if family.zero else 1
    yield "--parallelism.data-parallel-replicate-degree", plan.dp // shard
    yield "--parallelism.data-parallel-shard-degree", shard
    if family.zero:
        keep = family.zero < 3 or family.reshard != "layer"
        yield "--parallelism.fsdp-reshard-after-forward", "never" if keep else "always"
    yield "--parallelism.tensor-parallel-degree", plan.tp
    if plan.tp > 1 and not family.sp:
        yield "--parallelism.no-enable-sequence-parallel", None
    if plan.cp > 1:
        yield "--parallelism.context-parallel-degree", plan.cp
    if plan.ep > 1:
        yield "--parallelism.expert-parallel-degree", plan.ep


def _pipeline(subject: ExportSubject) -> Iterator[Flag]:
    plan, family, layers = subject.plan, subject.family, subject.layers
    yield "--parallelism.pipeline-parallel-degree", plan.pp
    if plan.pp == 1:
        return
    # Names of torch.distributed.pipelining.
    if name := family.pipeline.name_in("torch", plan.vpp):
        yield "--parallelism.pipeline-parallel-schedule", name
    if layers and _is_said(layers):
        yield "--parallelism.pipeline-parallel-first-stage-less-layers", max(layers) - layers[0]
        yield "--parallelism.pipeline-parallel-last-stage-less-layers", max(layers) - layers[-1]
        yield "--parallelism.pipeline-parallel-layers-per-stage", max(layers)
    yield "--parallelism.pipeline-parallel-microbatch-size", plan.micro_batch


def _is_said(layers: tuple[int, ...]) -> bool:
    """Whether all chunks have as many layers, but for fewer in the first and the last.

    >>> _is_said((7, 8, 8, 7)), _is_said((8, 8, 7, 8))
    (True, False)
    """
    return all(num == max(layers) for num in layers[1:-1])


def _batches(subject: ExportSubject) -> Iterator[Flag]:
    """With a pipeline all micro-batches of a replica are one local batch, else each is one and gradients add up."""
    plan = subject.plan
    yield "--training.local-batch-size", plan.global_batch // plan.dp if plan.pp > 1 else plan.micro_batch
    yield "--training.global-batch-size", plan.global_batch
    yield "--training.seq-len", plan.seq_len


def _policy(subject: ExportSubject) -> Iterator[Flag]:
    family = subject.family
    if family.main_params_dtype == "none" and {family.exp_avg_dtype, family.exp_avg_sq_dtype} == {"bf16"}:
        yield "--training.dtype", "bfloat16"
    yield "--training.mixed-precision-param", "float32" if subject.dtype == "fp32" else "bfloat16"
    if "params" in family.offload:
        yield "--training.enable-cpu-offload", None
    if family.async_tp:
        yield "--compile.enable", None
        yield "--compile.enable-async-tensor-parallel", None
    # A choice among kinds stands behind all other flags.
    if family.recompute in _RECOMPUTE and not family.recompute_layers and family.recompute_every == 1:
        yield f"activation-checkpoint:{_RECOMPUTE[family.recompute]}", None


def lost(subject: ExportSubject) -> Iterator[str]:
    """Yield what a plan says and the framework cannot, a line each: words, a colon, why."""
    plan, family = subject.plan, subject.family
    yield from unsaid(subject, __name__)
    if plan.pp > 1:
        yield from _lost_stages(subject)
    if family.zero in (1, 2):
        yield f"zero {family.zero}: FSDP shards parameters too, which are gathered in every micro-batch (ZeRO 3)"
    kept = "step" if plan.pp > 1 else "microbatch"
    if family.reshard not in ("layer", kept):
        yield f"reshard {family.reshard}: with pp {plan.pp} parameters that are not freed are kept for a {kept}"
    if plan.cp > 1 and plan.cp_method != "allgather":
        yield f"cp_method {plan.cp_method}: keys and values are gathered"
    if plan.cp_ulysses > 1:
        yield f"cp_ulysses {plan.cp_ulysses}: keys and values are gathered"
    if plan.ep > 1 and plan.tp > 1 and family.etp:
        yield f"etp {plan.tp} with ep {plan.ep}: experts are whole on a rank"
    if plan.capacity_factor is not None:
        yield f"capacity_factor {plan.capacity_factor:g}: of HybridEP alone (non_blocking_capacity_factor)"
    if family.order not in _ORDERS:
        yield f"order {family.order}: pp is outermost, then copies, shards, cp and tp"
    if family.routing_nodes and subject.number("n_group") is None:
        yield f"routing_nodes {family.routing_nodes}: of the router in the model's own config"
    if family.tp_plan != "megatron":
        yield f"tp_plan {family.tp_plan}: each model splits its layers in its own way"
    yield from _lost_policy(subject)


def _lost_stages(subject: ExportSubject) -> Iterator[str]:
    plan, family = subject.plan, subject.family
    yield from lost_schedule(subject, "torch", NAME)
    if subject.layers and not _is_said(subject.layers):
        layers = f"pp_layout {subject.layers_text} with pp {plan.pp} and vpp {plan.vpp}"
        yield f"{layers}: --parallelism.module-fqns-per-model-part, module by module"
    if family.scatter_p2p:
        yield "scatter_p2p: each rank sends the next stage all that it has"
    if plan.num_micro_batches < plan.pp:
        micro = f"pp {plan.pp} with mbs {plan.micro_batch}: {plan.num_micro_batches} micro-batches"
        yield f"{micro}, and it asks for one a stage"


def _lost_policy(subject: ExportSubject) -> Iterator[str]:
    family = subject.family
    if family.recompute not in _RECOMPUTE or family.recompute_layers or family.recompute_every > 1:
        what = f"recompute {family.recompute}"
        some = " of some layers or groups" if family.recompute == "full" else " of modules"
        yield f"{what}{some}: there are selective (operator by operator), full and none"
    elif family.recompute != "none" and family.early_stop:
        yield "early_stop: recomputes to the end of a layer"
    if family.precision != NONE:
        yield f"precision {family.precision}: a converter (Float8LinearConverter, ...) in a config of its own"
    reduced = family.reduce_dtype or (family.grad_dtype if family.zero < 2 else DType.parse(subject.dtype))
    if {family.grad_dtype, reduced} != {DType.FP32}:
        yield "grad_dtype, reduce_dtype: gradients are reduced in float32"
    states = set(family.states)
    if states != {FP32} and not (family.main_params_dtype == "none" and states <= {"none", "bf16"}):
        names = "main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype"
        yield f"{names} {'/'.join(family.states)}: all in float32, or all in bfloat16 without master weights"
    if family.offload and "params" not in family.offload:
        yield f"offload {', '.join(family.offload)}: parameters, gradients and optimizer states go together"
    if subject.dtype == "fp16":
        yield "dtype fp16: bfloat16 or float32"
    if family.kernels == "fused":
        yield "kernels fused: they are PyTorch's own (kernels torch), or what torch.compile makes"
    if family.attention == "unfused":
        yield "attention unfused: it runs in one kernel"


def _left(subject: ExportSubject) -> Iterator[str]:
    if subject.model not in _CONFIGS:
        yield "--module and --config: a model of its own, with the shape of this one"
    yield "--compile.enable, data, tokenizer, learning rate, checkpoints: as the config of the model has them"
