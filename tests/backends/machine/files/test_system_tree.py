"""Trees of files that were read once are kept; a cache that is broken or cannot be written only costs time."""

from pathlib import Path

import pytest

from slipstick.backends.machine.files.system_tree import Tree, kept_tree, read_tree

TEXT = "name: demo\nchip: {power: 3 W, peak: 989e12, on: true, parts: [1, a, null]}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPSTICK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "trees"


def twice(text: str) -> list[dict[str, Tree]]:
    return [kept_tree(text, "demo"), kept_tree(text, "demo")]


def test_a_tree_is_the_same_when_it_is_kept(folder: Path) -> None:
    assert twice(TEXT) == [read_tree(TEXT, "demo")] * 2
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("broken", ["", "{", "[1]", "\x00"])
def test_a_broken_file_of_the_cache_is_read_anew(folder: Path, broken: str) -> None:
    kept_tree(TEXT, "demo")
    (kept,) = folder.iterdir()
    kept.write_text(broken, encoding="utf-8")
    assert twice(TEXT) == [read_tree(TEXT, "demo")] * 2


def test_keys_that_json_has_not_are_not_kept(folder: Path) -> None:
    text = "name: demo\nrows: {1: a, 2: b}\n"
    assert twice(text) == [read_tree(text, "demo")] * 2
    assert not folder.exists()


def test_a_cache_that_cannot_be_written_is_no_error(folder: Path) -> None:
    folder.parent.write_text("a file where a folder should be", encoding="utf-8")
    assert twice(TEXT) == [read_tree(TEXT, "demo")] * 2
