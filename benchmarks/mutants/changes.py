"""What a mutation is: small wrong edits of one syntax node, and all of them in a folder of sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# What stands in for an operator or a name, and for what.
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_NAMES = {"min": "max", "minimum": "maximum", "ceil": "floor", "any": "all"}
_NAMES |= {after: before for before, after in _NAMES.items()}
_MODULES = {"math", "np"}
# Terms of these may be dropped on either side; of the others only what comes second.
_SYMMETRIC = (ast.Add, ast.Mult, ast.BitOr, ast.BitAnd)
_LONGEST = 60
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong edit.

    Attributes:
        file: source relative to the checkout.
        function: qualified name of the function around it; empty in the body of a module or a class.
        line: of the statement in which it lies.
        text: that line.
        what: the node before and after.
        node: number of the node, in the order of `ast.walk`.
        way: number of the edit among those of the node.
    """

    file: str
    function: str
    line: int
    text: str
    what: str
    node: int
    way: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What stays the same when lines above it are added or removed."""
        return self.file, self.function, self.text, self.what


def mutants_of(root: Path, rooms: tuple[str, ...]) -> list[Mutant]:
    """Return all mutants of the Python files below some folders, always in the same order."""
    files = sorted(file for room in rooms for file in (root / room).rglob("*.py"))
    return [m for file in files for m in _mutants(file.relative_to(root).as_posix(), file.read_text("utf-8"))]


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """Return the syntax tree of a source with one edit made."""
    tree = ast.parse(source)
    parents = _parents(tree)
    node = list(ast.walk(tree))[mutant.node]
    after = _edits(node, parents)[mutant.way]
    parent, name, index = parents[node]
    if index is None:
        setattr(parent, name, after)
    else:
        getattr(parent, name)[index] = after
    return ast.fix_missing_locations(tree)


def _mutants(file: str, source: str) -> Iterator[Mutant]:
    tree, lines = ast.parse(source), source.splitlines()
    parents = _parents(tree)
    left_out = {id(part) for node in ast.walk(tree) for unread in _unread(node) for part in ast.walk(unread)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in left_out or node not in parents:
            continue
        function, line = _around(node, parents)
        if not function and isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            continue  # a type of several
        for way, after in enumerate(_edits(node, parents)):
            what = _difference(_said(node), _said(after))
            yield Mutant(file, function, line, lines[line - 1].strip(), what, number, way)


def _unread(node: ast.AST) -> Iterator[ast.AST]:
    """Parts that carry no behaviour for a caller: annotations, decorators, texts, messages, checks on ourselves."""
    if isinstance(node, ast.FunctionDef):
        yield from (*node.decorator_list, *([node.returns] if node.returns else []))
    elif isinstance(node, ast.ClassDef):
        yield from node.decorator_list
    elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
        yield node.annotation
    elif isinstance(node, ast.JoinedStr | ast.Assert):
        yield node
    elif isinstance(node, ast.Raise) and node.exc:
        yield node.exc
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        yield node
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast":
        yield node.args[0]


def _parents(tree: ast.AST) -> dict[ast.AST, tuple[ast.AST, str, int | None]]:
    found: dict[ast.AST, tuple[ast.AST, str, int | None]] = {}
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, ast.AST):
                found[value] = parent, name, None
            elif isinstance(value, list):
                found.update({v: (parent, name, k) for k, v in enumerate(value) if isinstance(v, ast.AST)})
    return found


def _around(node: ast.AST, parents: dict[ast.AST, tuple[ast.AST, str, int | None]]) -> tuple[str, int]:
    """Name of the function around a node, and the line of the innermost statement; no name for what runs on import."""
    names: list[str] = []
    line, runs_on_import = 0, True
    child: ast.AST | None = node
    while child is not None:
        if isinstance(child, ast.stmt) and not line:
            line = child.lineno
        above, field, _ = parents.get(child, (None, "", None))
        if isinstance(above, ast.FunctionDef | ast.ClassDef) and field == "body":
            names.append(above.name)
            runs_on_import = runs_on_import and not isinstance(above, ast.FunctionDef)
        child = above
    return ("" if runs_on_import else ".".join(reversed(names))), line


def _said(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _difference(before: str, after: str) -> str:
    """Say a change; of long texts only what differs, and a little in front of it."""
    if max(len(before), len(after)) > _LONGEST:
        same = next(
            (k for k, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
        )
        start = max(0, same - _SHOWN)
        before, after = (f"{'...' if start else ''}{text[start:][:_LONGEST]}" for text in (before, after))
    return f"{before} -> {after}"


def _edits(node: ast.AST, parents: dict[ast.AST, tuple[ast.AST, str, int | None]]) -> list[ast.AST]:
    """Return all wrong forms of a node."""
    if isinstance(node, ast.BinOp):
        return list(_of_terms(node))
    if isinstance(node, ast.Constant):
        return list(_of_constant(node))
    if isinstance(node, ast.Compare):
        swaps = [(k, _COMPARISONS.get(type(op))) for k, op in enumerate(node.ops)]
        return [_with(node, ops=[*node.ops[:k], new(), *node.ops[k + 1 :]]) for k, new in swaps if new]
    if isinstance(node, ast.BoolOp):
        return list(_of_conditions(node))
    if isinstance(node, ast.UnaryOp):
        return [node.operand] if isinstance(node.op, ast.Not | ast.USub) else []
    if isinstance(node, ast.Name | ast.Attribute):
        return list(_of_name(node))
    if isinstance(node, ast.Call):
        return list(_of_call(node))
    if isinstance(node, ast.If | ast.IfExp):
        return [_with(node, test=ast.Constant(value)) for value in (True, False)]
    if isinstance(node, ast.comprehension):
        return [_with(node, ifs=node.ifs[:k] + node.ifs[k + 1 :]) for k in range(len(node.ifs))]
    return list(_of_statement(node, parents))


def _of_terms(node: ast.BinOp) -> Iterator[ast.AST]:
    """Another operator, and one of the two terms alone; texts have neither."""
    if any(
        isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) or _is_text(side) for side in (node.left, node.right)
    ):
        return
    if type(node.op) in _OPERATORS:
        yield _with(node, op=_OPERATORS[type(node.op)]())
    yield node.left
    if isinstance(node.op, _SYMMETRIC):
        yield node.right


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _of_constant(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)


def _of_conditions(node: ast.BoolOp) -> Iterator[ast.AST]:
    """`or` for `and`, and each condition left out in turn."""
    yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    for k in range(len(node.values)):
        rest = node.values[:k] + node.values[k + 1 :]
        yield rest[0] if len(rest) == 1 else _with(node, values=rest)


def _of_name(node: ast.Name | ast.Attribute) -> Iterator[ast.AST]:
    """`max` for `min`, wherever it is read."""
    if isinstance(node, ast.Name) and node.id in _NAMES:
        yield _with(node, id=_NAMES[node.id])
    of_module = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _MODULES
    if isinstance(node, ast.Attribute) and of_module and node.attr in _NAMES:
        yield _with(node, attr=_NAMES[node.attr])


def _of_call(node: ast.Call) -> Iterator[ast.AST]:
    """One argument left out: the last by place, and each by name."""
    if node.args and not isinstance(node.args[-1], ast.Starred) and len(node.args) > 1:
        yield _with(node, args=node.args[:-1])
    for k, given in enumerate(node.keywords):
        if given.arg and given.arg != "strict":
            yield _with(node, keywords=node.keywords[:k] + node.keywords[k + 1 :])


def _of_statement(node: ast.AST, parents: dict[ast.AST, tuple[ast.AST, str, int | None]]) -> Iterator[ast.AST]:
    """Nothing done: a call, a sum in place, a refusal, a way out of a loop; nothing returned."""
    if (
        isinstance(node, ast.Return)
        and node.value
        and not (isinstance(node.value, ast.Constant) and not node.value.value)
    ):
        yield ast.Return(ast.Constant(None), lineno=node.lineno, col_offset=node.col_offset)
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom)
    if called or isinstance(node, ast.AugAssign | ast.Raise | ast.Break | ast.Continue):
        yield ast.Pass()


def _with(node: ast.AST, **changed: object) -> ast.AST:
    """Return a node with some fields changed."""
    fields = {**dict(ast.iter_fields(node)), **changed}
    return ast.copy_location(type(node)(**fields), node)
