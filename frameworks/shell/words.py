"""Words of a shell as it would fill them in: variables, arrays, defaults, patterns, quotes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from ...ir.errors import ParseError
from ...ir.records import dataclass
from ...ir.units import is_digits
from .marks import LOST, UNKNOWN
from .prints import MOST_WORDS, PRINTS, cut_match, numbers_between
from .sums import HOLE, work_out

if TYPE_CHECKING:
    from tree_sitter import Node

# A script that does more than this, or makes longer texts, is no launch.
MOST_STEPS, MOST_CHARS = 2_000_000, 4_000_000
# Characters of all texts that are made, one by one and together.
_MOST_MADE = 20_000_000
_GAP = re.compile(rf"(?:[^\s{UNKNOWN}]|{UNKNOWN}[^{UNKNOWN}]*{UNKNOWN})+")
_UNSET = re.compile(rf"{UNKNOWN}\$\{{?\w+\}}?{UNKNOWN}")
_MARK = re.compile(rf"{UNKNOWN}[^{UNKNOWN}]*{UNKNOWN}")
State: TypeAlias = "tuple[dict[str, str], dict[str, list[str]], dict[str, dict[str, str]]]"


@dataclass(slots=True)
class Variables:
    """What is known so far: variables, arrays and tables by name; `fixed` are read-only, `whole` numbers."""

    known: dict[str, str]
    arrays: dict[str, list[str]] = field(default_factory=dict)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    steps: int = 0
    made: int = 0

    def saved(self, node: Node) -> State:
        """Return a copy of all variables."""
        self.make(len(self.known) + len(self.arrays) + sum(map(len, self.tables.values())), node)
        return dict(self.known), dict(self.arrays), {name: dict(table) for name, table in self.tables.items()}

    def restore(self, state: State) -> None:
        """Set all variables to what they were."""
        self.known, self.arrays, self.tables = state

    def lose_changes(self, state: State) -> None:
        """Mark the variables that are not what they were as unknown: they may have been changed, or not."""
        known, arrays, tables = state
        self.tables.update({name: {} for name in self.tables if self.tables[name] != tables.get(name)})
        for name in {*known, *self.known, *arrays, *self.arrays}:
            if self.known.get(name) != known.get(name) or self.arrays.get(name) != arrays.get(name):
                self.arrays.pop(name, None)
                self.assign(name, None)

    def assign(self, name: str, value: int | None) -> None:
        """Set a variable to a number; None for one that only a shell could know."""
        self.known[name] = f"{UNKNOWN}${name}{LOST}{UNKNOWN}" if value is None else str(value)

    def step(self, node: Node) -> None:
        """Count one step; ParseError for a script without end."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise ParseError(f"line {line_of(node)}: the script takes more than {MOST_STEPS:,} steps to read")

    def make(self, size: int, node: Node) -> None:
        """Count characters of a text before it is made, or what it takes to look through one.

        Raises:
            ParseError: a script whose texts grow without end.
        """
        self.made += size
        if self.made > _MOST_MADE:
            raise ParseError(f"line {line_of(node)}: the script makes more than {_MOST_MADE:,} characters of text")

    def join(self, words: Sequence[str], node: Node) -> str:
        """Return words as one text."""
        self.make(sum(map(len, words)) + len(words), node)
        return " ".join(words)

    def look(self, text: str, pattern: str, node: Node) -> None:
        """Count what it takes to look for a pattern in a text."""
        self.make(len(text) * (1 + pattern.count("*")), node)


def line_of(node: Node) -> int:
    """Return the line on which a node begins, from one."""
    return int(node.start_point[0]) + 1


def source(node: Node) -> str:
    """Return a node as it is written."""
    return "" if node.text is None else node.text.decode(errors="replace")


def unknown(node: Node) -> str:
    """Return the mark of what only a shell could know."""
    return f"{UNKNOWN}{source(node).replace(UNKNOWN, '')}{UNKNOWN}"


def unset_is_empty(text: str) -> str:
    """Return a text in which a variable that nobody set is empty, as in a shell."""
    return _UNSET.sub("", text)


def words(scope: Variables, node: Node) -> list[str]:
    """Return the words that a node of a command becomes: none, one, or as many as its arrays and blanks make."""
    found = _words(scope, node)
    scope.make(sum(map(len, found)) + len(found), node)
    return found


def _words(scope: Variables, node: Node) -> list[str]:
    scope.step(node)
    if node.type == "string":
        inner = _inner(node)
        whole = array_of(scope, inner[0]) if len(inner) == 1 else None
        return whole if whole is not None else [text(scope, node)]
    if node.type == "concatenation":
        return _joined(scope, node)
    if node.type == "brace_expression":
        return numbers_between(source(node))
    if node.type in ("simple_expansion", "expansion", "command_substitution"):
        whole = array_of(scope, node)
        parts = whole if whole is not None else [text(scope, node)]
        return _checked([word for part in parts for word in _GAP.findall(part)], node)
    return [text(scope, node)]


