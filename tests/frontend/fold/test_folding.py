"""Folding: the schedules it finds, and that a folded graph says what the recording of every layer says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from slipstick.frontend import load
from slipstick.frontend.fold import trace as tracing
from slipstick.frontend.fold.layered import whole as fold_whole
from slipstick.frontend.fold.trace import LayerStack, find_stack
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.sizes.expr import Expr, symbol
from slipstick.ir.text.printer import print_graph
from slipstick.passes.manager import parse_pipeline

from ..sums import flops, moved_bytes

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")

TOKENS = symbol("batch") * symbol("seq")


def blocks(graph: Graph) -> str:
    """The schedule without prologue and epilogue."""
    runs = graph.schedule[1:-1]
    return " | ".join(f"{', '.join(run.regions)} x{run.count}" for run in runs)


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("llama-3.1-8b", "block0 x32"),
        ("deepseek-v3", "block0 x3 | block1 x58"),
        ("gpt-oss-120b", "block0, block1 x18"),
        ("qwen3-30b-a3b", "block0 x48"),
    ],
)
def test_layers_of_a_catalogue_model_fold_into_their_kinds(name: str, schedule: str) -> None:
    assert blocks(load(name)) == schedule


# More layers than are recorded when folding works: at most two of each kind are.
DEEPER: Mapping[str, Mapping[str, object]] = {
    "tiny-llama": {"num_hidden_layers": 5},
    "tiny-gpt2": {"n_layer": 5},
    "tiny-mixtral": {"num_hidden_layers": 4},
    "tiny-deepseek": {"num_hidden_layers": 5},
    "tiny-gpt-oss": {"num_hidden_layers": 6},
}


def deeper(name: str, configs: Path, folder: Path) -> str:
    """The path of a small config with more layers."""
    fields = json.loads((configs / f"{name}.json").read_text(encoding="utf-8")) | DEEPER[name]
    file = folder / f"{name}.json"
    file.write_text(json.dumps(fields), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(("name", "workload"), [*((name, "train") for name in DEEPER), ("tiny-llama", "decode")])
def test_a_folded_graph_is_the_one_that_every_layer_gives(
    name: str, workload: str, configs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = deeper(name, configs, tmp_path)
    folded = load(config, workload)

    def all_layers(module: object, idle: frozenset[str]) -> LayerStack:
        stack = find_stack(module, idle)  # type: ignore[arg-type]
        assert stack is not None
        assert len(stack.kept) < stack.num_layers
        return stack.kept_all()

    monkeypatch.setattr(tracing, "find_stack", all_layers)
    assert print_graph(load(config, workload)) == print_graph(folded)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt-oss"])
def test_a_folded_graph_adds_up_to_the_unfolded_one(
    name: str, configs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = deeper(name, configs, tmp_path)
    folded = load(config)
    monkeypatch.setattr(tracing, "find_stack", lambda module, idle: None)
    monkeypatch.setattr(tracing, "fold_by_scope", fold_whole)
    monkeypatch.setattr(tracing, "in_layers", lambda graph: graph)
    whole = load(config)
    assert blocks(whole) == ""
    assert blocks(folded) != ""
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert flops(folded, phase) == flops(whole, phase)
    assert moved_bytes(folded) == moved_bytes(whole)
    assert folded.num_parameters == whole.num_parameters
    assert folded.saved_bytes == whole.saved_bytes


FALCON = {
    "model_type": "falcon", "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "vocab_size": 256,
    "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "alibi": False, "bias": False,
}  # fmt: skip


def test_tensors_without_a_name_do_not_tell_layers_apart(tmp_path: Path) -> None:
    """Each layer of Falcon-7B picks its one key and value with index tensors that it makes while it runs."""
    config = tmp_path / "falcon.json"
    config.write_text(json.dumps(FALCON), encoding="utf-8")
    assert blocks(load(str(config), "prefill")) == "block0 x4"


def linear(rows: Expr, wide: int, long: int) -> Expr:
    return rows * (2 * wide * long)


def test_layers_that_look_alike_and_run_differently_are_told_apart(nets: str) -> None:
    graph = load(f"{nets}:odd_layers")
    # six layers, of which the third and the sixth multiply twice
    assert blocks(graph) == "block0, block0, block1 x2"
    assert flops(graph, Phase.FORWARD) == linear(TOKENS, 64, 64) * (4 + 2 * 2) + linear(TOKENS, 64, 160)
    assert graph.num_parameters == 160 * 64 + 6 * (64 * 64 + 64) + (64 * 160 + 160)


def test_what_happens_between_layers_belongs_to_the_layer_before(nets: str) -> None:
    graph = load(f"{nets}:between")
    assert blocks(graph) == "block0 x6"
    assert flops(graph, Phase.FORWARD) == linear(TOKENS, 64, 64) * 6 + linear(TOKENS, 64, 160)
    assert flops(graph, Phase.BACKWARD) == flops(graph, Phase.FORWARD) * 2


def test_members_of_a_list_that_stand_side_by_side_are_no_layers(nets: str) -> None:
    graph = load(f"{nets}:mixed")
    assert blocks(graph) == ""
    assert graph.notes == ()
    assert flops(graph, Phase.FORWARD) == linear(TOKENS, 64, 64) * 4 + linear(TOKENS, 64, 160)
    assert graph.num_parameters == 160 * 64 + 4 * (64 * 64 + 64) + (64 * 160 + 160)


def test_layers_that_read_what_not_their_neighbours_make_are_regions_one_by_one_and_a_note_says_so(nets: str) -> None:
    graph = load(f"{nets}:skips")
    assert blocks(graph) == "block0 x1 | block1 x1 | block2 x1 | block3 x1"
    assert graph.notes[0].startswith("layers are not folded: ")
    assert flops(graph, Phase.FORWARD) == linear(TOKENS, 64, 64) * 4 + linear(TOKENS, 64, 160)
    assert graph.num_parameters == 160 * 64 + 4 * (64 * 64 + 64) + (64 * 160 + 160)


def test_layers_one_by_one_add_up_to_the_model_in_one_piece(configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last layers of Gemma 3n read the keys and values of earlier ones, over the heads of their neighbours."""
    config = configs / "tiny-gemma3n.json"
    layers = load(str(config))
    assert blocks(layers) == " | ".join(f"block{k} x1" for k in range(6))
    monkeypatch.setattr(tracing, "find_stack", lambda module, idle: None)
    monkeypatch.setattr(tracing, "fold_by_scope", fold_whole)
    monkeypatch.setattr(tracing, "in_layers", lambda graph: graph)
    piece = load(str(config))
    assert blocks(piece) == ""
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert flops(layers, phase) == flops(piece, phase)
    assert moved_bytes(layers) == moved_bytes(piece)
    assert layers.num_parameters == piece.num_parameters
    assert layers.saved_bytes == piece.saved_bytes


