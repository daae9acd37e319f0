"""`load` on configs and saved graphs: what it refuses, and in which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstick.frontend import load
from slipstick.ir.errors import (
    NotBuiltError,
    NotUnderstoodError,
    ParseError,
    SlipstickError,
    TraceError,
    UnknownNameError,
)
from slipstick.ir.text.files import save_graph

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")


def changed(configs: Path, folder: Path, **changes: object) -> str:
    """Write a small config with changes and return its path."""
    fields = json.loads((configs / "tiny-llama.json").read_text(encoding="utf-8")) | changes
    file = folder / "changed.json"
    file.write_text(json.dumps(fields), encoding="utf-8")
    return str(file)


def message(kind: type[SlipstickError], model: str, workload: str = "train", dtype: str = "bf16") -> str:
    with pytest.raises(SlipstickError) as caught:
        load(model, workload, dtype)
    assert type(caught.value) is kind
    return str(caught.value)


def test_an_unknown_model_type_is_named(configs: Path, tmp_path: Path) -> None:
    said = message(NotUnderstoodError, changed(configs, tmp_path, model_type="lama"))
    assert said.startswith("transformers cannot build model type 'lama': ")


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"num_attention_heads": 5}, (NotUnderstoodError, TraceError)),
        ({"num_key_value_heads": 3}, (NotUnderstoodError, TraceError)),
        ({"hidden_size": -64}, (NotUnderstoodError,)),
        ({"num_hidden_layers": "two"}, (NotUnderstoodError,)),
        ({"hidden_act": "nothing"}, (NotUnderstoodError,)),
    ],
)
def test_sizes_that_contradict_each_other_give_a_message(
    changes: dict[str, object], kinds: tuple[type[SlipstickError], ...], configs: Path, tmp_path: Path
) -> None:
    with pytest.raises(SlipstickError) as caught:
        load(changed(configs, tmp_path, **changes))
    assert type(caught.value) in kinds
    assert len(str(caught.value)) < 500


def test_a_model_that_was_published_quantised_is_trained_whole_and_that_is_said(configs: Path, tmp_path: Path) -> None:
    given = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    graph = load(changed(configs, tmp_path, quantization_config=given))
    (note,) = graph.notes
    assert note.startswith("published quantised (fp8-block), trained here in bf16 with all weights; --precision")
    assert graph.regions == load(str(configs / "tiny-llama.json")).regions


def test_a_scheme_that_nobody_knows_is_not_trained(configs: Path, tmp_path: Path) -> None:
    file = changed(configs, tmp_path, quantization_config={"quant_method": "secret"})
    assert "quantization_config of quant_method secret, which no recipe has" in message(NotBuiltError, file)


def test_an_unknown_workload_gets_the_nearest(configs: Path) -> None:
    said = message(UnknownNameError, str(configs / "tiny-llama.json"), workload="trian")
    assert said == "unknown workload 'trian'; did you mean 'train'? allowed: decode, prefill, train"


@pytest.mark.parametrize(("dtype", "kind"), [("bf61", UnknownNameError), ("fp8", TraceError)])
def test_a_type_that_no_model_is_built_in_is_refused(dtype: str, kind: type[SlipstickError], configs: Path) -> None:
    assert dtype in message(kind, str(configs / "tiny-llama.json"), dtype=dtype)


@pytest.mark.parametrize("suffix", [".graph", ".graph.gz"])
def test_a_saved_graph_is_read_back(suffix: str, configs: Path, tmp_path: Path) -> None:
    graph = load(str(configs / "tiny-llama.json"), "decode")
    file = tmp_path / f"mine{suffix}"
    save_graph(graph, file)
    assert load(str(file), "decode") == graph
    assert message(NotUnderstoodError, str(file), "train") == (
        f"'{file}' holds a decode graph, not train; ask for --phase decode"
    )


def test_a_file_that_is_no_graph_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.graph"
    file.write_text("nonsense\n", encoding="utf-8")
    assert message(ParseError, str(file)).startswith(f"{file}: line 1: ")
