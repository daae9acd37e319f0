"""Texts that would take a machine's memory or Python's stack are refused with file and line; so are repeated keys."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
import yaml

from slipstick.app.plans.file import entries
from slipstick.app.search.space_file import space_of
from slipstick.backends.machine.files.system_tree import read_tree
from slipstick.frameworks.reading import read_launch
from slipstick.ir.errors import ParseError
from slipstick.ir.text import formats
from slipstick.ir.text.formats import read_json, read_toml, read_yaml, table_lines, yaml_node
from slipstick.ir.text.limits import Limits
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import HEADER

# Each line stands for nine of the line before: 9 ** 12 values.
ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
SETTINGS: dict[str, Callable[[str], object]] = {
    "system": lambda text: read_tree(text, "mine.yaml"),
    "plan": lambda text: entries(text, "mine.yaml"),
    "space": lambda text: space_of(text, "mine.yaml"),
    "launch": lambda text: read_launch(text, "mine.yaml"),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_parts_that_stand_for_billions_are_refused_before_they_take_memory(kind: str) -> None:
    tracemalloc.start()
    # 9 + 81 + ... + 9 ** 5 values are 66,429, and with their lists and keys some more; the next line has too many.
    with pytest.raises(ParseError, match=r"mine.yaml:6: more than 200,000 values, with each use"):
        SETTINGS[kind](ALIASES)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50e6


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x: 1\na: " + "[" * 20_000, "mine.yaml:2: brackets are nested more than 100 deep"),
        ("a: " + "{b: " * 20_000, "mine.yaml:1: brackets are nested"),
        ("\n\na: " + "9" * 5_000, "mine.yaml:3: a number of more than 300 digits"),
        ("a: b\n" * 1_000_000, "mine.yaml: 5,000,000 characters; at most 4,000,000"),
        ("\n".join(" " * n + "- " for n in range(0, 2000, 2)), r"mine.yaml(:\d+)?: nested more than 100 deep"),
        ("a: 1\nb: 2\na: 3\n", "mine.yaml:3: key given twice: a"),
        ("a: &a\n  b: *a\n", "mine.yaml:1: a part that holds itself"),
        ("a: [\n", "mine.yaml:2: is not YAML"),
    ],
)
def test_every_reader_of_settings_has_the_same_limits(kind: str, text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        SETTINGS[kind](text)


@pytest.mark.parametrize("kind", [kind for kind in SETTINGS if kind != "launch"])
def test_a_file_holds_one_document(kind: str) -> None:
    # A manifest among launches holds several.
    with pytest.raises(ParseError, match=r"mine\.yaml:2: is not YAML"):
        SETTINGS[kind]("a: 1\n---\nb: 1")


@pytest.mark.parametrize("kind", ["space", "launch"])
def test_a_date_that_there_is_not_is_no_fault_of_ours(kind: str) -> None:
    with pytest.raises(ParseError, match=r"mine.yaml:1: is not YAML: month must be in"):
        SETTINGS[kind]("since: 2020-13-45")


def test_a_part_used_often_is_counted_once_a_use() -> None:
    text = "a: &a [1, 2, 3]\nb: [*a, *a]\n"
    assert read_yaml(text, "a.yaml") == {"a": [1, 2, 3], "b": [[1, 2, 3]] * 2}
    assert yaml_node("", "a.yaml", yaml.SafeLoader) is None
    assert read_yaml("", "a.yaml") is None


def test_no_tag_makes_an_object() -> None:
    with pytest.raises(ParseError, match=r"a.yaml:1: is not YAML: could not determine a constructor"):
        read_yaml("!!python/object/apply:os.system [id]", "a.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", r"a.json:1: is not JSON: Expecting property name"),
        ("[\n1,\n]", r"a.json:3: is not JSON: "),
        ('{"a": {\n"b": 1,\n"c": [{"b": 1}],\n"b": 2}}', r"a.json:4: key given twice: b"),
        ("[" * 100_000, r"a.json: brackets are nested more than 100 deep"),
        ("[" * 101 + "[]" + "]" * 101, r"a.json: brackets are nested more than 100 deep"),
        ("[1,\n" + "9" * 301 + "]", r"a.json:2: a number of more than 300 digits"),
        ('{"a": 1e5}x', r"a.json:1: is not JSON: Extra data"),
    ],
)
def test_json_that_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        read_json(text, "a.json")


def test_json_that_is_read() -> None:
    assert read_json('{"a": [1, 2.5, "[[{"], "b": {"a": null}}', "a.json") == {"a": [1, 2.5, "[[{"], "b": {"a": None}}
    assert read_json("[" * 100 + "]" * 100, "a.json")


def test_values_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "limits", lambda: Limits(document_values=1_000))
    assert read_json("[" + "1," * 998 + "1]", "a.json")
    with pytest.raises(ParseError, match=r"a.json: more than 1,000 values"):
        read_json("[" + "[]," * 1_000 + "1]", "a.json")
    with pytest.raises(ParseError, match=r"a.csv: more than 1,000 cells"):
        table_lines("a,b\n" + "," * 1_000, "a.csv")
    assert list(table_lines('a,b\n"x\ny",1\r\n', "a.csv")) == ["a,b\n", '"x\n', 'y",1\r\n']


@pytest.mark.parametrize("text", ["a = \n", "a = 1\na = 2\n", "a = " + "[" * 20_000, "a = 2020-13-45"])
def test_toml_that_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match=r"^a.toml"):
        read_toml(text, "a.toml")


def test_a_graph_of_too_many_lines_is_refused() -> None:
    with pytest.raises(ParseError, match=r"more than 1,000,000 lines"):
        parse_graph(HEADER + "\n" * 1_000_002)
    # Marks that Python takes for the end of a line, and we do not, make no lines.
    with pytest.raises(ParseError, match="line 2: unknown word"):
        parse_graph(f"{HEADER}\n\x0bgraph\n")
