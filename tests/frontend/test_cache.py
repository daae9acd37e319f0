"""Graphs kept on disk: what is found again, what is recorded anew, and that a hit needs no torch."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from slipstick.frontend import GraphCache, load
from slipstick.frontend.cache import graph_key

pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")


class Told:
    """Collects what is reported: one line a recording."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def config(configs: Path) -> str:
    return str(configs / "tiny-llama.json")


@pytest.fixture
def cache(tmp_path: Path) -> GraphCache:
    return GraphCache(tmp_path / "cache")


def files(cache: GraphCache) -> list[Path]:
    return sorted(path for path in cache.folder.rglob("*") if path.is_file())


def test_a_graph_is_recorded_once(config: str, cache: GraphCache) -> None:
    told = Told()
    first = load(config, cache=cache, report=told)
    assert told.lines == ["recording tiny-llama (train, bf16)"]
    assert load(config, cache=cache, report=told) == first
    assert len(told.lines) == len(files(cache)) == 1


def test_without_a_cache_it_is_recorded_every_time(config: str) -> None:
    told = Told()
    assert load(config, "decode", report=told) == load(config, "decode", report=told)
    assert len(told.lines) == 2


def test_a_hit_imports_neither_torch_nor_numpy(config: str, cache: GraphCache) -> None:
    load(config, "decode", cache=cache)
    code = (
        "import sys; from pathlib import Path; from slipstick.frontend import GraphCache, load; "
        f"graph = load({config!r}, 'decode', cache=GraphCache(Path({str(cache.folder)!r}))); "
        "print(graph.name, [m for m in ('torch', 'transformers', 'numpy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "tiny-llama []"


@pytest.mark.parametrize("broken", [b"", b"nonsense", b"\x1f\x8b\x08\x00cut off"])
def test_a_broken_file_is_written_anew(broken: bytes, config: str, cache: GraphCache) -> None:
    graph = load(config, "decode", cache=cache)
    (file,) = files(cache)
    whole = file.read_bytes()
    file.write_bytes(broken)
    told = Told()
    assert load(config, "decode", cache=cache, report=told) == graph
    assert len(told.lines) == 1
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_only_time(config: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder", encoding="utf-8")
    assert load(config, "decode", cache=GraphCache(tmp_path / "taken")) == load(config, "decode")


def test_equal_configs_share_a_file_and_keep_their_names(config: str, cache: GraphCache, tmp_path: Path) -> None:
    load(config, "decode", cache=cache)
    copy = tmp_path / "my-model.json"
    copy.write_text(Path(config).read_text(encoding="utf-8").replace("\n", " "), encoding="utf-8")
    assert load(str(copy), "decode", cache=cache).name == "my-model"
    assert len(files(cache)) == 1


def test_workload_and_dtype_are_part_of_the_key(config: str, cache: GraphCache) -> None:
    graphs = [load(config, *how, cache=cache) for how in (("decode", "bf16"), ("decode", "fp16"), ("prefill", "bf16"))]
    assert [(str(g.workload), str(g.dtype)) for g in graphs] == [
        ("decode", "bf16"), ("decode", "fp16"), ("prefill", "bf16"),
    ]  # fmt: skip
    assert len(files(cache)) == 3


def test_keys_differ_with_what_shapes_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph_key("a", "train", "bf16")
    assert before == graph_key("a", "train", "bf16")
    assert len({before, graph_key("b", "train", "bf16"), graph_key("a", "decode", "bf16")}) == 3
    monkeypatch.setattr("slipstick.frontend.cache.TRACER_VERSION", -1)
    assert graph_key("a", "train", "bf16") != before


def test_the_users_folder_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SLIPSTICK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert GraphCache.default().folder == tmp_path / "slipstick"
    monkeypatch.setenv("SLIPSTICK_CACHE", str(tmp_path / "own"))
    assert GraphCache.default().folder == tmp_path / "own"


def test_an_entry_that_was_changed_is_recorded_anew(config: str, cache: GraphCache) -> None:
    told = Told()
    first = load(config, "decode", cache=cache, report=told)
    (kept,) = files(cache)
    text = gzip.decompress(kept.read_bytes()).decode()
    for changed in (
        text.replace("[batch, ", "[seq, ", 1),
        # Without its checksum, or with that of another text.
        text.rpartition("checksum ")[0],
        f"{text.rpartition('checksum ')[0]}checksum {hashlib.sha256(b'').hexdigest()}\n",
        "",
    ):
        kept.write_bytes(gzip.compress(changed.encode()))
        assert load(config, "decode", cache=cache, report=told) == first
    assert len(told.lines) == 5
    assert gzip.decompress(kept.read_bytes()).decode() == text
