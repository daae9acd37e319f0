"""Low-rank adapters beside frozen linear layers: LoRA, and QLoRA where the frozen weights rest in few bits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import ClassVar

from ...ir.editing.rewriter import RegionRewriter
from ...ir.errors import PlanError
from ...ir.graph import Graph, Node, Phase, Port, Region, Role, Value, Workload
from ...ir.ops import Trait, has
from ...ir.ops.tensors.matmul import MatmulAttrs
from ...ir.ops.tensors.pointwise import ElementwiseAttrs
from ...ir.plan.training.adapters import ALL_LINEAR, BASES, DOWN, UP, is_target
from ...ir.records import dataclass
from ...ir.saved import mark_saved
from ...ir.sizes.expr import Dim
from ...ir.types import DType, TensorType
from ..base import Pass, PassResult

_HEADS = ("lm_head", "embed_out", "output_layer", "output")


@dataclass(frozen=True, slots=True)
class Adapt(Pass):
    """Freeze all weights, and train beside chosen ones a product of two narrow matrices: y = W x + s B (A x).

    Gradients of frozen weights go, and all that only they need, with the activations that they alone keep.
    Source: Hu et al. 2021, LoRA (arXiv 2106.09685), section 4.1; of few bits Dettmers et al. 2023, QLoRA (arXiv
    2305.14314), equation 5: a frozen matrix is widened before each of its products, forward and backward.

    | option  | meaning                                                                                  |
    |---------|------------------------------------------------------------------------------------------|
    | rank    | rows of A and columns of B                                                               |
    | modules | names of linear layers, matched as PEFT matches them; none: all of them but the head     |
    | base    | how frozen matrices of layers rest: same, nf4, int8                                      |
    | dropout | whether the input of each adapter loses elements at random, which keeps a mask           |
    """

    name: ClassVar[str] = "adapt"
    sharded: ClassVar[bool | None] = False  # adapters are sharded as the layers that they stand beside
    workloads: ClassVar[tuple[Workload, ...]] = (Workload.TRAIN,)
    rank: int = 8
    modules: tuple[str, ...] = ()
    base: str = "same"
    dropout: bool = False

    def apply(self, graph: Graph) -> PassResult:
        """Adapt every region, then drop what nothing needs any more; PlanError for a name of no linear layer."""
        linear = {r.name: _linear_layers(r) for r in graph.regions}
        chosen = _chosen(graph, [layer for layers in linear.values() for layer in layers.values()], self.modules)
        adapted = [_Adapted(r, self.rank, self.dropout).adapt(linear[r.name], chosen) for r in graph.regions]
        live = _without_idle(graph.with_regions(tuple(adapted)))
        if (kind := BASES[self.base]) is not None:
            rest = {r.name: {name for name, x in linear[r.name].items() if not x.is_head} for r in live.regions}
            live = live.with_regions(tuple(_at_rest(r, rest[r.name], kind) for r in live.regions))
        return PassResult(mark_saved(live), changed=True)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A linear layer: its product, the one that gives the gradient of its input, and the gradient of its result.

    The last two are None where there is no backward phase behind it.
    """

    product: Node
    module: str
    back: Node | None
    grad: int | None

    @property
    def is_head(self) -> bool:
        """Whether it makes logits: its frozen matrix, which a table may share, is left as it is."""
        return self.module.rpartition(".")[2] in _HEADS


@dataclass(frozen=True, slots=True)
class _Letters:
    """The specs of an adapter in einsum letters: of its input, the narrow result, the result, and both matrices."""

    given: str
    narrow: str
    result: str
    down: str
    up: str


@dataclass(frozen=True, slots=True)
class _Forward:
    """Values of the forward phase of an adapter; without dropout `given` is the layer's input and there is no mask."""

    given: int
    down: int
    up: int
    hidden: int
    wide: int
    scaled: int
    mask: int


def _linear_layers(region: Region) -> Mapping[str, _Layer]:
    """Products of an activation with a matrix that is a parameter, by the name of that."""
    grads = dict(region.grads)
    found: dict[str, _Layer] = {}
    for node in region.nodes:
        if node.phase is not Phase.FORWARD or not isinstance(node.attrs, MatmulAttrs):
            continue
        left, weight = (region.by_id[i] for i in node.inputs[:2])
        if weight.role is not Role.PARAM or weight.type.rank != 2 or left.role is Role.PARAM:
            continue
        later = [n for n in region.users[weight.id] if n.forward == node.key and n.phase is Phase.BACKWARD]
        made = region.producer.get(grads.get(weight.id, -1))
        read = [i for n in (*later, *([made] if made else [])) for i in n.inputs if i not in node.inputs]
        layer = _Layer(
            node, node.scope or weight.name.rpartition(".")[0], next(iter(later), None), next(iter(read), None)
        )
        # A router's gradients are of rows without their batch: it is no linear layer, and has no adapter.
        pairs = ((layer.grad, node.key), (None if layer.back is None else layer.back.key, left.id))
        if all(a is None or region.by_id[a].type.dims == region.by_id[b].type.dims for a, b in pairs):
            found[weight.name] = layer
    return found


