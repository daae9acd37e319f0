"""A slice of `python -m benchmarks.served_lengths`: models whose attention takes lengths in chunks and blocks."""

import pytest

from slipstick.benchmarks.served_lengths import outcomes


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["llama4_text", pytest.param("deepseek_v4", marks=pytest.mark.deep)])
def test_models_of_chunks_and_blocks_are_served_at_any_length(model_type: str) -> None:
    pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    assert set(outcomes(model_type, samples=4)) == {"served"}
