"""Pipelines of families: the text of each is read as the passes that the family makes."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.benchmarks.numeric import PLANS, STEPS
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family
from slipstick.ir.types import DType
from slipstick.passes.families import pipeline_for
from slipstick.passes.manager import parse_pipeline

# Of every word a value that says nothing and one that does; names of files and modules have what a text must quote.
CHOICES: dict[str, tuple[object, ...]] = {
    "workload": tuple(Workload),
    "tp_plan": ("megatron", "auto:4", "hf"),
    "zero": (0, 3),
    "cp": ("none", "ring", "ulysses"),
    "grad_dtype": (DType.BF16, DType.FP32),
    "reduce_dtype": (None, DType.BF16),
    "mtp_num_layers": (0, 2),
    "lora_rank": (0, 16),
    "lora_modules": ((), ('a"b, c', "d}")),
    "lora_base": ("same", "nf4"),
    "lora_dropout": (0.0, 0.1),
    "attention": ("flash", "unfused"),
    "mla": ("latent", "expanded"),
    "exchange": ("alltoall", "allgather"),
    "expert_popularity": ("", "power:1.2", "of, {me}.json"),
    "redundant_experts": (0, 4),
    "dispatch_dtype": ("same", "fp8"),
    "routing_nodes": (0, 4),
    "kernels": ("plain", "torch", "compiled", "fused", "merged", "eager"),
    "precision": ("model", "fp8"),
    "precision_of": ((), (("*.q_proj", "fp8"),)),
    "published_of": ((), (("*.{v,k}", "fp8"),)),
    "kv_dtype": ("same", "fp8"),
    "bf16_first": (0, 1),
    "bf16_last": (0, 2),
    "recompute": ("none", "full", "selective"),
    "recompute_modules": ((), ("mlp",)),
    "recompute_save": ((), ("a.b", "c")),
    "recompute_save_rest": ((), ("d",)),
    "recompute_layers": (0, 3),
    "recompute_by_chunk": ("", "1,2"),
    "recompute_every": (1, 3),
    "reshard": ("layer", "step"),
    "offload": ((), ("optimizer", "params")),
    "offload_modules": ((), ("m",)),
    "main_params_dtype": ("fp32", "bf16"),
    "exp_avg_dtype": ("fp32", "fp8"),
    "exp_avg_sq_dtype": ("fp32", "int8"),
}
# What runs when, and where its ranks lie, no graph shows.
OF_NO_PASS = {"schedule", "pp_layout", "order", "placement"}
WORDS = {f.name: st.booleans() if isinstance(f.default, bool) else st.sampled_from(CHOICES[f.name])
         for f in fields(Family) if f.name not in OF_NO_PASS}  # fmt: skip


MATRIX = {f"train, {name}": kind.family for name, kind in PLANS.items()} | {
    f"{workload}, {name}": replace(kind.family, workload=workload)
    for workload in (Workload.PREFILL, Workload.DECODE)
    for name, kind in STEPS.items()
}


@pytest.mark.parametrize("name", MATRIX)
def test_the_text_of_a_kind_of_plan_is_read_as_its_passes(name: str) -> None:
    pipeline = pipeline_for(MATRIX[name])
    assert parse_pipeline(str(pipeline)) == pipeline


@given(st.builds(Family, **WORDS))
def test_the_text_of_any_family_is_read_as_its_passes(family: Family) -> None:
    pipeline = pipeline_for(family)
    assert parse_pipeline(str(pipeline)) == pipeline
