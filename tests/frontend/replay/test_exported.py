"""Files of `torch.export.save`: read without unpickling, and refused in one line when they are wrong."""

from __future__ import annotations

import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

import slipstick
from slipstick.frontend.exported import load_pt2
from slipstick.frontend.replay import archive
from slipstick.ir.errors import NotUnderstoodError, UnknownNameError, UnsupportedOpError
from slipstick.ir.graph import Role, Workload
from slipstick.ir.text.limits import Limits

from ..sums import flops, num_ops

BATCH, SEQ, KV = torch.export.Dim("b"), torch.export.Dim("s", max=4096), torch.export.Dim("past", max=8192)


class Tied(nn.Module):
    """Ids to logits by one matrix in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 16), nn.Linear(16, 64, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(F.silu(self.embed(ids)))
        return out


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "tied.pt2"
    ids = torch.zeros(2, 8, dtype=torch.int64)
    torch.export.save(torch.export.export(Tied(), (ids,), dynamic_shapes={"ids": {0: BATCH, 1: SEQ}}), path)
    return path


def changed(source: Path, path: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """A copy of an archive with members changed, or left out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            data = change(member, old.read(member))
            if data is not None:
                new.writestr(member, data)
    return path


def edited(source: Path, path: Path, edit: Callable[[dict[str, object]], None]) -> Path:
    """A copy of an archive with another graph."""

    def change(member: str, data: bytes) -> bytes:
        if not member.endswith("models/model.json"):
            return data
        document = json.loads(data)
        edit(document)
        return json.dumps(document).encode()

    return changed(source, path, change)


def test_a_tied_matrix_counts_once_and_limits_are_kept(saved: Path) -> None:
    graph = load_pt2(saved, "train")
    assert graph.num_parameters == 64 * 16
    assert graph.max_positions == 4096
    assert str(flops(graph)) == f"{2 * 16 * 64}*batch*seq"
    assert load_pt2(saved).name == "tied"


def test_a_file_and_the_program_that_was_saved_are_one_graph(saved: Path) -> None:
    program = torch.export.load(saved)
    for phase in (Workload.PREFILL, Workload.TRAIN):
        assert slipstick.load_exported(program, phase, name="tied") == load_pt2(saved, phase)


def test_sizes_are_what_the_user_says(saved: Path) -> None:
    names = sorted(flops(load_pt2(saved)).symbols)
    assert names == ["batch", "seq"]
    sizes = json.loads(zipfile.ZipFile(saved).read("tied/models/model.json"))["range_constraints"]
    first, second = sizes
    swapped = load_pt2(saved, dims={first: 4, second: "seq"})
    assert str(flops(swapped)) == f"{2 * 16 * 64 * 4}*seq"
    with pytest.raises(UnknownNameError, match="size of the program 's999'"):
        load_pt2(saved, dims={"s999": "seq"})
    with pytest.raises(UnknownNameError, match=f"meaning of size '{first}' 'sequence'"):
        load_pt2(saved, dims={first: "sequence"})


class Step(nn.Module):
    """One decode step with a cache of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.q, self.kv = nn.Embedding(64, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.head = nn.Linear(32, 64)

    def forward(self, ids: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.embed(ids)
        q = self.q(x).view(x.shape[0], 1, 4, 8).transpose(1, 2)
        k, v = (t.transpose(1, 2) for t in self.kv(x).view(x.shape[0], 1, 4, 8).chunk(2, 2))
        k, v = torch.cat([past_key, k], dim=2), torch.cat([past_value, v], dim=2)
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.head(out.transpose(1, 2).reshape(x.shape)), k, v


def test_a_decode_step_appends_to_its_cache() -> None:
    keys, values = torch.zeros(2, 2, 8, 8), torch.zeros(2, 2, 8, 8)
    cached = {0: BATCH, 2: KV}
    program = torch.export.export(
        Step(), (torch.zeros(2, 1, dtype=torch.int64), keys, values),
        dynamic_shapes={"ids": {0: BATCH}, "past_key": cached, "past_value": cached},
    )  # fmt: skip
    graph = slipstick.load_exported(program, "decode")
    assert num_ops(graph)["kv_append"] == 2
    cache = {v.name: str(v.type) for r in graph.regions for v in r.of_role(Role.CACHE)}
    assert cache == dict.fromkeys(("cache.*.keys", "cache.*.values"), "fp32[batch, 2, kv, 8]")
    attention = next(n for r in graph.regions for n in r.nodes if n.op == "attention")
    assert str(graph.regions[0].by_id[attention.inputs[1]].type) == "fp32[batch, 2, kv + 1, 8]"


class Forgetful(nn.Module):
    """Attention of tokens to themselves alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 32), nn.Linear(32, 64)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        out: Tensor = self.head(F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0])
        return out


