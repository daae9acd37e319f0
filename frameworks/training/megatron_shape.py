"""The shape of a model as Megatron-LM's flags spell it out, as a config.json of the nearest kind of transformers."""

from __future__ import annotations

from ..launch import Reading
from ..shapes import catalogue_name

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
            "q_lora_rank": r.count("q_lora_rank"),
            "kv_lora_rank": r.count("kv_lora_rank") or 512,
            "qk_nope_head_dim": r.count("qk_head_dim") or 128,
            "v_head_dim": r.count("v_head_dim") or 128,
            "qk_rope_head_dim": r.count("qk_pos_emb_head_dim") or 64,
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
    import re

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
