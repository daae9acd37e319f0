"""Flags of Megatron-LM's pretrain scripts, and the same as a mapping in YAML, into the words of a plan.

Names and defaults as in NVIDIA/Megatron-LM at commit d98e8a64ddf3: megatron/training/arguments.py. Experts lie inside
data parallelism: data parallelism x context parallelism x tp is a multiple of ep x etp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ...ir.errors import ParseError, UsageError
from ..launch import MOST_STAGES, Launch, Reading, Value
from ..shapes import catalogue_name, layers_of
from .megatron_shape import read_shape

NAME = "megatron"
_CP: Mapping[str, str] = MappingProxyType(
    {"p2p": "ring", "all_gather": "allgather", "allgather": "allgather", "a2a": "ulysses", "a2a+p2p": "ring"}
)
_FP8: Mapping[str, str] = MappingProxyType(
    {"tensorwise": "fp8", "delayed": "fp8-delayed", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
)
_SHARDING: Mapping[str, int] = MappingProxyType({"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3})
_MODULE_NAMES: Mapping[str, str] = MappingProxyType({"moe_act": "mlp_act"})


def megatron(given: Mapping[str, Value], shown: Mapping[str, str], num_gpus: int | None = None) -> Launch:
    """Return a launch of Megatron-LM; ParseError for values that are none of a flag's.

    Args:
        given: settings by plain name.
        shown: how each stands in the launch.
        num_gpus: devices of the launch, where it or its user says; else as few as the degrees need.
    """
    r = Reading(NAME, given, shown)
    _check_trains(r)
    r.words["phase"], r.words["stack"] = "train", "megatron-core"
    _parallel(r)
    _batches(r, num_gpus)
    _optimizer(r)
    _recompute(r)
    _precision(r)
    _overlap(r)
    if r.text("attention_backend") == "unfused":
        r.say("attention", "unfused", "attention_backend")
    if r.has("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph"):
        on = (
            r.text("cuda_graph_impl") not in (None, "none")
            or r.flag("enable_cuda_graph")
            or r.flag("external_cuda_graph")
        )
        r.say("cuda_graph", on or None, "cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph")
    r.config = read_shape(r)
    if r.config is None and (spelled := r.text("model")) is not None:
        r.say("model", catalogue_name(spelled) or spelled.removesuffix(".yaml"), "model", "vocab_size")
    r.understand("name of the model", "model")
    return r.done("megatron")


def _check_trains(r: Reading) -> None:
    """Refuse what is no training of all weights: generation, reinforcement learning, adapters."""
    generates = ("num_tokens_to_generate", "inference_max_seq_length", "inference_max_requests", "prompts", "top_k")
    others = (
        ("generates text", generates),
        ("trains by reinforcement", ("perform_rl_step",)),
        ("trains adapters", ("lora.enabled", "peft", "lora_rank")),
        ("trains images", ("vae_scale", "model_type")),
    )
    for what, names in others:
        if name := next((name for name in names if r.has(name) and r.text(name) not in ("False", "GPT")), None):
            raise UsageError(f"{r.shown(name)}: this launch of Megatron-LM {what}; a launch that trains is read")


def _parallel(r: Reading) -> None:
    tp = r.count("tensor_model_parallel_size", "model_parallel_size") or 1
    r.say("tp", tp, "tensor_model_parallel_size", "model_parallel_size")
    r.say("sp", r.flag("sequence_parallel") and tp > 1, "sequence_parallel", "no_sequence_parallel")
    pp = r.count("pipeline_model_parallel_size", most=MOST_STAGES) or 1
    r.say("pp", pp, "pipeline_model_parallel_size", "transformer_pipeline_model_parallel_size")
    if pp > 1:
        _stages(r, pp)
    r.understand(
        "of one stage",
        "virtual_pipeline_model_parallel_size",
        "pipeline_model_parallel_layout",
        *(name for name in ("num_layers_per_virtual_pipeline_stage",) if pp == 1),
    )
    cp = r.count("context_parallel_size") or 1
    r.say("cp", cp if cp > 1 else None, "context_parallel_size")
    if cp > 1:
        kind = (r.text("cp_comm_type") or "p2p").split()[0]
        if kind not in _CP:
            raise ParseError(f"--cp-comm-type: '{kind}' is none of {', '.join(_CP)}")
        r.say("cp_method", _CP[kind], "cp_comm_type")
        sizes = re.findall(r"[0-9]+", r.text("hierarchical_context_parallel_sizes") or "")
        if kind == "a2a+p2p" and sizes:
            r.say("cp_ulysses", int(sizes[0]), "hierarchical_context_parallel_sizes")
    r.understand("of one rank", *(n for n in ("cp_comm_type", "hierarchical_context_parallel_sizes") if cp == 1))
    if r.flag("use_tp_pp_dp_mapping"):
        r.say("order", "tp-cp-ep-pp-dp", "use_tp_pp_dp_mapping")
    if r.flag("no_scatter_gather_tensors_in_pipeline") and tp > 1 and not r.words["sp"]:
        r.say("scatter_p2p", False, "no_scatter_gather_tensors_in_pipeline")
    r.understand("of stages", "no_scatter_gather_tensors_in_pipeline", "use_tp_pp_dp_mapping")
    _experts(r, tp)


def _stages(r: Reading, pp: int) -> None:
    """Chunks of stages by their number, their layers, or a layout."""
    vpp = r.count("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    per_chunk, layers = r.count("num_layers_per_virtual_pipeline_stage"), r.count("num_layers")
    layers = layers or layers_of(r.text("model") or "")
    if per_chunk and layers:
        if layers % (pp * per_chunk):
            raise ParseError(f"{layers} layers are no multiple of {pp} stages x {per_chunk} layers a chunk")
        vpp = layers // (pp * per_chunk)
    layout = r.text("pipeline_model_parallel_layout")
    if layout:
        chunks = layers_of_layout(layout)
        if len(chunks) % pp:
            raise ParseError(f"--pipeline-model-parallel-layout has {len(chunks)} chunks: no multiple of pp={pp}")
        vpp = len(chunks) // pp
        if "m" in layout.rpartition("|")[0]:
            r.assume("modules of multi-token prediction lie on the last stage: the layout has them on another one")
        r.say("pp_layout", ",".join(map(str, chunks)), "pipeline_model_parallel_layout")
    r.say(
        "vpp",
        vpp if vpp and vpp > 1 else None,
        "num_virtual_stages_per_pipeline_rank",
        "virtual_pipeline_model_parallel_size",
        "num_layers_per_virtual_pipeline_stage",
    )
    first, last = r.count("decoder_first_pipeline_num_layers"), r.count("decoder_last_pipeline_num_layers")
    if layers and pp > 1 and (first or last) and not layout:
        middle = pp - (first is not None) - (last is not None)
        each = (layers - (first or 0) - (last or 0)) // max(middle, 1)
        inner = [each] * middle
        named = [*([first] if first else []), *inner, *([last] if last else [])]
        if sum(named) == layers:
            r.say(
                "pp_layout",
                ",".join(map(str, named)),
                "decoder_first_pipeline_num_layers",
                "decoder_last_pipeline_num_layers",
            )


def layers_of_layout(text: str) -> tuple[int, ...]:
    """Return layers of each chunk of `--pipeline-model-parallel-layout`.

    >>> layers_of_layout("Et*7|(t*8|)*2t*7L"), layers_of_layout("Et|(tt|)*2L")
    ((7, 8, 8, 7), (1, 2, 2, 0))
    """
    if len(text) > MOST_STAGES:
        raise ParseError(f"--pipeline-model-parallel-layout '{text[:60]}': more than {MOST_STAGES:,} characters")
    for _ in range(100):
        opened = re.sub(r"\(([^()]*)\)\*([0-9]{1,4})", lambda m: m[1] * int(m[2]), text)
        if opened == text or len(opened) > MOST_STAGES:
            break
        text = opened
    if len(text) + sum(map(int, re.findall(r"\*([0-9]{1,5})", text))) > 10 * MOST_STAGES:
        raise ParseError(f"--pipeline-model-parallel-layout '{text[:60]}': more than {10 * MOST_STAGES:,} layers")
    single = re.sub(r"(\w)\*([0-9]{1,5})", lambda m: m[1] * int(m[2]), text.replace(",", ""))
    if re.search(r"[^EtmLd|]", single):
        raise ParseError(
            f"--pipeline-model-parallel-layout '{text[:60]}': E, t, m, L, |, brackets and repeats are known"
        )
    return tuple(chunk.count("t") + chunk.count("d") for chunk in single.split("|"))


def _experts(r: Reading, tp: int) -> None:
    ep = r.count("expert_model_parallel_size") or 1
    r.say("ep", ep if ep > 1 else None, "expert_model_parallel_size")
    etp = r.count("expert_tensor_parallel_size")
    has = bool(r.count("num_experts", "num_local_experts", least=0))
    r.say("etp", etp if has and etp is not None and etp != tp else None, "expert_tensor_parallel_size")
    dispatcher = r.text("moe_token_dispatcher_type") or "allgather"
    if dispatcher not in ("allgather", "alltoall", "flex", "alltoall_seq"):
        raise ParseError(f"{r.shown('moe_token_dispatcher_type')}: '{dispatcher}' is none of allgather, alltoall, flex")
    r.understand("all-to-all of rows", "moe_token_dispatcher_type")
    if dispatcher == "allgather" and ep > 1 and has:
        r.assume("rows of experts go by all-to-all: in training no other exchange is modelled, the launch gathers all")
    if dispatcher == "flex":
        r.assume("kernels of DeepEP or HybridEP take as long as an all-to-all of the same bytes")
        r.understand("all-to-all", "moe_flex_dispatcher_backend", "moe_enable_deepep")
    if r.flag("moe_pad_expert_input_to_capacity") or r.has("moe_expert_capacity_factor"):
        factor = r.real("moe_expert_capacity_factor")
        r.say(
            "capacity_factor", factor if has else None, "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity"
        )


def _batches(r: Reading, num_gpus: int | None) -> None:
    mbs = r.count("micro_batch_size", "batch_size") or 1
    r.say("mbs", mbs, "micro_batch_size", "batch_size")
    seq = r.count("seq_length", "encoder_seq_length", "decoder_seq_length")
    if seq is None:
        r.assume("seq 4096: the launch names no --seq-length")
        seq = 4096
    r.say("seq", seq, "seq_length", "encoder_seq_length", "decoder_seq_length")
    tp, pp, cp = (int(str(r.words.get(name, 1))) for name in ("tp", "pp", "cp"))
    ep, etp = int(str(r.words.get("ep", 1))), int(str(r.words.get("etp", tp)))
    # Experts' ranks lie over tp x cp x dp of a stage.
    replicas = max(1, -(-ep * etp // (tp * cp)))
    replicas *= r.count("num_distributed_optimizer_instances") or 1
    if num_gpus is None:
        num_gpus = tp * pp * cp * replicas
        r.assume(f"gpus {num_gpus}: the launch names no number of nodes; say --gpus N for the one that runs")
    if num_gpus % (tp * pp * cp):
        raise ParseError(f"{num_gpus} GPUs are no multiple of tp {tp} x pp {pp} x cp {cp}")
    r.words["gpus"] = num_gpus
    gbs = r.count("global_batch_size")
    if gbs is None:
        gbs = mbs * num_gpus // (tp * pp * cp)
        r.assume(f"gbs {gbs}: without --global-batch-size a step is one micro-batch a replica")
    r.say("gbs", gbs, "global_batch_size")


def _optimizer(r: Reading) -> None:
    """The distributed optimizer is ZeRO 1; Megatron-FSDP shards what its strategy says."""
    zero = int(r.flag("use_distributed_optimizer"))
    if r.flag("use_megatron_fsdp") or r.flag("use_custom_fsdp") or r.flag("use_torch_fsdp2"):
        usual = "optim_grads_params" if r.flag("use_torch_fsdp2") else "no_shard"
        strategy = r.text("data_parallel_sharding_strategy") or usual
        if strategy not in _SHARDING:
            raise ParseError(f"--data-parallel-sharding-strategy: '{strategy}' is none of {', '.join(_SHARDING)}")
        zero = _SHARDING[strategy]
    r.say(
        "zero",
        zero,
        "use_distributed_optimizer",
        "use_megatron_fsdp",
        "use_custom_fsdp",
        "use_torch_fsdp2",
        "data_parallel_sharding_strategy",
        "fsdp_double_buffer",
    )
    if zero > 1:
        r.understand("as Megatron-FSDP adds gradients", "no_gradient_accumulation_fusion")
    copies = r.count("num_distributed_optimizer_instances") or 1
    if copies > 1 and zero:
        tp, pp, cp = (int(str(r.words.get(name, 1))) for name in ("tp", "pp", "cp"))
        r.say("dp_shard", int(str(r.words["gpus"])) // (tp * pp * cp) // copies, "num_distributed_optimizer_instances")
    for word in ("main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
        dtype = r.text(word)
        r.say(word, dtype if dtype not in (None, "fp32") else None, word)
    reduced = r.flag("grad_reduce_in_bf16")
    r.say("grad_dtype", "bf16" if reduced else None, "grad_reduce_in_bf16")
    sent = r.text("megatron_fsdp_grad_comm_dtype")
    r.say("reduce_dtype", sent if zero > 1 and sent != "auto" else None, "megatron_fsdp_grad_comm_dtype")
    sums = r.text("main_grads_dtype")
    r.say("grad_dtype", "bf16" if reduced or sums == "bf16" else None, "main_grads_dtype")
    moved = {
        "optimizer": r.flag("optimizer_cpu_offload"),
        "activations": bool(r.count("cpu_offloading_num_layers", least=0)),
    }
    away = [word for word, is_away in moved.items() if is_away]
    r.say("offload", ",".join(away) or None, "optimizer_cpu_offload", "cpu_offloading_num_layers")


_OVERLAPS = (
    "overlap_grad_reduce",
    "overlap_param_gather",
    "overlap_moe_expert_parallel_comm",
    "no_overlap_p2p_communication",
    "overlap_p2p_communication",
)


def _overlap(r: Reading) -> None:
    """Messages that the launch leaves in the open: Megatron-LM hides none of its gradients unless it is told to."""
    tp, pp = int(str(r.words["tp"])), int(str(r.words["pp"]))
    replicas = int(str(r.words["gpus"])) // (tp * pp)
    changed: list[str] = []
    if replicas > 1 and not r.flag("overlap_grad_reduce") and r.words["zero"] in (0, 1):
        changed.append("stack.overlap.dp=0")
        r.assume("sums of gradients are not hidden: the launch has no --overlap-grad-reduce")
    elif replicas > 1 and r.words["zero"] == 1 and not r.flag("overlap_param_gather"):
        r.assume("gathers of parameters are hidden as sums of gradients are: the launch has no --overlap-param-gather")
    if int(str(r.words.get("vpp", 1))) > 1 and r.flag("no_overlap_p2p_communication"):
        changed.append("stack.overlap.pp=0")
    if r.flag("overlap_moe_expert_parallel_comm") and "ep" in r.words:
        changed.append("stack.overlap.batches=0.9")
        r.assume("0.9 of experts' messages hide behind another micro-batch, as fitted to stack megatron-bridge-batches")
    if changed:
        r.words["set"] = changed
    r.understand(f"overlap of the stack, {', '.join(changed) or 'as it was measured'}", *_OVERLAPS)
    in_tiles = r.flag("tp_comm_overlap") and tp > 1 and bool(r.words["sp"])
    r.say("async_tp", in_tiles or None, "tp_comm_overlap")


def _recompute(r: Reading) -> None:
    kind = r.text("recompute_granularity")
    if r.flag("recompute_activations"):
        kind = kind or "selective"
    if kind not in (None, "selective", "full"):
        raise ParseError(f"--recompute-granularity: '{kind}' is none of full, selective")
    names = ("recompute_granularity", "recompute_activations")
    r.say("recompute", kind, *names)
    if kind == "selective":
        modules = [
            _MODULE_NAMES.get(word, word) for word in re.findall(r"[\w.]+", r.text("recompute_modules") or "core_attn")
        ]
        r.say("recompute_modules", ",".join(modules), "recompute_modules")
    if kind == "full":
        method, number = r.text("recompute_method"), r.count("recompute_num_layers") or 1
        word = "recompute_layers" if method == "block" else "recompute_every"
        r.say(word, number if method == "block" or number > 1 else None, "recompute_method", "recompute_num_layers")
    r.understand(
        "of no recomputation",
        "recompute_method",
        "recompute_num_layers",
        "recompute_modules",
    )


def _precision(r: Reading) -> None:
    named = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(r.text("params_dtype") or "")
    dtype = "bf16" if r.flag("bf16") else "fp16" if r.flag("fp16") else named or "fp32"
    if dtype == "fp32" and r.has("fp8_format", "fp8", "fp8_hybrid", "fp8_e4m3"):
        dtype = "bf16"
    r.say("dtype", dtype, "bf16", "fp16", "fp32", "params_dtype")
    fmt = r.text("fp8_format", "fp8") or ("hybrid" if r.flag("fp8_hybrid") or r.flag("fp8_e4m3") else None)
    if fmt and fmt.lower() not in ("none", "null", "false"):
        recipe = r.text("fp8_recipe") or "delayed"
        r.say(
            "precision",
            _FP8.get(recipe),
            *(("fp8_recipe",) if recipe in _FP8 else ()),
            "fp8_format",
            "fp8",
            "fp8_hybrid",
            "fp8_e4m3",
        )
    elif r.has("fp4_format", "fp4"):
        is_mx = "mx" in f"{r.text('fp4_format', 'fp4')} {r.text('fp4_recipe')}"
        r.say("precision", "mxfp4" if is_mx else "nvfp4", "fp4_format", "fp4", "fp4_recipe")
    r.say("mtp_num_layers", r.count("mtp_num_layers", least=0) or None, "mtp_num_layers")
    on = "precision" in r.words
    gathers = ("fp8_param_gather", "fp8_param", "fp4_param_gather", "fp4_param")
    r.say("fp8_param_gather", (any(map(r.flag, gathers)) and on) or None, *gathers)
    r.say("fp8_attention", (r.flag("fp8_dot_product_attention") and on) or None, "fp8_dot_product_attention")
    r.say("fp8_output_proj", (r.flag("fp8_output_proj") and on) or None, "fp8_output_proj")
    edges = r.flag("first_last_layers_bf16") and on
    for word, name in (("bf16_first", "num_layers_at_start_in_bf16"), ("bf16_last", "num_layers_at_end_in_bf16")):
        number = r.count(name, least=0)
        r.say(word, (1 if number is None else number) if edges else None, name, "first_last_layers_bf16")
