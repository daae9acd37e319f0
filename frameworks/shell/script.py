"""A shell script as the commands that it would run, and the files that it would write; nothing of it is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...ir.errors import ParseError
from ...ir.units import is_digits
from .conditions import holds, is_sum
from .effects import Command, ShellScript, assign, keep_outer, read_slurm, scripts_in, write_file
from .marks import UNKNOWN
from .words import MOST_CHARS, Variables, line_of, source, sum_in, sum_of, text, words

if TYPE_CHECKING:
    from tree_sitter import Node

# Of a function that calls itself, and of a script within a word of a script.
_DEEPEST = 20
# Turns of loops that are read, all together; what others change is not known.
_MOST_TURNS = 10_000
_LEAVES = ("return", "break", "continue")
_LOCAL = ("local", "declare", "typeset")
_SIMPLE = ("command", "declaration_command", "variable_assignment", "variable_assignments", "unset_command")


class _LeaveError(Exception):
    """The end of a function, a loop or a turn of it, by its word; `levels` are loops that it ends."""

    def __init__(self, how: str, levels: int = 1) -> None:
        super().__init__(how)
        self.how, self.levels = how, levels


def commands(written: str, environment: Mapping[str, str] | None = None) -> list[Command]:
    r"""Return the commands of a script with their variables filled in, in order: see `read_script`.

    >>> [c.words for c in commands('TP=8\nARGS=(--tp $TP --pp ${PP:-2})\nrun "${ARGS[@]}" \\\n  --sp')]
    [('run', '--tp', '8', '--pp', '2', '--sp')]
    """
    return read_script(written, environment).commands


def read_script(written: str, environment: Mapping[str, str] | None = None) -> ShellScript:
    """Read a script as a shell would, without running anything.

    What cannot be known otherwise stands as an unknown in its word, see `UNKNOWN`. Both branches of a condition that
    cannot be known are read, in order; a loop whose turns cannot be known is read once, and what it changes is unknown.

    Args:
        written: the script, or one command line.
        environment: variables that are set outside of it.

    Raises:
        ParseError: what is no shell, a quote that never closes for one, with its line; more text than any script has.
    """
    if len(written) > MOST_CHARS:
        raise ParseError(f"a script of {len(written):,} characters: at most {MOST_CHARS:,} are read")
    script = ShellScript(Variables(dict(environment or {})))
    _read_text(script, written.replace("\r\n", "\n").replace(UNKNOWN, " "), 0)
    return script


def _read_text(script: ShellScript, written: str, above: int) -> None:
    """Read a text of shell; `above` lines stand before it, where it is a word of another."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    root = Parser(Language(tree_sitter_bash.language())).parse((written + "\n").encode()).root_node
    if (broken := _broken(root)) is not None:
        wrong = " ".join(source(broken).split())
        is_open = (
            broken.is_missing or any(wrong.count(one) % 2 for one in "\"'") or wrong.count("(") != wrong.count(")")
        )
        told = "a quote or a bracket that never closes" if is_open else f"no shell: '{wrong[:60]}'"
        raise ParseError(f"line {line_of(broken) + above}: {told}")
    _read(script, root, above)


def _broken(root: Node) -> Node | None:
    """Return the first node that is no shell, or stands for what is missing."""
    waiting = [root] if root.has_error else []
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            return node
        waiting += [child for child in reversed(node.children) if child.has_error or child.is_missing]
    return None


def _read(script: ShellScript, node: Node, above: int) -> None:
    """Read a node and what is in it, in order."""
    script.scope.step(node)
    match node.type:
        case "comment":
            read_slurm(script, source(node), line_of(node) + above)
        case "if_statement":
            _read_if(script, node, above)
        case "case_statement":
            _read_case(script, node, above)
        case "for_statement":
            _read_for(script, node, above)
        case "while_statement":
            _read_while(script, node, above)
        case "c_style_for_statement":
            _read_counted(script, node, above)
        case "subshell":
            _read_apart(script, node.children, above)
        case "pipeline":
            for child in node.children:
                _read_apart(script, [child], above)
        case "compound_statement" if is_sum(node):
            sum_of(script.scope, [node])
        case "list":
            _read_list(script, node, above)
        case "function_definition":
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            if name is not None and body is not None:
                script.functions[source(name)] = body
        case "redirected_statement":
            write_file(script, node)
            _read_all(script, node.children[:1], above)
        case one if one in _SIMPLE:
            _read_simple(script, node, above)
        case "test_command" | "heredoc_body" | "file_redirect":
            pass
        case _:
            _read_all(script, node.children, above)


def _read_all(script: ShellScript, nodes: Sequence[Node], above: int) -> None:
    for node in nodes:
        if node.is_named:
            _read(script, node, above)


