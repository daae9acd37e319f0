"""The operands of a layer's products in low precision: casts put in, gathers moved behind them, weights kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...ir.editing.rewriter import RegionRewriter
from ...ir.graph import NO_ATTRS, Attrs, Node, Phase, Region, Role, Value
from ...ir.ops import OpClass, Trait, has
from ...ir.ops.collectives import CollectiveAttrs
from ...ir.ops.quantise import QuantiseAttrs
from ...ir.placement import TP
from ...ir.plan.precision import Recipe
from .low_products import LowOperand, Side, operands

Copies = Mapping[Side, int]
_COMPILED = (Trait.POINTWISE, Trait.NORMALISES_ROWS, Trait.ROTATES)


def lowered(region: Region, recipe: Recipe, keep: bool, fused: bool, gather: bool) -> Region:
    """Return a layer whose products of weights read operands in low precision."""
    wanted = operands(region, recipe.of_weight_gradients)
    if not wanted:
        return region
    draft = _Draft(region, recipe, keep, fused, gather)
    for value in dict.fromkeys(o.value for o in wanted if o.weight):
        _weight(draft, [o for o in wanted if o.value == value])
    groups: dict[int, list[LowOperand]] = {}
    for o in (o for o in wanted if not o.weight):
        groups.setdefault(_base(draft, o.value, wanted), []).append(o)
    for base, found in groups.items():
        _activation(draft, base, found)
    draft.retype(recipe.dtype, *(_inner(region) if keep else ()))
    return draft.finish()


def _inner(region: Region) -> set[int]:
    """What banks of experts activate, which their own backward alone reads: kept as their second product reads it."""
    banks = {n.key: n.outputs[2] for n in region.nodes if has(n, Trait.BANK, backward=False)}
    return {o for o in banks.values() if all(n.forward in banks for n in region.users.get(o, ()))}


class _Draft(RegionRewriter):
    """A region in which operands become copies in low precision; `start` is what is made before a phase."""

    def __init__(self, region: Region, recipe: Recipe, keep: bool, fused: bool, gather: bool) -> None:
        super().__init__(region)
        self.recipe, self.keep, self.fused, self.gather = recipe, keep, fused, gather
        self.start: dict[Phase, list[Node]] = {}
        self.gone: dict[int, Node] = {}

    def like(self, old: int) -> int:
        """Add a value like another one, in low precision and with a storage of its own."""
        v = self.values[old]
        return self.add(Value(0, replace(v.type, dtype=self.recipe.dtype), 0, placements=v.placements))

    def cast(self, source: int, sides: Iterable[Side], user: Node, phase: Phase) -> tuple[Node, Copies]:
        """Make the node that quantises a value into the copies wanted, for a user in some phase."""
        wanted = [s for s in Side if s in set(sides)]
        copies = {s: self.like(source) for s in wanted}
        attrs = QuantiseAttrs(self._reads(source, wanted, phase))
        return _node(user, "quantise", source, tuple(copies.values()), phase, attrs), copies

    def _reads(self, source: int, sides: Sequence[Side], phase: Phase) -> int:
        rows, columns, both = self.recipe.reads
        reads = both if len(sides) == 2 else rows if sides == [Side.ROWS] else columns
        maker = self.region.producer.get(source)
        near = self.fused and maker is not None and has(maker, *_COMPILED) and maker.phase is phase
        return reads - (near and reads > 1)

    def turned(self, source: int, user: Node, phase: Phase) -> tuple[Node, int]:
        """Make the node that writes a copy in rows once more, transposed."""
        made = self.like(source)
        return _node(user, "copy", source, (made,), phase), made

    def give(self, found: Iterable[LowOperand], copies: Copies) -> None:
        """Let operands be the copies; of two for one place the second comes behind all inputs."""
        for o in found:
            inputs = self.now(o.node).inputs
            self.read(o.node, o.index if inputs[o.index] == o.value else len(inputs), copies[o.side])

    def finish(self) -> Region:
        """Return the region; a phase begins with what is made before it."""
        self.prepend(*self.start.get(Phase.PREPARE, ()), *self.start.get(Phase.FORWARD, ()))
        turn = next((n for n in self.region.nodes if n.phase is Phase.BACKWARD), self.region.nodes[0])
        self.insert_before(turn, *self.start.get(Phase.BACKWARD, ()), first=True)
        for node in self.gone.values():
            self.erase(node)
        return super().finish()


def _node(user: Node, op: str, source: int, outputs: tuple[int, ...], phase: Phase, attrs: Attrs = NO_ATTRS) -> Node:
    """A node for a user; what a backward product casts belongs to its forward product."""
    forward = user.forward if phase is Phase.BACKWARD else None
    return Node(op, (source,), outputs, attrs, user.scope, phase, forward)


def _phase(o: LowOperand) -> Phase:
    return o.node.phase


def _by_phase(found: Iterable[LowOperand]) -> Mapping[Phase, list[LowOperand]]:
    phases: dict[Phase, list[LowOperand]] = {}
    for o in found:
        phases.setdefault(o.node.phase, []).append(o)
    return phases


def _sides(found: Iterable[LowOperand]) -> list[Side]:
    return list(dict.fromkeys(o.side for o in found))


# Weights.


def _weight(draft: _Draft, found: list[LowOperand]) -> None:
    """One weight as some phases see it: a parameter, or what was gathered of one."""
    value = found[0].value
    maker = draft.region.producer.get(value)
    readers = {n.key for n in draft.region.users[value]}
    alone = readers <= {o.node.key for o in found}
    if draft.gather and alone and _rests_low(draft, value, maker):
        rest = _resting if draft.recipe.turns_weights or _is_frozen(draft, value, maker) else _resting_twice
        rest(draft, found, maker)
    elif maker is None and draft.keep:
        node, copies = draft.cast(value, _sides(found), found[0].node, Phase.PREPARE)
        draft.start.setdefault(Phase.PREPARE, []).append(node)
        draft.give(found, copies)
    else:
        for phase, users in _by_phase(found).items():
            node, copies = draft.cast(value, _sides(users), users[0].node, phase)
            draft.insert_before(users[0].node, node)
            draft.give(users, copies)


def _rests_low(draft: _Draft, value: int, maker: Node | None) -> bool:
    """Whether the weight is a parameter itself, or gathered from one as it is."""
    if maker is None:
        return True
    return has(maker, Trait.GATHERS) and draft.region.by_id[maker.inputs[0]].role is Role.PARAM


def _resting(draft: _Draft, found: list[LowOperand], maker: Node | None) -> None:
    """A weight that comes in low precision: cast where it lies in shards, or resting so where it is whole.

    A frozen one was cast before the first step, into both copies where it is whole.
    """
    value = found[0].value
    param = value if maker is None else maker.inputs[0]
    is_frozen = _is_frozen(draft, value, maker)
    draft.retype(draft.recipe.dtype, value, *([param] if is_frozen else []))
    if maker is not None and not is_frozen:
        phase = maker.phase
        node, copies = draft.cast(maker.inputs[0], [Side.ROWS], found[0].node, phase)
        draft.start.setdefault(phase, []).append(node)
        draft.read(maker, 0, copies[Side.ROWS])
    columns = [o for o in found if o.side is Side.COLUMNS]
    if not columns:
        return
    once = maker is None and draft.keep
    if once and is_frozen:
        made = draft.like(value)
        name = f"{draft.region.by_id[value].name}.{Side.COLUMNS}"
        draft.values[made] = replace(draft.values[made], role=Role.PARAM, name=name)
        draft.give(columns, {Side.COLUMNS: made})
        return
    phase = Phase.PREPARE if once else columns[0].node.phase
    node, made = draft.turned(value, columns[0].node, phase)
    if once:
        draft.start.setdefault(phase, []).append(node)
    else:
        draft.insert_before(columns[0].node, node)
    draft.give(columns, {Side.COLUMNS: made})


def _is_frozen(draft: _Draft, value: int, maker: Node | None) -> bool:
    """Whether a weight, or what was gathered of one, is not trained."""
    param = value if maker is None else maker.inputs[0]
    return all(weight != param for weight, _ in draft.region.grads)


def _resting_twice(draft: _Draft, found: list[LowOperand], maker: Node | None) -> None:
    """A weight whose two copies have scales of their own: neither is made of the other, and both rest.

    Where it lies whole, the optimizer's result is gathered in the model's type, in the buffer of gradients, and cast
    once a step (Megatron-LM, `--reuse-grad-buf-for-mxfp8-param-ag`). Of shards each copy is gathered where it is
    wanted, cast (Megatron-FSDP's buffers of weights and of transposed weights).
    """
    value = found[0].value
    if maker is None:
        node, copies = draft.cast(value, _sides(found), found[0].node, Phase.PREPARE)
        assert isinstance(node.attrs, QuantiseAttrs)
        kept = replace(node, attrs=replace(node.attrs, frees=True))
        draft.start.setdefault(Phase.PREPARE, []).append(kept)
        draft.give(found, copies)
        return
    first, *others = _sides(found)
    for side in (first, *others):
        node, copies = draft.cast(maker.inputs[0], [side], found[0].node, maker.phase)
        assert isinstance(node.attrs, QuantiseAttrs)
        made = replace(node, attrs=replace(node.attrs, columns=side is Side.COLUMNS))
        draft.start.setdefault(maker.phase, []).append(made)
        if side is first:
            draft.retype(draft.recipe.dtype, value)
            draft.read(maker, 0, copies[side])
            continue
        whole = draft.like(value)
        draft.insert_before(maker, replace(maker, inputs=(copies[side],), outputs=(whole,)))
        draft.give([o for o in found if o.side is side], {side: whole})


# Activations and gradients.


def _base(draft: _Draft, value: int, wanted: Sequence[LowOperand]) -> int:
    """What is quantised: the operand, or what it was gathered from where it travels quantised."""
    maker = draft.region.producer.get(value)
    return value if maker is None or not _travels(draft, maker, wanted) else maker.inputs[0]


def _travels(draft: _Draft, maker: Node, wanted: Sequence[LowOperand]) -> bool:
    """Whether a gather over tp feeds products alone, which then can read what was quantised before."""
    attrs = maker.attrs
    if not draft.recipe.sends or not has(maker, Trait.GATHERS) or not isinstance(attrs, CollectiveAttrs):
        return False
    readers = {n.key for n in draft.region.users[maker.key]}
    products = {o.node.key for o in wanted if has(o.node, OpClass.MATMUL)}
    leaves = any(p.value == maker.key for p in draft.region.outputs)
    return attrs.axes == (TP,) and readers <= products and not leaves


def _activation(draft: _Draft, base: int, found: list[LowOperand]) -> None:
    """Quantise one tensor: once for both phases where the copy is kept, else in each that reads it."""
    phases = _by_phase(found)
    kept = draft.keep and Phase.FORWARD in phases
    groups = [found] if kept else list(phases.values())
    for users in groups:
        phase = users[0].node.phase
        # In front of the first product of it, or gather for one.
        first = draft.first(o.node if o.value == base else draft.region.producer[o.value] for o in users)
        assert first is not None
        sides = {s for group in _by_phase(users).values() for s in _sent(draft, base, group)}
        node, copies = draft.cast(base, sides, users[0].node, phase)
        draft.insert_before(first, node)
        for group in _by_phase(users).values():
            _read(draft, base, group, copies)


def _sent(draft: _Draft, base: int, group: Sequence[LowOperand]) -> list[Side]:
    """The copies that are wanted in front of a message: one of both where the other is made of it behind."""
    sides: list[Side] = []
    for value in dict.fromkeys(o.value for o in group):  # the tensor itself may be read as well
        wanted = _sides(o for o in group if o.value == value)
        turned = value != base and draft.recipe.turns and len(wanted) == 2
        sides += [Side.ROWS] if turned else wanted
    return list(dict.fromkeys(sides))


def _read(draft: _Draft, base: int, group: Sequence[LowOperand], copies: Copies) -> None:
    """Let the products of one phase read the copies, gathered where they have to be."""
    for value in dict.fromkeys(o.value for o in group):
        users = [o for o in group if o.value == value]
        if value == base:
            draft.give(users, copies)
            continue
        gather = draft.region.producer[value]
        draft.gone[value] = gather
        whole: dict[Side, int] = {}
        for side in _sent(draft, base, users):
            whole[side] = draft.like(value)
            draft.insert_before(gather, replace(gather, inputs=(copies[side],), outputs=(whole[side],)))
        missing = [s for s in _sides(users) if s not in whole]
        for side in missing:
            columns = next(o.node for o in users if o.side is side)
            node, whole[side] = draft.turned(whole[Side.ROWS], columns, columns.phase)
            draft.insert_before(columns, node)
        draft.give(users, whole)
