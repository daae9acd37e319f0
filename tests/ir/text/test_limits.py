"""Files that would take a machine's memory, or Python's stack, are refused with words."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from slipstick.backends.machine.files.system_tree import read_tree
from slipstick.cli.plans.file import entries
from slipstick.cli.search.file import space_of
from slipstick.ir.errors import ParseError, SystemFileError, UsageError
from slipstick.ir.text.files import load_graph
from slipstick.ir.text.limits import MOST_UNPACKED, unpacked

GRAPH = Path("tests/golden/tiny-llama.train.graph")
# Each line stands for nine of the line before: 9 ** 12 values.
ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


def test_parts_that_stand_for_billions_are_refused_before_they_take_memory() -> None:
    tracemalloc.start()
    with pytest.raises(SystemFileError, match="more than 200,000 values"):
        read_tree(ALIASES, "mine.yaml")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200e6


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 20_000, "a: " + "{b: " * 20_000, "a: " + "9" * 5_000, "a: b\n" * 1_000_000]
)
def test_every_reader_of_settings_has_the_same_limits(text: str) -> None:
    for read in (read_tree, entries, space_of):
        with pytest.raises(UsageError, match=r"mine.yaml: (brackets are nested|a number of more|5,000,000 characters)"):
            read(text, "mine.yaml")


def test_a_date_that_there_is_not_is_no_fault_of_ours() -> None:
    with pytest.raises(UsageError, match=r"mine.yaml is no YAML: month must be in"):
        space_of("since: 2020-13-45", "mine.yaml")


def test_a_graph_that_runs_for_ever_is_refused(tmp_path: Path) -> None:
    text = GRAPH.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("schedule "))
    path = tmp_path / "a.graph"
    path.write_text(text.replace(line, f"{line.split(' | ')[0].split(' x')[0]} x1000000000000"), encoding="utf-8")
    with pytest.raises(ParseError, match="runs more than 1,000,000 times"):
        load_graph(path)


def test_a_packed_graph_unpacks_to_so_much_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "a.graph.gz"
    path.write_bytes(gzip.compress(b"\n" * (MOST_UNPACKED + 1)))
    with pytest.raises(ParseError, match="more than 256,000,000 bytes are packed in it"):
        load_graph(path)


def test_what_gzip_packed_is_unpacked_in_all_its_members() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert unpacked(packed, "a") == b"one two"
    for broken in (packed[:-3], b"plain"):
        with pytest.raises(ParseError, match="a: "):
            unpacked(broken, "a")


def test_a_folder_or_a_pipe_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="it is no file"):
        load_graph(tmp_path)
