"""The layers of a flat graph: calls of modules that follow one another and run the same operators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby

from ...ir.graph import Phase, Role
from ...ir.records import dataclass
from ...ir.units import is_digits
from ..aten.flat import Flat, clean_scope

# A stack of layers has at least this part of the forward operators; one that is found inside of what looks like a
# layer takes its place when it has most of its operators.
_LEAST, _MOST = 0.05, 0.75


@dataclass(frozen=True, slots=True)
class Layers:
    """Which layer the nodes of each scope belong to, and the module paths that each layer is made of, in order."""

    of_scope: Mapping[str, int]
    paths: tuple[tuple[str, ...], ...]


@dataclass(eq=False)
class _Call:
    """A call of a module, or a part of a path between two calls: what it runs, in order, and the calls inside of it."""

    name: str
    path: str
    parent: _Call | None = None
    items: list[int | _Call] = field(default_factory=list)
    children: dict[tuple[str, int], _Call] = field(default_factory=dict)
    scopes: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    latest: dict[str, tuple[str, int]] = field(default_factory=dict)
    digest: int = 0

    @property
    def family(self) -> str:
        """The path with stars for numbers: what members of a list have in common."""
        return starred(self.path)

    def child(self, name: str, call: int) -> _Call:
        """Return the call of this name; without a number of its own, a member of a list begins anew after another."""
        if not call:
            before, turn = self.latest.get(starred(name), (name, -1))
            call = turn - (before != name)
            self.latest[starred(name)] = (name, call)
        if (name, call) not in self.children:
            found = _Call(name, f"{self.path}.{name}".lstrip("."), self)
            self.children[name, call] = found
            self.items.append(found)
        return self.children[name, call]

    def every_scope(self) -> Iterator[str]:
        """The scopes of everything in this call."""
        yield from self.scopes
        for child in self.children.values():
            yield from child.every_scope()


def starred(text: str) -> str:
    """Return a path with stars for its numbers.

    >>> starred("stages.2.blocks.17.conv1")
    'stages.*.blocks.*.conv*'
    """
    return re.sub(r"[0-9]+", "*", text)


@dataclass
class _Tree:
    """The calls of a recording. A scope names its innermost call; where calls were not noted, paths stand for them."""

    flat: Flat
    root: _Call = field(default_factory=lambda: _Call("", ""))
    leaves: dict[str, _Call] = field(default_factory=dict)

    def leaf(self, scope: str) -> _Call:
        """Return the call of a scope, which is made when it is first met."""
        if scope not in self.leaves:
            call = self._of_path(scope) if not self.flat.calls else self._of_call(scope)
            self.leaves[scope] = call
            call.scopes.append(scope)
        return self.leaves[scope]

    def _of_path(self, scope: str) -> _Call:
        call = self.root
        for name in filter(None, scope.split(".")):
            call = call.children.get((name, 1)) or call.child(name, 1)
        return call

    def _of_call(self, scope: str) -> _Call:
        path, _, mark = scope.partition("@")
        if not mark or int(mark) not in self.flat.calls:
            return self.root
        outer = self.flat.calls[int(mark)]
        around = self.leaf(outer)
        inside = path.removeprefix(f"{clean_scope(outer)}.") if path.startswith(f"{clean_scope(outer)}.") else path
        *between, name = inside.split(".")
        call = around
        for part in between:
            call = call.child(part, 0)
        call = call.child(name, int(mark))
        call.path = path
        return call


def layers_of(flat: Flat) -> Layers:
    """Return the layers of a flat graph.

    Layers are members of a list of modules, or calls of one module, of which some are equal and each reads what the
    one before it made; so experts and heads, which stand side by side, are none. Of lists inside of one another the
    outermost counts, unless its members are lists of layers themselves. Members of several lists that run in step are
    one layer. A member that reads no matrix, in a list of others that do, belongs to the layer before: the activation
    behind a convolution.
    """
    tree = _tree(flat)
    alike: set[str] = set()
    found = _stacks(tree, tree.root, alike)
    while (wider := _stacks(tree, tree.root, set(alike))) != found:
        found = wider
    # Those that with all of their kind have a part of the operators that counts.
    weights: Counter[str] = Counter()
    for stack in found:
        weights[stack[0].family] += _weight(stack)
    large = [stack for stack in found if weights[stack[0].family] >= _LEAST * len(tree.root.places)]
    stacks = _apart(large) or _unequal(tree)
    steps = _in_step([_members(tree.flat, stack) for stack in stacks])
    scopes = {scope: k for k, layer in enumerate(steps) for call in layer for scope in call.every_scope()}
    return Layers(_with_backward(tree, scopes), tuple(tuple(call.path for call in layer) for layer in steps))


def _weight(calls: Iterable[_Call]) -> int:
    return sum(len(call.places) for call in calls)


def _apart(stacks: Sequence[list[_Call]]) -> list[list[_Call]]:
    """Without those that begin in the middle of a member of another one with more operators."""
    kept: list[list[_Call]] = []
    for stack in sorted(stacks, key=lambda stack: -_weight(stack)):
        spans = [(c.places[0], c.places[-1]) for other in kept for c in other]
        if not any(first < c.places[-1] and c.places[0] < last for first, last in spans for c in stack):
            kept.append(stack)
    return kept


def _unequal(tree: _Tree) -> list[list[_Call]]:
    """The list with most operators whose members are a chain and all differ."""
    lists: dict[tuple[str, int], list[_Call]] = {}
    for call in _within(tree.root):
        if call.parent is not None and is_digits(call.name):
            lists.setdefault((call.family, id(call.parent)), []).append(call)
    chains = [members for members in lists.values() if len(members) > 1 and _is_chain(tree.flat, members)]
    best = max(chains, key=lambda members: (_weight(members), -len(members[0].path)), default=None)
    return [] if best is None else [best]


def _within(call: _Call) -> Iterator[_Call]:
    yield call
    for child in call.children.values():
        yield from _within(child)


def _tree(flat: Flat) -> _Tree:
    tree = _Tree(flat)
    for place, node in enumerate(flat.nodes):
        if node.phase is not Phase.FORWARD:
            continue
        call: _Call | None = tree.leaf(node.scope)
        types = tuple(str(flat.values[i].type) for i in (*node.inputs, *node.outputs))
        tree.leaves[node.scope].items.append(hash((node.op, node.attrs, types)))
        while call is not None:
            call.places.append(place)
            call = call.parent
    _digest(tree.root)
    return tree


def _digest(call: _Call) -> int:
    call.digest = hash(tuple(i if isinstance(i, int) else (starred(i.name), _digest(i)) for i in call.items))
    return call.digest


def _with_backward(tree: _Tree, scopes: dict[str, int]) -> Mapping[str, int]:
    """Add scopes that only backward nodes have: they lie in the calls around them."""
    if not scopes:
        return scopes
    for scope in {n.scope for n in tree.flat.nodes if n.phase is not Phase.FORWARD} - tree.leaves.keys():
        around = scope
        while around not in tree.leaves and around:
            mark = around.partition("@")[2]
            around = tree.flat.calls.get(int(mark), "") if mark else around.rpartition(".")[0]
        if around in scopes:
            scopes[scope] = scopes[around]
    return scopes


def _stacks(tree: _Tree, call: _Call, alike: set[str]) -> list[list[_Call]]:
    """The stacks of layers inside a call; families that are one somewhere (stages of a network) are one everywhere."""
    families: dict[str, list[_Call]] = {}
    for child in call.children.values():
        families.setdefault(starred(child.name), []).append(child)
    found: list[list[_Call]] = []
    for members in families.values():
        inner = [stack for member in members for stack in _stacks(tree, member, alike)]
        if members[0].family not in alike and not _is_stack(tree.flat, call, members):
            found += inner
            continue
        alike.add(members[0].family)
        held = _weight(c for stack in inner for c in stack if c.children)
        found += inner if held >= _MOST * _weight(members) else [members]
    return found


def _is_stack(flat: Flat, around: _Call, members: Sequence[_Call]) -> bool:
    """Whether two are equal and all a chain; calls that are no members of a list make up half of what is around."""
    if len({m.digest for m in members}) == len(members):
        return False
    is_list = all(is_digits(m.name) for m in members) and len({m.path for m in members}) > 1
    return (is_list or 2 * _weight(members) >= len(around.places)) and _is_chain(flat, members)


def _is_chain(flat: Flat, members: Sequence[_Call]) -> bool:
    """Whether most members read what the member before them made, at once or through others."""
    member = {place: k for k, m in enumerate(members) for place in m.places}
    latest: dict[int, int] = {}
    reads = [-1] * len(members)
    for place in range(members[0].places[0], 1 + max(member)):
        node = flat.nodes[place]
        if node.phase is not Phase.FORWARD:
            continue
        given = [latest[i] for i in node.inputs if i in latest]
        k = member.get(place, -1)
        if k >= 0:  # beside what a member has made itself
            reads[k] = max((reads[k], *(last for last in given if last < k)))
        latest.update(dict.fromkeys(node.outputs, max((k, *given))))
    return 2 * sum(reads[k] == k - 1 for k in range(1, len(members))) > len(members) - 1


def _in_step(members: Sequence[Sequence[tuple[_Call, ...]]]) -> list[tuple[_Call, ...]]:
    """All members in the order in which they run, those that always run together as one."""
    order = sorted(
        (calls[0].places[0], number, which) for which, own in enumerate(members) for number, calls in enumerate(own)
    )
    groups: list[list[tuple[int, int]]] = []
    for _, number, which in order:
        joins = groups and groups[-1][0][1] == number and all(which != other for other, _ in groups[-1])
        if joins and len(members[which]) == len(members[groups[-1][0][0]]) > 1:
            groups[-1].append((which, number))
        else:
            groups.append([(which, number)])
    together: dict[int, set[tuple[int, ...]]] = {}
    for group in groups:
        for which, _ in group:
            together.setdefault(which, set()).add(tuple(w for w, _ in group))
    alone = {which for which, ways in together.items() if len(ways) > 1}
    return list(_joined(groups, members, alone))


def _members(flat: Flat, stack: Sequence[_Call]) -> list[tuple[_Call, ...]]:
    """Calls of a member of a list that follow one another as one; a module that is no member runs anew each time.

    To a member that reads a matrix belong those behind it that read none.
    """
    if len({call.path for call in stack}) == 1:
        return [(call,) for call in stack]
    matrices = {i for i, v in flat.values.items() if v.role is Role.PARAM and v.type.rank > 1}
    reads = {call.path for call in stack if any(not matrices.isdisjoint(flat.nodes[k].inputs) for k in call.places)}
    found: list[list[_Call]] = []
    for path, calls in groupby(stack, key=lambda call: call.path):
        if reads and found and (path not in reads or reads.isdisjoint(call.path for call in found[-1])):
            found[-1] += calls
        else:
            found.append(list(calls))
    return [tuple(calls) for calls in found]


def _joined(
    groups: Iterable[Sequence[tuple[int, int]]], members: Sequence[Sequence[tuple[_Call, ...]]], alone: set[int]
) -> Iterator[tuple[_Call, ...]]:
    for group in groups:
        layers = [members[which][number] for which, number in group]
        if any(which in alone for which, _ in group):
            yield from layers
        else:
            yield tuple(call for layer in layers for call in layer)
