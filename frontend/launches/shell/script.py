"""A shell script as the commands that it would run, and the files that it would write; nothing of it is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ....ir.errors import ParseError
from ....ir.records import dataclass
from .conditions import holds
from .words import MOST_CHARS, UNKNOWN, Variables, line_of, source, text, words

if TYPE_CHECKING:
    from tree_sitter import Node

# Of a function that calls itself, and of a script within a word of a script.
_DEEPEST = 20
_SIMPLE = ("command", "declaration_command", "variable_assignment", "variable_assignments", "unset_command")
# What Slurm sets, by the options of its #SBATCH lines.
_SLURM: Mapping[str, tuple[str, ...]] = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus-per-node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
}


@dataclass(frozen=True, slots=True)
class Command:
    """Words of one command, and the line on which it begins."""

    words: tuple[str, ...]
    line: int


@dataclass(slots=True)
class ShellScript:
    """What a script would do.

    Attributes:
        commands: in order.
        files: texts that it would write, by name (`cat > config.yaml << EOF`).
    """

    scope: Variables
    commands: list[Command] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    depth: int = 0


def commands(written: str, environment: Mapping[str, str] | None = None) -> list[Command]:
    r"""Return the commands of a script with their variables filled in, in order: see `read_script`.

    >>> [c.words for c in commands('TP=8\nARGS=(--tp $TP --pp ${PP:-2})\nrun "${ARGS[@]}" \\\n  --sp')]
    [('run', '--tp', '8', '--pp', '2', '--sp')]
    """
    return read_script(written, environment).commands


def read_script(written: str, environment: Mapping[str, str] | None = None) -> ShellScript:
    """Read a script as a shell would, without running anything.

    What cannot be known otherwise stands as an unknown in its word, see `UNKNOWN`. Both branches of a condition that
    cannot be known are read, in order; the commands of a loop are those of its first turn, see `_read_loop`.

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
            _slurm(script, source(node), line_of(node) + above)
        case "if_statement":
            _read_if(script, node, above)
        case "case_statement":
            _read_case(script, node, above)
        case "for_statement":
            _read_for(script, node, above)
        case "while_statement" | "c_style_for_statement":
            _read_loop(script, node.children, above)
        case "subshell":
            known = dict(script.scope.known)
            _read_all(script, node.children, above)
            script.scope.known.clear()
            script.scope.known.update(known)
        case "list":
            _read_list(script, node, above)
        case "function_definition":
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            if name is not None and body is not None:
                script.functions[source(name)] = body
        case "redirected_statement":
            _write(script, node)
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
    for is_met, body in branches:
        if is_met is not False:
            _read_all(script, body, above)
        if is_met:
            return


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
            _read_all(script, item.children[closing + 1 :], above)
            if UNKNOWN not in told:
                return


def _read_for(script: ShellScript, node: Node, above: int) -> None:
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    values = [word for child in node.children_by_field_name("value") for word in words(script.scope, child)]
    if variable is not None and values:
        script.scope.known[source(variable)] = values[0]
    if body is not None and len(values) == 1:
        _read(script, body, above)
    elif body is not None:
        _read_loop(script, [body], above)
        if variable is not None and values:
            script.scope.known[source(variable)] = values[-1]


def _read_loop(script: ShellScript, body: Sequence[Node], above: int) -> None:
    """Read a body that runs several times: its commands of the first, and what another changes again is not known."""
    _read_all(script, body, above)
    once, count = dict(script.scope.known), len(script.commands)
    _read_all(script, body, above)
    del script.commands[count:]
    for name, value in script.scope.known.items():
        if once.get(name) != value:
            script.scope.known[name] = f"{UNKNOWN}${name}{UNKNOWN}"


def _read_list(script: ShellScript, node: Node, above: int) -> bool | None:
    """Read `a && b`, `a || b`: what stands behind is run unless what stands before decides otherwise."""
    left, right = node.children[0], node.children[-1]
    operator = next((child.type for child in node.children if child.type in ("&&", "||")), "")
    met = _ended(script, left, above)
    if met is None or met == (operator == "&&"):
        end = _ended(script, right, above)
        return end if met is not None else None
    return met


def _ended(script: ShellScript, node: Node, above: int) -> bool | None:
    """Read a part of a list, and say whether it ends well: a command is taken to, a test where it holds."""
    if node.type == "list":
        return _read_list(script, node, above)
    is_test = node.type in ("test_command", "negated_command") or source(node).startswith("((")
    met = holds(script.scope, node) if is_test or node.type == "command" else True
    _read(script, node, above)
    return met if is_test or met is False else True


def _read_simple(script: ShellScript, node: Node, above: int) -> None:
    """Read assignments, or a command; one that only stands before its own command is the command's alone."""
    if node.type != "command":
        for child in node.children:
            if child.type == "variable_assignment" or node.type == "variable_assignment":
                _assign(script.scope, node if node.type == "variable_assignment" else child)
            if node.type == "variable_assignment":
                return
        return
    found = [
        word
        for child in node.children
        if child.type not in ("variable_assignment", "herestring_redirect", "file_redirect")
        for word in words(script.scope, child)
    ]
    if not found:
        return
    # Names of a program that stand in a variable come with their own arguments.
    if found[0] in script.functions:
        _call(script, found, node, above)
        return
    script.commands.append(Command(tuple(found), line_of(node) + above))
    for inner in _scripts_in(found):
        _inside(script, inner, node, line_of(node) + above - 1)


