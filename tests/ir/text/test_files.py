"""Graphs to files and back: complete or not there, readable by all, without torch."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstick.ir.errors import ParseError
from slipstick.ir.graph import Graph
from slipstick.ir.text.files import load_graph, save_graph, write_atomically, write_whole
from slipstick.ir.text.printer import print_graph


@pytest.mark.parametrize("name", ["g.graph", "g.graph.gz", "new/folder/g.graph.gz"])
def test_round_trip(train_graph: Graph, tmp_path: Path, name: str) -> None:
    save_graph(train_graph, tmp_path / name)
    assert load_graph(tmp_path / name) == train_graph


def test_a_plain_file_is_the_textual_form(train_graph: Graph, tmp_path: Path) -> None:
    save_graph(train_graph, tmp_path / "g.graph")
    assert (tmp_path / "g.graph").read_text(encoding="utf-8") == print_graph(train_graph)


def test_equal_graphs_make_equal_archives(train_graph: Graph, tmp_path: Path) -> None:
    save_graph(train_graph, tmp_path / "a.graph.gz")
    save_graph(train_graph, tmp_path / "b.graph.gz")
    assert (tmp_path / "a.graph.gz").read_bytes() == (tmp_path / "b.graph.gz").read_bytes()


def broken(tmp_path: Path, name: str, data: bytes) -> str:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ParseError) as error:
        load_graph(path)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value)


def test_a_truncated_archive_names_the_file(train_graph: Graph, tmp_path: Path) -> None:
    data = gzip.compress(print_graph(train_graph).encode())
    for length in (0, 5, len(data) // 2, len(data) - 1):
        if length:
            assert "cannot be read as a graph" in broken(tmp_path, "g.graph.gz", data[:length])
    assert "a graph file starts with" in broken(tmp_path, "g.graph.gz", b"")


def test_a_damaged_archive_names_the_file(train_graph: Graph, tmp_path: Path) -> None:
    data = bytearray(gzip.compress(print_graph(train_graph).encode()))
    data[20:40] = b"\xff" * 20
    assert "cannot be read as a graph" in broken(tmp_path, "g.graph.gz", bytes(data))


def test_what_is_no_archive_and_what_is_no_text(tmp_path: Path) -> None:
    assert "Not a gzipped file" in broken(tmp_path, "g.graph.gz", b"slipstick.graph 1\n")
    assert "invalid start byte" in broken(tmp_path, "g.graph", b"\xff\xfe")


def test_a_truncated_text_names_file_and_line(train_graph: Graph, tmp_path: Path) -> None:
    data = print_graph(train_graph).encode()[:-4]
    assert "line 38: the text ends before region 'head' does" in broken(tmp_path, "g.graph", data)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=r"nowhere\.graph: cannot be read as a graph: .*No such file"):
        load_graph(tmp_path / "nowhere.graph")


def test_writing_leaves_nothing_else_behind(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.bin", b"one")
    write_atomically(tmp_path / "a.bin", b"two")
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"two"


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "a.bin", b"old")

    def refuse(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "a.bin", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"old"


def test_a_full_disk_in_the_middle_of_a_text_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "a.yaml", "name: old\n")

    def refuse(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="no space left"):
        write_whole(tmp_path / "a.yaml", "name: new\n")
    assert [p.name for p in tmp_path.iterdir()] == ["a.yaml"]
    assert (tmp_path / "a.yaml").read_text(encoding="utf-8") == "name: old\n"


def test_a_text_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.extend(p.name for p in tmp_path.glob("*.yaml")))
    write_whole(tmp_path / "a.yaml", "name: grün\n")
    assert seen == []
    assert (tmp_path / "a.yaml").read_bytes() == "name: grün\n".encode()


@pytest.mark.skipif(os.name != "posix", reason="links, pipes and devices are those of POSIX")
def test_links_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", b"data")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"data"
    read, write = os.pipe()
    write_atomically(Path(f"/dev/fd/{write}"), b"through")
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"through"


@pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")
def test_a_file_has_the_mode_that_any_new_file_has(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_atomically(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_loading_needs_no_torch(train_graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "g.graph.gz"
    save_graph(train_graph, path)
    code = (
        "import sys; from pathlib import Path; from slipstick.ir.text.files import load_graph;"
        "graph = load_graph(Path(sys.argv[1]));"
        "print(graph.name, sorted({'torch', 'transformers', 'networkx', 'numpy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("tiny []\n", "")
