"""The measured time of a step: given, or from a rate under the convention of its source."""

from __future__ import annotations

from ..rows.rows import NotJudged, Row

# Recomputing the forward phase of the layers adds a third to the FLOPs of forward and backward.
AGAIN = 4.0 / 3.0


def step_s(row: Row, peak_flop_per_s: float) -> float:
    """Return the seconds of a step; NotJudged where nothing of a row gives them.

    In this order: the step itself, a step that was derived for the table, tokens or samples a second, model FLOP/s,
    FLOP/s with recomputation, MFU, HFU. `peak_flop_per_s` is the dense peak of 16-bit products, which every source of
    an MFU divides by.
    """
    given = row.measured("step_time_s") or row.measured("step_time_s_derived")
    if given is not None:
        return given
    rates = (_by_tokens(row), _by_samples(row), _by_flops(row, peak_flop_per_s))
    found = next((seconds for seconds in rates if seconds is not None), None)
    if found is None:
        raise NotJudged("it gives no time, no rate and no utilisation of a step")
    return found


def model_flops(row: Row) -> float:
    """Return the FLOPs of one step, forward and backward, attention over the full square of the sequence.

    6 x (tokens) x (weights of products + 2 layers x seq x heads x head_dim): for a GPT with an MLP of four times the
    hidden size 72 B s l h^2 (1 + s / 6h + V / 12 l h), as in arXiv 2104.04473 and 2205.05198.
    """
    return _tokens(row) * 6.0 * (_layer_weights(row) * row.number("layers") + _head(row) + _scores(row))


def hardware_flops(row: Row) -> float:
    """Return the same with the forward phase of every layer run twice: 96 B s l h^2 (1 + s / 6h + V / 16 l h)."""
    again = AGAIN if row.text("activation_recompute").startswith("full") else 1.0
    layers = _layer_weights(row) * row.number("layers") + _scores(row)
    return _tokens(row) * 6.0 * (again * layers + _head(row))


def _by_tokens(row: Row) -> float | None:
    rate = row.measured("tokens_per_s_per_gpu")
    return None if rate is None else _tokens(row) / (rate * row.number("n_gpus"))


def _by_samples(row: Row) -> float | None:
    rate = row.measured("samples_per_s")
    return None if rate is None else row.number("global_batch") / rate


def _by_flops(row: Row, peak_flop_per_s: float) -> float | None:
    gpus = row.number("n_gpus")
    for column, unit, flops in (
        ("model_tflops_per_gpu", 1e12, model_flops), ("hw_tflops_per_gpu", 1e12, hardware_flops),
        ("mfu_pct", peak_flop_per_s / 100.0, model_flops), ("hfu_pct", peak_flop_per_s / 100.0, hardware_flops),
    ):  # fmt: skip
        rate = row.measured(column)
        if rate is not None:
            return flops(row) / (rate * unit * gpus)
    return None


def _tokens(row: Row) -> float:
    return float(row.number("global_batch") * row.number("seq_len"))


def _layer_weights(row: Row) -> float:
    hidden, heads = row.number("hidden"), row.number("heads")
    head_dim = row.number("head_dim", hidden // heads)
    attention = 2 * hidden * head_dim * (heads + row.number("kv_heads", heads))
    matrices = 2 if row.text("family") in ("gpt", "mpt") and not row.flag("swiglu") else 3
    return float(attention + matrices * hidden * row.number("ffn_hidden", 4 * hidden))


def _head(row: Row) -> float:
    return float(row.number("hidden") * row.number("vocab"))


def _scores(row: Row) -> float:
    """Products of queries with keys and of scores with values: 2 x seq x width a token, as weights count."""
    heads = row.number("heads")
    width = heads * row.number("head_dim", row.number("hidden") // heads)
    return 2.0 * row.number("layers") * row.number("seq_len") * width
