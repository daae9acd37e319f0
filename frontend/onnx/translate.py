"""The nodes of a model, one after the other, to those of the IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

import numpy as np
import onnx

from ...ir.errors import NotUnderstoodError, SlipstickError, UnsupportedOpError, did_you_mean
from ...ir.ops.fused.attention import KvAppendAttrs
from ...ir.ops.unpriced import NAME as UNPRICED
from ...ir.ops.unpriced import UnpricedAttrs
from ...ir.records import dataclass
from ...ir.types import DType, TensorType
from ..aten.flat import NodeOrigin
from .builder import CONSTANT, Builder
from .call import Call, Rule
from .reading import MAX_DEPTH, ordered, place
from .rules.table import CONTRIB, STANDARD, takes_sequences
from .scopes import scopes
from .shapes.items import Item, constant, stored_item
from .shapes.known import computed
from .shapes.positions import chosen, followed
from .standard import body_of, has_body, modern, with_defaults

_STANDARD = ("", "ai.onnx")
# Numbers in nodes are constants, not weights: more of them are looked at.
CONSTANT_FLOATS = 64
# Keys and values: [batch, heads, length, width].
CACHE_RANK = 4


@dataclass
class Names:
    """What names stand for in a graph, and in the graphs around it."""

    items: dict[str, Item | None] = field(default_factory=dict)
    outer: Names | None = None

    def find(self, name: str) -> Item | None:
        """Return what a name stands for; NotUnderstoodError where nothing makes it."""
        scope: Names | None = self
        while scope is not None:
            if name in scope.items:
                return scope.items[name]
            scope = scope.outer
        raise NotUnderstoodError(f"'{name}' is read, and nothing makes it")


class Control(Protocol):
    """Writes a node that runs bodies: `If`, `Loop` and `Scan`."""

    def __call__(self, translation: Translation, call: Call, names: Names) -> Sequence[Item | None]:
        """Return what the node makes."""
        ...


@dataclass(frozen=True, slots=True)
class Translation:
    """One pass over a model: what it is written to, its local functions, the version of its operators.

    `control` writes nodes that run bodies, for which it comes back here (`control.controlled`); `cached` names results
    that are keys and values, which stay behind as a cache.
    """

    build: Builder
    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    opset: int
    control: Control
    unpriced: Mapping[str, TensorType] | None = None
    depth: int = 0
    cached: frozenset[str] = frozenset()

    def run(self, nodes: Sequence[onnx.NodeProto], names: Names, stored: Mapping[str, object], prefix: str) -> None:
        """Write the nodes of one graph, in an order that runs; operators without a rule are all listed."""
        known = _all_names(names)
        unknown: dict[str, str] = {}
        sequence = ordered(nodes, known)
        for node, scope in zip(sequence, scopes(sequence, stored), strict=True):
            if self._is_unknown(node) and self.unpriced is not None:
                self._kept(node, names, _joined(prefix, scope), self.unpriced)
            elif self._is_unknown(node):
                unknown.setdefault(_full(node), place(node))
                names.items.update(dict.fromkeys(filter(None, node.output)))
            elif not any(n in names.items and names.items[n] is None for n in node.input) or not unknown:
                self._node(node, names, _joined(prefix, scope))
            else:
                names.items.update(dict.fromkeys(filter(None, node.output)))
        if unknown:
            lines = [
                f"'{name}' ({where}){did_you_mean(name.rpartition('.')[2], [*STANDARD, *CONTRIB]).rstrip(';')}"
                for name, where in sorted(unknown.items())
            ]
            raise UnsupportedOpError(f"{len(lines)} operator(s) without a rule: " + "; ".join(lines[:8]))

    def _kept(self, node: onnx.NodeProto, names: Names, scope: str, declared: Mapping[str, TensorType]) -> None:
        """Keep an operator without a rule, of which only the bytes count; the file must say what comes out."""
        made = [name for name in node.output if name]
        if not all(name in declared for name in made):
            raise UnsupportedOpError(
                f"'{_full(node)}' ({place(node)}): no rule, and its results are not declared in the file"
            )
        items = [item for n in node.input if n and (item := names.find(n)) is not None]
        origin = NodeOrigin(scope)
        ids = [self.build.value(item, origin) for item in items]
        kinds = [(declared[name], None) for name in made]
        values = self.build.emit(UNPRICED, ids, kinds, origin, UnpricedAttrs(_full(node)))
        names.items.update({name: Item(declared[name], v) for name, v in zip(made, values, strict=True)})

    def _is_unknown(self, node: onnx.NodeProto) -> bool:
        is_constant = node.op_type == "Constant" and node.domain in _STANDARD
        return (
            rule_of(node) is None and not is_constant and not self._runs_bodies(node) and not has_body(node, self.opset)
        )

    def _runs_bodies(self, node: onnx.NodeProto) -> bool:
        return (node.domain, node.op_type) in self.functions or (
            node.domain in _STANDARD and node.op_type in ("If", "Loop", "Scan")
        )

    def _node(self, node: onnx.NodeProto, names: Names, scope: str) -> None:
        try:
            made = self._outputs(node, names, scope)
        except SlipstickError as error:
            text = str(error)
            raise type(error)(text if "node '" in text else f"{place(node)}: {text}") from error
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise NotUnderstoodError(f"{place(node)} does not fit its inputs ({error})") from error
        for name, item in zip(node.output, made, strict=False):
            if name and item is not None:
                kept = self._cached(item, scope) if name in self.cached else item
                names.items[name] = self.build.told(name, kept)
            elif name:
                names.items[name] = None
        for name in node.output[len(made) :]:
            if name:
                names.items[name] = None

    def _outputs(self, node: onnx.NodeProto, names: Names, scope: str) -> Sequence[Item | None]:
        if node.op_type == "Constant" and node.domain in _STANDARD:
            return (_constant(node),)
        inputs = tuple(names.find(n) if n else None for n in node.input)
        attributes = {a.name: a for a in node.attribute}
        call = modern(Call(node, inputs, self.build, NodeOrigin(scope), self.opset, attributes))
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            return self._inlined(function, call)
        if node.domain in _STANDARD and node.op_type in ("If", "Loop", "Scan"):
            return self.control(self, call, names)
        if any(i is not None and i.parts is not None for i in inputs) and not takes_sequences(node):
            raise NotUnderstoodError("a sequence is given where a tensor is needed")
        found = computed(call) or chosen(call)
        if found is not None:
            return (found,)
        rule = rule_of(node)
        if rule is not None:
            return followed(call, rule(call))
        # An operator without a rule is the function that the standard defines it to be.
        body, version = body_of(call)
        return replace(self, opset=version)._inlined(body, with_defaults(call))

    def _inlined(self, function: onnx.FunctionProto, call: Call) -> Sequence[Item | None]:
        """Write the body of a local function for one call."""
        if len(call.inputs) > len(function.input):
            raise NotUnderstoodError(f"function '{function.name}' takes {len(function.input)} inputs")
        names = Names(dict.fromkeys(function.input))
        names.items.update(zip(function.input, call.inputs, strict=False))
        given = {a.name: a for a in function.attribute_proto} | dict(call.attributes)
        nodes = [_filled(node, given) for node in function.node]
        self.deeper().run(nodes, names, {}, call.origin.scope)
        made = call.node.output
        return [names.find(name) if k < len(made) and made[k] else None for k, name in enumerate(function.output)]

    def _cached(self, item: Item, scope: str) -> Item:
        """Keep new keys or values as a cache; what an operator keeps itself stays as it is."""
        origin = NodeOrigin(scope)
        value = self.build.value(item, origin)
        storage = self.build.flat.values[value].storage
        maker = self.build.producer.get(storage)
        if item.type.rank != CACHE_RANK or (maker is not None and maker.op == "kv_append"):
            return item
        made = self.build.emit("kv_append", [value], [(item.type, storage)], origin, KvAppendAttrs(CACHE_RANK - 2))
        return Item(item.type, made[0])

    def deeper(self) -> Translation:
        """Return the same one level further in; NotUnderstoodError where functions or bodies nest without end."""
        if self.depth >= MAX_DEPTH:
            raise NotUnderstoodError(f"functions and bodies are nested more than {MAX_DEPTH} deep")
        return replace(self, depth=self.depth + 1, cached=frozenset())


def rule_of(node: onnx.NodeProto) -> Rule | None:
    """Return the rule of an operator, None where there is none."""
    if node.domain in _STANDARD:
        return STANDARD.get(node.op_type)
    return CONTRIB.get(node.op_type) if node.domain in ("com.microsoft", "ai.onnx.contrib") else None


def _all_names(names: Names) -> list[str]:
    found: list[str] = []
    scope: Names | None = names
    while scope is not None:
        found += scope.items
        scope = scope.outer
    return found


def _joined(prefix: str, scope: str) -> str:
    return ".".join(filter(None, (prefix, scope)))


def _full(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in _STANDARD else f"{node.domain}.{node.op_type}"


def _constant(node: onnx.NodeProto) -> Item:
    """A constant keeps its numbers where they are few; a longer one is a buffer."""
    for a in node.attribute:
        if a.name == "value":
            if not a.t.name:
                a.t.name = f"{CONSTANT}{node.output[0]}"
            return stored_item(a.t, CONSTANT_FLOATS)
        if a.name in ("value_int", "value_ints"):
            return constant(np.array(list(a.ints) if a.name.endswith("s") else a.i, dtype=object))
        if a.name in ("value_float", "value_floats"):
            values = list(a.floats) if a.name.endswith("s") else a.f
            return constant(np.array(values, dtype=object), DType.FP32)
    raise NotUnderstoodError(f"{place(node)} holds no numbers")


def _filled(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """Put the caller's attributes in for those that refer to them; one that nobody gives is left out."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        source = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is not None:
            copy = made.attribute.add()
            copy.CopyFrom(source)
            copy.name = attribute.name
    return made