def _chosen(graph: Graph, layers: Sequence[_Layer], modules: Sequence[str]) -> frozenset[str]:
    """Paths of the layers that get an adapter; PlanError for a word that names no linear layer."""
    found: set[str] = set()
    for word in modules or (ALL_LINEAR,):
        named = {x.module for x in layers if (not x.is_head if word == ALL_LINEAR else is_target(x.module, word))}
        if not named:
            have = ", ".join(sorted({x.module.rpartition(".")[2] for x in layers}))
            raise PlanError(f"lora-modules={word}: no linear layer of {graph.name}; it has {have}; or {ALL_LINEAR}")
        found |= named
    return frozenset(found)


class _Adapted(RegionRewriter):
    """A region that gets adapters."""

    def __init__(self, region: Region, rank: int, dropout: bool) -> None:
        super().__init__(region)
        self.rank, self.dropout = rank, dropout
        self.grads = ()
        # Gradients of inputs through adapters, by those through the frozen layers.
        self._through: dict[int, int] = {}

    def adapt(self, layers: Mapping[str, _Layer], chosen: Set[str]) -> Region:
        """Return the region with adapters beside the chosen modules, and with no gradients but theirs."""
        for layer in layers.values():
            if layer.module in chosen:
                self._adapt(layer)
        sums = _sums_of(self.region, layers.values())
        for total in dict.fromkeys(sums[back] for back in self._through):
            # Add gradients through adapters to a sum of gradients behind the nodes that are there.
            made = [made for back, made in self._through.items() if sums[back] == total]
            first = self.region.producer[total]
            like = replace(first, forward=None, meaning=None)
            kind = self.region.by_id[total].type
            fresh = [self._value(kind.dims, kind.dtype) for _ in made]
            steps = zip(fresh, made, (*fresh[1:], total), strict=True)
            adds = [_pointwise(like, "add", (before, one), behind) for before, one, behind in steps]
            self.replace(first, replace(first, outputs=(fresh[0],)))
            self.insert_after(replace(first, outputs=(fresh[0],)), *adds)
        return self.finish()

    def _value(self, dims: tuple[Dim, ...], kind: DType, role: Role = Role.RESULT, name: str = "") -> int:
        return self.add(Value(0, TensorType(dims, kind), 0, role, name))

    def _adapt(self, layer: _Layer) -> None:
        """Put an adapter beside one layer: two narrow products, a scaling, a sum; and their gradients."""
        product, by_id = layer.product, self.region.by_id
        assert isinstance(product.attrs, MatmulAttrs)
        left, right, out = product.attrs.letters
        inner = next(x for x in right if x not in out)
        outer = next(x for x in right if x in out)
        narrow = next(x for x in "rstuvwxyz" if x not in left + right + out)
        letters = _Letters(left, left.replace(inner, narrow), out, narrow + inner, outer + narrow)
        dims = (*by_id[product.inputs[0]].type.dims, *by_id[product.inputs[1]].type.dims)
        size: dict[str, Dim] = {**dict(zip((*left, *right), dims, strict=True)), narrow: self.rank}
        kind = by_id[product.inputs[0]].type.dtype

        def made(spelled: str, param: str = "") -> int:
            role = Role.PARAM if param else Role.RESULT
            return self._value(tuple(size[x] for x in spelled), kind, role, param)

        down, up = (made(s, f"{layer.module}.{part}.weight") for s, part in ((letters.down, DOWN), (letters.up, UP)))
        base, hidden, wide, scaled = made(out), made(letters.narrow), made(out), made(out)
        of_down, of_up = (replace(product, scope=f"{product.scope}.{part}", meaning=None) for part in (DOWN, UP))
        given, mask, drop = product.inputs[0], -1, list[Node]()
        if self.dropout:
            given, mask = made(left), self._value(by_id[given].type.dims, DType.BOOL)
            drop = [replace(_pointwise(of_down, "dropout", product.inputs[:1], given), outputs=(given, mask))]
        self.replace(
            product,
            frozen := replace(product, outputs=(base,)),
            *drop,
            _product(of_down, letters.given, letters.down, letters.narrow, (given, down), hidden),
            _product(of_up, letters.narrow, letters.up, letters.result, (hidden, up), wide),
            _pointwise(of_up, "mul", (wide,), scaled),
            _pointwise(replace(product, meaning=None), "add", (base, scaled), product.key),
            heir=frozen,
        )
        if layer.grad is not None:
            parts = _Forward(given, down, up, hidden, wide, scaled, mask)
            self._backward(
                layer,
                letters,
                parts,
                (made(out), made(letters.narrow), made(letters.up), made(letters.down), made(left)),
            )

    def _backward(self, layer: _Layer, s: _Letters, f: _Forward, made: tuple[int, int, int, int, int]) -> None:
        """Gradients of both matrices, and that of the input added to what comes through the frozen one."""
        assert layer.grad is not None
        d_wide, d_hidden, d_up, d_down, d_given = made
        at = layer.back or self.region.producer[layer.grad]
        of_up = replace(at, scope=f"{layer.product.scope}.{UP}", phase=Phase.BACKWARD, forward=f.wide, meaning=None)
        of_down = replace(of_up, scope=f"{layer.product.scope}.{DOWN}", forward=f.hidden)
        nodes = [
            replace(_pointwise(of_up, "mul", (layer.grad,), d_wide), forward=f.scaled),
            _product(of_up, s.result, s.narrow, s.up, (d_wide, f.hidden), d_up),
            _product(of_up, s.result, s.up, s.narrow, (d_wide, f.up), d_hidden),
            _product(of_down, s.narrow, s.given, s.down, (d_hidden, f.given), d_down),
        ]
        self.grads += ((f.down, d_down), (f.up, d_up))
        if layer.back is not None:
            nodes.append(_product(of_down, s.narrow, s.down, s.given, (d_hidden, f.down), d_given))
            self._through[layer.back.key] = d_given
            if self.dropout:
                kind = self.region.by_id[layer.back.key].type
                self._through[layer.back.key] = self._value(kind.dims, kind.dtype)
                undo = _pointwise(of_down, "dropout_bwd", (d_given, f.mask), self._through[layer.back.key])
                nodes.append(replace(undo, forward=f.given))
        self.insert_after(at, *nodes)


