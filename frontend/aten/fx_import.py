"""A torch.fx graph whose nodes carry `val`, scope, phase and forward link to the flat form of the IR."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from types import MappingProxyType

import torch
from torch import Tensor, fx

from ...ir.errors import TraceError, UnsupportedOpError, did_you_mean
from ...ir.graph import NO_ATTRS, Attrs, Phase, Role
from ...ir.ops.tensors.lookup import LookupAttrs, lookup_of
from ...ir.records import dataclass
from ...ir.sizes.expr import Dim, Expr
from ...ir.types import DType, TensorType
from ..record.adapter import FakeWorld, layout_key, layout_sizes, real_numbers, storage_id
from ..record.dtypes import dtype_of, meaning_of
from .flat import Flat, NodeOrigin, Said, clean_scope


def argument(node: fx.Node, name: str) -> object:
    """Return an argument of a call by its name in the schema; its default where it is left out, None without one."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        raise TraceError("a call of what is no operator of torch")
    for position, said in enumerate(schema.arguments):
        if said.name == name:
            return node.args[position] if position < len(node.args) else node.kwargs.get(name, said.default_value)
    return None


def dim_of(node: fx.Node, rank: int) -> int:
    """Return the `dim` of a call counted from the front; the last one where the operator takes none."""
    given = argument(node, "dim")
    return (-1 if given is None else int(str(given))) % max(rank, 1)


def plain(op: str, attrs: Attrs = NO_ATTRS, most: int | None = None) -> Handler:
    """Return the handler that writes one op of the tensors of a call, or of the first ones."""

    def handler(im: Importer, node: fx.Node) -> None:
        im.emit(node, op, im.inputs(node)[:most], attrs)

    return handler


def write_back(im: Importer, node: fx.Node, written: int) -> None:
    """After `node` wrote into its first argument: later readers of that memory see `written`.

    The same view under another node becomes `written` itself. A tensor that is the whole storage becomes `written` in
    other dims when the write was to all of it, else the old tensor with the written part scattered into it.
    """
    target = node.args[0]
    tensor = target.meta["val"] if isinstance(target, fx.Node) else None
    if not isinstance(tensor, Tensor):
        return
    versions: dict[tuple[object, ...], int | None] = {layout_key(tensor): written}
    for other in im.sharers[storage_id(tensor)]:
        key = layout_key(other.meta["val"])
        if key not in versions:
            versions[key] = _version(im, node, other, tensor, written)
        if (version := versions[key]) is not None:
            im.ids[other] = version


def _version(im: Importer, node: fx.Node, other: fx.Node, tensor: Tensor, written: int) -> int | None:
    """Return what a tensor of the same storage holds after the write; None when it only may have changed."""
    whole = im.type_of(im.sharers[storage_id(tensor)][0].meta["val"]).numel
    kind = im.type_of(other.meta["val"])
    if kind.numel != whole:
        return None
    old = im.ids[other]
    everything = im.type_of(tensor).numel == whole
    made = [(kind, im.flat.values[old].storage)]
    if everything:
        return im.flat.emit("reshape", (written,), made, im.origin(node))[0]
    part = im.flat.values[written].type.dims
    attrs = _written_part(other.meta["val"], tensor) if part == im.type_of(tensor).dims else LookupAttrs()
    return im.flat.emit("scatter", (old, written), made, im.origin(node), attrs)[0]


def _written_part(whole: Tensor, part: Tensor) -> LookupAttrs:
    """Which dims of a view that was written into are whole dims of the tensor: those of its size and its stride."""
    if whole.is_complex():
        return LookupAttrs()
    dims = _strided(whole)
    full = tuple(range(len(dims)))
    return lookup_of([full, [dims.index(d) if d in dims else None for d in _strided(part)], full])


def _strided(tensor: Tensor) -> list[tuple[object, object]]:
    """The size and the stride of each dim, which symbols compare by."""
    sizes, rank = layout_sizes(tensor), tensor.dim()
    return list(zip(sizes[:rank], sizes[rank : 2 * rank], strict=True))


