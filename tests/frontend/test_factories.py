"""Modules of users: what is recorded of them, and what is said of those that cannot be recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slipstick.frontend import load
from slipstick.ir.errors import (
    NotBuiltError,
    SlipstickError,
    TraceError,
    UnknownNameError,
    UnsupportedOpError,
    UsageError,
)
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import work_of
from slipstick.ir.sizes.expr import as_dim, symbol

from .sums import flops

BATCH, SEQ = symbol("batch"), symbol("seq")
# The sizes in tests/data/nets.py: hidden, vocabulary, inner size, heads of keys and values, head dim, layers.
H, V, F, K, D, L = 64, 160, 96, 2, 16, 4


@pytest.fixture(scope="module")
def gpt(nets: str) -> Graph:
    return load(f"{nets}:gpt")


@pytest.fixture(scope="module")
def llama(nets: str) -> Graph:
    return load(f"{nets}:llama")


def ops(graph: Graph, region: str = "block0") -> list[str]:
    return [node.op for node in graph.region(region).nodes]


def test_a_small_gpt_is_the_sum_of_its_matrices(gpt: Graph, nets: str) -> None:
    weights = H * 3 * H + H * H + 2 * H * 4 * H
    per_layer = weights + (3 * H + H + 4 * H + H) + 2 * 2 * H
    assert gpt.num_parameters == V * H + 512 * H + L * per_layer + 2 * H  # the tied matrix once
    products = BATCH * SEQ * 2 * (L * weights + H * V)
    scores = BATCH * SEQ * SEQ * 4 * H * L  # two products over all pairs
    assert flops(gpt, Phase.FORWARD) == products + scores
    # twice the products, and five products of scores for two
    assert flops(gpt, Phase.BACKWARD) == products * 2 + scores * 2.5
    assert flops(load(f"{nets}:gpt", "prefill"), Phase.FORWARD) == products + scores


def test_a_tied_matrix_gets_one_gradient_from_both_its_uses(gpt: Graph) -> None:
    prologue, epilogue = gpt.region("prologue"), gpt.region("epilogue")
    (tied,) = (v for v in prologue.values if v.name == "wte.weight")
    summed = prologue.producer[dict(prologue.grads)[tied.id]]
    assert (summed.op, len(summed.inputs)) == ("elementwise", 2)
    assert not any(epilogue.by_id[p].name.endswith("wte.weight") for p, _ in epilogue.grads)


def test_a_llama_in_the_style_of_large_trainers_is_lifted(llama: Graph) -> None:
    weights = 2 * H * H + 2 * H * K * D + 3 * H * F
    assert llama.num_parameters == 2 * V * H + L * (weights + 2 * H) + H
    products = BATCH * SEQ * 2 * (L * weights + H * V)
    assert flops(llama, Phase.FORWARD) == products + BATCH * SEQ * SEQ * 4 * H * L
    assert [ops(llama).count(op) for op in ("norm", "norm_bwd", "attention", "attention_bwd")] == [2, 2, 1, 1]
    (attention,) = (node for node in llama.region("block0").nodes if node.op == "attention")
    shape = work_of(llama.region("block0"), attention).attention
    assert shape is not None
    assert (as_dim(shape.heads), as_dim(shape.kv_heads), shape.causal) == (4, K, True)


def test_complex_numbers_are_pairs(llama: Graph) -> None:
    region = llama.region("block0")
    (table,) = (v for v in region.values if v.name == "table")
    assert str(table.type) == "fp32[512, 8, 2]"
    turned = [
        n
        for n in region.nodes
        if n.op == "elementwise" and "[1, seq, 1, 8, 2]" in " ".join(map(str, region.types(n.inputs)))
    ]
    assert len(turned) == 4  # queries and keys, forward and backward
    assert "complex" not in " ".join(str(v.type) for v in region.values)


def test_a_module_may_return_its_loss(nets: str) -> None:
    graph = load(f"{nets}:with_loss")
    (loss,) = (p for r in graph.regions for p in r.outputs if p.name == "result0")
    epilogue = graph.region("epilogue")
    assert epilogue.by_id[loss.value].type.dims == ()
    assert [ops(graph, "epilogue").count(op) for op in ("cross_entropy", "cross_entropy_bwd")] == [1, 1]


def test_writes_in_place_are_neither_lost_nor_read_too_early(nets: str) -> None:
    graph = load(f"{nets}:in_place")
    region = graph.region("prologue")
    fns = [str(getattr(n.attrs, "fns", "")) for n in region.nodes]
    assert [sum(fn in text for text in fns) for fn in ("'mul'", "'relu'", "'relu_bwd'")] == [2, 1, 1]
    # the product reads what the activation and the assignment left behind
    head = next(n for n in region.nodes if n.scope == "head" and n.phase is Phase.FORWARD)
    added = region.producer[head.inputs[0]]
    assert [region.producer[i].op for i in added.inputs] == ["elementwise", "scatter"]
    assert flops(graph, Phase.FORWARD) == BATCH * SEQ * 2 * (H * F + F * V)


def test_routing_can_be_said_by_one_operator(nets: str) -> None:
    graph = load(f"{nets}:by_operator")
    # two experts a token, gated: up projections of twice the inner size
    experts = BATCH * SEQ * 2 * 2 * (2 * F * H + F * H)
    assert flops(graph, Phase.FORWARD) == experts + BATCH * SEQ * 2 * (4 * H + H * V)


def test_a_file_may_import_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "sizes_of_mine.py").write_text("WIDTH = 32\n", encoding="utf-8")
    (tmp_path / "model.py").write_text(
        "from torch import nn\nfrom sizes_of_mine import WIDTH\n"
        "def net():\n    return nn.Sequential(nn.Embedding(50, WIDTH), nn.Linear(WIDTH, 50))\n",
        encoding="utf-8",
    )
    graph = load(f"{tmp_path / 'model.py'}:net")
    assert (graph.name, as_dim(graph.num_parameters)) == ("net", 50 * 32 + 32 * 50 + 50)


def message(kind: type[SlipstickError], model: str, workload: str = "train") -> str:
    with pytest.raises(SlipstickError) as caught:
        load(model, workload)
    assert type(caught.value) is kind
    return str(caught.value)


def line_of(nets: str, text: str) -> str:
    """`file:line` of the one line of the factories' file that holds a text."""
    lines = Path(nets).read_text(encoding="utf-8").splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if text in line)
    return f"{nets}:{number}"


