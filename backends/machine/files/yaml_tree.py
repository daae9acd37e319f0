"""YAML text of a machine's file into a tree of plain values, and the lines where its keys stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import yaml

from ....ir.errors import ParseError, SystemFileError
from ....ir.text.formats import yaml_node

if TYPE_CHECKING:
    from yaml import SafeLoader as BaseLoader

    from .system_tree import Tree
else:
    # libyaml is optional in PyYAML; without it the same grammar is read more slowly.
    BaseLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(BaseLoader):
    """YAML 1.2 scalars: `989e12` is a number, `no` and `1:30` are text, as every file of a machine is read."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML reads it from the class

    def tree_of(self, node: yaml.Node) -> object:
        """Return a node as plain values; PyYAML's own way there takes several times as long."""
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.tree_of(entry) for entry in node.value]
        if (
            isinstance(node, yaml.MappingNode)
            and node.tag == f"{_TAG}map"
            and all(key.tag in _SCALARS for key, _ in node.value)
        ):
            return {self.tree_of(key): self.tree_of(value) for key, value in node.value}
        return self.construct_object(node, deep=True)

    def _scalar(self, node: yaml.ScalarNode) -> object:
        try:
            return _SCALARS[node.tag](node.value)
        except ValueError:  # a tag that somebody wrote
            return self.construct_object(node)


_TAG = "tag:yaml.org,2002:"
_SCALARS: Mapping[str, Callable[[str], object]] = MappingProxyType(
    {
        f"{_TAG}str": str,
        f"{_TAG}int": int,
        f"{_TAG}float": float,
        f"{_TAG}null": lambda text: None,
        f"{_TAG}bool": lambda text: text == "true",
    }
)

for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def read_tree(text: str, where: str) -> dict[str, Tree]:
    """Read one YAML document whose top is a mapping; `where` names it in messages.

    >>> read_tree("{peak: 989e12, name: no, time: 1:30, on: true}", "demo")
    {'peak': 989000000000000.0, 'name': 'no', 'time': '1:30', 'on': True}
    """
    node = yaml_node(text, where, _Loader)
    try:
        tree = None if node is None else _Loader("").tree_of(node)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ParseError(f"{where}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise SystemFileError(f"{where}: expected a mapping of names at the top, as in 'name: my-system'")
    return tree


def line_of(text: str, keys: Sequence[str | int]) -> int:
    r"""Return the line of a key; where it is missing, of the mapping that should hold it.

    >>> line_of("name: demo\nchip:\n  power: 3 W\n", ["chip", "power"]), line_of("a: 1", ["b"])
    (3, 1)
    """
    node = yaml_node(text, "", _Loader)
    line = 1
    for key in keys:
        found = _below(node, key)
        if found is None:
            break
        line, node = found
    return line


def _below(node: yaml.Node | None, key: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        pairs = [(k.start_mark.line + 1, v) for k, v in node.value if k.value == key]
        return pairs[0] if pairs else None
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key].start_mark.line + 1, node.value[key]
    return None
