"""How a model is recorded, and what a user says of its run in words, as on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from ...ir.errors import UnknownNameError, UsageError, check_once
from ...ir.graph import Workload
from ...ir.records import dataclass
from ...ir.types import DType
from ...ir.units import is_digits
from ..forms import form_of

_INPUT = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?::(?P<dtype>\w*))?\[(?P<dims>[^\]]*)\]")
_LEAF = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)=(?P<made>\w+)(?:\((?P<options>[^)]*)\))?")
_WORDS = ("batch", "seq", "kv")
_LEAVES = ("experts", "attention", "recurrence")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """What a model is recorded for and how, and the words of a user on its run, which are not yet looked at.

    Args:
        workload: train, prefill or decode.
        dtype: element type of weights and activations; ONNX and `.pt2` files have their own.
        name: what the graph is called; the class name when left out.
        dims: what the named dims of an ONNX file or a `.pt2` file are: batch, seq, kv, total, tokens or a number.
        images: pictures a sequence of a model that sees, in training and prefill: with them its graph holds the encoder
            of pictures, too; without any it is that of its language model alone.
        source_tokens: what the encoder of an encoder-decoder reads; None: as many tokens as the plan's lengths say.
        allow_unpriced: keep operators without a rule as nodes of which only the bytes count, instead of refusing them.
        spelled_out: record norms, rotary embeddings and activations as the model's own code runs them, operator by
            operator, instead of as one kernel each: what unfused code keeps in training. Of recorded models only.
        inputs: `name:dtype[dim,..]` each; the type may be left out and is then the model's; a dim is a number or one of
            batch, seq, kv.
        loss: `file.py:function`, a function of what the module returns.
        fixed: `size=number` each.
        leaves: `Class=experts(top_k=2)`, `Class=attention(causal=true)` or `Class=recurrence(kind=delta)` each.
        caches: names of inputs that are KV caches.
        sizes: the lengths of the plan, where one is known: seq, kv, and batch for that of one micro-batch.
        loss_by: how a user who asks so names a loss.
    """

    workload: Workload = Workload.TRAIN
    dtype: DType = DType.BF16
    name: str = ""
    dims: Mapping[str, str] = field(default_factory=dict)
    images: int = 0
    source_tokens: int | None = None
    allow_unpriced: bool = False
    spelled_out: bool = False
    inputs: Sequence[str] = ()
    loss: str = ""
    fixed: Sequence[str] = ()
    leaves: Sequence[str] = ()
    caches: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    loss_by: str = "loss=function"

    def refuse_unread(self, model: str) -> None:
        """Refuse words on inputs that a model of this form does not read."""
        form = form_of(model)
        flags = {
            "input": self.inputs,
            "loss": self.loss,
            "leaf": self.leaves,
            "kv-cache": self.caches,
            "fixed": self.fixed,
        }
        given = next((flag for flag, value in flags.items() if value and flag not in form.reads), None)
        if given is not None:
            files = " (ONNX and .pt2 files have --dim NAME=NUMBER)" if given == "fixed" else ""
            raise UsageError(f"--{given}: of factories (file.py:function) only, which '{model}' is not{files}")
        if self.dims and "dim" not in form.reads:
            raise UsageError(f"--dim {next(iter(self.dims))}: of ONNX and .pt2 files only, which '{model}' is not")
        if self.images and "images" not in form.reads:
            raise UsageError(
                f"--images {self.images}: of models of transformers by name or config.json; what a file reads it says "
                f"itself, and of a factory --input does: '{model}'"
            )


@dataclass(frozen=True, slots=True)
class InputText:
    """One input as it was written; `dtype` is None where the model's own type is meant."""

    name: str
    dtype: DType | None
    dims: tuple[int | str, ...]


def read_input(text: str) -> InputText:
    """Read `name:dtype[dim,..]`; UsageError says what is wrong with it.

    >>> read_input("img:bf16[batch,3,224,224]").dims
    ('batch', 3, 224, 224)
    >>> read_input("mask[batch,seq]").dtype is None
    True
    """
    match = _INPUT.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(
            f"--input {text}: not of the form NAME:DTYPE[DIM,..], as in --input 'ids:int64[batch,seq]' or --input "
            "'image:bf16[batch,3,224,224]'"
        )
    dtype = DType.parse(match["dtype"]) if match["dtype"] else None
    dims = tuple(_dim(text, word) for word in match["dims"].split(",") if word)
    return InputText(match["name"], dtype, dims)


def _dim(text: str, word: str) -> int | str:
    if is_digits(word) and int(word):
        return int(word)
    if word not in _WORDS:
        raise UnknownNameError.of(f"dim in --input {text}:", word, [*_WORDS, "a number"])
    return word


def read_fixed(texts: Sequence[str]) -> dict[str, int]:
    """Read `size=number` pairs.

    >>> read_fixed(["seq=2048"])
    {'seq': 2048}
    """
    found: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not is_digits(size) or not int(size):
            raise UsageError(f"--fixed {text}: SIZE=NUMBER, as in --fixed seq=2048; sizes: {', '.join(_WORDS)}")
        if name not in _WORDS:
            raise UnknownNameError.of(f"size in --fixed {text}:", name, _WORDS)
        found[name] = int(size)
    check_once("--fixed", [text.partition("=")[0] for text in texts])
    return found


@dataclass(frozen=True, slots=True)
class LeafText:
    """One leaf as it was written: the class, what it is, and its options."""

    text: str
    kind: str
    made: str
    options: Mapping[str, bool | int | str]

    def check(self, allowed: Sequence[str]) -> None:
        """Refuse an option that is not one of those."""
        if wrong := [o for o in self.options if o not in allowed]:
            raise UnknownNameError.of(f"option in --leaf {self.text}:", wrong[0], allowed)


def read_leaf(text: str) -> LeafText:
    """Read `pkg.Class=experts(top_k=2)`.

    >>> read_leaf("net.Core=attention(causal=true, layout=bshd)").options
    {'causal': True, 'layout': 'bshd'}
    """
    match = _LEAF.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(
            f"--leaf {text}: not of the form CLASS=KIND(OPTION=VALUE,..), as in --leaf 'net.Moe=experts(top_k=2)' or "
            "--leaf 'net.Core=attention(causal=true,layout=bshd)'"
        )
    if match["made"] not in _LEAVES:
        raise UnknownNameError.of(f"kind in --leaf {text}:", match["made"], _LEAVES)
    pairs = [pair.partition("=") for pair in (match["options"] or "").split(",") if pair]
    if bare := [name for name, equals, value in pairs if not equals or not value]:
        raise UsageError(f"--leaf {text}: option '{bare[0]}' has no value; write {bare[0]}=VALUE")
    return LeafText(text, match["kind"], match["made"], {name: _value(value) for name, _, value in pairs})


def _value(word: str) -> bool | int | str:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    return int(word) if is_digits(word) else word