def text(scope: Variables, node: Node) -> str:
    """Return the text that a node becomes where nothing is split: in quotes, and in an assignment."""
    scope.step(node)
    match node.type:
        case "string" | "concatenation" | "heredoc_body" | "translated_string":
            found = _between(scope, node)
        case "raw_string":
            found = source(node)[1:-1]
        case "ansi_c_string":
            found = source(node)[2:-1].replace("\\n", "\n").replace("\\t", "\t")
        case "simple_expansion":
            found = _variable(scope, source(node)[1:], node)
        case "expansion":
            found = _expansion(scope, node)
        case "arithmetic_expansion":
            value = sum_of(scope, [node])
            found = unknown(node) if value is None else str(value)
        case "command_substitution":
            found = _printed(scope, node)
        case "process_substitution":
            found = unknown(node)
        case "array":
            found = scope.join([word for child in _inner(node) for word in words(scope, child)], node)
        case "command_name" if node.child_count == 1:
            found = text(scope, node.children[0])
        case _:
            found = re.sub(r"\\(.)", r"\1", re.sub(r"\\\r?\n", "", source(node)))
    if len(found) > MOST_CHARS:
        raise ParseError(f"line {line_of(node)}: a text of {len(found):,} characters: at most {MOST_CHARS:,} are read")
    scope.make(len(found), node)
    return found


def sum_of(scope: Variables, nodes: Sequence[Node]) -> int | None:
    """Work out the sum that nodes are, and assign what it assigns; None where a part is not known."""
    written = "".join(_between(scope, node, False) for node in nodes).strip()
    inner = re.fullmatch(r"\$?\(\((.*)\)\)|\$\[(.*)\]", written, re.DOTALL)
    return sum_in(scope, written if inner is None else inner[1] or inner[2] or "", nodes[0])


def sum_in(scope: Variables, written: str, node: Node) -> int | None:
    """Work out the sum that a text is, as `sum_of`."""
    scope.make(len(written), node)
    return work_out(_MARK.sub(HOLE, written), scope.known.get, scope.assign)


def array_of(scope: Variables, node: Node) -> list[str] | None:
    """Return the elements of `$@` or `${A[@]}`; None for any other node. A script is called with no arguments."""
    written = source(node)
    if written in ("$@", "$*", "${@}", "${*}"):
        return list(scope.arrays.get("@", []))
    match = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", written)
    if match is None:
        return None
    name = match[1]
    return list(scope.arrays.get(name, [scope.known[name]] if name in scope.known else []))


def _inner(node: Node) -> list[Node]:
    """Return what stands between quotes or brackets."""
    return [child for child in node.children if child.type not in ('"', "(", ")", "$(", "`", "$", '$"')]


# Parts of a sum that are filled in; all others stand as they are written.
_FILLED = ("simple_expansion", "expansion", "command_substitution", "string", "raw_string", "arithmetic_expansion")


def _between(scope: Variables, node: Node, is_text: bool = True) -> str:
    """Fill in what is to be filled in of a text, or of a sum, and keep what stands between as it is written."""
    raw = node.text or b""
    found, at = [], 0
    for child in node.children:
        start, end = child.start_byte - node.start_byte, child.end_byte - node.start_byte
        found.append(_unescaped(raw[at:start].decode(errors="replace"), node))
        if child.type in ("string_content", "heredoc_content"):
            found.append(_unescaped(source(child), node))
        elif not is_text and child.type not in _FILLED:
            found.append(_between(scope, child, False))
        elif child.type not in ('"', '$"'):
            found.append(text(scope, child))
        at = end
    return "".join(found) + _unescaped(raw[at:].decode(errors="replace"), node)


def _unescaped(written: str, node: Node) -> str:
    """Take the backslashes out that a shell takes out inside of double quotes."""
    if node.type == "concatenation":
        return written
    return re.sub(r"\\(\r?\n|[\"$`\\])", lambda match: "" if match[1].endswith("\n") else match[1], written)


def _joined(scope: Variables, node: Node) -> list[str]:
    """Put the parts of one word together: the first of a part continues the last of the part before it."""
    found: list[str] = []
    for child in node.children:
        more = words(scope, child)
        if found and more:
            more[0] = found.pop() + more[0]
        found += more
    return _checked(found, node)


def _variable(scope: Variables, name: str, node: Node) -> str:
    if name in scope.known:
        return scope.known[name]
    elements = scope.arrays.get("@" if name == "*" else name, [] if name in "@*" else None)
    return unknown(node) if elements is None else scope.join(elements[:1] if name not in "@*" else elements, node)