def _read_if(script: ShellScript, node: Node, above: int) -> None:
    """Read the branches of a condition that may be run: up to the first that is known to hold."""
    met = holds(script.scope, node.children[1])
    branches: list[tuple[bool | None, list[Node]]] = [(met, [])]
    for child in node.children[2:]:
        if child.type == "elif_clause":
            branches.append((holds(script.scope, child.children[1]), list(child.children[2:])))
        elif child.type == "else_clause":
            branches.append((True, list(child.children)))
        else:
            branches[0][1].append(child)
    read = _read_all
    for is_met, body in branches:
        if is_met is None:
            read = _read_perhaps
        if is_met is not False:
            read(script, body, above)
        if is_met:
            return


def _read_perhaps(script: ShellScript, nodes: Sequence[Node], above: int) -> None:
    """Read what may be run, or not: it does not end a function or a loop, and numbers that it changes are not known."""
    known, _, _ = script.scope.saved(nodes[0]) if nodes else ({}, {}, {})
    _read_to_end(script, nodes, above)
    for name, before in known.items():
        after = script.scope.known.get(name, before)
        if after != before and is_digits(before) and is_digits(after):
            script.scope.assign(name, None)


def _read_to_end(script: ShellScript, nodes: Sequence[Node], above: int) -> None:
    """Read up to the end, or to where it is left."""
    with suppress(_LeaveError):
        _read_all(script, nodes, above)


def _read_apart(script: ShellScript, nodes: Sequence[Node], above: int) -> None:
    """Read what a shell of its own runs, which leaves no variable behind."""
    state = script.scope.saved(nodes[0])
    _read_to_end(script, nodes, above)
    script.scope.restore(state)


def _read_case(script: ShellScript, node: Node, above: int) -> None:
    """Read the first item that matches a text; all where the text is not known."""
    from fnmatch import fnmatchcase

    value = node.child_by_field_name("value")
    told = UNKNOWN if value is None else text(script.scope, value)
    for item in (child for child in node.children if child.type == "case_item"):
        closing = next((k for k, child in enumerate(item.children) if child.type == ")"), 0)
        patterns = [text(script.scope, child) for child in item.children[:closing] if child.is_named]
        for pattern in patterns:
            script.scope.look(told, pattern, item)
        if UNKNOWN in told or any(fnmatchcase(told, pattern) for pattern in patterns):
            if UNKNOWN not in told:
                _read_all(script, item.children[closing + 1 :], above)
                return
            _read_perhaps(script, item.children[closing + 1 :], above)


def _read_for(script: ShellScript, node: Node, above: int) -> None:
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    given = [word for child in node.children_by_field_name("value") for word in words(script.scope, child)]
    listed = any(child.type == "in" for child in node.children)
    values = given if listed else script.scope.arrays.get("@")
    if variable is None or body is None:
        return
    name, known = source(variable), script.scope.known
    if node.children[0].type != "for" or values is None or any(re.search(rf"[{UNKNOWN}*?]", one) for one in values):
        known.update({name: values[0]} if values else {})
        _read_unsure(script, body, above)
        script.scope.assign(name, None)
        return
    turns = iter(values)

    def starts() -> bool:
        value = next(turns, None)
        known.update({} if value is None else {name: value})
        return value is not None

    _read_turns(script, starts, body, above)


def _read_while(script: ShellScript, node: Node, above: int) -> None:
    body, ends = node.child_by_field_name("body"), node.children[0].type == "until"

    def starts() -> bool | None:
        met = holds(script.scope, node.children[1])
        return None if met is None else met is not ends

    if body is not None:
        _read_turns(script, starts, body, above)


def _read_counted(script: ShellScript, node: Node, above: int) -> None:
    """Read `for ((i = 0; i < 3; i++))`."""
    body = node.child_by_field_name("body")
    parts: list[list[Node]] = [[]]
    for child in node.children[2 : next((k for k, one in enumerate(node.children) if one.type == "))"), 2)]:
        if child.type == ";":
            parts.append([])
        else:
            parts[-1].append(child)
    first, test, step = (*parts, [], [])[:3]
    scope, is_later = script.scope, False

    def starts() -> bool | None:
        nonlocal is_later
        for part in (step if is_later else first, test):
            value = sum_of(scope, part) if part else 1
        is_later = True
        return None if value is None else value != 0

    if body is not None:
        _read_turns(script, starts, body, above)


def _read_turns(script: ShellScript, starts: Callable[[], bool | None], body: Node, above: int) -> None:
    """Read a loop turn by turn, as long as another is known to start."""
    while (met := starts()) and script.turns < _MOST_TURNS:
        script.turns += 1
        script.loops += 1
        try:
            _read(script, body, above)
        except _LeaveError as leave:
            if leave.how == "return" or leave.levels > 1:
                raise _LeaveError(leave.how, leave.levels - 1) from None
            if leave.how == "break":
                return
        finally:
            script.loops -= 1
    if met is not False:
        _read_unsure(script, body, above)


