"""Texts of users as values: YAML, JSON and TOML, within limits, no key twice; ParseError names file and line."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING

from ..errors import ParseError
from .limits import limits, too_much
from .shown import control_at, shown

if TYPE_CHECKING:
    import yaml

_BRACKETS = re.compile(r"[\[\]{}]")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")\s*(:?)|[\[\]{}]', re.DOTALL)


# As an escape; raw ones are no JSON. Behind an even number of backslashes it begins one.
_JSON_CONTROL = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u00(?:0[0-8bcefBCEF]|1[0-9a-fA-F]|7[fF]|[89][0-9a-fA-F])|b|f)")
# A pair of surrogates, half of one, or any other escape.
_SURROGATES = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\u[dD][89a-fA-F]\w\w|\\.", re.DOTALL)


def line_at(text: str, at: int) -> int:
    r"""Return the line of a place in a text.

    >>> line_at("a\nb", 2)
    2
    """
    return text.count("\n", 0, at) + 1


def check_settings(text: str, where: str) -> None:
    """Raise ParseError for a text of settings that is larger, deeper or has longer numbers than any that people write.

    >>> check_settings("[" * 200, "a.yaml")
    Traceback (most recent call last):
        ...
    slipstick.ir.errors.ParseError: a.yaml:1: brackets are nested more than 100 deep; SLIPSTICK_LIMITS=N raises all \
limits of files N times
    """
    most = limits()
    if len(text) > most.settings_bytes:
        raise too_much(where, f"{len(text):,} characters; at most {most.settings_bytes:,} are read")
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth = depth + 1 if match[0] in "[{" else max(depth - 1, 0)
        if depth > most.depth:
            raise too_much(
                f"{where}:{line_at(text, match.start())}", f"brackets are nested more than {most.depth} deep"
            )
    check_digits(text, where)


def check_digits(text: str, where: str) -> None:
    """Raise ParseError for a number that is longer than any that means something."""
    digits = limits().digits
    # Of base 16 five digits are six of base 10.
    if found := re.search(rf"[0-9][0-9_]{{{digits},}}|0[xX][0-9a-fA-F_]{{{digits * 5 // 6 + 1},}}", text):
        raise too_much(f"{where}:{line_at(text, found.start())}", f"a number of more than {digits} digits")


def read_json(text: str, where: str, any_text: bool = False, exact: bool = False) -> object:
    """Return the value of a JSON text; with `any_text` its texts may be of any kind, such as answers of a model.

    With `exact`, numbers with a point are decimals, with all their digits.

    Raises:
        ParseError: no JSON, nested too deep, too many values, a number of too many digits, a key given twice, a control
            character.
    """
    most = limits()
    if not any_text and (found := _JSON_CONTROL.search(text)):
        raise ParseError(f"{where}:{line_at(text, found.start())}: a control character in a text: {found[0]}")
    # Counted before they take memory, some of them in strings.
    if text.count(",") + text.count("[") + text.count("{") > most.document_values:
        raise too_much(where, f"more than {most.document_values:,} values")
    if len(text) <= most.settings_bytes:
        check_digits(text, where)
    try:
        tree: object = json.loads(text, object_pairs_hook=_without_repeats, parse_float=Decimal if exact else None)
    except json.JSONDecodeError as error:
        raise ParseError(f"{where}:{error.lineno}: is not JSON: {error.msg}, column {error.colno}") from error
    except RecursionError as error:
        raise too_much(where, f"brackets are nested more than {most.depth} deep") from error
    except _RepeatedKeyError as error:
        raise ParseError(f"{where}:{_line_of_repeat(text)}: key given twice: {error.args[0]}") from None
    except ValueError as error:  # more digits than Python reads
        raise too_much(where, f"a number of more than {most.digits} digits") from error
    if _is_deeper(tree, most.depth):
        raise too_much(where, f"brackets are nested more than {most.depth} deep")
    if not any_text:
        check_characters(text, where)
    return tree


def check_characters(text: str, where: str) -> None:
    r"""Raise ParseError for a text of JSON that escapes half of a character, which nothing can print.

    >>> check_characters(r'"\ud83d\ude00 \\ud83d"', "a.json")
    >>> check_characters(r'"\ud83d"', "a.json")
    Traceback (most recent call last):
        ...
    slipstick.ir.errors.ParseError: a.json:1: half of a character in a text: \ud83d
    """
    for match in _SURROGATES.finditer(text):
        if len(match[0]) == len(r"\ud83d"):
            raise ParseError(f"{where}:{line_at(text, match.start())}: half of a character in a text: {match[0]}")


class _RepeatedKeyError(Exception):
    """A key that an object has twice."""


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _RepeatedKeyError(next(key for key, count in counts.items() if count > 1))
    return found


def _line_of_repeat(text: str) -> int:
    """Return the line where an object names a key again; 1 where none does."""
    open_objects: list[set[str]] = []
    for match in _TOKEN.finditer(text):
        if match[0] in ("{", "["):
            open_objects.append(set())
        elif match[0] in ("}", "]"):
            open_objects = open_objects[:-1]
        elif match[2] and open_objects:
            if match[1] in open_objects[-1]:
                return line_at(text, match.start())
            open_objects[-1].add(match[1])
    return 1


def _is_deeper(tree: object, depth: int) -> bool:
    """Whether values lie deeper in one another; level by level, as Python's own stack has limits, too."""
    level: Iterable[object] = [tree]
    for _ in range(depth + 1):
        level = [
            one
            for found in level
            if isinstance(found, dict | list)
            for one in (found.values() if isinstance(found, dict) else found)
            if isinstance(one, dict | list)
        ]
        if not level:
            return False
    return True