def _expansion(scope: Variables, node: Node) -> str:
    """Fill in `${NAME}` with what changes it: a default, an alternative, a prefix or a suffix taken off, a length."""
    # What is matched inside of an index is not tried in other ways: there are two for each `${b}`.
    index_of = r"(\[(?:\$\{[^{}]*\}|[^\[\]])*+\])?"
    match = re.fullmatch(rf"\$\{{([#!]?)(\w+|[@*]){index_of}(.*)\}}", source(node), re.DOTALL)
    if match is None:
        return unknown(node)
    how, name, index, change = match.groups()
    value = _element(scope, name, index, node)
    if how == "#":
        listed = scope.arrays.get(name) if index else None
        return unknown(node) if value is None and listed is None else str(len(listed or value or ""))
    if how == "!":
        return unknown(node) if value is None or UNKNOWN in value else _variable(scope, value, node)
    if not change:
        return unknown(node) if value is None else value
    operator = re.match(r":?[-=+?]", change)
    if operator is not None:
        return _or_other(scope, value, operator[0], node, name)
    if value is None or UNKNOWN in value:
        return unknown(node)
    return _changed(scope, value, change, node)


def _element(scope: Variables, name: str, index: str | None, node: Node) -> str | None:
    """Return a variable, or an element of an array or a table; None where nobody set it."""
    if index is None:
        return scope.known.get(name, next(iter(scope.arrays.get(name, [])), None))
    subscript = next((c for c in node.children if c.type == "subscript"), None)
    inner = subscript.child_by_field_name("index") if subscript is not None else None
    key = index[1:-1] if inner is None else text(scope, inner)
    if key in ("@", "*"):
        return scope.join(scope.arrays[name], node) if name in scope.arrays else None
    if name in scope.tables:
        return scope.tables[name].get(key)
    elements = scope.arrays.get(name, [])
    return elements[int(key)] if is_digits(key) and len(key) < 9 and int(key) < len(elements) else None


def _or_other(scope: Variables, value: str | None, operator: str, node: Node, name: str) -> str:
    """Return a variable or what stands in its place: `:-` and `:=` where it is empty, `:+` where it is not."""
    is_there = value is not None and not (operator.startswith(":") and value == "")
    others = _after(node, operator)
    other = "".join(text(scope, child) for child in others)
    match operator[-1]:
        case "+":
            return other if is_there else ""
        case "?":
            return value if is_there and value is not None else unknown(node)
        case _:
            found = value if is_there and value is not None else other
            if operator[-1] == "=":
                scope.known[name] = found
            return found


def _after(node: Node, operator: str) -> list[Node]:
    at = next((k for k, child in enumerate(node.children) if child.type == operator), len(node.children))
    return [child for child in node.children[at + 1 :] if child.type != "}"]


def _changed(scope: Variables, value: str, change: str, node: Node) -> str:
    """Take a prefix or suffix off, replace, change the case, or cut."""
    if change in ("^^", ",,", "^", ","):
        whole = value.upper() if "^" in change else value.lower()
        return whole if len(change) == 2 else whole[:1] + value[1:]
    if (cut := re.fullmatch(r":\s*([0-9]{1,7})(?::([0-9]{1,7}))?", change)) is not None:
        start = int(cut[1])
        return value[start:] if cut[2] is None else value[start : start + int(cut[2])]
    if (off := re.match(r"##?|%%?", change)) is not None:
        pattern = "".join(text(scope, child) for child in _after(node, off[0]))
        # Each prefix, or each suffix, is looked through.
        scope.make(len(value) // 100 * len(value), node)
        scope.look(value, pattern, node)
        return unknown(node) if UNKNOWN in pattern else cut_match(value, off[0], pattern)
    if (replaced := re.fullmatch(r"(//?)([^/$*?\[]+)/([^$]*)", change)) is not None:
        scope.make(value.count(replaced[2]) * len(replaced[3]), node)
        return value.replace(replaced[2], replaced[3], -1 if replaced[1] == "//" else 1)
    return unknown(node)


def _printed(scope: Variables, node: Node) -> str:
    """Return what a command would print that needs no shell: seq, echo, printf, dirname, basename."""
    inner = [child for child in _inner(node) if child.type == "command"]
    if len(inner) != 1:
        return unknown(node)
    name, *arguments = [word for child in inner[0].children for word in words(scope, child)]
    if name not in PRINTS or any(UNKNOWN in word for word in arguments):
        return unknown(node)
    if name == "printf" and arguments:
        # The format is written once for each argument.
        scope.make(len(arguments) * len(arguments[0]), node)
    found = PRINTS[name](arguments)
    return unknown(node) if found is None else found


def _checked(found: list[str], node: Node) -> list[str]:
    if len(found) > MOST_WORDS:
        raise ParseError(f"line {line_of(node)}: {len(found):,} words: at most {MOST_WORDS:,} are read")
    return found
