"""Graphs that come in: admitted, or refused as what their file says; what our own passes break stays our fault."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from slipstick import cli
from slipstick.frontend import loading
from slipstick.ir.errors import InternalError, NotUnderstoodError, VerifyError
from slipstick.ir.graph import Graph
from slipstick.passes import manager

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
PLAN = ("--system", "dgx-h100", "--gpus", "8", "--tp", "1", "--gbs", "8", "--seq", "128")


def changed(folder: Path, name: str, key: str, value: object) -> str:
    """Write a config with another value under a key."""
    fields = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    path = folder / "changed.json"
    path.write_text(json.dumps({**fields, key: value}), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("tiny-bamba", "mamba_chunk_size", -1),
        ("tiny-mamba2", "chunk_size", -1),
        ("tiny-deepseek", "kv_lora_rank", 0),
        ("tiny-deepseek", "q_lora_rank", 2**31),
        ("tiny-llama", "hidden_size", 2**63),
        ("tiny-mixtral", "num_local_experts", "x"),
    ],
)
def test_a_config_is_admitted_or_refused_as_the_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, key: str, value: object
) -> None:
    code = cli.run(["estimate", changed(tmp_path, name, key, value), *PLAN])
    said = capsys.readouterr().err
    assert code in (0, 3, 4), said
    assert "please report" not in said


@pytest.mark.parametrize("model", ["changed.json", "changed.onnx"])
@pytest.mark.parametrize("error", [VerifyError("a rule is broken"), ZeroDivisionError(), MemoryError()])
def test_what_reading_stumbles_over_is_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, error: Exception
) -> None:
    def fail(*asked: object) -> Graph:
        raise error

    path = changed(tmp_path, "tiny-llama", "vocab_size", 64) if model.endswith("json") else str(tmp_path / model)
    monkeypatch.setattr(loading, "_LOADERS", dict.fromkeys(loading._LOADERS, fail))
    with pytest.raises(NotUnderstoodError, match="changed"):
        loading.load(path)
    with pytest.raises(type(error)):
        loading.load("llama-3.1-8b")  # what the package holds is no file of a user


def test_a_pass_that_breaks_an_admitted_graph_is_our_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(graph: Graph, after: str, verified: Graph | None) -> None:
        raise VerifyError(f"graph '{graph.name}' after pass '{after}' breaks 1 rule")

    monkeypatch.setattr(manager, "verify", fail)
    assert cli.run(["estimate", changed(tmp_path, "tiny-llama", "vocab_size", 64), *PLAN]) == InternalError.exit_code
    assert "please report" in capsys.readouterr().err


def test_an_onnx_file_whose_graph_breaks_a_rule_is_refused(tmp_path: Path) -> None:
    """A kernel of no extent: the operator's rule of types is broken."""
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 0], b"", raw=True)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 0])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [image], [result], [weight])
    path = tmp_path / "empty.onnx"
    onnx.save(helper.make_model(graph), path)
    assert cli.run(["estimate", str(path), "--phase", "prefill", *PLAN[:6], "--batch", "1", "--seq", "16"]) in (0, 2, 4)


@pytest.mark.parametrize("first", ["three", "batch"])
def test_sizes_of_an_onnx_file_that_square_themselves_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: str
) -> None:
    """3, or the batch and one, squared 30 times over: a number of a billion digits, or as many terms."""
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    one, three = (helper.make_tensor(n, TensorProto.INT64, [1], [v]) for n, v in (("one", 1), ("three", 3)))
    nodes = [helper.make_node("Shape", ["x"], ["sizes"]), helper.make_node("Add", ["sizes", "one"], ["batch"])]
    names = [first, *(f"square{k}" for k in range(30))]
    nodes += [helper.make_node("Mul", [a, a], [b]) for a, b in pairwise(names)]
    nodes.append(helper.make_node("Expand", ["x", names[-1]], ["y"]))
    path = tmp_path / "squares.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [image], [result], [one, three])), path)
    assert cli.run(["trace", str(path), "--phase", "prefill", "--no-cache"]) == NotUnderstoodError.exit_code
    assert "64 bits, or of more than 64 terms" in capsys.readouterr().err
