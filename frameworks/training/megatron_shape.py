"""The shape of a model as Megatron-LM's flags spell it out, from and to a config.json of the nearest kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..export import ExportSubject, Flag
from ..launch import Reading, plain
from ..rows import Writing
from ..shapes import catalogue_name

# Kinds of models whose layers are those of Megatron-LM's GPT with these flags.
KNOWN = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3")
_WITH_BIAS, _QK_NORM = ("qwen2",), ("qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3")
_SILU = "silu"
_SHAPE = (
    "num_layers",
    "decoder_num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "group_query_attention",
    "num_query_groups",
    "kv_channels",
    "swiglu",
    "normalization",
    "disable_bias_linear",
    "add_qkv_bias",
    "qk_layernorm",
    "untie_embeddings_and_output_weights",
    "num_experts",
    "moe_router_topk",
    "moe_ffn_hidden_size",
    "moe_shared_expert_intermediate_size",
    "multi_latent_attention",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_head_dim",
    "qk_pos_emb_head_dim",
    "v_head_dim",
    "padded_vocab_size",
)
# Flags of latent attention, keys of a config.json, and Megatron-LM's own values.
_LATENT = (
    ("--q-lora-rank", "q_lora_rank", None),
    ("--kv-lora-rank", "kv_lora_rank", 512),
    ("--qk-head-dim", "qk_nope_head_dim", 128),
    ("--qk-pos-emb-head-dim", "qk_rope_head_dim", 64),
    ("--v-head-dim", "v_head_dim", 128),
)
# What its tokenizers pad to where a launch names no vocabulary.
_USUAL_VOCAB = 128256


def read_shape(r: Reading) -> dict[str, object] | None:
    """Return the config.json of the flags of a model's shape; None where layers, width or heads are not named."""
    layers = r.count("num_layers", "decoder_num_layers", "encoder_num_layers")
    hidden, heads = r.count("hidden_size"), r.count("num_attention_heads")
    r.understand("shape of the model", *_SHAPE)
    if not layers or not hidden or not heads:
        if catalogue_name(r.text("model") or "") is None:
            r.assume("no shape of a model: name the model with --model")
        return None
    gated, rms = r.flag("swiglu"), r.text("normalization") == "RMSNorm"
    if not (gated or rms or r.count("num_experts", least=0) or r.flag("multi_latent_attention")):
        return _gpt(r, layers, hidden, heads)
    config: dict[str, object] = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": r.count("num_query_groups") or heads,
        "intermediate_size": r.count("ffn_hidden_size") or (8 * hidden // 3 + 63) // 64 * 64
        if gated
        else r.count("ffn_hidden_size") or 4 * hidden,
        "vocab_size": _vocabulary(r),
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": not r.flag("untie_embeddings_and_output_weights"),
        "max_position_embeddings": max(r.count("max_position_embeddings") or 0, r.count("seq_length") or 0, 2048),
    }
    if width := r.count("kv_channels"):
        config["head_dim"] = width
    if not gated:
        r.assume("gated SiLU in the place of its activation: the nearest kind of layer has one")
    return _with_experts(r, config, layers)


def _gpt(r: Reading, layers: int, hidden: int, heads: int) -> dict[str, object]:
    """GPT of LayerNorm, GELU and biases, as GPT-2's config.json has it."""
    r.understand("positions up to the longest sequence", "max_position_embeddings")
    return {
        "model_type": "gpt2",
        "n_layer": layers,
        "n_embd": hidden,
        "n_head": heads,
        "n_inner": r.count("ffn_hidden_size") or 4 * hidden,
        "vocab_size": _vocabulary(r, 51200),
        "n_positions": max(r.count("max_position_embeddings") or 0, r.count("seq_length") or 0, 1024),
        "activation_function": "gelu_pytorch_tanh",
        "architectures": ["GPT2LMHeadModel"],
        "tie_word_embeddings": not r.flag("untie_embeddings_and_output_weights"),
    }


def _with_experts(r: Reading, config: dict[str, object], layers: int) -> dict[str, object]:
    """Name the kind of the layers: latent attention, experts, norms of queries and keys, biases."""
    experts, latent = r.count("num_experts", least=0), r.flag("multi_latent_attention")
    width = r.count("moe_ffn_hidden_size")
    if latent:
        shared, each = r.count("moe_shared_expert_intermediate_size", least=0), width or r.count("ffn_hidden_size") or 1
        return config | {
            "model_type": "deepseek_v3",
            "architectures": ["DeepseekV3ForCausalLM"],
            **{key: r.count(plain(flag)) or usual for flag, key, usual in _LATENT},
            "num_key_value_heads": config["num_attention_heads"],
            "n_routed_experts": experts or 1,
            "num_experts_per_tok": r.count("moe_router_topk") or 1,
            "moe_intermediate_size": each,
            "n_shared_experts": max(1, (shared or each) // each),
            "first_k_dense_replace": _dense(r, layers) if experts else layers,
            "n_group": r.count("moe_router_num_groups") or 1,
            "topk_group": r.count("moe_router_group_topk") or 1,
        }
    if experts and width and width != config["intermediate_size"]:
        shared = r.count("moe_shared_expert_intermediate_size", least=0)
        if shared:
            r.assume(f"shared experts of width {shared} are left out of the shape: name the model with --model")
        return config | {
            "model_type": "qwen3_moe",
            "architectures": ["Qwen3MoeForCausalLM"],
            "num_experts": experts,
            "num_experts_per_tok": r.count("moe_router_topk") or 2,
            "moe_intermediate_size": width,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": list(range(_dense(r, layers))),
        }
    if experts:
        return config | {
            "model_type": "mixtral",
            "architectures": ["MixtralForCausalLM"],
            "num_local_experts": experts,
            "num_experts_per_tok": r.count("moe_router_topk") or 2,
        }
    if r.flag("qk_layernorm"):
        return config | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    if r.flag("add_qkv_bias"):
        return config | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    return config | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def _dense(r: Reading, layers: int) -> int:
    """Return how many of the first layers have no experts, by `--moe-layer-freq ([0]*3+[1]*58)`."""
    freq = (r.text("moe_layer_freq") or "1").replace(" ", "").strip("()")
    match = re.fullmatch(r"(?:\[0\]\*([0-9]{1,5})\+)?\[1\](?:\*[0-9]{1,5})?|1", freq)
    # Experts in other layers than the last are a shape that no config.json of these says.
    r.understand("shape of the model", *(["moe_layer_freq"] if match else []))
    return min(int(match[1]), layers) if match and match[1] else 0


def _vocabulary(r: Reading, usual: int = _USUAL_VOCAB) -> int:
    size = r.count("padded_vocab_size", "vocab_size")
    if size is None:
        r.assume(f"vocabulary of {usual:,}: the launch leaves it to its tokenizer")
        return usual
    r.understand("shape of the model", "vocab_size", "padded_vocab_size")
    return size


def write_shape(w: Writing) -> None:
    """Write the flags of a model's shape; nothing where its config is missing or of another kind."""
    subject, config = w.subject, w.subject.config
    if config is not None and config.get("model_type") in KNOWN:
        w.flags += [*_layers(subject, config), *_attention(subject, config), *_experts(subject, config)]


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
    for flag, key, _ in _LATENT:
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