@pytest.mark.parametrize("workload", ["train", "prefill"])
def test_sizes_that_depend_on_data_are_placed(nets: str, workload: str) -> None:
    said = message(TraceError, f"{nets}:routed", workload)
    assert said.startswith("control flow depends on data: module 'moe' (")
    assert line_of(nets, "if rows.shape[0] > 0") in said
    assert "torch.ops.slipstick.experts" in said


def test_a_branch_on_a_value_is_placed(nets: str) -> None:
    said = message(TraceError, f"{nets}:branches")
    assert said.startswith("control flow depends on data: the top module (")
    assert line_of(nets, "the branch that the message must name") in said


def test_a_loop_over_positions_is_refused(nets: str) -> None:
    assert message(TraceError, f"{nets}:loops").startswith("the module uses the size of seq as a plain number")


def test_unknown_operators_are_listed_together(nets: str) -> None:
    said = message(UnsupportedOpError, f"{nets}:unusual", "prefill")
    assert said == (
        "2 operator(s) without a rule: 'aten.cummax' in the top module; did you mean 'aten.max'?; "
        "'aten.cummin' in the top module; did you mean 'aten.min'?; --allow-unpriced counts their bytes alone"
    )


@pytest.mark.parametrize(
    ("factory", "kind", "said"),
    [
        ("pair", TraceError, "the module returns tuple without a tensor in it"),
        ("nonsense", UsageError, "returned dict; a factory returns an nn.Module"),
        ("gtp", UnknownNameError, "'gtp'; did you mean 'gpt'? allowed: "),
    ],
)
def test_what_is_no_language_model_is_named(factory: str, kind: type[SlipstickError], said: str, nets: str) -> None:
    assert said in message(kind, f"{nets}:{factory}")


def test_names_that_a_file_imports_are_not_offered(nets: str) -> None:
    assert "Tensor" not in message(UnknownNameError, f"{nets}:gtp")


def test_a_factory_that_fails_is_placed(nets: str) -> None:
    place = line_of(nets, 'raise RuntimeError("no such size")')
    assert message(UsageError, f"{nets}:raises") == f"'{nets}:raises' failed at {place}: RuntimeError: no such size"


def test_a_module_that_reads_weights_while_it_builds_is_placed(nets: str) -> None:
    said = message(TraceError, f"{nets}:reads_weights")
    assert line_of(nets, "there is no weight yet") in said
    assert "models are built without weights" in said


def test_a_module_that_fails_while_it_runs_is_placed(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Embedding(50, 32), nn.Linear(33, 50))\n",
        encoding="utf-8",
    )
    said = message(TraceError, f"{file}:net")
    assert said.startswith("module '1' (")
    assert "fails while it is recorded: RuntimeError: " in said


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nowhere.py:net", "no file 'nowhere.py'"),
        ("no.such.package:net", "cannot import module 'no.such.package'"),
    ],
)
def test_a_place_that_does_not_exist_is_named(model: str, said: str) -> None:
    assert said in message(UsageError, model)


def test_a_module_of_the_current_folder_is_found_behind_installed_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from torch import nn\ndef net():\n    return nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50))\n"
    (tmp_path / "net_of_this_folder.py").write_text(text, encoding="utf-8")
    (tmp_path / "numpy.py").write_text("raise SystemExit('not numpy')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert len(load("net_of_this_folder:net").regions) > 0
    assert sys.path == before
    monkeypatch.delitem(sys.modules, "net_of_this_folder")


def test_a_file_that_is_not_python_is_placed(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("def net(:\n", encoding="utf-8")
    assert "SyntaxError" in message(UsageError, f"{file}:net")


def test_decode_needs_a_cache_that_users_modules_do_not_have(nets: str) -> None:
    assert message(NotBuiltError, f"{nets}:gpt", "decode").startswith("decode needs the KV cache as an input")


def test_a_parameter_whose_data_is_written_to_stays_one(tmp_path: Path) -> None:
    """Some models clamp a weight in training, through `weight.data`: the same memory, another object."""
    path = tmp_path / "clamped.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Clamped(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.embed_tokens = nn.Embedding(160, 64)\n"
        "        self.lm_head = nn.Linear(64, 160, bias=False)\n\n"
        "    def forward(self, ids):\n        self.lm_head.weight.data.clamp_(-1.0, 1.0)\n"
        "        return self.lm_head(self.embed_tokens(ids))\n",
        encoding="utf-8",
    )
    graph = load(f"{path}:Clamped")
    assert graph.num_parameters == 2 * V * H
    region = graph.region("prologue")
    assert {region.by_id[p].name for p, _ in region.grads} == {"embed_tokens.weight", "lm_head.weight"}
