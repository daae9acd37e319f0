"""The model of a row, from its dimensions alone, as the config that transformers builds it from."""

from __future__ import annotations

from .rows import NotJudged, Row
from .words import CaseModel, Fields, named

# What the tokenizer of the public recipes holds, where a table leaves the vocabulary out.
GPT2_VOCAB = 50257
# Rotary models have no table of positions: one config serves every length.
LONGEST = 2**20
# What Megatron-LM trains with unless told otherwise (`--attention-dropout`, `--hidden-dropout`).
DROPOUT = 0.1


def architecture(row: Row) -> CaseModel:
    """Return the model of a row; NotJudged where its kind is not one that is built here."""
    family = row.text("family") or "llama"
    if row.measured("layers") is None:
        return named(row)
    if row.measured("n_experts"):
        return _with_experts(row)
    if row.flag("mla"):
        raise NotJudged("the ranks of its latent attention are not given")
    if family == "llama":
        return CaseModel(_llama(row))
    if family == "gpt":
        return _gpt(row)
    if family == "mpt":
        # MPT as the recipes of llm-foundry set it up: GPT-2 with biases, learned positions and the exact
        # GELU.
        fields = {
            "model_type": "gpt2",
            "n_embd": row.number("hidden"),
            "n_layer": row.number("layers"),
            "n_head": row.number("heads"),
            "n_positions": row.number("seq_len"),
            "vocab_size": row.number("vocab"),
            "n_inner": row.number("ffn_hidden", 4 * row.number("hidden")),
            "tie_word_embeddings": True,
            "activation_function": "gelu",
            "attn_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "resid_pdrop": 0.0,
        }
        return CaseModel(fields)
    raise NotJudged(f"no decoder-only model of kind '{family}' is built from dimensions")


def _sizes(row: Row) -> dict[str, str | int | float | bool]:
    heads = row.number("heads")
    return {
        "hidden_size": row.number("hidden"),
        "intermediate_size": row.number("ffn_hidden", 4 * row.number("hidden")),
        "num_hidden_layers": row.number("layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": row.number("kv_heads", heads),
        "head_dim": row.number("head_dim", row.number("hidden") // heads),
        "max_position_embeddings": LONGEST,
        "tie_word_embeddings": row.flag("tied_embeddings"),
        "attention_dropout": 0.0,
    }


def _llama(row: Row) -> Fields:
    return {"model_type": "llama", **_sizes(row), "vocab_size": row.number("vocab")}


def _gpt(row: Row) -> CaseModel:
    """GPT-2, or, with fewer heads for keys than for queries, StarCoder2: the same block with rotary positions."""
    if row.flag("swiglu"):
        return CaseModel(_llama(row))
    # The vocabulary, padded as Megatron-LM does by default (`--make-vocab-size-divisible-by`).
    given = row.measured("vocab")
    vocab, assumed = (
        padded(int(given or GPT2_VOCAB), row.number("tp", 1)),
        () if given else (f"vocabulary {GPT2_VOCAB}",),
    )
    if row.number("kv_heads", row.number("heads")) < row.number("heads"):
        fields: Fields = {
            "model_type": "starcoder2",
            **_sizes(row),
            "vocab_size": vocab,
            "attention_dropout": DROPOUT,
            "residual_dropout": DROPOUT,
            "embedding_dropout": DROPOUT,
            "sliding_window": None,
        }
        return CaseModel(fields, (*assumed, "rotary positions"))
    fields = {
        "model_type": "gpt2",
        "n_embd": row.number("hidden"),
        "n_layer": row.number("layers"),
        "n_head": row.number("heads"),
        "n_positions": row.number("seq_len"),
        "vocab_size": vocab,
        "n_inner": row.number("ffn_hidden", 4 * row.number("hidden")),
        "tie_word_embeddings": not row.flag("untied_embeddings"),
        "attn_pdrop": DROPOUT,
        "embd_pdrop": DROPOUT,
        "resid_pdrop": DROPOUT,
    }
    return CaseModel(fields, assumed)


def _with_experts(row: Row) -> CaseModel:
    if row.flag("mla") and row.text("model").startswith("DeepSeek-V"):
        # DeepSeek V2 and V3 have the same ranks of latent attention, 1536 and 512: arXiv 2405.04434, 2412.19437.
        sizes = {k: v for k, v in _sizes(row).items() if k != "head_dim"}
        inner = row.number("moe_ffn_hidden")
        return CaseModel(
            {
                **sizes, "model_type": "deepseek_v3", "vocab_size": row.number("vocab"), "q_lora_rank": 1536,
                "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
                "n_routed_experts": row.number("n_experts"),
                "n_shared_experts": row.number("shared_expert_ffn", 0) // inner,
                "num_experts_per_tok": row.number("topk"),
                "moe_intermediate_size": inner, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
            },
            ("one dense layer", "routing of V3"),
        )  # fmt: skip
    if not row.flag("swiglu"):
        raise NotJudged("no model with experts without gates is built from dimensions")
    if row.flag("mla"):
        raise NotJudged("the ranks of its latent attention are not given")
    fields = {**_llama(row), "model_type": "mixtral", "num_local_experts": row.number("n_experts")}
    inner = row.number("moe_ffn_hidden", row.number("ffn_hidden"))
    return CaseModel({**fields, "intermediate_size": inner, "num_experts_per_tok": row.number("topk")})


def padded(given: int, tp: int) -> int:
    """Return a vocabulary padded to a multiple of 128 x tp.

    >>> padded(50257, 2)
    50432
    """
    multiple = 128 * tp
    return -(-given // multiple) * multiple
