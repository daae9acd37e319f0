"""Leaves: modules that describe, in operators with a known meaning, what a user's own class computes.

Routing that looks at data, custom kernels and loops over positions cannot be recorded. Declared a leaf, a class is
replaced by one of these modules for the time of a recording: same parameters in number, same result in shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the field's name for it

from ..ir.errors import UnknownNameError, UsageError
from ..ir.ops.fused.scan import KINDS, STEPWISE
from ..ir.records import dataclass
from .example_inputs import needed_arguments
from .semantic import semantic
from .semantic.scan import keep_state, scan

Leaf: TypeAlias = Callable[[nn.Module], nn.Module]
# A module as whoever may not import torch names it.
Module: TypeAlias = nn.Module
Leaves: TypeAlias = Mapping[type[nn.Module], Leaf]

_LAYOUTS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3)}


class Experts(nn.Module):
    """Banks of experts: `forward(x [.., hidden], idx [.., k], weights [.., k])` gives [.., hidden].

    Each expert is `down(act(gate x) * up x)`, without `gated` `down(act(up x))`.
    """

    def __init__(self, hidden: int, ffn: int, num_experts: int, gated: bool = True, bias: bool = False) -> None:
        """Hold the banks: up [experts, (2) ffn, hidden], down [experts, hidden, ffn], and their biases."""
        super().__init__()
        width = 2 * ffn if gated else ffn
        self.gated = gated
        self.up = nn.Parameter(torch.empty(num_experts, width, hidden))
        self.down = nn.Parameter(torch.empty(num_experts, hidden, ffn))
        self.up_bias = nn.Parameter(torch.empty(num_experts, width)) if bias else None
        self.down_bias = nn.Parameter(torch.empty(num_experts, hidden)) if bias else None

    def forward(self, x: Tensor, idx: Tensor, weights: Tensor) -> Tensor:
        """Send each row to its k experts and sum what comes back, weighted."""
        rows, chosen, shares = (t.reshape(-1, t.shape[-1]) for t in (x, idx, weights))
        out = semantic.experts(
            rows, chosen, shares, self.up, self.down, self.up_bias, self.down_bias, self.gated, False
        )
        return out[0].reshape(x.shape)


class MixtureOfExperts(nn.Module):
    """Router, experts and, with `shared_ffn`, an expert for every row: `forward(x [.., hidden])` gives x's shape."""

    def __init__(
        self,
        hidden: int,
        ffn: int,
        num_experts: int,
        top_k: int,
        gated: bool = True,
        bias: bool = False,
        shared_ffn: int = 0,
        router_bias: bool = False,
    ) -> None:
        """Hold a router, the banks, and the shared expert's matrices."""
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(hidden, num_experts, bias=router_bias)
        self.experts = Experts(hidden, ffn, num_experts, gated, bias)
        self.shared_up = nn.Linear(hidden, 2 * shared_ffn if gated else shared_ffn, bias=bias) if shared_ffn else None
        self.shared_down = nn.Linear(shared_ffn, hidden, bias=bias) if shared_ffn else None

    def forward(self, x: Tensor) -> Tensor:
        """Softmax over the logits of all experts, the k largest of a row, and their sum."""
        weights, idx = torch.topk(torch.softmax(self.router(x).float(), dim=-1), self.top_k, dim=-1)
        out: Tensor = self.experts(x, idx, weights.to(x.dtype))
        return out if self.shared_up is None else out + self._shared(x)

    def _shared(self, x: Tensor) -> Tensor:
        assert self.shared_up is not None
        assert self.shared_down is not None
        wide: Tensor = self.shared_up(x)
        if self.experts.gated:
            gate, up = wide.chunk(2, dim=-1)
            act = F.silu(gate) * up
        else:
            act = F.silu(wide)
        out: Tensor = self.shared_down(act)
        return out


