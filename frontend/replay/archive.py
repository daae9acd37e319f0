"""The JSON of an exported program to a torch.fx graph, without torch's own reader, which unpickles and evaluates.

Operators are looked up by name among those that torch registers, sizes are parsed by a grammar of sums and products,
and nothing else of the file is a name that could be called. Names are identifiers, arguments those of the operator's
schema; the graph is interpreted (`read_graph.py`). The schema is `torch/_export/serde/schema.py`, version 8.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import cast

import torch
from torch import fx
from torch.fx.node import Argument

from ...ir.errors import NotUnderstoodError, SlipstickError
from ...ir.sizes.expr import Dim
from ...ir.text.formats import read_json
from ...ir.text.limits import limits, too_much
from ...ir.text.untrusted import decoded, open_regular
from ..record.failures import first_line
from .program import (
    MOST_SIZE,
    FixedInput,
    HeldInput,
    HeldTensor,
    ReadGraph,
    ReplayProgram,
    SizeInput,
    Source,
    TensorInput,
    hollow,
)
from .targets import ENUMS, Json, JsonPart, check_call, dtype_named, identifier, read_size, target_named

_MAJOR = 8
_HELD = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
_PLAIN = ("as_int", "as_float", "as_bool", "as_string", "as_none")
_MOST_DEPTH = 16
_BY_NAME = 2  # ArgumentKind.KEYWORD of the schema


def read(document: JsonPart, configs: Sequence[JsonPart], name: str) -> ReplayProgram:
    """Return the program that a document describes; `configs` say which tensors it holds, and which are one."""
    major = document["schema_version"]["major"].number
    if major != _MAJOR:
        raise NotUnderstoodError(f"{document.place}: schema version {major} is not known; known: {_MAJOR}")
    module = document["graph_module"]
    graph, signature = module["graph"], module["signature"]
    shared = _shared(configs)
    held: dict[str, HeldTensor] = {}
    sources: list[Source] = []
    specs, inputs = list(signature["input_specs"].each()), list(graph["inputs"].each())
    if len(specs) != len(inputs):
        raise NotUnderstoodError(f"{signature.place}: {len(specs)} input_specs of {len(inputs)} inputs of the graph")
    for spec, given in zip(specs, inputs, strict=True):
        sources.append(_source(spec, given, graph, shared, held))
    outputs = tuple(
        k for k, s in enumerate(signature["output_specs"].each()) if s.only()[0] in ("user_output", "loss_output")
    )
    return ReplayProgram(name, _Reader(graph).module(), hollow(held), tuple(sources), outputs, _limits(document))


def _limits(document: JsonPart) -> dict[str, int]:
    ranges: dict[str, JsonPart | None] = {}
    for name, given in document["range_constraints"].items():
        least, ranges[name] = given.get("min_val"), given.get("max_val")
        if least is not None and (most := ranges[name]) is not None and least.number > most.number:
            raise NotUnderstoodError(
                f"{given.place}: from {least.number} to {most.number}: the least is above the most"
            )
    return {name: most.number for name, most in ranges.items() if most is not None and most.number < MOST_SIZE}


def _shared(configs: Sequence[JsonPart]) -> dict[str, str]:
    """Return, for each tensor of a path, the first path of the same tensor: same file, same place in it, same sizes."""
    first: dict[tuple[object, ...], str] = {}
    found: dict[str, str] = {}
    for config in configs:
        for path, one in config["config"].items():
            meta = one.get("tensor_meta")
            key = (
                (one["path_name"].text, str(meta["sizes"].value), str(meta["storage_offset"].value))
                if meta
                else (path,)
            )
            found[path] = first.setdefault(key, path)
    return found


def _source(
    spec: JsonPart, given: JsonPart, graph: JsonPart, shared: Mapping[str, str], held: dict[str, HeldTensor]
) -> Source:
    kind, body = spec.only()
    if kind in _HELD:
        path = body[_HELD[kind]].text
        dims, dtype = _tensor(graph["tensor_values"][body["arg"]["name"].text])
        if any(not isinstance(d, int) for d in dims):
            raise NotUnderstoodError(f"{body.place}: '{path}' has an open size; a parameter has none")
        first = shared.get(path, path)
        fixed = tuple(d for d in dims if isinstance(d, int))
        held[path] = HeldTensor(fixed, dtype, kind == "parameter", first if first != path else "")
        return HeldInput(path)
    if kind == "constant_input":
        return FixedInput(_constant(body["value"]))
    if kind != "user_input":
        raise NotUnderstoodError(
            f"{spec.place}: an input of kind '{kind}' is an object of code, which is never unpickled"
        )
    return _user_input(given, graph)


def _user_input(given: JsonPart, graph: JsonPart) -> Source:
    kind, value = given.only()
    if kind == "as_tensor":
        name = value["name"].text
        return TensorInput(name, *_tensor(graph["tensor_values"][name]))
    if kind == "as_sym_int":
        named, name_part = value.only()
        return SizeInput(name_part.number if named == "as_int" else _size(graph["sym_int_values"][name_part.text]))
    if kind in _PLAIN:
        return FixedInput(_constant(given))
    raise NotUnderstoodError(
        f"{given.place}: an input of kind '{kind}' is not understood; tensors and plain values are"
    )


def _constant(part: JsonPart) -> bool | int | float | str | None:
    kind, value = part.only()
    if kind == "as_none":
        return None
    if kind not in _PLAIN or not isinstance(value.value, bool | int | float | str):
        raise part.wrong("a plain value")
    return value.value


def _tensor(meta: JsonPart) -> tuple[tuple[Dim, ...], torch.dtype]:
    return tuple(_size(s) for s in meta["sizes"].each()), dtype_named(meta["dtype"])


def _size(part: JsonPart) -> Dim:
    kind, value = part.only()
    if kind == "as_int":
        if value.number < 0:
            raise value.wrong("a size")
        return value.number
    return read_size(value["expr_str"])


class _Reader:
    """One graph under construction: the fx nodes by the names that the file gives its values."""

    def __init__(self, graph: JsonPart, depth: int = 0, numbers: Iterator[int] | None = None) -> None:
        if depth > _MOST_DEPTH:
            raise NotUnderstoodError(f"{graph.place}: graphs within graphs are deeper than {_MOST_DEPTH}")
        self._part, self._depth = graph, depth
        # One count of nodes for all graphs of a program.
        self._numbers = count(1) if numbers is None else numbers
        self._root = ReadGraph()
        self._fx = self._root.graph
        self._made: dict[str, fx.Node] = {}

    def module(self) -> ReadGraph:
        """Return the graph, to be interpreted."""
        for given in self._part["inputs"].each():
            self._placeholder(given)
        for node in self._part["nodes"].each():
            self._node(node)
        outputs = [self._argument(o) for o in self._part["outputs"].each()]
        single = self._part.get("is_single_tensor_return")
        self._fx.output(outputs[0] if single is not None and single.value and outputs else tuple(outputs))
        return self._root

    def _placeholder(self, given: JsonPart) -> None:
        kind, value = given.only()
        index = len(self._made)
        name = f"fixed_{index}"
        if kind in ("as_tensor", "as_custom_obj"):
            name = identifier(value["name"])
        elif kind == "as_sym_int" and value.get("as_name") is not None:
            name = identifier(value["as_name"])
        if name in self._made:
            raise NotUnderstoodError(f"{given.place}: '{name}' is an input twice")
        self._made[name] = self._fx.placeholder(f"given_{index}")

    def _node(self, part: JsonPart) -> None:
        if next(self._numbers) > limits().nodes:
            raise too_much(part.place, f"more than {limits().nodes:,} nodes")
        target = target_named(part["target"])
        args: list[JsonPart] = []
        named: dict[str, JsonPart] = {}
        for given in part["inputs"].each():
            kind, name = given.get("kind"), given["name"]
            if kind is not None and kind.value == _BY_NAME:
                named[identifier(name)] = given
            else:
                args.append(given)
        check_call(target, [a["name"] for a in args], {name: given["name"] for name, given in named.items()})
        made = {name: self._argument(given["arg"]) for name, given in named.items()}
        node = self._fx.call_function(target, tuple(self._argument(a["arg"]) for a in args), made)
        self._describe(node, part)
        self._name_outputs(node, part)

    def _describe(self, node: fx.Node, part: JsonPart) -> None:
        data = part.get("metadata")
        stack = data.get("nn_module_stack") if data is not None else None
        if stack is not None:
            # `key,path,class` of each module, outermost first; only classes have commas of their own.
            if not stack.text.isprintable():
                raise stack.wrong("a path of modules")
            last = stack.text.split(";")[-1].split(",")
            node.meta["nn_module_stack"] = {last[0]: (last[1] if len(last) > 1 else "", last[-1])}
        trace = data.get("stack_trace") if data is not None else None
        if trace is not None and all(line.isprintable() for line in trace.text.splitlines()):
            node.meta["stack_trace"] = trace.text

    def _name_outputs(self, node: fx.Node, part: JsonPart) -> None:
        outputs = list(part["outputs"].each())
        single = part.get("is_hop_single_tensor_return")
        kinds = [o.only() for o in outputs]
        if len(outputs) == 1 and kinds[0][0] == "as_tensors":
            outputs = [JsonPart({"as_tensor": v.value}, v.place) for v in kinds[0][1].each()]
            self._name_items(node, outputs)
        elif len(outputs) == 1 and (single is None or single.value) and not _returns_tuple(node):
            self._name(outputs[0], node)
        else:
            self._name_items(node, outputs)

    def _name_items(self, node: fx.Node, outputs: Sequence[JsonPart]) -> None:
        for index, output in enumerate(outputs):
            if _output_name(output):
                item = self._fx.call_function(target_named(JsonPart("_operator.getitem", output.place)), (node, index))
                item.meta.update(node.meta)
                self._name(output, item)

    def _name(self, output: JsonPart, node: fx.Node) -> None:
        name = _output_name(output)
        if name in self._made:
            raise NotUnderstoodError(f"{output.place}: '{name}' is made twice")
        self._made[name] = node

    def _argument(self, part: JsonPart) -> Argument:
        kind, value = part.only()
        if kind == "as_none":
            return None
        if kind in ("as_tensor", "as_optional_tensor", "as_sym_int", "as_sym_float", "as_sym_bool"):
            return self._reference(value)
        if kind in ("as_tensors", "as_optional_tensors", "as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [self._reference(v) for v in value.each()]
        if kind == "as_nested_tensors":
            return [[self._reference(v) for v in row.each()] for row in value.each()]
        if kind in ENUMS:
            return ENUMS[kind](value)
        if kind in (
            "as_int",
            "as_float",
            "as_bool",
            "as_string",
            "as_ints",
            "as_floats",
            "as_bools",
            "as_strings",
            "as_int_lists",
            "as_float_lists",
        ):
            return _plain(value)
        if kind == "as_graph":
            return self._part_graph(value)
        raise NotUnderstoodError(f"{part.place}: an argument of kind '{kind}' is not understood")

    def _reference(self, value: JsonPart) -> Argument:
        """A tensor by name, a size by name or number, or nothing."""
        if value.get("name") is not None:
            return self._find(value["name"])
        kind, inner = value.only()
        if kind == "as_name":
            return self._find(inner)
        if kind == "as_tensor":
            return self._find(inner["name"])
        return None if kind == "as_none" else _plain(inner)

    def _find(self, name: JsonPart) -> fx.Node:
        if identifier(name) not in self._made:
            raise NotUnderstoodError(f"{name.place}: '{name.text}' is read before it is made")
        return self._made[name.text]

    def _part_graph(self, value: JsonPart) -> fx.Node:
        identifier(value["name"])
        name = f"part_{len(self._root._modules)}"
        self._root.add_module(name, _Reader(value["graph"], self._depth + 1, self._numbers).module())
        return self._fx.get_attr(name)


def _returns_tuple(node: fx.Node) -> bool:
    """Whether an operator makes several values: one of them is a tuple of one then."""
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and len(schema.returns) > 1


def _output_name(output: JsonPart) -> str:
    kind, value = output.only()
    if kind == "as_none":
        return ""
    return identifier(value["as_name"] if value.get("as_name") is not None else value["name"])


def _plain(value: JsonPart) -> Argument:
    if isinstance(value.value, list):
        return [_plain(v) for v in value.each()]
    if isinstance(value.value, str) and value.value in ("Infinity", "-Infinity", "NaN"):
        return float(value.value.replace("Infinity", "inf"))
    if isinstance(value.value, bool | int | float | str) or value.value is None:
        return value.value
    raise value.wrong("a plain value")


_MODEL = re.compile(r"^(?:[^/]+/)?models/([^/]+)\.json$")
_OLD_MODEL = re.compile(r"^(?:[^/]+/)?serialized_exported_program\.json$")
_WHAT = "write it with torch.export.save(torch.export.export(model, inputs, dynamic_shapes=..), 'model.pt2')"


def read_program(path: Path) -> ReplayProgram:
    """Return the program of a file that `torch.export.save` wrote; NotUnderstoodError says what is wrong with it."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            return _read(path, archive)
    except FileNotFoundError as error:
        raise NotUnderstoodError(f"no file '{path}'") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise NotUnderstoodError(f"'{path}' is cut short or no .pt2 archive ({error}); {_WHAT}") from error