def _read_unsure(script: ShellScript, body: Node, above: int) -> None:
    """Read a turn of a loop of which nobody knows how many there are."""
    state = script.scope.saved(body)
    script.loops += 1
    _read_to_end(script, [body], above)
    script.loops -= 1
    script.scope.lose_changes(state)


def _read_list(script: ShellScript, node: Node, above: int) -> bool | None:
    """Read `a && b`, `a || b`: what stands behind is run unless what stands before decides otherwise."""
    left, right = node.children[0], node.children[-1]
    operator = next((child.type for child in node.children if child.type in ("&&", "||")), "")
    met = _ended(script, left, above)
    if met is None:
        _read_perhaps(script, [right], above)
        return None
    return _ended(script, right, above) if met == (operator == "&&") else met


def _ended(script: ShellScript, node: Node, above: int) -> bool | None:
    """Read a part of a list, and say whether it ends well: a command is taken to, a test where it holds."""
    if node.type == "list":
        return _read_list(script, node, above)
    is_test = node.type in ("test_command", "negated_command") or is_sum(node)
    met = holds(script.scope, node) if is_test or node.type == "command" else True
    if not is_sum(node):
        _read(script, node, above)
    return met if is_test or met is False else True


def _read_simple(script: ShellScript, node: Node, above: int) -> None:
    """Read assignments, or a command; one that only stands before its own command is the command's alone."""
    if node.type != "command":
        if any(child.type == "word" and re.fullmatch(r"-\w*i\w*", source(child)) for child in node.children):
            named = (child.child_by_field_name("name") or child for child in node.children[1:])
            script.scope.whole.update(map(source, named))
        for child in node.children:
            if node.type == "unset_command" and child.type == "variable_name":
                script.scope.known.pop(source(child), None)
                script.scope.arrays.pop(source(child), None)
            if script.locals and node.children[0].type in _LOCAL and node.type == "declaration_command":
                keep_outer(script, child)
            if child.type == "variable_assignment" or node.type == "variable_assignment":
                assign(script.scope, node if node.type == "variable_assignment" else child)
            if node.type == "variable_assignment":
                return
        if node.children[0].type == "readonly":
            named = (child.child_by_field_name("name") or child for child in node.children[1:])
            script.scope.fixed.update(map(source, named))
        return
    found = [
        word
        for child in node.children
        if child.type not in ("variable_assignment", "herestring_redirect", "file_redirect")
        for word in words(script.scope, child)
    ]
    if not found:
        return
    if found[0] in _LEAVES and (script.locals if found[0] == "return" else script.loops):
        level = found[1] if len(found) > 1 else "1"
        raise _LeaveError(found[0], int(level) if is_digits(level) and len(level) < 3 else 1)
    if found[0] == "let":
        for child in node.children[1:]:
            sum_in(script.scope, text(script.scope, child), child)
        return
    # Names of a program that stand in a variable come with their own arguments.
    if found[0] in script.functions:
        _call(script, found, node, above)
        return
    script.commands.append(Command(tuple(found), line_of(node) + above))
    for inner in scripts_in(found):
        state = script.scope.saved(node)
        _inside(script, inner, node, line_of(node) + above - 1)
        if found[0] != "eval":
            script.scope.restore(state)


def _call(script: ShellScript, found: Sequence[str], node: Node, above: int) -> None:
    """Read the body of a function with what it is called with as `$1`, `$@`."""
    if script.depth >= _DEEPEST:
        raise ParseError(f"line {line_of(node) + above}: functions call each other more than {_DEEPEST} deep")
    known, arrays = script.scope.known, script.scope.arrays
    before = {name: known.get(name) for name in map(str, range(1, 10))}, arrays.get("@", [])
    known.update({str(number): word for number, word in enumerate(found[1:10], 1)})
    arrays["@"] = list(found[1:])
    script.depth += 1
    loops, script.loops = script.loops, 0
    script.locals.append({})
    _read_to_end(script, [script.functions[found[0]]], above)
    for name, (value, elements) in script.locals.pop().items():
        known.pop(name, None)
        arrays.pop(name, None)
        known.update({} if value is None else {name: value})
        arrays.update({} if elements is None else {name: elements})
    script.depth, script.loops = script.depth - 1, loops
    arrays["@"] = before[1]
    for name, value in before[0].items():
        known.pop(name, None)
        if value is not None:
            known[name] = value


def _inside(script: ShellScript, inner: str, node: Node, above: int) -> None:
    """Read a script within a word; one that is no shell says nothing."""
    if script.depth >= _DEEPEST:
        return
    script.scope.make(len(inner), node)
    kept = inner.replace(f"{UNKNOWN}${{", "${").replace(f"}}{UNKNOWN}", "}").replace(UNKNOWN, "")
    script.depth += 1
    try:
        _read_text(script, kept, above)
    except ParseError:
        pass
    finally:
        script.depth -= 1
