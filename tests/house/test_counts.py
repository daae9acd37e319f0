"""Counts of what makes the code hard to read: each may fall and never rises above what `counts.json` holds."""

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import pytest

from slipstick.ir.ops import OPS

N = TypeVar("N", bound=ast.AST)
LIMITS = Path(__file__).with_name("counts.json")
# What a newcomer takes in at a glance.
MAX_LOOSE_FILES, MAX_FIELDS, MAX_PARAMETERS = 13, 20, 6
# A module or a helper that is smaller than this and has one user is read faster where it is used.
CRUMB_LINES, CRUMB_STATEMENTS = 60, 3


@dataclass(frozen=True)
class Module:
    """A file, read once for all counts."""

    lines: tuple[str, ...]
    body: tuple[ast.stmt, ...]
    nodes: Mapping[type[ast.AST], tuple[ast.AST, ...]]

    @classmethod
    def of(cls, path: Path) -> "Module":
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        nodes = defaultdict[type[ast.AST], list[ast.AST]](list)
        for node in ast.walk(tree):
            nodes[type(node)].append(node)
        return cls(tuple(text.splitlines()), tuple(tree.body), {kind: tuple(found) for kind, found in nodes.items()})

    def all(self, kind: type[N]) -> tuple[N, ...]:
        return cast(tuple[N, ...], self.nodes.get(kind, ()))


@cache
def _modules(floors: tuple[Path, ...]) -> Mapping[Path, Module]:
    return {path: Module.of(path) for floor in floors for path in sorted(floor.rglob("*.py"))}


def _imported(module: Module, path: Path) -> Iterator[Path]:
    """The files that a module may mean by its relative imports."""
    for node in module.all(ast.ImportFrom):
        if node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            yield base.with_suffix(".py")
            yield from (base / f"{alias.name}.py" for alias in node.names)


def _crumbs(floors: tuple[Path, ...]) -> Iterator[str]:
    modules = _modules(floors)
    importers = defaultdict[Path, set[Path]](set)
    for path, module in modules.items():
        for target in set(_imported(module, path)) & modules.keys():
            importers[target].add(path)
    for path, users in importers.items():
        if len(modules[path].lines) < CRUMB_LINES and [user.parent for user in users] == [path.parent]:
            yield str(path)


def _small_helpers(floors: tuple[Path, ...]) -> Iterator[str]:
    for path, module in _modules(floors).items():
        used = Counter(name.id for name in module.all(ast.Name))
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("_") and used[node.name] == 1:
                inside = [n for n in ast.walk(node) if isinstance(n, ast.stmt) and n is not node]
                if len(inside) - (ast.get_docstring(node) is not None) <= CRUMB_STATEMENTS:
                    yield f"{path}:{node.name}"


def _loose_files(floors: tuple[Path, ...]) -> Iterator[str]:
    folders = Counter(path.parent for path in _modules(floors) if path.name != "__init__.py")
    yield from (str(folder) for folder, n in folders.items() for _ in range(n - MAX_LOOSE_FILES))


def _wide_records(floors: tuple[Path, ...]) -> Iterator[str]:
    for path, module in _modules(floors).items():
        for node in module.all(ast.ClassDef):
            fields = (
                s for s in node.body if isinstance(s, ast.AnnAssign) and "ClassVar" not in ast.unparse(s.annotation)
            )
            if sum(1 for _ in fields) > MAX_FIELDS:
                yield f"{path}:{node.name}"


def _wide_functions(floors: tuple[Path, ...]) -> Iterator[str]:
    for path, module in _modules(floors).items():
        for node in module.all(ast.FunctionDef):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if len([n for n in names if n not in ("self", "cls")]) > MAX_PARAMETERS:
                yield f"{path}:{node.name}"


def _names_twice(floors: tuple[Path, ...]) -> Iterator[str]:
    """Public classes whose name another public class has."""
    classes = (n for module in _modules(floors).values() for n in module.body if isinstance(n, ast.ClassDef))
    known = Counter(node.name for node in classes if not node.name.startswith("_"))
    yield from (name for name, n in known.items() for _ in range(n - 1))


def _unformatted(floors: tuple[Path, ...]) -> Iterator[str]:
    for path, module in _modules(floors).items():
        yield from (str(path) for line in module.lines if "# fmt: skip" in line)


def _op_names(floors: tuple[Path, ...]) -> Iterator[str]:
    """Tests on the name of an op, in place of its traits; ops, and ONNX's operators of the same names, are apart."""
    for path, module in _modules(floors).items():
        if not {("ir", "ops"), ("frontend", "onnx")} & {path.parts[len(floors[0].parts) - 1 :][:2]}:
            found = (n for kind in (ast.Compare, ast.Call) for n in module.all(kind) if _tests_op_name(n))
            yield from (f"{path}:{n.lineno}" for n in found)


def _tests_op_name(node: ast.expr) -> bool:
    """Whether this is `x.op == "matmul"`, `x.op in NAMES` or `x.op.startswith("expert")`."""
    match node:
        case ast.Compare(left=left, comparators=others):
            parts = [left, *others]
        case ast.Call(func=ast.Attribute(value=left, attr="startswith" | "endswith"), args=others):
            parts = [left, *others]
        case _:
            return False
    if not any(isinstance(p, ast.Attribute) and p.attr == "op" for p in parts):
        return False
    words = [c.value for p in parts for c in ast.walk(p) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
    return not words or any(name.startswith(word) or name.endswith(word) for word in words for name in OPS)


COUNTS = {
    "modules of a few lines beside their one importer": _crumbs,
    "private helpers of a few statements with one caller": _small_helpers,
    "files too many in one folder": _loose_files,
    "records of too many fields": _wide_records,
    "functions of too many parameters": _wide_functions,
    "public classes that share a name": _names_twice,
    "lines that the formatter skips": _unformatted,
    "tests on names of ops": _op_names,
}


@pytest.mark.parametrize("what", COUNTS)
def test_count_does_not_rise(what: str, floors: tuple[Path, ...], request: pytest.FixtureRequest) -> None:
    """`--update-golden` writes a count that fell; nothing writes one that rose."""
    found, limits = sorted(COUNTS[what](floors)), json.loads(LIMITS.read_text(encoding="utf-8"))
    if request.config.getoption("--update-golden") and len(found) < limits[what]:
        LIMITS.write_text(json.dumps({**limits, what: len(found)}, indent=2) + "\n", encoding="utf-8")
    assert len(found) <= limits[what], "\n".join(found)
