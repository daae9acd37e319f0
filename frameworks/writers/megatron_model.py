"""The shape of a model as flags of Megatron-LM's pretrain_gpt.py, from its config.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..export import ExportSubject, Flag

# Kinds of models whose layers are those of Megatron-LM's GPT with these flags.
KNOWN = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3")
_WITH_BIAS, _QK_NORM = ("qwen2",), ("qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3")
_SILU = "silu"


def shape_flags(subject: ExportSubject) -> list[Flag]:
    """Return the flags of a model's shape; nothing where its config is missing or of another kind."""
    if subject.config is None or subject.config.get("model_type") not in KNOWN:
        return []
    config = subject.config
    return [*_layers(subject, config), *_attention(subject, config), *_experts(subject, config)]


def shape_left(subject: ExportSubject) -> Iterator[str]:
    """Yield what is to be said of the model by hand."""
    if subject.config is None:
        yield "the shape of the model: it has no config.json"
        return
    kind = subject.config.get("model_type")
    if kind not in KNOWN:
        yield f"the shape of the model: '{kind}' is none of {', '.join(KNOWN)}"
        return
    scaling = subject.config.get("rope_scaling")
    if isinstance(scaling, Mapping) and scaling.get("rope_type", scaling.get("type")) not in (
        "llama3",
        "yarn",
        "default",
    ):
        yield f"rope scaling: {dict(scaling)}"
    if subject.number("num_nextn_predict_layers") and not subject.family.mtp_num_layers:
        yield "modules that predict further tokens: no part of the estimate without --mtp-num-layers"


def _layers(subject: ExportSubject, config: Mapping[str, object]) -> Iterator[Flag]:
    for flag, key in (
        ("--num-layers", "num_hidden_layers"),
        ("--hidden-size", "hidden_size"),
        ("--ffn-hidden-size", "intermediate_size"),
        ("--num-attention-heads", "num_attention_heads"),
    ):
        yield flag, subject.number(key)
    positions = max(subject.number("max_position_embeddings") or 0, subject.plan.seq_len)
    yield "--max-position-embeddings", int(positions)
    yield "--normalization", "RMSNorm"
    yield "--norm-epsilon", subject.number("rms_norm_eps")
    if config.get("hidden_act", _SILU) == _SILU:
        yield "--swiglu", None
    yield "--disable-bias-linear", None
    if not config.get("tie_word_embeddings", False):
        yield "--untie-embeddings-and-output-weights", None
    yield "--attention-dropout", subject.number("attention_dropout") or 0.0
    yield "--hidden-dropout", 0.0


def _attention(subject: ExportSubject, config: Mapping[str, object]) -> Iterator[Flag]:
    heads, groups = subject.number("num_attention_heads"), subject.number("num_key_value_heads")
    latent = subject.number("kv_lora_rank")
    if latent is not None:
        yield from _latent(subject)
    elif heads and groups and groups != heads:
        yield "--group-query-attention", None
        yield "--num-query-groups", groups
    if latent is None and (width := subject.number("head_dim")) is not None:
        yield "--kv-channels", width
    kind = config.get("model_type")
    if kind in _WITH_BIAS or config.get("attention_bias"):
        yield "--add-qkv-bias", None
    if kind in _QK_NORM:
        yield "--qk-layernorm", None
    yield "--position-embedding-type", "rope"
    yield from _rope(subject, config)


def _latent(subject: ExportSubject) -> Iterator[Flag]:
    yield "--multi-latent-attention", None
    for flag, key in (
        ("--q-lora-rank", "q_lora_rank"),
        ("--kv-lora-rank", "kv_lora_rank"),
        ("--qk-head-dim", "qk_nope_head_dim"),
        ("--qk-pos-emb-head-dim", "qk_rope_head_dim"),
        ("--v-head-dim", "v_head_dim"),
    ):
        if (value := subject.number(key)) is not None:
            yield flag, value


def _rope(subject: ExportSubject, config: Mapping[str, object]) -> Iterator[Flag]:
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    scaling = scaling if isinstance(scaling, Mapping) else {}
    base = subject.number("rope_theta") or scaling.get("rope_theta")
    if isinstance(base, int | float):
        yield "--rotary-base", int(base)
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if kind == "llama3" and isinstance(factor, int | float):
        yield "--use-rope-scaling", None
        yield "--rope-scaling-factor", factor
    elif kind == "yarn" and isinstance(factor, int | float):
        yield "--rotary-scaling-factor", factor
        for name in ("mscale", "mscale_all_dim"):
            if isinstance(value := scaling.get(name), int | float):
                yield f"--{name.replace('_', '-')}", value


def _experts(subject: ExportSubject, config: Mapping[str, object]) -> Iterator[Flag]:
    experts = subject.number("n_routed_experts", "num_local_experts", "num_experts")
    if experts is None:
        return
    yield "--num-experts", experts
    yield "--moe-router-topk", subject.number("num_experts_per_tok")
    width = subject.number("moe_intermediate_size")
    if width is not None:
        yield "--moe-ffn-hidden-size", width
    shared = subject.number("n_shared_experts")
    if shared and width:
        yield "--moe-shared-expert-intermediate-size", int(shared * width)
    dense, layers = subject.number("first_k_dense_replace"), subject.number("num_hidden_layers")
    if dense and layers:
        yield "--moe-layer-freq", f"([0]*{int(dense)}+[1]*{int(layers - dense)})"
    yield "--moe-grouped-gemm", None
    if config.get("scoring_func") == "sigmoid":
        yield "--moe-router-score-function", "sigmoid"
    if (scale := subject.number("routed_scaling_factor")) is not None:
        yield "--moe-router-topk-scaling-factor", scale
    if config.get("topk_method") == "noaux_tc":
        yield "--moe-router-enable-expert-bias", None
    groups, top = subject.number("n_group"), subject.number("topk_group")
    if groups and top and groups > 1:
        yield "--moe-router-num-groups", groups
        yield "--moe-router-group-topk", top
