"""Two layers of Llama-3.1-8B, which several oracles run on both sides."""

from __future__ import annotations

import json
from typing import cast

import pytest

from slipstick.frontend import load
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.ir.graph import Graph


@pytest.fixture(scope="session")
def two_layers() -> str:
    """The config, with every size as published but the number of layers."""
    fields = cast("dict[str, object]", json.loads(read_config("llama-3.1-8b").text))
    return json.dumps(fields | {"num_hidden_layers": 2})


@pytest.fixture(scope="session")
def two_layer_graph(two_layers: str, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(two_layers, encoding="utf-8")
    return load(str(path))


@pytest.fixture
def no_packed_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without data there is nothing to look for packed sequences in."""
    transformers = pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    monkeypatch.setattr(transformers.masking_utils, "find_packed_sequence_indices", lambda position_ids: None)
