"""Megatron-Bridge, the training of NeMo: a recipe in Python that sets what a plan says, in Megatron-LM's vocabulary.

Fields as in NVIDIA-NeMo/Megatron-Bridge at commit 067f987df03b: src/megatron/bridge/training/config.py,
mixed_precision.py and comm_overlap.py. `recipes.py` reads such functions. Fields are made of the flags that Megatron-LM
writes, by their names: a flag that is written under another one needs its place in the tables here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...ir.units import is_digits
from ..export import ExportSubject, Flag
from ..launch import plain
from ..rows import Framework, Group
from .megatron import MEGATRON

# Parts of a configuration that are not its model, with their fields.
_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "train": "micro_batch_size global_batch_size",
        "ddp": "use_distributed_optimizer use_megatron_fsdp data_parallel_sharding_strategy overlap_grad_reduce "
        "overlap_param_gather num_distributed_optimizer_instances megatron_fsdp_grad_comm_dtype",
        "optimizer": "use_precision_aware_optimizer optimizer_cpu_offload main_params_dtype exp_avg_dtype "
        "exp_avg_sq_dtype",
        "mixed_precision": "fp8 fp8_recipe fp8_param_gather fp8_dot_product_attention fp4 fp4_recipe fp4_param_gather "
        "first_last_layers_bf16 num_layers_at_start_in_bf16 num_layers_at_end_in_bf16 grad_reduce_in_fp32 "
        "reuse_grad_buf_for_mxfp8_param_ag",
        "comm_overlap": "overlap_moe_expert_parallel_comm",
        "checkpoint": "ckpt_format",
    }
)
_PART_OF = {name: part for part, names in _PARTS.items() for name in names.split()}
# Fields of other names than the flags.
_NAMES = {"fp8_format": "fp8", "fp4_format": "fp4"}
_TYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32", "fp8": "torch.uint8"}
# What a recipe sets that a plan leaves at Megatron-LM's default, taken back.
_TAKEN_BACK = (
    *(("sequence_parallel", False), ("use_distributed_optimizer", False), ("overlap_grad_reduce", False)),
    *(("overlap_param_gather", False), ("use_precision_aware_optimizer", False), ("context_parallel_size", 1)),
    *(("expert_model_parallel_size", 1), ("expert_tensor_parallel_size", None)),
    *(("virtual_pipeline_model_parallel_size", None), ("pipeline_model_parallel_layout", None)),
    *(("recompute_granularity", None), ("recompute_modules", None), ("recompute_method", None)),
    ("recompute_num_layers", None),
)
_SCRIPT = """from megatron.bridge.recipes import {base}_pretrain_config
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.mixed_precision import bf16_mixed, fp16_mixed
import torch


def {base}_pretrain_{gpus}gpu_config() -> ConfigContainer:
    cfg = {base}_pretrain_config()
    cfg.mixed_precision = {precision}()
{lines}
    return cfg
"""


def _render(subject: ExportSubject, flags: Sequence[Flag]) -> str:
    given = {_NAMES.get(name, name): value for name, value in ((plain(flag), value) for flag, value in flags)}
    dtype = "fp16_mixed" if "fp16" in given else "bf16_mixed"
    fields: dict[str, object] = {**dict(_TAKEN_BACK), "grad_reduce_in_fp32": "grad_reduce_in_bf16" not in given}
    fields |= {name: True if value is None else value for name, value in given.items() if name not in _ELSEWHERE}
    if subject.plan.vpp > 1 and "pipeline_model_parallel_layout" not in given:
        fields["virtual_pipeline_model_parallel_size"] = subject.plan.vpp
    pairs = [(f"{_PART_OF.get(name, 'model')}.{name}", _literal(name, value)) for name, value in fields.items()]
    pairs += [(f"{part}.seq_length", str(subject.plan.seq_len)) for part in ("dataset", "model")]
    lines = [f"    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap={'tp_comm_overlap' in given})"]
    lines += [f"    cfg.{path} = {text}" for path, text in pairs]
    base = re.sub(r"^(llama|qwen)_", r"\1", re.sub(r"[^a-z0-9]+", "_", subject.model.lower().replace(".", "")))
    gpus = subject.plan.num_gpus
    return _SCRIPT.format(base=base, gpus=gpus, precision=dtype, lines="\n".join(lines))


# Flags that are written in a way of their own.
_ELSEWHERE = (
    *("bf16", "fp16", "grad_reduce_in_bf16", "tp_comm_overlap", "seq_length"),
    *("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank", "no_overlap_p2p_communication"),
    "no_gradient_accumulation_fusion",
)


def _literal(name: str, value: object) -> str:
    if name.endswith("_dtype"):
        return _TYPES.get(str(value), repr(value))
    if name in ("recompute_modules", "hierarchical_context_parallel_sizes") and value is not None:
        words = str(value).split()
        return repr([int(word) if is_digits(word) else word for word in words])
    return repr(value)


MEGATRON_BRIDGE = Framework(
    name="megatron-bridge",
    title="Megatron-Bridge",
    version="NVIDIA-NeMo/Megatron-Bridge 067f987df03b",
    trains=True,
    base={**MEGATRON.base, "stack": "megatron-bridge"},
    settings="megatron",
    left=lambda subject: iter(
        (
            "the recipe that it begins with, which has the shape of the model and its data",
            f"the launch: torchrun on {subject.plan.num_gpus} GPUs, as of its scripts/training",
        )
    ),
    render=_render,
    # The shape of a model is that of the recipe which it begins with.
    rows=tuple(row for row in MEGATRON.rows if not (isinstance(row, Group) and row.words == ("model",))),
)
