"""Changes of trees, texts, tables and bytes that keep enough of a seed to get past its parser."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Union

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")

Tree: TypeAlias = Union["dict[str, Tree]", "list[Tree]", str, float, bool, None]
Keys: TypeAlias = tuple[str | int, ...]

ODD: tuple[Tree, ...] = (
    0, -1, 1, 2, 3, 7, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"), 10**8, 10**18, 10**40, True,
    False, None, "", "x", "a" * 3000, "\u202e\u2603", "<script>alert(1)</script>", "../../../../etc/passwd",
    "/dev/zero", "=1+1", [], {}, [[]], {"a": {"b": {"c": 1}}}, "1e999", "-5 GB/s", "nan", "3 parsecs", "0", "-1",
    "null", 1.5, 0.1, [1], ["x"], "GB/s", 2**31, 2**63, "1:30", "1_000", "\uff10", "\x1b[31m", "=cmd()", "2020-13-45",
)  # fmt: skip
_YAML = (
    "&a", "*a", "!!python/object/apply:os.system ['id']", "!!binary x", "? ", ": ", "- ", "{", "}", "[", "]", "|", ">",
    "\t", "\x00", "\ufeff", "%YAML 9.9\n", "---\n", "...\n", "<<: *a", "&a [*a]", "\n\n", "'", '"', "#", "!!set {}",
    "1e400", "\x07", "\x85", "\u2028", "9" * 500, "NaN", "Infinity", ",", "2020-13-45",
)  # fmt: skip
_CELLS = (
    "", "nan", "inf", "-1", "0", "1e308", "x", "1e999", '"', "<script>", "=1+1", "9" * 40, "1.5", "\x00", "1,2",
    "llama-3.1-8b", "-0.0", "1e-320", "true", "9" * 500, "2020-13-45", "-inf",
)  # fmt: skip


class Still(random.Random):
    """Draws that change nothing: a case is then its seed as it is, and the n-th takes the n-th of each choice."""

    def __init__(self, turn: int) -> None:
        super().__init__(turn)
        self.turn, self.most = turn, 1

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        """Take the next of a sequence at each turn; `most` is the length of the longest."""
        return seq[self.randrange(len(seq))]

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Count through the numbers below `start`."""
        self.most = max(self.most, start)
        return self.turn % start


def times(rng: random.Random, counts: Sequence[int]) -> int:
    """Return how many changes to make, one of some counts."""
    return 0 if isinstance(rng, Still) else rng.choice(counts)


