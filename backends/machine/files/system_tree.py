"""Trees of plain values as files of machines hold them, kept once they are read, and `--set` assignments onto them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from ....ir.errors import UsageError
from ....ir.text.files import cache_folder

# Raise when files are read into other trees.
_FORM = 1
Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | int | float | bool | None"


def kept_tree(text: str, where: str) -> dict[str, Tree]:
    """Read as `read_tree` does; what was read once is kept in the cache as JSON, ten times as fast as YAML.

    A cache that cannot be read or written only costs time.
    """
    key = hashlib.sha256(f"{_FORM}\n{text}".encode()).hexdigest()[:32]
    kept = cache_folder() / "trees" / f"{key}.json"
    try:
        found = json.loads(kept.read_bytes())
        if isinstance(found, dict):
            return found
    except (OSError, ValueError):
        pass
    from .yaml_tree import read_tree  # takes longer to import than all trees of an estimate take to read

    tree = read_tree(text, where)
    written = json.dumps(tree)
    if json.loads(written) == tree:  # JSON has no keys but text
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(f".{os.getpid()}")
            part.write_text(written, encoding="utf-8")
            part.replace(kept)
    return tree


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


def names_of(entries: Tree) -> list[str]:
    """Name the records of a list for people; one without a name has its place in the list.

    >>> names_of([{"name": "nvlink"}, {"nam": "typo"}])
    ['nvlink', '1']
    """
    found = entries if isinstance(entries, list) else []
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in found]
    return [name if isinstance(name, str) else str(place) for place, name in enumerate(names)]
