"""One model type measured: traced for each workload, counted by torch, compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slipstick.ir.graph import Graph, Phase

from ..small_configs import small_config
from .counter import Counted
from .graphs import counted, of_config, traced
from .oracle import Oracle, count
from .result import WORKLOADS, Result

Pairs = Iterator[tuple[str, Counted, Counted]]
# As many blocks of tokens to choose from as are chosen, and fewer.
_QWEN4: Mapping[str, object] = {
    "hidden_size": 256, "num_hidden_layers": 2, "layer_types": ["linear_attention", "indexed_attention"],
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 8192, "num_experts": 16,
    "num_experts_per_tok": 4, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128,
    "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 64, "indexer_budget": 64,
    "indexer_compress_ratio": 4,
}  # fmt: skip
# Narrower sizes for models that are counted on real tensors, since they read which expert each token goes to, and
# windows that fit into the tokens that are counted.
_NARROW: Mapping[str, Mapping[str, object]] = {
    "jetmoe": {
        "hidden_size": 256, "intermediate_size": 512, "num_key_value_heads": 4, "kv_channels": 32, "vocab_size": 8192,
    },
    "dbrx": {
        "d_model": 512, "n_heads": 8, "vocab_size": 8192, "max_seq_len": 512,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 5e5},
        "ffn_config": {"ffn_hidden_size": 768, "moe_num_experts": 16, "moe_top_k": 4},
    },
    "deepseek_v4": {
        "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 64, "q_lora_rank": 128,
        "o_groups": 2, "o_lora_rank": 64, "n_routed_experts": 16, "moe_intermediate_size": 128, "vocab_size": 8192,
        "index_n_heads": 4, "index_head_dim": 32, "num_hash_layers": 1,
        "layer_types": ["sliding_attention", "compressed_sparse_attention", *["heavily_compressed_attention"] * 2],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
    },
    "longcat_flash": {
        "hidden_size": 512, "ffn_hidden_size": 1024, "expert_ffn_hidden_size": 256, "n_routed_experts": 16,
        "moe_topk": 4, "num_attention_heads": 8, "vocab_size": 8192,
    },
    "qwen4_exp": {"text_config": {"model_type": "qwen4_exp_text", **_QWEN4}},
    "qwen4_exp_text": _QWEN4,
}  # fmt: skip


def model_types() -> tuple[str, ...]:
    """Return every model type for which transformers has a causal language model, in order."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return tuple(sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))


def measure(model_type: str) -> list[Result]:
    """Trace and count a type."""
    return [measured(model_type)]


def failed(model_type: str, why_not: str) -> list[Result]:
    """Return what is said of a type that took too long, or whose process died."""
    return [Result(model_type, why_not=dict.fromkeys(WORKLOADS, why_not), oracle=why_not)]


def measured(model_type: str) -> Result:
    """Trace a small config of a model type and compare it with torch's own count."""
    fields = {**small_config(model_type), **_NARROW.get(model_type, {})}
    found = traced(lambda workload: of_config(model_type, fields, workload), WORKLOADS)
    oracle = count(model_type, fields)
    pairs = list(_pairs(found.graphs, oracle))
    is_traced, ours = found.graph is not None, found.num_parameters
    return Result(
        model_type=model_type,
        class_name=_class_name(model_type),
        layers=found.layers,
        num_parameters=oracle.num_parameters or ours,
        unused=max(oracle.num_parameters - ours, 0) if is_traced else 0,
        parameters_agree=_agree(oracle, ours) if is_traced else None,
        why_not=found.why_not,
        ratios={name: _ratio(a.plain_flops, b.plain_flops) for name, a, b in pairs},
        recurrences={n: _ratio(a.recurrent_flops, b.recurrent_flops) for n, a, b in pairs if b.recurrent_flops},
        oracle="real tensors" if oracle.is_real else oracle.why_not,
        plans=found.plans,
    )


def _class_name(model_type: str) -> str:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    found = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]
    return found if isinstance(found, str) else found[0]


def _agree(oracle: Oracle, ours: int) -> bool | None:
    """Exactly all parameters of the module, or all that a training step uses; None where there is no module."""
    used = oracle.num_used
    return ours in (oracle.num_parameters, used, used + oracle.num_frozen) if oracle.num_parameters else None


def _pairs(graphs: Mapping[str, Graph], oracle: Oracle) -> Pairs:
    """Yield what both sides counted, pass by pass: ours, then torch's."""
    train = graphs.get("train")
    if train is not None and oracle.forward is not None and oracle.backward is not None:
        forward, backward = counted(train, Phase.FORWARD), counted(train, Phase.BACKWARD)
        yield "forward", forward, oracle.forward
        yield "step", forward + backward, oracle.forward + oracle.backward
    for name, theirs in (("prefill", oracle.prefill), ("decode", oracle.decode)):
        if name in graphs and theirs is not None:
            yield name, counted(graphs[name], Phase.FORWARD), theirs


def _ratio(ours: int, theirs: int) -> float:
    return round(ours / theirs, 6) if theirs else 1.0 if ours == 0 else 0.0