def keys_of(tree: Tree, above: Keys = ()) -> Iterator[Keys]:
    """Yield the place of each value of a tree below its top."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*above, key)
            yield from keys_of(value, (*above, key))
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield (*above, place)
            yield from keys_of(value, (*above, place))


def _get(tree: Tree, keys: Keys) -> Tree:
    for key in keys:
        if isinstance(tree, dict):
            tree = tree[str(key)]
        elif isinstance(tree, list) and isinstance(key, int):
            tree = tree[key]
        else:
            raise KeyError(key)
    return tree


def changed(rng: random.Random, tree: Tree, extra: Sequence[Tree] = ()) -> Tree:
    """Return a tree with one to three values changed, taken away or put where they do not belong."""
    found, places = copy.deepcopy(tree), list(keys_of(tree))
    for _ in range(times(rng, [1, 1, 1, 2, 3]) if places else 0):
        keys = rng.choice(places)
        try:
            above, value = _get(found, keys[:-1]), _get(found, keys)
            _change(rng, above, keys[-1], value, copy.deepcopy(_get(found, rng.choice(places))), (*ODD, *extra))
        except (KeyError, IndexError, TypeError):  # an earlier change took it away
            continue
    return found


def bred(rng: random.Random, tree: Tree, herd: Sequence[Tree]) -> Tree:
    """Return a tree with one to three values such as a person may write.

    A number is scaled, a key left out, or a value put where a seed of its format, one of a herd, has one.
    """
    found, kin = copy.deepcopy(tree), _kin(herd)
    for _ in range(times(rng, [1, 1, 2, 3])):
        keys = rng.choice(list(keys_of(found)) or [()])
        if not keys:
            break
        above, key, kind = _get(found, keys[:-1]), keys[-1], rng.random()
        record = kin.get(_places(keys)[0], {})
        if isinstance(above, list):
            above[int(key)] = _near(rng, above[int(key)]) if kind < 0.5 else _like(rng, record, "", above[int(key)])
        elif isinstance(above, dict) and isinstance(key, str):
            if kind < 0.15:
                del above[key]
                continue
            key = rng.choice(sorted(record)) if kind < 0.35 and record else key
            new = _like(rng, record, key, above.get(key))
            above[key] = _near(rng, new) if kind > 0.65 else new
    return found


def _places(keys: Keys) -> tuple[str, str]:
    """Return the names of the record that holds a value and of its key; entries of a list have none."""
    *names, _ = ("", *(key for key in keys[:-1] if isinstance(key, str)), "")
    return str(names[-1]), keys[-1] if isinstance(keys[-1], str) else ""


def _kin(herd: Sequence[Tree]) -> dict[str, dict[str, list[Tree]]]:
    """Return the values of trees by record and key."""
    found: dict[str, dict[str, list[Tree]]] = {}
    for tree in herd:
        for keys in keys_of(tree):
            record, key = _places(keys)
            found.setdefault(record, {}).setdefault(key, []).append(_get(tree, keys))
    return found


def _like(rng: random.Random, record: Mapping[str, Sequence[Tree]], key: str, value: Tree) -> Tree:
    return copy.deepcopy(rng.choice(record.get(key, [value])))


def _near(rng: random.Random, value: Tree) -> Tree:
    """Return a value next to one: another number, also in front of a unit, the other of two, a shorter list."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value * 2, max(value // 2, 1), value + 1])
    if isinstance(value, float):
        return value * rng.choice([0.5, 0.9, 1.1, 2.0])
    if isinstance(value, str) and (number := re.match(r"\d+(?:\.\d+)?(?=\s|$)", value)):
        return f"{float(number[0]) * rng.choice([0.5, 0.9, 1.1, 2.0]):g}{value[number.end() :]}"
    return value[: max(len(value) - 1, 1)] if isinstance(value, list) else value


def _change(rng: random.Random, above: Tree, key: str | int, value: Tree, other: Tree, odd: Sequence[Tree]) -> None:
    if not isinstance(above, dict | list):
        return
    kind = rng.random()
    new: Tree = copy.deepcopy(rng.choice(odd))
    if kind < 0.2 and isinstance(value, int | float) and not isinstance(value, bool):
        new = rng.choice([value * 2, value * 1000, -value, value + 1, value - 1, value / 3, value * 1e9])
    elif kind < 0.3 and isinstance(value, str) and value:
        new = rng.choice([value[::-1], value + value, value[:-1], value + "0", "-" + value, value.upper()])
    elif kind < 0.4:
        new = other
    elif kind < 0.5:
        new = [copy.deepcopy(value)] * rng.choice([1, 2, 50])
    elif kind < 0.6:
        if isinstance(above, dict):
            above.pop(str(key), None)
        elif isinstance(key, int):
            above.pop(key)
        return
    elif kind < 0.7 and isinstance(above, dict):
        key = rng.choice(["x", "", "like", "name", "value", "unit", "source", "levels", "size", str(key).upper()])
    if isinstance(above, dict):
        above[str(key)] = new
    elif isinstance(key, int):
        above[key] = new


