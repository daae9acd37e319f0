"""The words of each function with their types, for type checkers: made from the flags of its verb.

A test compares this file with the flags; `pytest tests/cli/python --update-golden` writes it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

class PlanWords(TypedDict, total=False):
    """Words of a plan, its machine and its model."""

    plan: str | Path
    launch: str | Path
    env: str | Sequence[str] | Mapping[str, object]
    images: int
    dim: str | Sequence[str] | Mapping[str, object]
    input: str | Sequence[str]
    loss: str | Path
    fixed: str | Sequence[str] | Mapping[str, object]
    leaf: str | Sequence[str] | Mapping[str, object]
    kv_cache: str | Sequence[str]
    dtype: str
    grad_dtype: Literal["fp32", "bf16", "fp16"]
    reduce_dtype: Literal["fp32", "bf16", "fp16"]
    main_params_dtype: Literal["fp32", "fp16", "none"]
    exp_avg_dtype: Literal["fp32", "bf16", "fp16", "fp8", "int8"]
    exp_avg_sq_dtype: Literal["fp32", "bf16", "fp16", "fp8", "int8"]
    lora_rank: int
    lora_modules: str | Sequence[str]
    lora_dropout: float
    lora_base: Literal["same", "nf4", "int8"]
    mtp_num_layers: int
    tp: int
    pp: int
    vpp: int
    schedule: Literal["1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v"]
    pp_layout: str | Sequence[str]
    order: str
    cp: int
    cp_method: Literal["allgather", "ring", "ulysses"]
    cp_ulysses: int
    ep: int
    etp: int
    capacity_factor: float
    expert_imbalance: float
    ep_exchange: Literal["alltoall", "allgather"]
    dispatch_dtype: Literal["same", "fp8"]
    routing_nodes: int
    expert_popularity: str | Path
    eplb: bool
    redundant_experts: int
    sp: bool
    tp_plan: str | Path
    async_tp: bool
    replicate_unknown: bool
    zero: int
    dp_shard: int
    reshard: Literal["layer", "microbatch", "step"]
    kernels: Literal["plain", "eager", "merged", "torch", "compiled", "fused"]
    attention: Literal["flash", "unfused"]
    mla: Literal["latent", "expanded"]
    precision: Literal[
        "none",
        "fp8",
        "fp8-delayed",
        "fp8-rowwise",
        "fp8-block",
        "mxfp8",
        "int8",
        "int8-dgrad",
        "nvfp4",
        "w8a16",
        "w4a16",
        "mxfp4",
        "mxfp4-mxfp8",
        "as-published",
    ]
    precision_of: str | Sequence[str] | Mapping[str, object]
    kv_dtype: Literal["same", "fp8", "int8", "fp4"]
    fp8_param_gather: bool
    fp8_attention: bool
    fp8_output_proj: bool
    bf16_first: int
    bf16_last: int
    recompute: Literal["none", "selective", "ops", "full", "save"]
    recompute_modules: str | Sequence[str]
    recompute_layers: int
    recompute_by_chunk: str | Sequence[str]
    recompute_save: str | Sequence[str]
    recompute_save_rest: str | Sequence[str]
    recompute_every: int
    early_stop: bool
    offload: str | Sequence[str]
    offload_modules: str | Sequence[str]
    stack: str | Path
    as_of: str
    calibration: str | Path
    prices: str | Path
    year: int
    cuda_graph: bool
    set: str | Sequence[str] | Mapping[str, object]
    basis: Literal["market", "build"]
    fuse: bool
    allow_unpriced: bool
    flops_convention: Literal["full", "causal"]
    cache: bool
    quiet: bool
    verbose: bool

class EstimateWords(PlanWords, total=False):
    """Words of `estimate`."""

    phase: Literal["train", "prefill", "decode", "serve"]
    seq: int
    mbs: int
    gbs: int
    gpus: int
    dp: int
    scatter_p2p: bool
    placement: str
    tokens: str | float
    samples: str | float
    steps: str | float
    checkpoint_every: str
    checkpoint_bandwidth: str | float
    checkpoint_node_bandwidth: str | float
    checkpoint_bytes: str
    checkpoint_stall: str | float
    checkpoint_async: bool
    mtbf: str
    restart_time: str | float
    sites: int
    site_bandwidth: str | float
    site_latency: str | float
    sync_every: int
    sync_dtype: str
    sync_fragments: int
    sync_overlap: int
    rent: bool
    passes: str
    stop_after: str
    dump_after: str
    dump_dir: str
    time_passes: bool
    engine: str | Path
    sensitivity: bool
    strict: float

class ServeWords(PlanWords, total=False):
    """Words of `serve`."""

    gpus: int
    dp: int
    scatter_p2p: bool
    placement: str
    mtbf: str
    restart_time: str | float
    rent: bool
    passes: str
    stop_after: str
    dump_after: str
    dump_dir: str
    time_passes: bool
    engine: str | Path
    isl: str | float
    osl: str | float
    cached: int
    prefix_hit: float
    shared_prefix: bool
    concurrency: str | float
    request_rate: str | float
    batch: str | float
    serve: str
    kv_tiers: str | Sequence[str]
    autoscale: str
    cut: float
    inclusive_tpot: bool
    chunked_prefill: int
    max_model_len: int
    max_num_seqs: int
    block_size: int
    memory_utilization: float
    dual_batch: bool
    ttft: str
    tpot: str
    disagg: str
    prefill_system: str | Path
    prefill_tp: int
    prefill_pp: int
    prefill_ep: int
    prefill_etp: int
    prefill_batch: int
    kv_bandwidth: str | float
    stream_kv: bool
    draft: str
    draft_length: int
    mtp: int
    ngram: int
    acceptance: float
    strict: float

class SizeWords(PlanWords, total=False):
    """Words of `size`."""

    scatter_p2p: bool
    placement: str
    tokens: str | float
    samples: str | float
    steps: str | float
    checkpoint_every: str
    checkpoint_bandwidth: str | float
    checkpoint_node_bandwidth: str | float
    checkpoint_bytes: str
    checkpoint_stall: str | float
    checkpoint_async: bool
    mtbf: str
    restart_time: str | float
    sites: int
    site_bandwidth: str | float
    site_latency: str | float
    sync_every: int
    sync_dtype: str
    sync_fragments: int
    sync_overlap: int
    rent: bool
    passes: str
    stop_after: str
    dump_after: str
    dump_dir: str
    time_passes: bool
    engine: str | Path
    isl: str | float
    osl: str | float
    cached: int
    prefix_hit: float
    shared_prefix: bool
    ttft: str
    tpot: str
    chunked_prefill: int
    max_model_len: int
    max_num_seqs: int
    block_size: int
    memory_utilization: float
    dual_batch: bool
    target_rps: str | Path
    disagg: Literal["auto", "on", "off"]
    max_gpus: int
    top: int
    objective: Literal["cost", "gpus", "energy", "carbon"]
    confirm: Literal["auto", "on", "off"]
    spare: int
    by_evidence: bool

class CostWords(TypedDict, total=False):
    """Words of `cost`."""

    year: int
    basis: Literal["market", "build"]
    rent: bool
    gpus: int
    breakdown: Literal["summary", "die", "package", "system", "tco", "carbon"]
    prices: str | Path
    set: str | Sequence[str] | Mapping[str, object]

class MixedWords(PlanWords, total=False):
    """Words of `mixed`."""

    phase: Literal["train", "prefill", "decode", "serve"]
    seq: int
    mbs: int
    gbs: int
    gpus: int
    dp: int
    scatter_p2p: bool
    placement: str
    tokens: str | float
    samples: str | float
    steps: str | float
    checkpoint_every: str
    checkpoint_bandwidth: str | float
    checkpoint_node_bandwidth: str | float
    checkpoint_bytes: str
    checkpoint_stall: str | float
    checkpoint_async: bool
    mtbf: str
    restart_time: str | float
    sites: int
    site_bandwidth: str | float
    site_latency: str | float
    sync_every: int
    sync_dtype: str
    sync_fragments: int
    sync_overlap: int
    rent: bool
    passes: str
    stop_after: str
    dump_after: str
    dump_dir: str
    time_passes: bool
    stages: str
    link: str | float
    link_latency: str | float

class PosttrainWords(PlanWords, total=False):
    """Words of `posttrain`."""

    phase: Literal["train", "prefill", "decode", "serve"]
    seq: int
    mbs: int
    gbs: int
    gpus: int
    dp: int
    scatter_p2p: bool
    tokens: str | float
    samples: str | float
    steps: str | float
    checkpoint_every: str
    checkpoint_bandwidth: str | float
    checkpoint_node_bandwidth: str | float
    checkpoint_bytes: str
    checkpoint_stall: str | float
    checkpoint_async: bool
    mtbf: str
    restart_time: str | float
    sites: int
    site_bandwidth: str | float
    site_latency: str | float
    sync_every: int
    sync_dtype: str
    sync_fragments: int
    sync_overlap: int
    rent: bool
    passes: str
    stop_after: str
    dump_after: str
    dump_dir: str
    time_passes: bool
    algorithm: Literal["grpo", "ppo", "distillation", "dpo", "sft"]
    prompts: int
    group: int
    isl: str
    osl: str
    max_tokens: int
    update_batch: int
    epochs: int
    packing: bool
    leave_out: str | Sequence[str]
    teacher: str
    reward_model: str
    environment_time: str | float
    placement: Literal["colocated", "split", "async"]
    staleness: int
    engine: str | Path
    engine_gpus: int
    engine_tp: int
    offload_trainer: bool
    refit: Literal["shards", "whole"]
    find_plans: bool

class RecomputeWords(PlanWords, total=False):
    """Words of `recompute`."""

    phase: Literal["train", "prefill", "decode", "serve"]
    seq: int
    mbs: int
    gbs: int
    gpus: int
    dp: int
    scatter_p2p: bool
    placement: str
    tokens: str | float
    samples: str | float
    steps: str | float
    checkpoint_every: str
    checkpoint_bandwidth: str | float
    checkpoint_node_bandwidth: str | float
    checkpoint_bytes: str
    checkpoint_stall: str | float
    checkpoint_async: bool
    mtbf: str
    restart_time: str | float
    sites: int
    site_bandwidth: str | float
    site_latency: str | float
    sync_every: int
    sync_dtype: str
    sync_fragments: int
    sync_overlap: int
    rent: bool
    passes: str
    stop_after: str
    dump_after: str
    dump_dir: str
    time_passes: bool
    memory_limit: str
    offloading: bool
    by_stage: bool
    runs_on: Literal["megatron", "torchtitan", "maxtext", "deepspeed"]

class SearchWords(PlanWords, total=False):
    """Words of `search`."""

    phase: Literal["train", "prefill", "decode", "serve"]
    seq: int
    mbs: int
    gbs: int
    gpus: int
    dp: int
    placement: str
    rent: bool
    objective: str | Sequence[str]
    constraint: str | Sequence[str]
    fix: str | Sequence[str] | Mapping[str, object]
    vary: str | Sequence[str] | Mapping[str, object]
    space: str | Path
    trials: int
    sampler: Literal["tpe", "nsga2", "random"]
    seed: int
    trials_at_once: int
    max_memory: str
    executor: Literal["local", "processes", "ray"]
    jobs: int
    address: str
    resume: str
    runs: str | Path
    ledger: bool
    top: int
    why: bool
    engine: str | Path
    isl: str | float
    osl: str | float
    cached: int
    prefix_hit: float
    shared_prefix: bool
    ttft: str
    tpot: str
    chunked_prefill: int
    max_model_len: int
    max_num_seqs: int
    block_size: int
    memory_utilization: float
    dual_batch: bool
    pools: Literal["auto", "on", "off"]
    prefill_system: str | Path
    prefill_tp: int
    prefill_pp: int
    prefill_ep: int
    prefill_etp: int
    prefill_batch: int
    kv_bandwidth: str | float
    stream_kv: bool

class SweepWords(PlanWords, total=False):
    """Words of `sweep`."""

    phase: Literal["train", "prefill", "decode", "serve"]
    seq: int
    mbs: int
    gbs: int
    gpus: int
    dp: int
    scatter_p2p: bool
    placement: str
    tokens: str | float
    samples: str | float
    steps: str | float
    checkpoint_every: str
    checkpoint_bandwidth: str | float
    checkpoint_node_bandwidth: str | float
    checkpoint_bytes: str
    checkpoint_stall: str | float
    checkpoint_async: bool
    mtbf: str
    restart_time: str | float
    sites: int
    site_bandwidth: str | float
    site_latency: str | float
    sync_every: int
    sync_dtype: str
    sync_fragments: int
    sync_overlap: int
    passes: str
    stop_after: str
    dump_after: str
    dump_dir: str
    time_passes: bool
    trials: int
    sampler: Literal["tpe", "nsga2", "random"]
    seed: int
    trials_at_once: int
    study: str | Path
    node: str | Sequence[str]
    die_area: str | float
    power: str | float
    power_density: str | float
    chiplets: str | float
    d2d: str | Sequence[str]
    d2d_bandwidth: str | float
    join: str | Sequence[str]
    unit: str | Sequence[str]
    memory: str | Sequence[str]
    stacks: str | float
    link: str | Sequence[str]
    joint: str | Sequence[str]
    cooling: str | Sequence[str]
    packages: int
    network: str
    like: str | Path
    volume: float
    gross_margin: float
    technology: str | Path
    scaling: str
    objective: str | Sequence[str]
    pareto: bool
    top: int

class OptimiseWords(PlanWords, total=False):
    """Words of `optimise`."""

    phase: Literal["train", "prefill", "decode", "serve"]
    seq: int
    mbs: int
    gbs: int
    gpus: int
    dp: int
    placement: str
    node: str | Sequence[str]
    area: str
    die_area: str
    power: str
    memory: str | Sequence[str]
    link: str | Sequence[str]
    dies: str | Sequence[str]
    d2d: str
    d2d_bandwidth: str | float
    unit: str | Sequence[str]
    joint: str
    cooling: str | Sequence[str]
    packages: int
    network: str
    like: str | Path
    technology: str | Path
    scaling: str
    objective: str

class TopologiesWords(PlanWords, total=False):
    """Words of `topologies`."""

    phase: Literal["train", "prefill", "decode", "serve"]
    seq: int
    mbs: int
    gbs: int
    gpus: int
    dp: int
    scatter_p2p: bool
    placement: str
    tokens: str | float
    samples: str | float
    steps: str | float
    checkpoint_every: str
    checkpoint_bandwidth: str | float
    checkpoint_node_bandwidth: str | float
    checkpoint_bytes: str
    checkpoint_stall: str | float
    checkpoint_async: bool
    mtbf: str
    restart_time: str | float
    sites: int
    site_bandwidth: str | float
    site_latency: str | float
    sync_every: int
    sync_dtype: str
    sync_fragments: int
    sync_overlap: int
    rent: bool
    passes: str
    stop_after: str
    dump_after: str
    dump_dir: str
    time_passes: bool
    topologies: str | Sequence[str]
    equal: Literal["cost", "power", "bandwidth"]
    budget: str
    vary: str | Sequence[str] | Mapping[str, object]

class CompileWords(PlanWords, total=False):
    """Words of `compile`."""

    phase: Literal["train", "prefill", "decode", "serve"]
    seq: int
    mbs: int
    gbs: int
    gpus: int
    dp: int
    scatter_p2p: bool
    placement: str
    tokens: str | float
    samples: str | float
    steps: str | float
    checkpoint_every: str
    checkpoint_bandwidth: str | float
    checkpoint_node_bandwidth: str | float
    checkpoint_bytes: str
    checkpoint_stall: str | float
    checkpoint_async: bool
    mtbf: str
    restart_time: str | float
    sites: int
    site_bandwidth: str | float
    site_latency: str | float
    sync_every: int
    sync_dtype: str
    sync_fragments: int
    sync_overlap: int
    rent: bool
    passes: str
    stop_after: str
    dump_after: str
    dump_dir: str
    time_passes: bool

class TraceWords(TypedDict, total=False):
    """Words of `trace`."""

    input: str | Sequence[str]
    loss: str | Path
    fixed: str | Sequence[str] | Mapping[str, object]
    leaf: str | Sequence[str] | Mapping[str, object]
    kv_cache: str | Sequence[str]
    quiet: bool
    verbose: bool
    phase: Literal["train", "prefill", "decode"]
    dtype: str
    batch: int
    seq: int
    coverage: bool
    system: str | Path
    stack: str | Path
    dim: str | Sequence[str] | Mapping[str, object]
    allow_unpriced: bool
    cache: bool