def read_toml(text: str, where: str) -> dict[str, object]:
    """Return the table of a TOML text; ParseError as `read_json`."""
    import tomllib

    check_settings(text, where)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ParseError(f"{where}: is not TOML: {str(error) or 'nested too deep'}") from error


def read_yaml(text: str, where: str) -> object:
    """Return the value of one YAML document in YAML 1.1, as PyYAML reads it; ParseError as `yaml_node`."""
    import yaml

    node = yaml_node(text, where, yaml.SafeLoader)
    if node is None:
        return None
    loader = yaml.SafeLoader(text)
    try:
        found: object = loader.construct_document(node)
    # What a tag says of a text that is none of its kind is no error of PyYAML's own.
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise ParseError(f"{_place(where, error, node)}: is not YAML: {_said(error)}") from error
    finally:
        loader.dispose()
    return found


def yaml_node(text: str, where: str, loader: type[yaml.SafeLoader | yaml.BaseLoader]) -> yaml.Node | None:
    """Return the node of one YAML document, None of an empty one; nothing that it stands for is made yet.

    Raises:
        ParseError: no YAML, nested too deep, a number of too many digits, a key given twice, a part that holds itself,
            or aliases that stand for too many values.
    """
    import yaml

    check_settings(text, where)
    try:
        node = yaml.compose(text, Loader=loader)
        if node is not None:
            _check_node(node, where)
    except RecursionError as error:
        raise too_much(where, f"nested more than {limits().depth} deep") from error
    except yaml.YAMLError as error:
        raise ParseError(f"{_place(where, error)}: is not YAML: {_said(error)}") from error
    return node


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())


def _place(where: str, error: BaseException, node: yaml.Node | None = None) -> str:
    """Say file and line of what PyYAML cannot read."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    mark = mark or (node.start_mark if node is not None else None)
    return where if mark is None else f"{where}:{mark.line + 1}"


def _check_node(root: yaml.Node, where: str) -> None:
    """Raise ParseError for what a document may not stand for; each part that has a name is looked at once."""
    import yaml

    most, sizes, above = limits(), dict[int, int](), set[int]()

    def count(node: yaml.Node, depth: int) -> int:
        """Values that a node stands for, with each use of a part that is named counted."""
        if isinstance(node, yaml.ScalarNode):
            if found := control_at(node.value):
                line = node.start_mark.line + 1
                raise ParseError(f"{where}:{line}: a control character in a text: {shown(found[0])}")
            if node.tag in _NUMBERS and len(node.value) > most.digits:
                line = node.start_mark.line + 1
                raise too_much(f"{where}:{line}", f"a number of more than {most.digits} digits")
            return 1
        here = f"{where}:{node.start_mark.line + 1}"
        if id(node) in above:
            raise ParseError(f"{here}: a part that holds itself")
        if depth > most.depth:
            raise too_much(here, f"nested more than {most.depth} deep")
        if id(node) not in sizes:
            above.add(id(node))
            if isinstance(node, yaml.MappingNode):
                _check_keys(node, where)
            parts = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
            sizes[id(node)] = 1 + sum(count(part, depth + 1) for part in parts)
            above.remove(id(node))
        if sizes[id(node)] > most.settings_values:
            raise too_much(
                here, f"more than {most.settings_values:,} values, with each use of a part that is named counted"
            )
        return sizes[id(node)]

    count(root, 1)


def _check_keys(node: yaml.MappingNode, where: str) -> None:
    import yaml

    seen = set[Hashable]()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in seen:
            raise ParseError(f"{where}:{key.start_mark.line + 1}: key given twice: {key.value}")
        seen.add(key.value)


def table_lines(text: str, where: str) -> io.StringIO:
    """Return the lines of a CSV text as `csv` reads them; ParseError for more cells than a table has."""
    most = limits().document_values
    if text.count(",") + text.count("\n") > most:
        raise too_much(where, f"more than {most:,} cells")
    return io.StringIO(text, newline="")