def rough(rng: random.Random, text: str, bits: Sequence[str] = _YAML) -> str:
    """Return a text with parts put in, taken out, doubled, cut off, or lines of it moved."""
    for _ in range(times(rng, [1, 1, 2, 5])):
        kind, start = rng.random(), rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice([1, 1, 3, 20, 200]))
        if kind < 0.35:
            text = text[:start] + rng.choice(bits) + text[start:]
        elif kind < 0.6:
            text = text[:start] + text[end:]
        elif kind < 0.75:
            text = text[:start] + text[start:end] * rng.choice([2, 3]) + text[end:]
        elif kind < 0.95:
            lines = text.splitlines(keepends=True) or [""]
            lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
            text = "".join(lines)
        else:
            text = text[:start]
    return text


def retabled(rng: random.Random, text: str) -> str:
    """Return a CSV text with cells changed."""
    lines = text.splitlines()
    for _ in range(times(rng, [1, 1, 2, 4])):
        line = rng.randrange(len(lines))
        cells = lines[line].split(",")
        cells[rng.randrange(len(cells))] = rng.choice(_CELLS)
        lines[line] = ",".join(cells)
    return "\n".join(lines) + "\n"


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|%\d+|[\w.*^+-]+|\S')


def reworded(rng: random.Random, text: str, words: Sequence[str]) -> str:
    """Return a text with words of its lines replaced, by others or by some that are given."""
    lines = text.splitlines()
    for _ in range(times(rng, [1, 1, 2, 4])):
        at = rng.randrange(len(lines))
        tokens = list(_TOKEN.finditer(lines[at]))
        if not tokens:
            continue
        token, kind = rng.choice(tokens), rng.random()
        others = list(_TOKEN.finditer(rng.choice(lines))) or tokens
        new = rng.choice(others).group() if rng.random() < 0.5 else rng.choice(words)
        if kind < 0.85:
            lines[at] = lines[at][: token.start()] + new + lines[at][token.end() :]
        elif kind < 0.95:
            lines[at] = lines[at][: token.start()] + lines[at][token.end() :]
        else:
            lines.insert(rng.randrange(len(lines)), lines[at])
    return "\n".join(lines) + "\n"


_CLASSES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![\w.%])\d+(?![\w.])",
        r"%\d+",
        r"~\d+",
        r"\b(?:bf16|fp16|fp32|int64|bool|fp8_e4m3)\b",
        r"\b(?:batch|seq|kv)\b",
        r"(?<== )\w+(?=\()",
        r"\w+=(?:\[[^\]]*\]|\"[^\"]*\"|[\w.]+)(?=[,}])",
        r"\b(?:param|buffer|input|port|cache)\b",
        r" (?:backward|recompute|prepare|reduce|optimizer)\b",
        r"\"[xd]\d+\"",
        r" saved\b",
    )
)
_NUMBERS = ("0", "1", "2", "3", "7", "255", "512", "1000000", "9" * 19, "9" * 40)


def swapped(rng: random.Random, text: str) -> str:
    """Return a graph's text with a word replaced by another of its class, once or wherever it stands."""
    for _ in range(times(rng, [1, 1, 2])):
        kind = rng.choice(_CLASSES)
        words = [match.group() for match in kind.finditer(text)]
        if not words:
            continue
        old = rng.choice(words)
        new = rng.choice(_NUMBERS) if kind is _CLASSES[0] and rng.random() < 0.6 else rng.choice([*words, "", old * 2])
        places = [match.span() for match in kind.finditer(text) if match.group() == old]
        for start, end in reversed(places if rng.random() < 0.4 else [rng.choice(places)]):
            text = text[:start] + new + text[end:]
    return text


def flipped(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with some of them changed, taken out or put in."""
    found = bytearray(data)
    for _ in range(times(rng, [1, 1, 3, 20])):
        at, kind = rng.randrange(len(found)) if found else 0, rng.random()
        if kind < 0.7 and found:
            found[at] = rng.randrange(256)
        elif kind < 0.85:
            del found[at : at + rng.choice([1, 4, 100])]
        else:
            found[at:at] = rng.randbytes(4)
    return bytes(found)
