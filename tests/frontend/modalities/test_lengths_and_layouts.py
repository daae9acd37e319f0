"""Layouts that a model refuses, and lengths at which short examples do not do."""

from __future__ import annotations

from functools import cache

import pytest

from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.huggingface.lengths import with_source
from slipstick.frontend.loading import load_config
from slipstick.ir.errors import TraceError, UsageError
from slipstick.ir.graph import Graph, LengthBound, Workload
from slipstick.ir.types import DType
from tests.frontend.sums import flops

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

Fields = dict[str, object]

# Reads tokens and the boxes that they stand in; its positions of boxes are fp32 numbers.
BOXES: Fields = {
    "model_type": "bros", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
    "vocab_size": 50, "max_position_embeddings": 64, "dim_bbox": 8,
}  # fmt: skip
# A Fourier transform over positions and hidden numbers in place of attention.
FOURIER: Fields = {
    "model_type": "fnet", "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": 50,
    "max_position_embeddings": 96, "tpu_short_seq_length": 96,
}  # fmt: skip
RADIUS = 127
BLOCKS: Fields = {
    "model_type": "longt5", "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_decoder_layers": 1,
    "num_heads": 2, "vocab_size": 50, "local_radius": RADIUS, "tie_word_embeddings": False,
}  # fmt: skip


@cache
def blocks() -> Graph:
    return recorded(BLOCKS)


def recorded(fields: Fields, dtype: DType = DType.BF16) -> Graph:
    return load_config(config_of("mine", fields), Workload.PREFILL, dtype)


def test_the_error_is_that_of_the_layout_with_which_a_model_ran_furthest() -> None:
    # Without boxes it stops at once ("You have to specify bbox"); with them it gets to its attention.
    with pytest.raises(TraceError, match=r"attention.self.*expected scalar type torch.bfloat16"):
        recorded(BOXES)
    assert "it reads input_ids [batch, seq], bbox [batch, seq, 4]" in recorded(BOXES, DType.FP32).notes


def test_a_transform_of_an_open_length_is_recorded_at_the_longest_that_the_config_allows() -> None:
    graph = recorded(FOURIER, DType.FP32)
    assert [(b.name, b.low, b.high) for b in graph.bounds] == [("seq", 96, 96)]
    assert any("seq is fixed at 96" in note for note in graph.notes)


def test_a_source_of_blocks_is_recorded_with_many_of_them() -> None:
    graph = blocks()
    block, heads, d, d_kv, ffn = RADIUS + 1, 2, 32, 16, 64
    for num in (3, 5):
        source = num * block
        found = flops(graph).evaluate({"batch": 1.0, "src": float(source)})
        # Each block looks at itself and at those beside it; T5 1.1 has two matrices in, one out.
        encoder = source * (4 * 2 * d * heads * d_kv + 2 * 2 * heads * d_kv * 3 * block + 2 * 2 * d * ffn)
        kept = source * 2 * 2 * d * heads * d_kv
        token = 6 * 2 * d * heads * d_kv + 2 * 2 * heads * d_kv * (1 + source) + 2 * 2 * d * ffn + 2 * d * 50
        assert found == encoder + kept + token


def test_the_lengths_of_a_source_hold_for_what_a_plan_says_of_it() -> None:
    graph = blocks()
    own = [b for b in graph.bounds if b.name == "src"]
    assert own
    assert not any(b.name == "src" for b in with_source(graph).bounds)
    assert (
        LengthBound("seq", own[0].low, own[0].high, own[0].step, own[0].gaps, own[0].where) in with_source(graph).bounds
    )
    with pytest.raises(UsageError, match=r"recorded for a source of .* tokens"):
        with_source(graph, 1)
