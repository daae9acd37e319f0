"""YAML text into a tree of plain values, and `--set` assignments onto that tree before it is checked.

PyYAML is imported by what reads YAML: it takes longer to import than all trees of an estimate, which are kept, to read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from ....ir.errors import ParseError, SystemFileError, UsageError
from ....ir.text.files import TextCache
from ....ir.text.formats import yaml_node

if TYPE_CHECKING:
    import yaml

# Raise when files are read into other trees.
_FORM = 2
Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | int | float | bool | None"
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
# What each kind of scalar looks like, and what it begins with.
_RESOLVED = (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
)


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Return what reads YAML 1.2: `989e12` is a number, `no` and `1:30` are text, as in every file of a machine."""
    import yaml

    # libyaml is optional in PyYAML; without it the same grammar is read more slowly.
    base = yaml.SafeLoader if TYPE_CHECKING else getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    # PyYAML reads the resolvers of a class from the class.
    made: type[yaml.SafeLoader] = type("Loader", (base,), {"yaml_implicit_resolvers": {}})

    for tag, pattern, first in _RESOLVED:
        made.add_implicit_resolver(f"{_TAG}{tag}", re.compile(rf"(?:{pattern})\Z"), list(first))
    return made


def _tree_of(loader: yaml.SafeLoader, node: yaml.Node) -> object:
    """Return a node as plain values; PyYAML's own way there takes several times as long."""
    import yaml

    def tree_of(node: yaml.Node) -> object:
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return scalar(node)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [tree_of(entry) for entry in node.value]
        if (
            isinstance(node, yaml.MappingNode)
            and node.tag == f"{_TAG}map"
            and all(key.tag in _SCALARS for key, _ in node.value)
        ):
            return {tree_of(key): tree_of(value) for key, value in node.value}
        return loader.construct_object(node, deep=True)

    def scalar(node: yaml.ScalarNode) -> object:
        try:
            return _SCALARS[node.tag](node.value)
        except ValueError:  # a tag that somebody wrote
            return loader.construct_object(node)

    return tree_of(node)


def read_tree(text: str, where: str) -> dict[str, Tree]:
    """Read one YAML document whose top is a mapping; `where` names it in messages.

    >>> read_tree("{peak: 989e12, name: no, time: 1:30, on: true}", "demo")
    {'peak': 989000000000000.0, 'name': 'no', 'time': '1:30', 'on': True}
    """
    import yaml

    node = yaml_node(text, where, _loader())
    try:
        tree = None if node is None else _tree_of(_loader()(""), node)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ParseError(f"{where}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise SystemFileError(f"{where}: expected a mapping of names at the top, as in 'name: my-system'")
    return tree


def kept_tree(text: str, where: str) -> dict[str, Tree]:
    """Read as `read_tree` does; what was read once is kept in the cache as JSON, ten times as fast as YAML.

    Whatever happened to the cache, the tree is that of the text (`ir/text/files.py`).
    """
    key = hashlib.sha256(f"{_FORM}\n{text}".encode()).hexdigest()[:32]
    cache, name = TextCache.of("trees"), f"{key}.json"
    found = _tree_from(cache.get(name))
    if found is not None:
        return found
    tree = read_tree(text, where)
    written = json.dumps(tree)
    if json.loads(written) == tree:  # JSON has no keys but text
        cache.put(name, written)
    return tree


def _tree_from(kept: str | None) -> dict[str, Tree] | None:
    """Return the tree of a kept text, None for no tree."""
    try:
        found = None if kept is None else json.loads(kept)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def line_of(text: str, keys: Sequence[str | int]) -> int:
    r"""Return the line of a key; where it is missing, of the mapping that should hold it.

    >>> line_of("name: demo\nchip:\n  power: 3 W\n", ["chip", "power"]), line_of("a: 1", ["b"])
    (3, 1)
    """
    node = yaml_node(text, "", _loader())
    line = 1
    for key in keys:
        found = _below(node, key)
        if found is None:
            break
        line, node = found
    return line


def _below(node: yaml.Node | None, key: str | int) -> tuple[int, yaml.Node] | None:
    import yaml

    if isinstance(node, yaml.MappingNode):
        pairs = [(k.start_mark.line + 1, v) for k, v in node.value if k.value == key]
        return pairs[0] if pairs else None
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key].start_mark.line + 1, node.value[key]
    return None


def split_override(text: str) -> tuple[tuple[str, ...], str]:
    """Split `path.to.key=value`; a leading `system.` says nothing and is dropped.

    >>> split_override("system.chip.memory.hbm.bandwidth=4.8TB/s")
    (('chip', 'memory', 'hbm', 'bandwidth'), '4.8TB/s')
    """
    path, equals, value = text.partition("=")
    keys = tuple(path.strip().split("."))
    if not equals or not all(keys) or not value.strip():
        raise UsageError(f"cannot set '{text}': write path=value, as in chip.memory.hbm.bandwidth=4.8TB/s")
    return (keys[1:] if keys[0] == "system" and len(keys) > 1 else keys), value.strip()


def assign(tree: dict[str, Tree], keys: Sequence[str], leaf: Tree) -> dict[str, Tree]:
    """Return the tree with one leaf replaced; the tree given stays as it is.

    A list of records is entered by the name of the record, or its place where it has none.
    """
    head, rest = keys[0], keys[1:]
    if not rest:
        return {**tree, head: leaf}
    below = tree.get(head)
    if isinstance(below, list):
        return {**tree, head: _assign_named(below, rest, leaf)}
    return {**tree, head: assign(below if isinstance(below, dict) else {}, rest, leaf)}


def _assign_named(entries: list[Tree], keys: Sequence[str], leaf: Tree) -> list[Tree]:
    found: list[Tree] = []
    for name, entry in zip(names_of(entries), entries, strict=True):
        if name != keys[0]:
            found.append(entry)
        elif len(keys) == 1:
            found.append(leaf)
        else:
            found.append(assign(entry if isinstance(entry, dict) else {}, keys[1:], leaf))
    return found


def part_at(tree: Tree, keys: Sequence[str]) -> Tree:
    """Return what stands at a path, where lists are entered by the names of their records; None for nothing.

    >>> part_at({"network": [{"name": "nvlink", "size": 8}]}, ["network", "nvlink", "size"])
    8
    """
    for key in keys:
        names = names_of(tree)
        if isinstance(tree, list):
            tree = tree[names.index(key)] if key in names else None
        else:
            tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def names_of(entries: Tree) -> list[str]:
    """Name the records of a list for people; one without a name has its place in the list.

    >>> names_of([{"name": "nvlink"}, {"nam": "typo"}])
    ['nvlink', '1']
    """
    found = entries if isinstance(entries, list) else []
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in found]
    return [name if isinstance(name, str) else str(place) for place, name in enumerate(names)]
