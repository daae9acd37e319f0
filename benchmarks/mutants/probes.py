"""Which test runs which statement: sources of some rooms are compiled with a probe in front of each statement.

A probe costs tens of nanoseconds where a tracer of the interpreter costs a few hundred for any line of any package.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

PACKAGE = "slipstick"
_NAME = "__probe__"


class Probes:
    """Numbers of all statements, and those that have run since the last look."""

    def __init__(self, root: Path, rooms: Sequence[str]) -> None:
        files = sorted(file for room in rooms for file in (root / room).rglob("*.py"))
        places = [(str(f), n) for f in files for n in sorted(_lines(ast.parse(f.read_text("utf-8"))))]
        self.number = {place: k for k, place in enumerate(places)}
        self.files = {str(file) for file in files}
        self.run: set[int] = set()

    def taken(self) -> int:
        """Return the statements that ran, one bit each, and forget them."""
        bits = bytearray(len(self.number) // 8 + 1)
        for k in self.run:
            bits[k // 8] |= 1 << k % 8
        self.run.clear()
        return int.from_bytes(bits, "little")

    def probed(self, file: str, source: str) -> ast.Module:
        """Return the syntax tree of a source with a probe in front of each statement in its functions."""
        tree = ast.parse(source)
        for body in list(_bodies(tree)):
            body[:] = [put for statement in body for put in (*self._probe(file, statement), statement)]
        return ast.fix_missing_locations(tree)

    def _probe(self, file: str, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.Global | ast.Nonlocal) or _is_text(statement):
            return []
        number = ast.Constant(self.number[file, statement.lineno])
        call = ast.Expr(ast.Call(ast.Name(_NAME, ast.Load()), [number], []))
        return [ast.copy_location(call, statement)]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _lines(tree: ast.Module) -> set[int]:
    return {statement.lineno for body in _bodies(tree) for statement in body}


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """All lists of statements inside of functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    seen: set[int] = set()
    for node in (inner for function in functions for inner in ast.walk(function)):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and not isinstance(node, ast.ClassDef) and id(body) not in seen:
                seen.add(id(body))
                yield body


class Sources(MetaPathFinder):
    """Imports some modules of the package from syntax trees made for the occasion."""

    def __init__(self, trees: Mapping[str, ast.Module] | None = None, probes: Probes | None = None) -> None:
        self.trees = trees or {}
        self.probes = probes

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module below the package as Python does, and read it in another way."""
        if not name.startswith(f"{PACKAGE}.") or path is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or not self._reads(spec.loader.path):
            return None
        spec.loader = _Loader(name, spec.loader.path, self)
        return spec

    def _reads(self, file: str) -> bool:
        return file in self.trees or (self.probes is not None and file in self.probes.files)

    def tree(self, file: str) -> ast.Module:
        """Return the syntax tree to be run for a file."""
        if file in self.trees:
            return self.trees[file]
        assert self.probes is not None
        return self.probes.probed(file, Path(file).read_text("utf-8"))


class _Loader(SourceFileLoader):
    """Reads a module from a syntax tree; no bytecode is kept."""

    def __init__(self, name: str, path: str, sources: Sources) -> None:
        super().__init__(name, path)
        self.sources = sources

    def get_code(self, fullname: str) -> CodeType:
        """Compile the module."""
        code: CodeType = compile(self.sources.tree(self.path), self.path, "exec", dont_inherit=True)
        return code


def install(sources: Sources) -> None:
    """Have modules imported from now on be read so."""
    if sources.probes is not None:
        setattr(builtins, _NAME, sources.probes.run.add)
    sys.meta_path.insert(0, sources)
