"""Whatever lies in the cache, answers are the same: changed bytes, pipes, links, folders, nested braces, too much."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from slipstick.backends.machine.files.catalogue import _of_catalogue
from slipstick.backends.machine.load import load_system
from slipstick.frontend import GraphCache, load
from slipstick.ir.graph import Graph
from slipstick.ir.text.files import TextCache
from slipstick.report.charts.chart import drawable, scripts

CONFIG = Path(__file__).parents[2] / "data" / "configs" / "tiny-llama.json"
# Bytes from one that is changed to the next, in small files and in all.
STEP, MOST = 50, 60


def flipped(path: Path) -> list[bytes]:
    """Return a file with one byte changed, at every 50th place, or at 60 of a large file."""
    data = path.read_bytes()
    places = range(0, len(data), max(STEP, len(data) // MOST))
    return [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in places]


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    victim = path.parents[1] / "victim"
    assert not victim.exists() or victim.read_text() == "precious"
    victim.write_text("precious")
    path.symlink_to(victim)


def folder(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


HOSTILE: Mapping[str, Callable[[Path], None]] = {
    "pipe": pipe,
    "link": link,
    "dangling link": lambda path: path.symlink_to(path.parent / "nowhere"),
    "folder": folder,
    "nested braces": partial(write, data=b'{"a":' * 20_000),
    "no text": partial(write, data=b"\xff\xfe"),
    "nothing": partial(write, data=b""),
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPSTICK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_text_is_what_was_kept_or_absent(name: str, tmp_path: Path) -> None:
    texts = TextCache(tmp_path / "kept")
    assert texts.put(name, '{"a": 1}\nchecksum of nothing\n')
    path = tmp_path / "kept" / name
    whole = texts.get(name)
    assert whole == '{"a": 1}\nchecksum of nothing\n'
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert texts.get(name) in (None, whole)
        path.write_bytes(data[:at])
        assert texts.get(name) in (None, whole)


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_no_kept_text_is_replaced_and_never_written_through(hostile: str, name: str, tmp_path: Path) -> None:
    texts = TextCache(tmp_path / "kept")
    texts.put("other", "")
    HOSTILE[hostile](tmp_path / "kept" / name)
    assert texts.get(name) is None
    assert texts.put(name, "mine") is (hostile != "folder")
    assert texts.get(name) == (None if hostile == "folder" else "mine")
    victim = tmp_path / "victim"
    assert not victim.exists() or victim.read_text() == "precious"


def system() -> object:
    """Read a machine anew, as another process would."""
    _of_catalogue.cache_clear()
    return load_system("dgx-h100")


def test_a_machine_is_the_same_whatever_happens_to_its_files_in_the_cache(cache: Path) -> None:
    wanted = system()
    files = sorted((cache / "trees").iterdir())
    assert len(files) >= 5
    for path in files:
        for data in flipped(path):
            path.write_bytes(data)
            assert TextCache(path.parent).get(path.name) is None
    assert system() == wanted
    for place in HOSTILE.values():
        for path in files:
            path.unlink()
            place(path)
        assert system() == wanted
        for path in files:
            if path.is_dir():
                (path / "file").unlink()
                path.rmdir()
                path.touch()


def test_graphs_and_scripts_are_the_same_whatever_happens_to_them_in_the_cache(cache: Path) -> None:
    pytest.importorskip("transformers", reason="records a graph; install slipstick[hf]")
    graph = load(str(CONFIG), "decode", cache=GraphCache.default())
    if drawable():
        scripts.cache_clear()
        scripts()
    made = [path for part in ("graphs", "scripts") if (cache / part).exists() for path in (cache / part).iterdir()]
    assert len(made) == 1 + drawable()
    for path in made:
        texts = TextCache(path.parent)
        whole = texts.get(path.name)
        assert whole is not None
        for data in flipped(path):
            path.write_bytes(data)
            # Of a packed file the head says nothing of the text.
            assert texts.get(path.name) in (None, whole)
            if path.parent.name == "graphs":
                found: Graph | None = GraphCache.default().get(path.name.removesuffix(".graph.gz"))
                assert found in (None, graph)
