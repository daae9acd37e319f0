"""What was said in words of a run, put into its description: inputs, loss, leaves, caches, fixed sizes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from ...ir.errors import UnknownNameError, UsageError, check_once
from ...ir.graph import Workload
from ...ir.types import DType
from ..example_inputs import Dynamic, needed_arguments
from ..leaves import Attention, Leaf, Leaves
from ..record.dtypes import torch_type
from ..user_module import user_function
from ..workloads import HINTS
from .asked import Asked, InputText, LeafText, read_fixed, read_input, read_leaf
from .expert_sizes import experts_like
from .model_run import Loss, ModelRun

_ATTENTION = ("causal", "window", "layout", "flat")
_EXPERTS = ("top_k", "hidden", "ffn", "num_experts", "gated", "bias", "shared_ffn")


def overlaid(run: ModelRun, asked: Asked, dtype: DType, kind: Workload) -> ModelRun:
    """Return the description with what was asked in place of what the factory said."""
    if asked.inputs:
        read = [read_input(text) for text in asked.inputs]
        inputs, dynamic = _inputs(run.module, read, dtype, kind)
        run = replace(run, inputs=inputs, dynamic=dynamic, described=True)
    if asked.loss and kind is not Workload.TRAIN:
        raise UsageError(f"--loss {asked.loss}: of training, and --phase {kind} has no loss; leave it out")
    if asked.loss:
        run = replace(run, loss=_loss(asked.loss))
    if asked.leaves:
        said = [read_leaf(text) for text in asked.leaves]
        check_once("--leaf", [one.kind for one in said])
        run = replace(run, leaves={**run.leaves, **_leaves(run.module, said)})
    if asked.caches:
        run = replace(run, caches=tuple(asked.caches))
    return replace(run, fixed={**run.fixed, **read_fixed(asked.fixed)})


def _inputs(
    module: nn.Module, said: Sequence[InputText], dtype: DType, kind: Workload
) -> tuple[Mapping[str, Tensor], Dynamic]:
    """Example tensors on the meta device and the names of their open dims; a decode step has one token a sequence."""
    known = inspect.signature(module.forward).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    open_seq = kind is not Workload.DECODE
    check_once("--input", [one.name for one in said])
    for one in said:
        if one.name not in known and not takes_any:
            raise UnknownNameError.of(f"argument of {type(module).__name__}.forward:", one.name, list(known))
    if missing := [n for n in needed_arguments(module) if n not in {one.name for one in said}]:
        raise UsageError(
            f"{type(module).__name__}.forward takes {', '.join(known)}; no --input says what {missing[0]} is"
        )
    tensors = {one.name: _example(one, dtype, open_seq) for one in said}
    words = {
        one.name: tuple(d if isinstance(d, str) and (open_seq or d != "seq") else None for d in one.dims)
        for one in said
    }
    return tensors, words


def _example(one: InputText, dtype: DType, open_seq: bool) -> Tensor:
    sizes = [d if isinstance(d, int) else HINTS[d] if open_seq or d != "seq" else 1 for d in one.dims]
    return torch.empty(sizes, dtype=torch_type(one.dtype or dtype), device="meta")


def _loss(spec: str) -> Loss:
    found = user_function(spec, "loss")

    def loss(out: object) -> Tensor:
        return cast(Tensor, found(out))  # what else it may be is refused where it is used

    return loss


def _leaves(module: nn.Module, said: Sequence[LeafText]) -> Leaves:
    return {_class_of(module, one): _leaf(one) for one in said}


def _class_of(module: nn.Module, one: LeafText) -> type[nn.Module]:
    """The class of a part of the module by its name, with as much of its module's path as was written."""
    kinds = {kind for part in module.modules() for kind in type(part).__mro__ if issubclass(kind, nn.Module)}
    paths = {f"{kind.__module__}.{kind.__qualname__}".replace(".<locals>", ""): kind for kind in kinds}
    found = [kind for path, kind in paths.items() if path == one.kind or path.endswith(f".{one.kind}")]
    plain = [kind for kind in kinds if kind.__name__ == one.kind.rpartition(".")[2]]
    chosen = found or plain
    if not chosen:
        own = {type(part).__name__ for part in module.modules() if not type(part).__module__.startswith("torch.")}
        raise UnknownNameError.of(f"class in --leaf {one.text}:", one.kind, own)
    if len(chosen) > 1:
        names = ", ".join(sorted(path for path, kind in paths.items() if kind in chosen))
        raise UsageError(f"--leaf {one.text}: several classes have that name; write one of {names}")
    return chosen[0]


def _leaf(one: LeafText) -> Leaf:
    if one.made == "attention":
        one.check(_ATTENTION)
        return lambda part: _attention(one)
    one.check(_EXPERTS)
    return partial(experts_like, said=one.text, options={k: v for k, v in one.options.items() if isinstance(v, int)})


def _attention(one: LeafText) -> nn.Module:
    options = one.options
    layout = options.get("layout", "bhsd")
    return Attention(
        bool(options.get("causal", True)), int(options.get("window", 0)), str(layout), bool(options.get("flat", False))
    )  # fmt: skip


__all__ = ["overlaid"]