def test_two_lists_that_run_in_step_are_one_list_of_layers(nets: str) -> None:
    graph = load(f"{Path(nets).with_name('in_step.py')}:in_step")
    assert blocks(graph) == "block0 x4"
    assert graph.notes == ()
    assert flops(graph, Phase.FORWARD) == linear(TOKENS, 64, 64) * 8 + linear(TOKENS, 64, 160)
    assert graph.num_parameters == 160 * 64 + 8 * (64 * 64 + 64) + (64 * 160 + 160)


def test_layers_that_are_looked_up_by_number_are_folded(nets: str) -> None:
    graph = load(f"{Path(nets).with_name('in_step.py')}:by_number")
    assert blocks(graph) == "block0 x6"
    assert flops(graph, Phase.FORWARD) == linear(TOKENS, 64, 64) * 6 + linear(TOKENS, 64, 160)


@pytest.mark.parametrize(("factory", "products", "biases"), [("every_third", 12, 9), ("twice", 12, 6)])
def test_what_runs_between_layers_or_again_is_counted(nets: str, factory: str, products: int, biases: int) -> None:
    """Few of the layers do not show what runs behind every third of them, nor how often all of them run."""
    graph = load(f"{Path(nets).with_name('in_step.py')}:{factory}")
    assert flops(graph, Phase.FORWARD) == linear(TOKENS, 64, 64) * products + linear(TOKENS, 64, 160)
    weights = products if factory == "every_third" else 6
    assert graph.num_parameters == 160 * 64 + weights * 64 * 64 + biases * 64 + (64 * 160 + 160)
    assert graph.notes == () or "folded" in graph.notes[0]


def test_layers_that_do_not_run_are_not_what_the_model_is_folded_by(nets: str) -> None:
    """A tower of more parameters stands beside the layers, and only the layers run."""
    graph = load(f"{Path(nets).with_name('in_step.py')}:beside_a_tower")
    assert blocks(graph) == "block0 x3"
    assert all(r.nodes for r in graph.regions)
    assert flops(graph, Phase.FORWARD) == linear(TOKENS, 64, 64) * 3 + linear(TOKENS, 64, 160)
    recomputed, _ = parse_pipeline('shard,recompute{policy="full"}').run(graph)
    assert any(n.phase is Phase.RECOMPUTE for n in recomputed.region("block0").nodes)