def test_a_decode_step_without_a_cache_is_refused() -> None:
    ids = torch.zeros(2, 4, dtype=torch.int64)
    with pytest.raises(NotUnderstoodError, match=r"no KV cache among its inputs.*caches="):
        slipstick.trace(Forgetful(), ids, phase="decode")
    assert num_ops(slipstick.trace(Forgetful(), ids, phase="prefill"))["attention"] == 1


class Trap:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return (pytest.fail, ("unpickled",))


def test_nothing_pickled_is_read(saved: Path, tmp_path: Path) -> None:
    trap = pickle.dumps(Trap())
    kept = (".json", "archive_format", "archive_version", "byteorder", "version")
    path = changed(saved, tmp_path / "tied.pt2", lambda member, data: data if member.endswith(kept) else trap)
    assert load_pt2(path) == load_pt2(saved)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".pkl"])
def test_a_pickled_model_is_refused_unread(suffix: str) -> None:
    with pytest.raises(
        NotUnderstoodError, match=r"unpickling runs code; export the model instead: torch\.export\.save"
    ):
        slipstick.load(f"model{suffix}")


def text_file() -> bytes:
    return b"no archive"


def empty_archive() -> bytes:
    zipfile.ZipFile(data := io.BytesIO(), "w").close()
    return data.getvalue()


def weights() -> bytes:
    torch.save({"weight": torch.zeros(2)}, data := io.BytesIO())
    return data.getvalue()


@pytest.mark.parametrize(
    ("made", "message"),
    [(text_file, "no .pt2 archive"), (empty_archive, "without an exported model"), (weights, "is pickled")],
)
def test_files_of_another_kind_are_refused(made: Callable[[], bytes], message: str, tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(made())
    with pytest.raises(NotUnderstoodError, match=message) as caught:
        load_pt2(tmp_path / "model.pt2")
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_cut_short_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(NotUnderstoodError, match="no file"):
        load_pt2(tmp_path / "none.pt2")
    data = saved.read_bytes()
    for size in range(0, len(data), len(data) // 7):
        (tmp_path / "cut.pt2").write_bytes(data[:size])
        with pytest.raises(NotUnderstoodError):
            load_pt2(tmp_path / "cut.pt2")


def test_a_member_that_unpacks_to_more_than_allowed_is_not_unpacked(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "limits", lambda: Limits(document_bytes=1 << 10))
    with pytest.raises(NotUnderstoodError, match=r"model\.json is larger than"):
        load_pt2(saved)


def nodes_of(document: dict[str, object]) -> list[dict[str, object]]:
    module = document["graph_module"]
    assert isinstance(module, dict)
    found = module["graph"]["nodes"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    "target",
    ["os.system", "torch.load", "torch.ops.aten.from_file.default", "torch.ops.aten.__class__", "_operator.call"],
)
def test_a_target_that_is_no_operator_is_never_called(target: str, saved: Path, tmp_path: Path) -> None:
    def edit(document: dict[str, object]) -> None:
        nodes_of(document)[-1]["target"] = target

    with pytest.raises(UnsupportedOpError, match=r"is no operator|has no rule|is not registered"):
        load_pt2(edited(saved, tmp_path / "tied.pt2", edit))


@pytest.mark.parametrize(
    "size", ["__import__('os').getcwd()", "s0 if s1 else s2", "(lambda: 3)()", "9**9**9", "s0.real"]
)
def test_a_size_is_never_evaluated(size: str, saved: Path, tmp_path: Path) -> None:
    def edit(document: dict[str, object]) -> None:
        module = document["graph_module"]
        assert isinstance(module, dict)
        module["graph"]["tensor_values"]["ids"]["sizes"][0] = {"as_expr": {"expr_str": size, "hint": None}}

    with pytest.raises(NotUnderstoodError):
        load_pt2(edited(saved, tmp_path / "tied.pt2", edit))


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a document."""
    children = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, child in children for p in places(child, (*path, key)))]


def refusal(path: Path) -> str:
    """What is said of a file that is not understood, empty where it is."""
    try:
        load_pt2(path)
    except NotUnderstoodError as error:
        return str(error)
    return ""


def test_any_wrong_value_is_an_error_of_ours_or_a_graph(saved: Path, tmp_path: Path) -> None:
    """Each of many places of the graph is given a value that it cannot have: nothing else than our errors."""
    original = json.loads(zipfile.ZipFile(saved).read("tied/models/model.json"))
    choice = random.Random(5)
    wrong: tuple[object, ...] = (None, -1, 1 << 70, "x", [], {}, {"as_int": 7}, [[]], True, 1.5)
    known = [p for p in places(original) if p]
    for _ in range(60):
        place, value = choice.choice(known), choice.choice(wrong)

        def edit(document: object, place: tuple[str | int, ...] = place, value: object = value) -> None:
            for key in place[:-1]:
                document = document[key]  # type: ignore[index]
            document[place[-1]] = value  # type: ignore[index]

        said = refusal(edited(saved, tmp_path / "tied.pt2", edit))
        assert "\n" not in said, (place, value, said)
