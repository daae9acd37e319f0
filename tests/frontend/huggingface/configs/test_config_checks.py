"""Configs with missing, absurd or contradictory sizes: one line that names the field, before anything is built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from slipstick.frontend.huggingface.configs.building import build
from slipstick.frontend.huggingface.configs.config_checks import check_fields
from slipstick.ir.errors import NotUnderstoodError
from slipstick.ir.types import DType

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
