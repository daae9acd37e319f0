"""What one statement of a shell changes: variables, arrays, files, and what Slurm sets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from ...ir.records import dataclass
from .words import Variables, source, sum_in, text, words

if TYPE_CHECKING:
    from tree_sitter import Node

# What Slurm sets, by the options of its #SBATCH lines.
_SLURM: Mapping[str, tuple[str, ...]] = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus-per-node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
}
Scalars: TypeAlias = "dict[str, tuple[str | None, list[str] | None]]"


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
        locals: of the functions that are being called, what their own variables were outside.
        loops: how many are being read around what is read, in the same function.
        turns: of loops, that were read.
    """

    scope: Variables
    commands: list[Command] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    depth: int = 0
    locals: list[Scalars] = field(default_factory=list)
    loops: int = 0
    turns: int = 0


def keep_outer(script: ShellScript, child: Node) -> None:
    """Keep what a variable is outside of the function that declares it its own."""
    named = child.child_by_field_name("name") if child.type == "variable_assignment" else child
    if named is not None and named.type == "variable_name":
        name, scope = source(named), script.scope
        script.locals[-1].setdefault(name, (scope.known.get(name), scope.arrays.get(name)))
        if child is named:
            scope.known[name] = ""


def scripts_in(found: Sequence[str]) -> Iterator[str]:
    """Yield scripts among the words of a command: `bash -c "..."`, `eval "..."`, `xpk ... --command="..."`."""
    if found[0] == "eval":
        yield " ".join(found[1:])
    for at, word in enumerate(found):
        behind = found[at + 1] if at + 1 < len(found) else ""
        if word.startswith("--command=") or (word in ("-c", "-lc", "-xc", "--command") and " " in behind):
            yield behind if "=" not in word else word.partition("=")[2]


def assign(scope: Variables, node: Node) -> None:
    """Set a variable, an array, an element of a table, or add to one."""
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None or source(name) in scope.fixed:
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
    if key in scope.whole:
        scope.assign(key, sum_in(scope, f"({before or 0})+({filled or 0})", node))
        return
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


def write_file(script: ShellScript, node: Node) -> None:
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


def read_slurm(script: ShellScript, comment: str, line: int) -> None:
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