def _call(script: ShellScript, found: Sequence[str], node: Node, above: int) -> None:
    """Read the body of a function with what it is called with as `$1`, `$@`."""
    if script.depth >= _DEEPEST:
        raise ParseError(f"line {line_of(node) + above}: functions call each other more than {_DEEPEST} deep")
    known, arrays = script.scope.known, script.scope.arrays
    before = {name: known.get(name) for name in map(str, range(1, 10))}, arrays.get("@", [])
    known.update({str(number): word for number, word in enumerate(found[1:10], 1)})
    arrays["@"] = list(found[1:])
    script.depth += 1
    _read(script, script.functions[found[0]], above)
    script.depth -= 1
    arrays["@"] = before[1]
    for name, value in before[0].items():
        known.pop(name, None)
        if value is not None:
            known[name] = value


def _scripts_in(found: Sequence[str]) -> Iterator[str]:
    """Yield scripts among the words of a command: `bash -c "..."`, `eval "..."`, `xpk ... --command="..."`."""
    if found[0] == "eval":
        yield " ".join(found[1:])
    for at, word in enumerate(found):
        behind = found[at + 1] if at + 1 < len(found) else ""
        if word.startswith("--command=") or (word in ("-c", "-lc", "-xc", "--command") and " " in behind):
            yield behind if "=" not in word else word.partition("=")[2]


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


def _assign(scope: Variables, node: Node) -> None:
    """Set a variable, an array, an element of a table, or add to one."""
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None:
        return
    adds = any(child.type == "+=" for child in node.children)
    if name.type == "subscript":
        base, index = name.child_by_field_name("name"), name.child_by_field_name("index")
        if base is not None and index is not None and value is not None:
            scope.tables.setdefault(source(base), {})[text(scope, index)] = text(scope, value)
        return
    key = source(name)
    if value is not None and value.type == "array":
        _assign_array(scope, key, value, adds)
        return
    filled = "" if value is None else text(scope, value)
    before = scope.known.get(key, "") if adds else ""
    scope.make(len(before), node)
    scope.known[key] = before + filled
    scope.arrays.pop(key, None)


def _assign_array(scope: Variables, key: str, value: Node, adds: bool) -> None:
    elements: list[str] = []
    for child in (child for child in value.children if child.is_named and child.type != "comment"):
        pair = re.match(r"\[(.*?)\]=(.*)", source(child), re.DOTALL)
        if pair is None:
            elements += words(scope, child)
        else:
            scope.tables.setdefault(key, {})[pair[1].strip("\"'")] = re.match(
                r"\[.*?\]=(.*)", text(scope, child), re.DOTALL
            )[1]  # type: ignore[index]
    before = scope.arrays.get(key, []) if adds else []
    scope.make(len(before), value)
    scope.arrays[key] = [*before, *elements]
    scope.known.pop(key, None)


def _write(script: ShellScript, node: Node) -> None:
    """Keep the text that `cat > FILE << EOF` and `echo ... > FILE` write; behind `>>` it is added."""
    redirects = {child.type: child for child in _redirects(node)}
    to, here = redirects.get("file_redirect"), redirects.get("heredoc_redirect")
    body = None if here is None else next((c for c in here.children if c.type == "heredoc_body"), None)
    place = None if to is None else to.child_by_field_name("destination")
    if to is None or place is None:
        return
    if body is not None and here is not None:
        quoted = any(c.type == "heredoc_start" and source(c)[:1] in "\"'\\" for c in here.children)
        written = source(body) if quoted else text(script.scope, body)
    elif node.children[0].type == "command" and source(node.children[0]).startswith(("echo", "printf")):
        written = " ".join([w for child in node.children[0].children for w in words(script.scope, child)][1:]) + "\n"
    else:
        return
    name = text(script.scope, place)
    adds = any(child.type == ">>" for child in to.children)
    before = script.files.get(name, "") if adds else ""
    script.scope.make(len(before), node)
    script.files[name] = before + written


def _redirects(node: Node) -> Iterator[Node]:
    """Yield where a statement reads and writes; a redirection may stand behind the mark of a text."""
    for child in node.children:
        if child.type.endswith("_redirect"):
            yield child
            yield from _redirects(child)


def _slurm(script: ShellScript, comment: str, line: int) -> None:
    """Read an #SBATCH line as a command, and set what Slurm sets by it."""
    if not comment.startswith("#SBATCH"):
        return
    try:
        found = shlex.split(comment, comments=False)
    except ValueError:
        return
    script.commands.append(Command(tuple(found), line))
    for at, word in enumerate(found):
        name, _, value = word.lstrip("-").partition("=")
        value = value or (found[at + 1] if at + 1 < len(found) else "")
        for variable in _SLURM.get(name, ()) if word.startswith("-") else ():
            script.scope.known.setdefault(variable, value.split(":")[-1])