class Attention(nn.Module):
    """Fused attention without parameters: `forward(q, k, v)` in one of three layouts; further arguments are ignored.

    `bhsd` [batch, heads, length, dim] gives the same back, `bshd` and `sbhd` (Megatron) theirs. `flat` joins heads and
    dim of the result. With `keys` each query reads so many keys, which something before has chosen (sparse attention by
    blocks or tokens).
    """

    def __init__(
        self, causal: bool = True, window: int = 0, layout: str = "bhsd", flat: bool = False, keys: int = 0
    ) -> None:
        """Remember what the mask is: causal or not, over how many of the last keys (0: all), or of those chosen."""
        super().__init__()
        if layout not in _LAYOUTS:
            raise UsageError(f"attention layout '{layout}': legal are {', '.join(_LAYOUTS)}")
        self.causal, self.window, self.layout, self.flat, self.keys = causal, window, layout, flat, keys

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *ignored: object) -> Tensor:
        """Attend; key-value heads may be fewer than query heads."""
        order = _LAYOUTS[self.layout]
        q, k, v = (t.permute(order) for t in (q, k, v))
        chosen = q.new_empty(q.shape[0], q.shape[2], self.keys, dtype=torch.int32) if self.keys else None
        out = semantic.attention(q, k, v, None, self.causal, self.window, 0.0, None, chosen)[0]
        back = {"bhsd": (0, 2, 1, 3), "bshd": (0, 1, 2, 3), "sbhd": (1, 0, 2, 3)}[self.layout]
        out = out.permute(back)
        return out.flatten(-2) if self.flat else out