def _sums_of(region: Region, layers: Iterable[_Layer]) -> Mapping[int, int]:
    """Return the sum that takes in the gradient of each layer's input with those of all layers of the same input.

    Frozen layers are split over ranks, so that these are partial sums: reduced once, where adapters' own are whole.
    """
    inputs = {x.back.key: x.product.inputs[0] for x in layers if x.back is not None}
    total = {key: key for key in inputs}
    for node in region.nodes:
        is_sum = has(node, Trait.POINTWISE) and node.attrs == ElementwiseAttrs(("add",)) and len(node.inputs) == 2
        parts = {key for key, now in total.items() if now in node.inputs}
        if is_sum and len(parts) > 1 and len({inputs[key] for key in parts}) == 1:
            total.update(dict.fromkeys(parts, node.key))
    return total


def _product(like: Node, left: str, right: str, out: str, inputs: tuple[int, int], made: int) -> Node:
    return replace(like, op="matmul", attrs=MatmulAttrs(f"{left},{right}->{out}"), inputs=inputs, outputs=(made,))


def _pointwise(like: Node, fn: str, inputs: tuple[int, ...], made: int) -> Node:
    return replace(like, op="elementwise", attrs=ElementwiseAttrs((fn,)), inputs=inputs, outputs=(made,))


def _without_idle(graph: Graph) -> Graph:
    """Drop nodes of the backward phase whose results no gradient and no other region needs, until none is left."""
    while True:
        read = {v.name for r in graph.regions for v in r.of_role(Role.PORT)}
        made = graph.with_regions(tuple(_live(r, read) for r in graph.regions))
        if made == graph:
            return graph
        graph = made


def _live(region: Region, read: set[str]) -> Region:
    """Drop idle nodes of a region, and ports that no region reads. Gradients of banks of frozen experts go alone."""
    needed = {p.value for p in region.outputs if _leaves(region, p, read)} | {g for _, g in region.grads}
    nodes: list[Node] = []
    for node in reversed(region.nodes):
        if node.phase is Phase.BACKWARD and needed.isdisjoint(node.outputs):
            continue
        if has(node, Trait.ROUTES) and node.phase is Phase.BACKWARD:
            # The first two are gradients of tokens and of routing weights, the others of the bank.
            node = replace(node, outputs=(*node.outputs[:2], *(o for o in node.outputs[2:] if o in needed)))
        nodes.append(node)
        needed |= set(node.inputs)
    outputs = tuple(p for p in region.outputs if _leaves(region, p, read))
    made = {o for n in nodes for o in n.outputs}
    kept = {*made, *needed, *(v.id for v in region.values if v.role in (Role.PARAM, Role.INPUT, Role.BUFFER))}
    values = tuple(v for v in region.values if v.id in kept)
    return replace(region, values=values, nodes=tuple(reversed(nodes)), outputs=outputs)


def _leaves(region: Region, port: Port, read: set[str]) -> bool:
    """Whether something outside wants an output: another region, or, of the forward phase, whoever runs the model."""
    return region.phase_of(port.value) is Phase.FORWARD or port.name in read


def _at_rest(region: Region, matrices: Collection[str], kind: DType) -> Region:
    """Let frozen matrices rest in few bits: each product reads a copy that is widened right before it."""
    at = RegionRewriter(region)
    rest = {v.id for v in region.of_role(Role.PARAM) if v.name in matrices}
    for node in region.nodes:
        for place, weight in enumerate(node.inputs):
            if weight in rest:
                wide = at.add(Value(0, region.by_id[weight].type, 0))
                at.insert_before(node, Node("cast", (weight,), (wide,), scope=node.scope, phase=node.phase))
                at.read(node, place, wide)
    at.values.update((i, replace(at.values[i], type=TensorType(at.values[i].type.dims, kind))) for i in rest)
    return at.finish()
