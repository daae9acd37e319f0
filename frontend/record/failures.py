"""Whatever goes wrong in a user's module to a message that names the module's path and the line of the user's code."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from torch import nn

from ...ir.errors import DataSizeError, SlipstickError, TraceError
from ..runs.guards import is_users
from .adapter import DataDependent, swapped


@contextmanager
def explained(module: nn.Module) -> Iterator[None]:
    """Turn what a module raises while it runs into a TraceError with the place; our own errors gain the place.

    Torch also logs each shape that does not fit, with its own stack: the error says it in one line.
    """
    try:
        with swapped(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True):
            yield
    except DataDependent as error:
        func = getattr(error, "func", None)
        asked = f" by '{func}'" if func is not None else ""
        raise TraceError(
            f"control flow depends on data: {module_path(error, module)} ({user_line(error)}) asks{asked} for a value "
            "that only exists at run time. Replace the branch by tensor operations, or the whole by one operator with "
            "a known meaning: torch.ops.slipstick.experts or .attention; or say what the class computes: "
            f"{_leaves(error)}"
        ) from error
    except TraceError as error:
        if (line := user_line(error)) == _UNKNOWN:
            raise
        raise TraceError(f"{error}: {module_path(error, module)} ({line})") from error
    except SlipstickError:
        raise
    except Exception as error:
        place = f"{module_path(error, module)} ({user_line(error)})"
        raise TraceError(f"{place} fails while it is recorded: {first_line(error)}") from error


def asks_data(error: BaseException) -> bool:
    """Whether an error says that code asks for a value or a size that only exists at run time."""
    return isinstance(error, DataSizeError) or isinstance(error.__cause__, (*DataDependent, DataSizeError))


def _leaves(error: BaseException) -> str:
    """The flags that would say what the class computes whose code asked."""
    name = next((type(part).__name__ for part in reversed(_running(error))), "CLASS")
    return (
        f"--leaf '{name}=experts(top_k=N)' or --leaf '{name}=attention(causal=true)', in Python leaves={{{name}: ..}}"
    )


def first_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message.

    >>> first_line(KeyError("a"))
    "KeyError: 'a'"
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


_UNKNOWN = "unknown line"


def user_line(error: BaseException) -> str:
    """Return `file:line` of the innermost frame outside torch and this product.

    >>> user_line(ValueError("no traceback"))
    'unknown line'
    """
    found = _UNKNOWN
    for tb in _steps(error):
        if is_users(tb.tb_frame):
            found = f"{tb.tb_frame.f_code.co_filename}:{tb.tb_lineno}"
    return found


def module_path(error: BaseException, module: nn.Module) -> str:
    """Return the path of the innermost module that was running, for people."""
    paths = {id(part): path for path, part in module.named_modules()}
    found = next((paths[id(part)] for part in reversed(_running(error)) if id(part) in paths), "")
    return f"module '{found}'" if found else "the top module"


def _running(error: BaseException) -> list[nn.Module]:
    """The modules whose code was running, the innermost last."""
    found = (tb.tb_frame.f_locals.get("self") for tb in _steps(error))
    return [part for part in found if isinstance(part, nn.Module)]


def _steps(error: BaseException) -> Iterator[TracebackType]:
    tb = error.__traceback__
    while tb is not None:
        yield tb
        tb = tb.tb_next