class Recurrence(nn.Module):
    """A fused recurrence without parameters, as kernels run it: `forward(q, k, v, *gates)` gives v's shape.

    q and k are [batch, length, groups, n], v [batch, length, heads, p], gates (decays, steps) [batch, length, heads] or
    with a number for each channel. With `state` [batch, heads, n, p], one step after another: the result and the state
    behind it.
    """

    def __init__(self, kind: str = "delta", chunk: int = 64) -> None:
        """Remember what the recurrence is (`delta`, `ssd`, `linear`, `selective`, `gated`), and tokens of a chunk."""
        super().__init__()
        if kind not in KINDS:
            raise UnknownNameError.of("kind of recurrence", kind, KINDS)
        self.kind, self.chunk = kind, 0 if kind in STEPWISE else chunk

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, *gates: Tensor, state: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Decay a state of each head, add to it, and read the result off it, token by token."""
        chunk = self.chunk if state is None else 0
        out, behind = scan(v, [q, k, *gates], state, self.kind, chunk, k.shape[-1])
        return out if state is None else (out, keep_state(behind, state))


def put_leaves(module: nn.Module, leaves: Leaves) -> None:
    """Replace every part of a declared class by its leaf, on `meta`; call it under `preserved`.

    UsageError when a leaf has another number of parameters than what it stands for; UnknownNameError when no part of
    the module is of a declared class.
    """
    parts = [part for path, part in module.named_modules() if path]
    for kind in leaves:
        if not any(isinstance(part, kind) for part in parts):
            names = {type(part).__qualname__ for part in parts}
            raise UnknownNameError.of(f"class in leaves of {type(module).__name__}:", kind.__qualname__, names)
    for path, part, leaf in list(_declared(module, leaves)):
        dtype = next((p.dtype for p in part.parameters()), torch.get_default_dtype())
        described = _described(part, leaf, dtype)
        have, want = (sum(p.numel() for p in m.parameters()) for m in (described, part))
        if have != want:
            raise UsageError(
                f"the leaf for '{path}' ({type(part).__name__}) has {have} parameters, the module {want}; give the "
                "leaf the sizes of the module"
            )
        parent, _, name = path.rpartition(".")
        module.get_submodule(parent)._modules[name] = described


def _declared(module: nn.Module, leaves: Leaves) -> Iterator[tuple[str, nn.Module, Leaf]]:
    for path, part in module.named_modules():
        leaf = next((made for kind, made in leaves.items() if isinstance(part, kind)), None)
        if leaf is not None and path:
            yield path, part, leaf


def _described(part: nn.Module, leaf: Leaf, dtype: torch.dtype) -> nn.Module:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype if dtype.is_floating_point else before)
    try:
        with torch.device("meta"):
            return leaf(part)
    finally:
        torch.set_default_dtype(before)


Shape = tuple[int, ...]
Bank = TypeVar("Bank", bound=Experts)


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """What all experts hold: their number, the matrices of one and its vectors, and what lies outside of them."""

    num_experts: int
    matrices: Sequence[Shape]
    vectors: Sequence[Shape]
    outside: Sequence[Shape]


def experts_like(part: nn.Module, said: str, options: Mapping[str, int]) -> nn.Module:
    """Return experts with a router, or without one where forward is given the choice, of the sizes of a module.

    `options` are sizes said by the user; UsageError names those that cannot be read from shapes.
    """
    banks = _banks(part)
    found = {**({} if banks is None else _sizes(banks)), **options}
    needs_router = len(needed_arguments(part)) < 3
    needed = ("hidden", "ffn", "num_experts", *(("top_k",) if needs_router else ()))
    if missing := [name for name in needed if name not in found]:
        have = ", ".join(f"{name}={found[name]}" for name in sorted(found)) or "no size"
        raise UsageError(
            f"--leaf {said}: {', '.join(missing)} cannot be read from the parameters of {type(part).__name__} ({have} "
            f"is known); write experts({', '.join(f'{name}=NUMBER' for name in missing)},..)"
        )
    banked = (found["hidden"], found["ffn"], found["num_experts"])
    gated, bias = bool(found.get("gated", 1)), bool(found.get("bias", 0))
    if not needs_router:
        return Experts(*banked, gated, bias)
    router_bias = banks is not None and (banks.num_experts,) in banks.outside
    return MixtureOfExperts(*banked, found["top_k"], gated, bias, found.get("shared_ffn", 0), router_bias)


def bank_like(part: nn.Module, path: str, kind: type[Bank]) -> Bank | None:
    """Return banks of the sizes of a list of alike parts in a module; None where their shapes do not say all sizes."""
    listed = _listed(part, path)
    sizes = {} if listed is None else _sizes(listed)
    if "ffn" not in sizes:
        return None
    hidden, ffn, number = sizes["hidden"], sizes["ffn"], sizes["num_experts"]
    return kind(hidden, ffn, number, bool(sizes["gated"]), bool(sizes["bias"]))


def _banks(part: nn.Module) -> ExpertWeights | None:
    """Find a list of alike parts with parameters, or parameters of three dims that begin alike."""
    lists = [path for path, child in part.named_modules() if isinstance(child, nn.ModuleList | nn.ModuleDict)]
    found = next((banks for path in lists if (banks := _listed(part, path)) is not None), None)
    return found or _stacked([tuple(p.shape) for p in part.parameters()])


def _listed(part: nn.Module, path: str) -> ExpertWeights | None:
    """What a list of alike parts with parameters holds."""
    shapes = [[tuple(p.shape) for p in m.parameters()] for m in part.get_submodule(path).children()]
    if len(shapes) < 2 or not shapes[0] or any(s != shapes[0] for s in shapes):
        return None
    outside = [tuple(p.shape) for n, p in part.named_parameters() if not n.startswith(f"{path}.")]
    return ExpertWeights(len(shapes), *_by_rank(shapes[0]), outside)


def _stacked(shapes: Sequence[Shape]) -> ExpertWeights | None:
    cubes = [s for s in shapes if len(s) == 3]
    if not cubes or any(c[0] != cubes[0][0] for c in cubes):
        return None
    number = cubes[0][0]
    widths = {d for c in cubes for d in c[1:]}
    biases = [s for s in shapes if len(s) == 2 and s[0] == number and s[1] in widths]
    # A router [experts, hidden] looks like the biases of experts: it is the one that is there besides one a matrix.
    kept = biases if len(biases) == len(cubes) else biases[:0] if len(biases) == 1 else biases[1:]
    outside = [s for s in shapes if len(s) != 3]
    for s in kept:
        outside.remove(s)
    return ExpertWeights(number, [c[1:] for c in cubes], [s[1:] for s in kept], outside)


def _by_rank(shapes: Sequence[Shape]) -> tuple[list[Shape], list[Shape]]:
    return [s for s in shapes if len(s) == 2], [s for s in shapes if len(s) == 1]


def _sizes(banks: ExpertWeights) -> dict[str, int]:
    """Sizes as far as shapes say them: three equal matrices, or two of which one is twice as large, have a gate."""
    if len(banks.matrices) not in (2, 3):
        return {"num_experts": banks.num_experts}
    areas = sorted(a * b for a, b in banks.matrices)
    gated = len(areas) == 3 or areas[-1] == 2 * areas[0]
    hidden = _hidden(banks)
    if hidden is None:
        return {"num_experts": banks.num_experts, "gated": int(gated)}
    ffn = areas[0] // hidden
    rest = [s for s in banks.outside if len(s) == 2 and s[0] != banks.num_experts and hidden in s and min(s) > 1]
    shared = sum(a * b for a, b in rest) // (hidden * (3 if gated else 2))
    return {
        "num_experts": banks.num_experts,
        "gated": int(gated),
        "hidden": hidden,
        "ffn": ffn,
        "bias": int(bool(banks.vectors)),
        "shared_ffn": shared,
    }


def _hidden(banks: ExpertWeights) -> int | None:
    """The width of what experts read: that of the router's matrix, else the one side that all matrices share."""
    number = banks.num_experts
    routers = [s for s in banks.outside if len(s) == 2 and number in s]
    of_router = next((b if a == number else a for a, b in routers), None)
    shared = set.intersection(*(set(m) for m in banks.matrices))
    if of_router in shared:
        return of_router
    return shared.pop() if len(shared) == 1 else None