@dataclass
class Importer:
    """One import: what each fx node became, who owns each storage and who else looks at it (the owner first)."""

    world: FakeWorld
    flat: Flat = field(default_factory=Flat)
    ids: dict[fx.Node, int] = field(default_factory=dict)
    parts: dict[fx.Node, tuple[int | None, ...]] = field(default_factory=dict)
    owner: dict[int, int] = field(default_factory=dict)
    keys: dict[fx.Node, int] = field(default_factory=dict)
    sharers: dict[int, list[fx.Node]] = field(default_factory=dict)

    def type_of(self, tensor: Tensor) -> TensorType:
        """Return the IR type of a fake tensor; complex numbers are pairs of fp32 in a last dim of two."""
        dims = tuple(self.world.dim(s) for s in tensor.shape)
        if tensor.dtype is torch.complex64:
            return TensorType((*dims, 2), DType.FP32)
        return TensorType(dims, dtype_of(tensor))

    def rank(self, node: fx.Node) -> int:
        """Return the number of dims that torch sees in the first tensor argument."""
        tensor = self.tensors(node)[0].meta["val"]
        assert isinstance(tensor, Tensor)
        return tensor.dim()

    def tensors(self, node: fx.Node) -> list[fx.Node]:
        """Return the tensor arguments of a node, lists flattened, in order."""
        found: list[fx.Node] = []
        for arg in (*node.args, *node.kwargs.values()):
            for a in arg if isinstance(arg, list | tuple) else (arg,):
                if isinstance(a, fx.Node):
                    found.append(a)
        return found

    def inputs(self, node: fx.Node) -> list[int]:
        """Return the ids of the tensor arguments."""
        return [self.ids[n] for n in self.tensors(node)]

    def dim(self, value: object) -> Dim:
        """Return an int or symbolic argument as a dim."""
        if isinstance(value, fx.Node):
            value = value.meta["val"]
        if isinstance(value, Expr):
            return value
        if isinstance(value, int | torch.SymInt):
            return self.world.dim(value)
        raise UnsupportedOpError(f"'{value}' is not a size")

    def origin(self, node: fx.Node) -> NodeOrigin:
        """Return scope, phase and forward key of a node."""
        forward = node.meta.get("forward")
        key = self.keys.get(forward) if isinstance(forward, fx.Node) else None
        scope = str(node.meta.get("scope", ""))
        return NodeOrigin(scope if self.flat.calls else clean_scope(scope), node.meta.get("phase", Phase.FORWARD), key)

    def emit(
        self, node: fx.Node, op: str, inputs: Sequence[int], attrs: Attrs = NO_ATTRS, keep: int | None = None
    ) -> tuple[int, ...]:
        """Append an IR node with the outputs of an fx node; `keep` limits how many of them exist."""
        val = node.meta["val"]
        # Whether an operator left an output out.
        made = (
            [val]
            if isinstance(val, Tensor)
            else [v for v in val if isinstance(v, Tensor) and not (v.dim() == 1 and v.shape[0] == 0)]
        )
        made = made[:keep]
        meaning = meaning_of(node, self.ids, inputs, len(made))
        kinds = [(self.type_of(t), self.owner.get(storage_id(t))) for t in made]
        outs = self.flat.emit(op, inputs, kinds, self.origin(node), attrs, meaning)
        self.bind(node, outs, made)
        if op in _SAID:
            # The name of a call, marked where it computes with complex numbers, and its plain numbers.
            given = (*node.args, *node.kwargs.values())
            numbers = tuple(float(a) for a in given if isinstance(a, int | float) and not isinstance(a, bool))
            self.flat.said[outs[0]] = Said(
                f"{op_name(node)}{' complex' if any(t.is_complex() for t in made) else ''}", numbers
            )
        return outs

    def bind(self, node: fx.Node, outs: Sequence[int], tensors: Sequence[Tensor]) -> None:
        """Say which IR values an fx node became."""
        self.keys.setdefault(node, outs[0])
        for out, tensor in zip(outs, tensors, strict=True):
            self.owner.setdefault(storage_id(tensor), out)
        val = node.meta["val"]
        if isinstance(val, Tensor):
            self.ids[node] = outs[0]
            self._share(node)
            return
        by_tensor = {id(t): o for t, o in zip(tensors, outs, strict=True)}
        self.parts[node] = tuple(by_tensor.get(id(v)) for v in val)

    def alias(self, node: fx.Node, value: int) -> None:
        """Let an fx node stand for an existing value."""
        self.ids[node] = value
        self.keys.setdefault(node, value)
        self._share(node)

    def _share(self, node: fx.Node) -> None:
        if isinstance(tensor := node.meta["val"], Tensor):
            self.sharers.setdefault(storage_id(tensor), []).append(node)


# Ops that do not keep the numbers they are called with.
_SAID = ("elementwise", "fill")


Handler = Callable[[Importer, fx.Node], None]
# The rule of what has none of its own and is pointwise; where a recorded node keeps the names of its pointwise steps.
POINTWISE, STEPS = "pointwise", "steps"


