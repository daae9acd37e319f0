"""flex_attention to the attention operator: its mask function is asked, on plain numbers, which keys a query reads."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.attention import flex_attention as flex

from . import semantic
from .adapter import swapped, undisturbed

MaskFn = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
# Rows of a long sequence that are looked at, and its length: longer than any window in use.
LENGTH = 1 << 16
_ROWS = (0, 1, 2, 3, 1000, LENGTH // 2, LENGTH // 2 + 1, LENGTH - 2, LENGTH - 1)
_LIBRARIES = ("torch", "numpy", "sympy", "transformers", "slipstick")


@dataclass(frozen=True, slots=True)
class Masked:
    """A block mask before any block is looked at."""

    mask_mod: MaskFn


@dataclass(frozen=True, slots=True)
class Reach:
    """Which keys queries read: `causal`, and the last `window` of them only (0: all)."""

    causal: bool
    window: int


def reach_of(mask: MaskFn | None) -> Reach:
    """Return what a mask function lets through; no mask, or one that cannot be asked, lets everything through.

    A mask that is no plain window (chunks, documents) counts as the longest row it has, where that is short.

    >>> reach_of(lambda b, h, q, k: q >= k)
    Reach(causal=True, window=0)
    >>> reach_of(lambda b, h, q, k: (q >= k) & (q - k < 512))
    Reach(causal=True, window=512)
    """
    if mask is None:
        return Reach(False, 0)
    with undisturbed():
        return _read(mask)


def _read(mask: MaskFn) -> Reach:
    zero, rows, keys = torch.zeros((), dtype=torch.int64), torch.tensor(_ROWS)[:, None], torch.arange(LENGTH)[None]
    try:
        seen = mask(zero, zero, rows, keys).expand(len(_ROWS), LENGTH).bool()
    except Exception:
        return Reach(False, 0)
    causal = not bool((seen & (keys > rows)).any())
    longest = int(seen.sum(1).max())
    return Reach(causal, longest if longest < LENGTH else 0)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: object = None, block_mask: object = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: object = None,
    *, return_aux: object = None,
) -> object:  # fmt: skip
    """Scores that a function changes cost what plain ones do: the change is vector work inside of the kernel."""
    del score_mod, scale, enable_gqa, kernel_options
    reach = reach_of(cast("MaskFn | None", getattr(block_mask, "mask_mod", None)))
    out, lse = semantic.attention(query, key, value, None, reach.causal, reach.window, 0.0)
    out = out.transpose(1, 2)
    if return_aux is not None:
        return out, flex.AuxOutput(lse=lse)
    return (out, lse) if return_lse else out


def _masked(mask_mod: MaskFn, *sizes: object, **options: object) -> Masked:
    del sizes, options
    return Masked(mask_mod)


@contextmanager
def flex_lifted(module: nn.Module) -> Iterator[None]:
    """Put ours in the place of torch's, wherever the module's own code holds them, compiled or not."""
    ours: dict[int, Callable[..., object]] = {id(flex.flex_attention): _attention, id(flex.create_block_mask): _masked}
    with ExitStack() as stack:
        for owner in _owners(module):
            for name, held in list(vars(owner).items()):
                found = _replacement(held, ours)
                if found is not None:
                    stack.enter_context(swapped(owner, name, found))
        yield


def _owners(module: nn.Module) -> list[object]:
    """Whatever may hold a function that the module calls: its parts, their classes, files of no library."""
    parts = list(module.modules())
    classes = {base for part in parts for base in type(part).__mro__ if not _is_library(base.__module__)}
    files = [m for n, m in list(sys.modules.items()) if isinstance(m, ModuleType) and not _is_library(n)]
    return [*parts, *classes, *files]


def _is_library(name: str) -> bool:
    root = name.partition(".")[0]
    return root in _LIBRARIES or root in sys.stdlib_module_names


def _replacement(held: object, ours: dict[int, Callable[..., object]]) -> object | None:
    if isinstance(held, functools.partial):
        inner = ours.get(id(_original(held.func)))
        return None if inner is None else functools.partial(inner, *held.args, **held.keywords)
    inside = held.__func__ if isinstance(held, staticmethod) else held
    found = ours.get(id(_original(inside)))
    return staticmethod(found) if found is not None and isinstance(held, staticmethod) else found


def _original(held: object) -> object:
    """The function that was compiled; looked up without asking objects that answer to any name."""
    kept = vars(held).get("_torchdynamo_orig_callable", held) if callable(held) and hasattr(held, "__dict__") else held
    return kept


__all__ = ["LENGTH", "Masked", "Reach", "flex_lifted", "reach_of"]
