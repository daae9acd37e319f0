"""Models of every kind from configs: which class is built, what it reads, what it caches, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import slipstick
from slipstick.frontend.huggingface.configs import building
from slipstick.frontend.huggingface.configs.building import build, build_noted, check_fields
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.huggingface.lengths import with_source
from slipstick.frontend.loading import load_config
from slipstick.ir.caches import kept_caches
from slipstick.ir.errors import NotBuiltError, NotUnderstoodError, UsageError
from slipstick.ir.graph import Graph, Role, Workload
from slipstick.ir.ops.fused.attention import AttentionAttrs
from slipstick.ir.sizes.expr import symbol
from slipstick.ir.types import DType

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

Fields = Mapping[str, object]

BERT: Fields = {
    "model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "vocab_size": 100,
}  # fmt: skip
T5: Fields = {
    "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 1, "num_decoder_layers": 2,
    "num_heads": 4, "vocab_size": 100, "is_encoder_decoder": True,
}  # fmt: skip
BART: Fields = {
    "model_type": "bart", "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 100,
}  # fmt: skip
WHISPER: Fields = {
    "model_type": "whisper", "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 51865,
    "num_mel_bins": 80, "max_source_positions": 1500, "architectures": ["WhisperForConditionalGeneration"],
}  # fmt: skip
FALCON: Fields = {
    "model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "num_kv_heads": 2,
    "new_decoder_architecture": True, "vocab_size": 100,
}  # fmt: skip
GEMMA3: Fields = {
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 128, "vocab_size": 100,
    },
}  # fmt: skip


def recorded(fields: Fields, workload: str = "train") -> Graph:
    return _recorded(json.dumps(fields), workload)


@cache
def _recorded(text: str, workload: str) -> Graph:
    return load_config(config_of("mine", json.loads(text)), Workload(workload))


def built_parameters(fields: Fields) -> int:
    module = build(config_of("mine", fields).text, DType.BF16)
    return sum(p.numel() for p in module.parameters())


def attentions(graph: Graph) -> list[tuple[bool, str, str]]:
    """Whether it is causal, queries and keys of each call of attention, once for each region."""
    found = []
    for region in graph.regions:
        for node in region.nodes:
            if node.op == "attention" and isinstance(node.attrs, AttentionAttrs):
                q, k = (str(region.by_id[i].type) for i in node.inputs[:2])
                found.append((node.attrs.causal, q, k))
    return found


def test_an_encoder_is_trained_on_masked_tokens_and_sees_both_ways() -> None:
    graph = recorded(BERT, "train")
    assert graph.num_parameters == built_parameters(BERT)
    assert {causal for causal, _, _ in attentions(graph)} == {False}


def test_an_encoder_has_no_decode_step() -> None:
    with pytest.raises(NotBuiltError, match=r"BertForMaskedLM is an encoder.* ask for --phase train or prefill"):
        recorded(BERT, "decode")


def test_an_encoder_that_is_told_to_decode_is_causal() -> None:
    graph = recorded({**BERT, "is_decoder": True}, "decode")
    assert {causal for causal, _, _ in attentions(graph)} == {True}


@pytest.mark.parametrize("workload", ["train", "prefill"])
def test_an_encoder_decoder_runs_both(workload: str) -> None:
    graph = recorded(T5, workload)
    target = "seq" if workload == "train" else "1"
    assert {
        (False, "bf16[batch, 4, src, 16]", "bf16[batch, 4, src, 16]"),
        (True, f"bf16[batch, 4, {target}, 16]", f"bf16[batch, 4, {target}, 16]"),
        (False, f"bf16[batch, 4, {target}, 16]", "bf16[batch, 4, src, 16]"),
    } == set(attentions(graph))


def test_the_class_that_a_config_names_decides() -> None:
    whole, decoder = ({**BART, "architectures": [f"BartFor{kind}"]} for kind in ("ConditionalGeneration", "CausalLM"))
    assert recorded(whole, "prefill").num_parameters == built_parameters(whole)
    assert built_parameters(decoder) < built_parameters(whole)
    (note,) = recorded({**decoder, "is_encoder_decoder": False}, "prefill").notes
    # cross attention of a decoder alone: q, k, v, out of 64 x 64 with biases and a norm, in 2 layers
    unread = 2 * (4 * (64 * 64 + 64) + 2 * 64)
    assert note.startswith(f"{unread:,} of {built_parameters(decoder):,} parameters take no part in prefill")
    assert "model.decoder.layers.*.encoder_attn.v_proj" in note


def test_a_decode_step_reads_what_the_encoder_left_and_appends_nothing_to_it() -> None:
    graph = recorded(BART, "decode")
    block = next(r for r in graph.regions if r.of_role(Role.CACHE))
    caches = {v.name: str(v.type) for v in block.of_role(Role.CACHE)}
    assert caches["cache.*.keys"] == "bf16[batch, 4, kv, 16]"
    assert caches["cache.*.cross_keys"] == "bf16[batch, 4, src, 16]"
    assert sum(n.op == "kv_append" for n in block.nodes) == 2
    # keys and values of 4 heads of 16 in 2 bytes: one token more of the decoder, the encoder's as they are
    kept = sum(v.type.num_bytes for v in kept_caches(block))
    assert kept == (symbol("kv") + 1 + symbol("src")) * symbol("batch") * (2 * 4 * 16 * 2)


@pytest.mark.parametrize(("workload", "length"), [("prefill", "seq"), ("decode", "kv")])
def test_without_a_length_of_its_own_the_encoder_reads_what_the_plan_says(workload: str, length: str) -> None:
    graph = recorded(BART, workload)
    bound = with_source(graph)
    assert f"the encoder reads {length} tokens" in bound.notes
    assert not any("src" in kind for _, q, k in attentions(bound) for kind in (q, k))
    assert any(f"batch, 4, {length}, 16" in k for _, _, k in attentions(bound))


def test_the_encoder_reads_as_many_tokens_as_it_is_given() -> None:
    bound = with_source(recorded(BART, "prefill"), 512)
    assert (False, "bf16[batch, 4, 512, 16]", "bf16[batch, 4, 512, 16]") in attentions(bound)


def test_a_graph_without_an_encoder_comes_back_as_it_is() -> None:
    graph = recorded(BERT, "prefill")
    assert with_source(graph) is graph
    with pytest.raises(UsageError, match="has no encoder that reads tokens; leave it out"):
        with_source(graph, 512)


def test_a_model_that_someone_holds_has_a_source_of_its_own_length_or_of_the_decoders() -> None:
    model = build(json.dumps(dict(BART)), DType.BF16)
    assert "the encoder reads seq tokens" in slipstick.trace(model).notes
    bound = slipstick.trace(model, phase="prefill", fixed={"src": 512})
    assert (False, "bf16[batch, 4, 512, 16]", "bf16[batch, 4, 512, 16]") in attentions(bound)


def test_a_size_that_no_plan_has_is_named_with_the_flags_that_set_it() -> None:
    with pytest.raises(UsageError, match=r"open size 'src', for which no plan has a value.*--source-tokens SIZE"):
        slipstick.lower(recorded(BART), slipstick.Family())


def test_sound_has_the_length_that_the_config_fixes() -> None:
    # 30 s of sound are 3000 frames; a convolution of stride 2 leaves 1500 (Radford et al. 2022, section 2.2)
    graph = recorded(WHISPER, "prefill")
    assert graph.num_parameters == built_parameters(WHISPER)
    (sound,) = (v for r in graph.regions for v in r.of_role(Role.INPUT) if v.name == "input_features")
    assert str(sound.type) == "bf16[batch, 80, 3000]"
    assert {(causal, k) for causal, _, k in attentions(graph)} == {
        (False, "bf16[batch, 4, 1500, 16]"), (True, "bf16[batch, 4, seq, 16]"),
    }  # fmt: skip


def test_of_a_model_that_sees_the_language_model_is_taken_and_that_is_said() -> None:
    built = build_noted(config_of("mine", GEMMA3).text, DType.BF16)
    assert type(built.module).__name__ == "Gemma3ForCausalLM"
    assert built.notes == ("only the language model of 'gemma3' is in this graph ('gemma3_text'), no other part",)
    assert recorded(GEMMA3, "prefill").num_parameters == built_parameters(GEMMA3)


@pytest.mark.parametrize("workload", ["train", "decode"])
def test_old_classes_keep_their_groups_of_heads(workload: str) -> None:
    graph = recorded(FALCON, workload)
    assert graph.num_parameters == built_parameters(FALCON)
    assert {k.split(", ")[1] for _, _, k in attentions(graph)} == {"2"}
    assert graph.notes == ()


def test_old_classes_keep_their_windows() -> None:
    fields: Fields = {
        "model_type": "gpt_neo", "hidden_size": 64, "num_layers": 4, "num_heads": 4, "vocab_size": 100,
        "window_size": 32, "attention_types": [[["global", "local"], 2]],
    }  # fmt: skip
    graph = recorded(fields, "prefill")
    windows = {n.attrs.window for r in graph.regions for n in r.nodes if isinstance(n.attrs, AttentionAttrs)}
    assert windows == {0, 32}


def test_a_row_of_ids_for_each_codebook() -> None:
    decoder = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 128, "vocab_size": 100}
    graph = recorded(
        {"model_type": "musicgen", "decoder": decoder, "architectures": ["MusicgenForCausalLM"]}, "prefill"
    )
    (ids,) = (v for r in graph.regions for v in r.of_role(Role.INPUT) if v.name == "input_ids")
    assert ids.type.dims == (symbol("batch") * 4, symbol("seq"))


def test_a_model_without_a_language_model_is_the_class_without_a_head() -> None:
    fields = {"model_type": "vit", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
    assert type(build(config_of("mine", fields).text, DType.BF16)).__name__ == "ViTModel"


def test_code_of_a_repository_is_never_asked_for() -> None:
    fields = {**BERT, "auto_map": {"AutoModelForCausalLM": "somebody/thing--modeling.Thing"}}
    assert built_parameters(fields) == built_parameters(BERT)


pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

FIELDS = json.loads((Path(__file__).parents[3] / "data" / "configs" / "tiny-llama.json").read_text(encoding="utf-8"))
MOE = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 100,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip


def said(**changes: object) -> str:
    with pytest.raises(NotUnderstoodError) as caught:
        build(json.dumps(FIELDS | changes), DType.BF16)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 100_000_000}, "'num_hidden_layers' is 100000000; give a whole number from 1 to 4096"),
        ({"num_hidden_layers": "two"}, "'num_hidden_layers' is 'two'; give a whole number from 1 to 4096"),
        ({"hidden_size": -64}, "'hidden_size' is -64; give a whole number from 1 to 2147483648"),
        ({"hidden_size": 64.5}, "'hidden_size' is 64.5; give a whole number from 1 to 2147483648"),
        ({"vocab_size": True}, "'vocab_size' is True; give a whole number from 1 to 2147483648"),
        ({"num_key_value_heads": 0}, "'num_key_value_heads' is 0; give a whole number from 1 to 65536"),
        ({"d_kv": 10**12}, "'d_kv' is 1000000000000; give a whole number from 1 to 2147483648"),
        ({"qk_rope_head_dim": 10**12}, "'qk_rope_head_dim' is 1000000000000; give at most 2147483648"),
        ({"rms_norm_eps": float("inf")}, "'rms_norm_eps' is inf; give a finite number"),
        ({"architectures": "LlamaForCausalLM"}, "'architectures' is 'LlamaForCausalLM'; give a list: "),
        ({"num_experts_per_tok": 9, "num_experts": 8}, "'num_experts_per_tok' 9 is more than 'num_experts' 8; "),
        ({"text_config": {"num_hidden_layers": 0}}, "'text_config.num_hidden_layers' is 0; give a whole number"),
    ],
)
def test_a_size_out_of_bounds_is_named_with_what_is_allowed(changes: dict[str, object], words: str) -> None:
    assert said(**changes).startswith(words)


def test_heads_that_do_not_share_the_width_get_the_nearest_that_do() -> None:
    assert said(hidden_size=96, num_attention_heads=10, num_key_value_heads=2, head_dim=None) == (
        "'hidden_size' 96 is not a multiple of 'num_attention_heads' 10; give 8 or 12 heads, or a 'head_dim' of its own"
    )


def test_queries_that_do_not_share_key_value_heads_get_the_nearest_that_do() -> None:
    assert said(hidden_size=64, num_attention_heads=8, num_key_value_heads=3) == (
        "'num_attention_heads' 8 is not a multiple of 'num_key_value_heads' 3; give 2 or 4 key-value heads"
    )


def test_an_unknown_kind_of_layer_is_named() -> None:
    fields = {**MOE, "model_type": "gemma2", "layer_types": ["full_attention", "nonsense"]}
    with pytest.raises(NotUnderstoodError, match="layer_types"):
        build(json.dumps(fields), DType.BF16)


def test_sizes_that_a_model_needs_and_a_config_lacks_are_listed() -> None:
    with pytest.raises(NotUnderstoodError, match=r"sizes that are not given: .*num_key_value_heads"):
        build(json.dumps({"model_type": "nemotron", "num_hidden_layers": 2}), DType.BF16)


def test_bounds_leave_published_models_alone() -> None:
    # Llama 4 Scout: 10 485 760 positions; Llama 3.1 405B: 126 layers; Qwen4-like vocabularies of 248 320
    check_fields({"max_position_embeddings": 10_485_760, "num_hidden_layers": 126, "vocab_size": 248_320})


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.sampled_from([0, 1, 3, 7, 10**8]), st.floats(),
    st.text(max_size=8), st.lists(st.integers(0, 9), max_size=3), st.dictionaries(st.text(max_size=3), st.none()),
)  # fmt: skip


@seed(20260720)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from([FIELDS, MOE]), st.data())
def test_any_config_gives_a_model_or_one_line(fields: dict[str, object], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(set(fields) - {"model_type"})), min_size=1, max_size=3))
    changed = fields | {name: data.draw(VALUES) for name in names}
    told = _told(json.dumps(changed))
    assert "\n" not in told
    assert len(told) < 600


def _told(text: str) -> str:
    """What is said of a config that is not understood; nothing of one that is."""
    try:
        build(text, DType.BF16)
    except NotUnderstoodError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"model_type": "detr", "backbone": "microsoft/resnet-50"}, "nothing is fetched"),
        ({"model_type": "dpt", "use_pretrained_backbone": True}, "nothing is fetched"),
        ({"model_type": "upernet", "text_config": {"backbone": "x/y"}}, "nothing is fetched"),
        ({"model_type": "resnet", "depths": [100000], "hidden_sizes": [64]}, "from 1 to 4096"),
        ({"model_type": "convnext", "depths": [3000, 3000]}, "from 1 to 4096"),
        ({"model_type": "wav2vec2", "conv_dim": [512] * 100000}, "give at most 4,096"),
        ({"model_type": "bert", "num_hidden_layers": 5}, "more than 64 modules"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value)[:60],
)
def test_a_config_fetches_nothing_and_has_an_end(fields: Fields, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MAX_MODULES", 64)
    with pytest.raises(NotUnderstoodError, match=told):
        build(json.dumps(fields), DType.BF16)


@pytest.mark.parametrize("model_type", ["detr", "dpt", "upernet", "vitmatte", "llama"])
def test_no_config_opens_a_connection(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a variable says, and where the hub's library was loaded before us."""
    from huggingface_hub import constants

    opened: list[object] = []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.socket.connect", lambda _, address: opened.append(address))
    monkeypatch.setattr("socket.getaddrinfo", lambda *where, **_: opened.append(where))
    named: tuple[Fields, ...] = ({"use_timm_backbone": False}, {"backbone_config": {"model_type": "resnet"}})
    for keys in ({}, *named, {"_name_or_path": "a/b"}):
        with suppress(NotUnderstoodError):
            build(json.dumps({"model_type": model_type, **keys}), DType.BF16)
    assert opened == []
    assert constants.HF_HUB_OFFLINE is False


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        ("rope_theta", 0, 10000),
        ("sliding_window", -5, -1),
        ("attention_dropout", 1.5, 0.1),
        ("rms_norm_eps", -1e-6, 1e-6),
        ("rope_local_base_freq", -1e4, 1e4),
    ],
)
def test_numbers_that_are_no_sizes_have_ranges(name: str, value: float, legal: float) -> None:
    check_fields({name: legal})
    with pytest.raises(NotUnderstoodError, match=rf"'{name}' is {value}; give a number from "):
        check_fields({name: value})
    with pytest.raises(NotUnderstoodError, match=rf"'text_config\.{name}' is {value}; give a number from "):
        check_fields({"text_config": {name: value}})
