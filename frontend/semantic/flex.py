"""flex_attention to the attention operator: its mask function is asked, on plain numbers, which keys a query reads."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.attention import flex_attention as flex
from torch.utils._pytree import tree_map

from ...ir.records import dataclass
from ..record.adapter import DispatchMode, FakeTensor, swapped, undisturbed
from ..record.preserve import Contexts, one_context
from . import semantic

Tell = Callable[[str], object]
MaskFn = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
# Rows of a long sequence that are looked at, and its length: longer than any window in use.
LENGTH = 1 << 16
_ROWS = (0, 1, 2, 3, 1000, LENGTH // 2, LENGTH // 2 + 1, LENGTH - 2, LENGTH - 1)
_LIBRARIES = ("torch", "numpy", "sympy", "mpmath", "scipy", "networkx", "transformers", "slipstick")


@dataclass(frozen=True, slots=True)
class Masked:
    """A block mask before any block is looked at."""

    mask_mod: MaskFn


@dataclass(frozen=True, slots=True)
class Reach:
    """Which keys queries read: `causal`, and the last `window` of them only (0: all).

    `assumed` says that the mask reads data, such as where documents begin, of which every entry was taken to be zero.
    """

    causal: bool
    window: int
    assumed: bool = False


def reach_of(mask: MaskFn | None) -> Reach:
    """Return what a mask function lets through; no mask, or one that cannot be asked, lets everything through.

    A mask that is no plain window (chunks, documents) counts as the longest row it has, where that is short.

    >>> reach_of(lambda b, h, q, k: q >= k)
    Reach(causal=True, window=0, assumed=False)
    >>> reach_of(lambda b, h, q, k: (q >= k) & (q - k < 512))
    Reach(causal=True, window=512, assumed=False)
    """
    if mask is None:
        return Reach(False, 0)
    with undisturbed():
        return _read(mask)


class _Zeros(DispatchMode):
    """Takes tensors without data for zeros: all tokens of one document, which is the most that a mask lets through."""

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    def replaced(self, given: object) -> object:
        """Return zeros for a tensor that has sizes only, as long as the sequence where these are open."""
        if not isinstance(given, FakeTensor):
            return given
        self.met = True
        sizes = [size if isinstance(size, int) else LENGTH for size in given.shape]
        return torch.zeros((), dtype=given.dtype).expand(sizes)

    def run(self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run a call on zeros."""
        given, named = tree_map(self.replaced, (args, dict(kwargs)))
        return super().run(func, given, named)

    def note(
        self, func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object], out: object
    ) -> None:
        """Nobody asks what was run."""


def _read(mask: MaskFn) -> Reach:
    zero, rows, keys = torch.zeros((), dtype=torch.int64), torch.tensor(_ROWS)[:, None], torch.arange(LENGTH)[None]
    zeros = _Zeros()
    try:
        with zeros:
            seen = mask(zero, zero, rows, keys).expand(len(_ROWS), LENGTH).bool()
            is_causal = not bool((seen & (keys > rows)).any())
            longest = int(seen.sum(1).max())
    except Exception:
        return Reach(False, 0, assumed=True)
    return Reach(is_causal, longest if longest < LENGTH else 0, zeros.met)


def _attention(
    tell: Tell,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: object = None,
    block_mask: object = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: object = None,
    *,
    return_aux: object = None,
) -> object:
    """Scores that a function changes cost what plain ones do: the change is vector work inside of the kernel."""
    del score_mod, scale, enable_gqa, kernel_options
    mask = cast("MaskFn | None", getattr(block_mask, "mask_mod", None))
    reach = reach_of(mask)
    if mask is not None and reach.assumed:
        tell(
            f"the mask '{getattr(mask, '__qualname__', 'mask_mod')}' of flex_attention reads data, so a sequence "
            f"counts as one document: {'causal' if reach.causal else 'every key'}"
        )
    out, lse = semantic.attention(query, key, value, None, reach.causal, reach.window, 0.0)
    out = out.transpose(1, 2)
    if return_aux is not None:
        return out, flex.AuxOutput(lse=lse)
    return (out, lse) if return_lse else out


def _masked(mask_mod: MaskFn, *sizes: object, **options: object) -> Masked:
    del sizes, options
    return Masked(mask_mod)


@one_context
def flex_lifted(module: nn.Module, tell: Tell) -> Contexts:
    """Put ours in the place of torch's, wherever the module's own code holds them, compiled or not.

    `tell` hears, in one line each, what had to be assumed of masks.
    """
    attention = functools.partial(_attention, tell)
    ours: dict[int, Callable[..., object]] = {id(flex.flex_attention): attention, id(flex.create_block_mask): _masked}
    # Whatever may hold a function that the module calls: its parts, their classes, files of no library.
    parts = list(module.modules())
    classes = {base for part in parts for base in type(part).__mro__ if not _is_library(base.__module__)}
    files = [m for n, m in list(sys.modules.items()) if isinstance(m, ModuleType) and not _is_library(n)]
    for owner in [*parts, *classes, *files]:
        for name, held in list(vars(owner).items()):
            found = _replacement(held, ours)
            if found is not None:
                yield swapped(owner, name, found)


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