def import_fx(
    graph: fx.Graph,
    world: FakeWorld,
    results: Sequence[fx.Node],
    grads: Mapping[str, fx.Node],
    handlers: Mapping[str, Handler],
    calls: Mapping[int, str] = MappingProxyType({}),
) -> Flat:
    """Import a whole graph; UnsupportedOpError lists every operator without a rule, with module paths.

    `calls` are the calls of modules that scopes name; without them scopes are module paths.
    """
    im = Importer(world, Flat(calls=calls))
    unknown: dict[str, set[str]] = {}
    hints: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            _placeholder(im, node)
        elif node.target is operator.getitem:
            _getitem(im, node)
        elif (handler := handlers.get(_rule_name(node, handlers))) is not None:
            try:
                handler(im, node)
            except TraceError as error:
                raise TraceError(f"{error}: '{op_name(node)}' in {_place(node)}") from error
        elif _makes_no_tensor(node):
            continue
        else:
            unknown.setdefault(op_name(node), set()).add(_place(node))
            hints[op_name(node)] = _how_to_price(node)
            _stand_in(im, node)
    if unknown:
        known = list(handlers)
        lines = [
            f"'{name}' in {', '.join(sorted(scopes)[:3])}{hints[name] or did_you_mean(name, known).rstrip(';')}"
            for name, scopes in sorted(unknown.items())
        ]
        listed = "; ".join(lines)
        raise UnsupportedOpError(
            f"{len(lines)} operator(s) without a rule: {listed}; --allow-unpriced counts their bytes alone"
        )
    im.flat.results = [im.ids[n] for n in results]
    named = {v.name: v.id for v in im.flat.values.values() if v.role is Role.PARAM}
    im.flat.grads = {named[n]: im.ids[g] for n, g in grads.items() if n in named}
    return im.flat


def _rule_name(node: fx.Node, handlers: Mapping[str, Handler]) -> str:
    """The name under which an operator has a rule: its own, else that of pointwise ones where torch says it is one."""
    name, target = op_name(node), node.target
    known = name in handlers
    pointwise = isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags
    return POINTWISE if not known and (node.meta.get(STEPS) or pointwise) else name


def _makes_no_tensor(node: fx.Node) -> bool:
    """Whether a call only says sizes, as `aten.size` does: it makes no tensor and writes into none."""
    val, schema = node.meta["val"], getattr(node.target, "_schema", None)
    made = val if isinstance(val, list | tuple) else [val]
    return schema is not None and not schema.is_mutable and not any(isinstance(v, Tensor) for v in made)


def _place(node: fx.Node) -> str:
    scope = clean_scope(str(node.meta.get("scope", "")))
    return f"module '{scope}'" if scope else "the top module"


def op_name(node: fx.Node) -> str:
    """Return `namespace.name` of a call, overload and in-place mark dropped: `aten.add`."""
    return plain_name(node.target)


@lru_cache(maxsize=4096)
def plain_name(operator: object) -> str:
    """Return a dunder-free name: that of `aten.add_.Tensor` and of `aten.add.Tensor` is `aten.add`."""
    parts = str(operator).split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return f"{parts[0]}.{name[:-1] if name.endswith('_') and not name.endswith('__') else name}"


def is_inplace(node: fx.Node) -> bool:
    """Whether a call writes into its first argument."""
    parts = str(node.target).split(".")
    return len(parts) > 1 and parts[1].endswith("_") and not parts[1].endswith("__")


def _placeholder(im: Importer, node: fx.Node) -> None:
    tensor = node.meta["val"]
    if node.meta["role"] is Role.BUFFER and (numbers := real_numbers(tensor)) is not None:
        im.flat.constants[node.meta["name"]] = numbers
    out = im.flat.value(im.type_of(tensor), None, node.meta["role"], node.meta["name"])
    im.bind(node, (out,), (tensor,))


def _getitem(im: Importer, node: fx.Node) -> None:
    source, index = node.args
    assert isinstance(source, fx.Node)
    assert isinstance(index, int)
    part = im.parts.get(source, ())[index] if source in im.parts else None
    if part is not None:
        im.alias(node, part)


def _stand_in(im: Importer, node: fx.Node) -> None:
    """Give an unknown operator typed outputs, so that the import can list all unknown ones at once."""
    val = node.meta["val"]
    tensors = [t for t in ([val] if isinstance(val, Tensor) else val or []) if isinstance(t, Tensor)]
    outs = [im.flat.value(im.type_of(t)) for t in tensors]
    if outs:
        im.bind(node, outs, tensors)


def tensor_names(node: fx.Node) -> tuple[str, ...]:
    """Return what the schema calls the tensors that a call is given, those of a list with their place behind."""
    schema = getattr(node.target, "_schema", None)
    names = [] if schema is None else [a.name for a in schema.arguments]
    found: list[str] = []
    for name, given in (*zip(names, node.args, strict=False), *node.kwargs.items()):
        if isinstance(given, list | tuple):
            found += [f"{name}{i}" for i, g in enumerate(given) if isinstance(g, fx.Node)]
        elif isinstance(given, fx.Node):
            found.append(name)
    return tuple(found)


def _how_to_price(node: fx.Node) -> str:
    """What to write for an operator without a rule that is not torch's own; nothing for one of torch."""
    space, _, name = op_name(node).partition(".")
    if space in ("aten", "prims"):
        return ""
    first, *others = (*tensor_names(node), "out")
    return (
        f", which has a cost once the file of the model says slipstick.register_cost('{space}::{name}', flops='..') in "
        f"sizes of {', '.join((first, *others))}, as 2 * {first}.numel * {others[0] if others else first}[0]"
    )