def _read(path: Path, archive: zipfile.ZipFile) -> ReplayProgram:
    members = archive.namelist()
    if len(members) > limits().archive_members:
        raise too_much(f"'{path}'", f"{len(members):,} members, more than any exported model has")
    model = _model_in(path, members)
    root = model[: model.index("models/")] if _MODEL.match(model) else ""
    name = path.stem
    held = []
    if root or _MODEL.match(model):
        stem = Path(model).stem
        for config in (f"data/weights/{stem}_weights_config.json", f"data/constants/{stem}_constants_config.json"):
            if root + config in members:
                held.append(_json(path, archive, root + config))
    try:
        return read(_json(path, archive, model), held, name)
    except SlipstickError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, RecursionError) as error:  # what torch says of odd names
        raise NotUnderstoodError(f"'{path}': the graph of the model is not whole ({first_line(error)})") from error


def _model_in(path: Path, members: list[str]) -> str:
    models = [m for m in members if _MODEL.match(m)] or [m for m in members if _OLD_MODEL.match(m)]
    if len(models) == 1:
        return models[0]
    if models:
        raise NotUnderstoodError(f"'{path}' holds {len(models)} models ({', '.join(models[:4])}); save one a file")
    if any(m.endswith("data.pkl") for m in members):
        raise NotUnderstoodError(f"'{path}' is pickled or TorchScript, and unpickling runs code; {_WHAT}")
    if any("aotinductor" in m for m in members):
        raise NotUnderstoodError(f"'{path}' holds compiled code and no graph; {_WHAT}")
    raise NotUnderstoodError(f"'{path}' is a zip archive without an exported model; {_WHAT}")


def _json(path: Path, archive: zipfile.ZipFile, member: str) -> JsonPart:
    """Read a member that says its size honestly or not: no more than the limit is ever unpacked."""
    most = limits().document_bytes
    with archive.open(member) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise too_much(f"'{path}'", f"{member} is larger than {most:,} bytes")
    where = f"'{path}': {member}"
    value = cast(Json, read_json(decoded(data, where), where))
    return JsonPart(value, f"'{path}': {member.rpartition('/')[2]}")
