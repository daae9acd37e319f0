"""Models with ways of their own to make masks and positions; FLOPs are counted by hand from the modelling files."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest
import sympy  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._sympy.functions import FloorDiv

from slipstick.frontend.huggingface.configs.building import check_heads
from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.loading import load_config
from slipstick.frontend.record.shapes import exact_quotient
from slipstick.ir.errors import NotUnderstoodError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.sizes.expr import Expr, symbol

from ..sums import flops

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

Fields = Mapping[str, object]

b, s = symbol("batch"), symbol("seq")
D, VOCAB, LAYERS = 64, 100, 2

XLM: Fields = {
    "model_type": "xlm", "emb_dim": D, "n_layers": LAYERS, "n_heads": 4, "vocab_size": VOCAB,
    "max_position_embeddings": 64,
}  # fmt: skip
XLNET: Fields = {
    "model_type": "xlnet", "d_model": D, "n_layer": LAYERS, "n_head": 4, "d_inner": 128, "vocab_size": VOCAB,
}  # fmt: skip
CPMANT: Fields = {
    "model_type": "cpmant", "hidden_size": D, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "dim_head": 16,
    "dim_ff": 128, "vocab_size": VOCAB, "prompt_length": 8, "prompt_types": 4,
}  # fmt: skip


def recorded(fields: Fields, workload: str) -> Graph:
    return load_config(config_of("model", fields), Workload(workload))


def layer(tokens: Expr, width: int, products: int = 2) -> Expr:
    """Queries, keys, values and result; scores and what is read with them; the products of a feed-forward part."""
    projections, attention = 8 * D * D * tokens, 4 * D * tokens * tokens
    return b * (projections + attention + 2 * products * D * width * tokens)


HEAD = 2 * b * s * D * VOCAB
# XLNet's queries meet the 2s distances from s to 1 - s as well, which have keys of their own.
DISTANCES = b * (2 * D * D * (2 * s) + 2 * D * s * (2 * s))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (XLM, LAYERS * layer(s, 4 * D) + HEAD),
        (XLNET, LAYERS * (layer(s, 128) + DISTANCES) + HEAD),
        (CPMANT, LAYERS * layer(s + 8, 128, products=3) + HEAD),  # 8 prompts before the tokens, no logits of theirs
    ],
)
def test_products_of_models_with_masks_and_positions_of_their_own(fields: Fields, expected: Expr) -> None:
    assert flops(recorded(fields, "train")) == expected


def test_logits_of_the_last_token_alone() -> None:
    assert flops(recorded(CPMANT, "prefill")) == LAYERS * layer(s + 8, 128, products=3) + 2 * b * D * VOCAB


def test_heads_of_each_layer_are_looked_at() -> None:
    good, bad = ({"hidden_size": 64, "num_attention_heads": n, "num_key_value_heads": n} for n in (8, 10))
    check_heads(SimpleNamespace(is_heterogeneous=True, per_layer_config=[SimpleNamespace(**good)]))
    with pytest.raises(NotUnderstoodError, match="'num_attention_heads' 10"):
        check_heads(SimpleNamespace(is_heterogeneous=True, per_layer_config=[SimpleNamespace(**bad)]))


def divided(above: sympy.Expr, below: sympy.Expr) -> FloorDiv:
    made: object = FloorDiv(above, below, evaluate=False)
    assert isinstance(made, FloorDiv)
    return made


def polynomial(coefficients: list[int], size: sympy.Symbol) -> sympy.Expr:
    return sympy.Poly([*coefficients, 1], size).as_expr()


@settings(max_examples=20)
@given(st.lists(st.integers(1, 9), max_size=3), st.lists(st.integers(1, 9), max_size=2))
def test_a_product_divided_by_a_factor_is_the_other(one: list[int], other: list[int]) -> None:
    size = sympy.Symbol("s", positive=True, integer=True)
    p, q = polynomial(one, size), polynomial(other, size)
    found = exact_quotient(divided(sympy.expand(p * q), q))
    assert found is not None
    assert sympy.expand(found - p) == 0


def test_a_division_with_a_rest_is_no_polynomial() -> None:
    size, two = sympy.Symbol("s", positive=True, integer=True), sympy.Integer(2)
    for above in (size + 1, size**2 + size, 2 * divided(size, sympy.Integer(3))):
        assert exact_quotient(divided(above, two)) is None
