"""A user's factory to a module: `file.py:factory` or `pkg.mod:factory`, run to build the model."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeAlias, cast

import torch
from torch import nn

from ..ir.errors import TraceError, UnknownNameError, UsageError
from ..ir.types import DType
from .record.dtypes import torch_dtype
from .record.failures import first_line, user_line
from .record.preserve import OneDevice
from .runs.model_run import ModelRun, described

_UNKNOWN = "unknown line"
Function: TypeAlias = Callable[..., object]


def run_from_factory(spec: str, dtype: DType) -> ModelRun:
    """Import the file or module, call the factory on the meta device and return what it describes.

    This runs the user's code. UsageError when the file, the name or the result is wrong.
    """
    return described(spec, _built(spec, user_function(spec, "factory"), dtype))


def user_function(spec: str, what: str) -> Function:
    """Import `file.py:name` or `pkg.mod:name` and return the function; `what` is what it is to people."""
    where, colon, name = spec.rpartition(":")
    if not colon or not where:
        raise UsageError(f"--{what} {spec}: FILE:FUNCTION, as in --{what} net.py:{what}")
    module = _import(where)
    found: object = getattr(module, name, None)
    if isinstance(found, nn.Module):
        return lambda: found
    if not callable(found):
        public = [n for n, v in vars(module).items() if callable(v) and v.__module__ == module.__name__ and n[0] != "_"]
        raise UnknownNameError.of(f"{what} in '{where}'", name, public)
    return cast(Function, found)


def _built(spec: str, factory: Callable[[], object], dtype: DType) -> object:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch_dtype(dtype))
    try:
        with torch.device("meta"), OneDevice("meta"), _importable(spec.rpartition(":")[0]):
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
    """Let a file import its neighbours, as when Python runs it."""
    if not where.endswith(".py"):
        yield
        return
    folder = str(Path(where).resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _import(where: str) -> ModuleType:
    if where.endswith(".py"):
        return _import_file(Path(where))
    try:
        return importlib.import_module(where)
    except ImportError as error:
        raise UsageError(f"cannot import module '{where}': {error}") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
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
