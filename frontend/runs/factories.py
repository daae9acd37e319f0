"""A user's factory to a module, and what was said in words put into the description of its run."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from ...ir.errors import TraceError, UnknownNameError, UsageError, check_once
from ...ir.graph import Workload
from ...ir.text.untrusted import check_typed
from ...ir.types import DType
from ..example_inputs import Dynamic, needed_arguments
from ..leaves import Attention, Leaf, Recurrence, experts_like
from ..record.dtypes import torch_dtype, torch_type
from ..record.failures import first_line, user_line
from ..record.preserve import OneDevice
from ..workloads import HINTS
from .model_run import Loss, ModelRun, described
from .options import InputText, LeafText, TraceOptions, read_fixed, read_input, read_leaf

_UNKNOWN = "unknown line"
_NO_ARGUMENTS: Mapping[str, object] = MappingProxyType({})
Function: TypeAlias = Callable[..., object]


def run_from_factory(
    spec: str, dtype: DType, arguments: Mapping[str, object] = _NO_ARGUMENTS, device: str = "meta"
) -> ModelRun:
    """Import the file or module, call the factory on a device (without weights on meta), return what it describes.

    This runs the user's code. UsageError when the file, the name or the result is wrong, NotUnderstoodError for code
    that no one typed.
    """
    factory = user_function(spec, "factory")
    _check_arguments(spec, factory, arguments)
    number = torch_dtype(dtype) if device == "meta" else torch_type(dtype)
    return described(spec, _built(spec, partial(factory, **arguments), number, device))


def _check_arguments(spec: str, factory: Function, arguments: Mapping[str, object]) -> None:
    """Refuse arguments that a factory does not take, where its signature says so."""
    if not arguments:
        return
    known = inspect.signature(factory).parameters
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return
    for name in arguments:
        if name not in known:
            raise UnknownNameError.of(f"argument of '{spec}':", name, list(known))


def user_function(spec: str, what: str) -> Function:
    """Import `file.py:name` or `pkg.mod:name` and return the function; `what` is what it is to people."""
    where, colon, name = spec.rpartition(":")
    if not colon or not where:
        raise UsageError(f"--{what} {spec}: FILE:FUNCTION, as in --{what} net.py:{what}")
    check_typed(spec)
    module = _import(where)
    found: object = getattr(module, name, None)
    if isinstance(found, nn.Module):
        return lambda: found
    if not callable(found):
        public = [n for n, v in vars(module).items() if callable(v) and v.__module__ == module.__name__ and n[0] != "_"]
        raise UnknownNameError.of(f"{what} in '{where}'", name, public)
    return cast(Function, found)


def _built(spec: str, factory: Callable[[], object], dtype: torch.dtype, device: str) -> object:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device), OneDevice(device), _importable(spec.rpartition(":")[0]):
            return factory()
    except Exception as error:
        if isinstance(error, TypeError) and user_line(error) == _UNKNOWN:
            raise UsageError(
                f"'{spec}' cannot be called without arguments ({error}); name a function of none, as "
                f"`def made(): return {spec.rpartition(':')[2]}(..)`"
            ) from error
        if "meta tensor" in str(error):
            raise TraceError(
                f"'{spec}' looks at the values of a tensor while it builds ({user_line(error)}); models are built "
                "without weights, on the meta device, so sizes are known there and values are not"
            ) from error
        raise UsageError(f"'{spec}' failed at {user_line(error)}: {first_line(error)}") from error
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _importable(where: str) -> Iterator[None]:
    """Let a file import its neighbours, as when Python runs it, and find a module in the current folder.

    That folder comes last: nothing in it takes the place of an installed package.
    """
    is_file = where.endswith(".py")
    folder = str(Path(where).resolve().parent if is_file else Path.cwd())
    sys.path.insert(0 if is_file else len(sys.path), folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _import(where: str) -> ModuleType:
    if where.endswith(".py"):
        return _import_file(Path(where))
    try:
        with _importable(where):
            return importlib.import_module(where)
    except ImportError as error:
        raise UsageError(f"cannot import module '{where}': {error}") from error


def _import_file(path: Path) -> ModuleType:
    if not os.path.isfile(path):
        raise UsageError(f"no file '{path}'")
    spec = importlib.util.spec_from_file_location(f"slipstick_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"'{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with _importable(str(path)):
            spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"'{path}' failed at {user_line(error)}: {first_line(error)}") from error
    return module


_ATTENTION = ("causal", "window", "layout", "flat", "keys")
_RECURRENCE = ("kind", "chunk")
_EXPERTS = ("top_k", "hidden", "ffn", "num_experts", "gated", "bias", "shared_ffn")


def overlaid(run: ModelRun, asked: TraceOptions) -> ModelRun:
    """Return the description with what was asked in place of what the factory said."""
    if asked.inputs:
        read = [read_input(text) for text in asked.inputs]
        inputs, dynamic = _inputs(run.module, read, asked.dtype, asked.workload)
        run = replace(run, inputs=inputs, dynamic=dynamic, described=True)
    if asked.loss and asked.workload is not Workload.TRAIN:
        raise UsageError(f"--loss {asked.loss}: of training, and --phase {asked.workload} has no loss; leave it out")
    if asked.loss:
        run = replace(run, loss=_loss(asked.loss))
    if asked.leaves:
        said = [read_leaf(text) for text in asked.leaves]
        check_once("--leaf", [one.kind for one in said])
        run = replace(run, leaves={**run.leaves, **{_class_of(run.module, one): _leaf(one) for one in said}})
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
    if one.made == "recurrence":
        one.check(_RECURRENCE)
        return lambda part: Recurrence(str(one.options.get("kind", "delta")), int(one.options.get("chunk", 64)))
    one.check(_EXPERTS)
    return partial(experts_like, said=one.text, options={k: v for k, v in one.options.items() if isinstance(v, int)})


def _attention(one: LeafText) -> nn.Module:
    options = one.options
    layout = options.get("layout", "bhsd")
    return Attention(
        bool(options.get("causal", True)),
        int(options.get("window", 0)),
        str(layout),
        bool(options.get("flat", False)),
        int(options.get("keys", 0)),
    )
