"""Files of `torch.export.save` whose names hold code: none of it runs, and each is refused in one line."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from slipstick.frontend.exported import load_pt2
from slipstick.frontend.replay import archive
from slipstick.frontend.replay.archive import read
from slipstick.frontend.replay.program import ReadGraph
from slipstick.frontend.replay.targets import Json, JsonPart, target_named
from slipstick.ir.errors import NotUnderstoodError, UnsupportedOpError
from slipstick.ir.text.limits import limits

Document: TypeAlias = "dict[str, Json]"


class Small(nn.Module):
    """A model whose graph has arguments by name, several outputs, tuples and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.norm = nn.Embedding(64, 32), nn.Linear(32, 32), nn.LayerNorm(32)
        self.head = nn.Linear(32, 64, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        first, second = self.mix(self.embed(ids)).chunk(2, -1)
        x = torch.cat([second, first], -1).unsqueeze(1)
        x = F.scaled_dot_product_attention(x, x, x, is_causal=True).squeeze(1)
        out: Tensor = self.head(self.norm(x + F.gelu(x, approximate="tanh")))
        return out


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "small.pt2"
    ids = torch.zeros(2, 16, dtype=torch.int64)
    batch, seq = torch.export.Dim("b"), torch.export.Dim("s", max=4096)
    torch.export.save(torch.export.export(Small(), (ids,), dynamic_shapes=({0: batch, 1: seq},)), path)
    return path


def at(value: Json, *keys: str | int) -> Json:
    """The value at a place of a document."""
    for key in keys:
        value = value[key]  # type: ignore[index]
    return value


def graph_of(document: Json) -> Document:
    found = at(document, "graph_module", "graph")
    assert isinstance(found, dict)
    return found


def nodes_of(document: Json) -> list[Document]:
    found = graph_of(document)["nodes"]
    assert isinstance(found, list)
    return [n for n in found if isinstance(n, dict)]


def calling(document: Json, op: str) -> Document:
    return next(n for n in nodes_of(document) if op in str(n["target"]))


def inputs_of(node: Document) -> list[Document]:
    found = node["inputs"]
    assert isinstance(found, list)
    return [n for n in found if isinstance(n, dict)]


def written(source: Path, path: Path, edit: Callable[[Json], None]) -> Path:
    """A copy of an archive whose graph is edited."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            data = old.read(member)
            if member.endswith("models/model.json"):
                document: Json = json.loads(data)
                edit(document)
                data = json.dumps(document).encode()
            new.writestr(member, data)
    return path


def code(marker: Path) -> tuple[str, ...]:
    """Names that would write a file if they were printed into the source of a function."""
    run = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    return (
        f"approximate='tanh')\rimport os\r{run}\rdef _x(**k):\r    dict(z",
        f"x\n{run}\n#",
        f"x); {run}; (1",
        f"{{{run}}}",
        f"x: {run}",
    )


def renamed(value: Json, old: str, new: str) -> Json:
    """A document in which one name is another one everywhere, keys too."""
    if isinstance(value, dict):
        return {new if k == old else k: renamed(v, old, new) for k, v in value.items()}
    if isinstance(value, list):
        return [renamed(v, old, new) for v in value]
    return new if value == old else value


def edits(text: str) -> Iterator[tuple[str, Callable[[Json], None]]]:
    """Every place where a file names something, with the text put there."""

    def named_argument(document: Json) -> None:
        next(i for i in inputs_of(calling(document, "gelu")) if i["kind"] == 2)["name"] = text

    def place_of_argument(document: Json) -> None:
        inputs_of(calling(document, "layer_norm"))[0]["name"] = text

    def target(document: Json) -> None:
        calling(document, "gelu")["target"] = text

    def part_of_target(document: Json) -> None:
        calling(document, "gelu")["target"] = f"torch.ops.aten.{text}"

    def overload(document: Json) -> None:
        calling(document, "gelu")["target"] = f"torch.ops.aten.gelu.{text}"

    def whole(old: str) -> Callable[[Json], None]:
        def edit(document: Json) -> None:
            graph = graph_of(document)
            graph.update({k: renamed(v, old, text) for k, v in list(graph.items())})

        return edit

    def output(document: Json) -> None:
        names = graph_of(document)["outputs"]
        assert isinstance(names, list)
        names[0] = {"as_tensor": {"name": text}}

    def modules(document: Json) -> None:
        at(calling(document, "gelu"), "metadata")["nn_module_stack"] = f"{text},{text},{text}"  # type: ignore[index, call-overload]

    def part(document: Json) -> None:
        empty: Json = {"inputs": [], "outputs": [], "nodes": []}
        inputs_of(calling(document, "gelu"))[0]["arg"] = {"as_graph": {"name": text, "graph": empty}}

    def size(document: Json) -> None:
        at(graph_of(document), "tensor_values", "ids")["sizes"] = [{"as_expr": {"expr_str": text}}] * 2  # type: ignore[index, call-overload]

    yield from (
        ("argument by name", named_argument), ("argument by place", place_of_argument), ("target", target),
        ("operator", part_of_target), ("overload", overload), ("input", whole("ids")), ("value", whole("gelu")),
        ("output", output), ("modules", modules), ("part", part), ("size", size),
    )  # fmt: skip


def refused(path: Path) -> str:
    """What is said of a file, which is one line that names it, with the exit code of such files."""
    with pytest.raises(NotUnderstoodError) as caught:
        load_pt2(path)
    said = str(caught.value)
    assert caught.value.exit_code == 4
    assert said.isprintable()
    assert path.name in said
    return said


@pytest.mark.parametrize("variant", range(5))
def test_no_name_of_a_file_runs_as_code(variant: int, saved: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for place, edit in edits(code(marker)[variant]):
        path = written(saved, tmp_path / "evil.pt2", edit)
        if place == "modules" and code(marker)[variant].isprintable():
            assert load_pt2(path)  # the path of a module is text, and no more
        else:
            refused(path)
        assert not marker.exists(), place


def test_a_file_as_it_was_saved_is_read_without_making_source(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def printed(*_: object, **__: object) -> None:
        pytest.fail("a read graph was turned into source")

    monkeypatch.setattr(torch.fx.Graph, "python_code", printed)
    monkeypatch.setattr("torch.fx.graph_module._exec_with_source", printed)
    for phase in ("prefill", "train"):
        assert load_pt2(saved, phase).num_parameters == 64 * 32 + 32 * 32 + 32 + 2 * 32 + 32 * 64
    document = JsonPart(json.loads(zipfile.ZipFile(saved).read("small/models/model.json")), "small")
    assert isinstance(read(document, (), "small").graph, ReadGraph)


@pytest.mark.parametrize(
    "name",
    [
        "torch.ops.aten.__class__", "torch.ops.aten.gelu.__class__", "torch.ops.aten.gelu.__init__",
        "torch.ops.aten.gelu._qualified_op_name", "torch.ops.__class__.mro", "torch.ops.aten.__getattr__.default",
        "torch.ops.aten.from_file", "torch.ops.aten.from_file.out", "torch.ops.aten.save", "torch.ops.aten.load",
        "torch.ops.aten.warn", "torch.ops.aten._print", "torch.ops.aten.set_.source_Storage", "torch.ops.aten.resize_",
        "torch.ops.aten.manual_seed", "torch.ops.aten.format", "torch.ops.prim.Print", "torch.ops.prim.RaiseException",
        "torch.ops.inductor._reinterpret_tensor", "torch.ops.profiler._record_function_enter", "torch.ops.load_library",
        "torch.ops.loaded_libraries.add", "torch.ops.debugprims.load_tensor", "torch.ops.c10d.broadcast_",
        "torch.ops.higher_order.__class__", "torch.ops.higher_order.cond.__call__", "builtins.exec", "builtins.getattr",
        "_operator.call", "_operator.attrgetter", "_operator.methodcaller", "os.system", "torch.hub.load",
        "math.__loader__",
        "torch.ops.aten.gelu\n", "torch.ops.aten.gelu.default.__call__", "torch.ops.aten.\u0430dd",
    ],
)  # fmt: skip
def test_a_target_is_an_operator_that_only_computes(name: str) -> None:
    with pytest.raises(UnsupportedOpError) as caught:
        target_named(JsonPart(name, "'evil.pt2'"))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("op", "name", "message"),
    [
        ("gelu", "self", "has no argument 'self' here; it takes: self, approximate"),
        ("gelu", "__class__", "has no argument '__class__' here"),
        ("gelu", "tanh", "has no argument 'tanh' here"),
    ],
)
def test_an_argument_is_one_of_the_schema(op: str, name: str, message: str, saved: Path, tmp_path: Path) -> None:
    def edit(document: Json) -> None:
        next(i for i in inputs_of(calling(document, op)) if i["kind"] == 2)["name"] = name

    assert message in refused(written(saved, tmp_path / "evil.pt2", edit))


def test_arguments_are_as_many_as_the_schema_has(saved: Path, tmp_path: Path) -> None:
    def edit(document: Json) -> None:
        call = calling(document, "gelu")
        one: Json = {**inputs_of(call)[0], "name": "", "kind": 1}
        call["inputs"] = [one, one, one]

    assert "takes 2 arguments, 3 are given" in refused(written(saved, tmp_path / "evil.pt2", edit))


def test_an_operator_without_a_rule_for_fake_tensors_is_not_tried_on_real_ones(saved: Path, tmp_path: Path) -> None:
    """Such as the helper of cummax, whose kernel trusts the number of the dim."""

    def edit(document: Json) -> None:
        call = calling(document, "gelu")
        one = inputs_of(call)[0]
        given: list[Json] = [{**one, "name": n, "kind": 1} for n in ("self", "values", "indices")]
        call["target"] = "torch.ops.aten._cummax_helper.default"
        call["inputs"] = [*given, {"name": "dim", "arg": {"as_int": 1 << 40}, "kind": 1}]

    refused(written(saved, tmp_path / "evil.pt2", edit))


def twice(key: str) -> Callable[[Json], None]:
    """Give each thing of a list of the graph or of its signature twice."""

    def edit(document: Json) -> None:
        found = graph_of(document) if key in graph_of(document) else at(document, "graph_module", "signature")
        found[key] = [one for one in found[key] for _ in range(2)]  # type: ignore[index, call-overload, union-attr]

    return edit


@pytest.mark.parametrize(
    ("key", "message"),
    [("nodes", "is made twice"), ("inputs", "input_specs of"), ("input_specs", "input_specs of")],
)
def test_what_stands_twice_is_refused(key: str, message: str, saved: Path, tmp_path: Path) -> None:
    assert message in refused(written(saved, tmp_path / "twice.pt2", twice(key)))


def test_inputs_and_their_specs_that_both_stand_twice_are_refused(saved: Path, tmp_path: Path) -> None:
    def edit(document: Json) -> None:
        twice("inputs")(document)
        twice("input_specs")(document)

    assert "is an input twice" in refused(written(saved, tmp_path / "twice.pt2", edit))


def test_a_range_whose_least_is_above_its_most_is_refused(saved: Path, tmp_path: Path) -> None:
    def edit(document: Json) -> None:
        for given in at(document, "range_constraints").values():  # type: ignore[union-attr]
            given.update(min_val=5, max_val=2)  # type: ignore[union-attr]

    assert "from 5 to 2: the least is above the most" in refused(written(saved, tmp_path / "range.pt2", edit))


def test_nodes_of_a_program_are_bounded(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(saved, tmp_path / "whole.pt2", lambda _: None)
    monkeypatch.setattr(archive, "limits", lambda: replace(limits(), nodes=5))
    assert "more than 5 nodes; SLIPSTICK_LIMITS=N raises" in refused(path)
