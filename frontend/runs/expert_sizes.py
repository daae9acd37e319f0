"""The sizes of a class of experts from the shapes of its parameters: how many there are, how wide, what is shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from ...ir.errors import UsageError
from ..example_inputs import needed_arguments
from ..leaves import Experts, MixtureOfExperts

Shape = tuple[int, ...]
Bank = TypeVar("Bank", bound=Experts)


@dataclass(frozen=True, slots=True)
class Banks:
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


def _banks(part: nn.Module) -> Banks | None:
    """Find a list of alike parts with parameters, or parameters of three dims that begin alike."""
    lists = [path for path, child in part.named_modules() if isinstance(child, nn.ModuleList | nn.ModuleDict)]
    found = next((banks for path in lists if (banks := _listed(part, path)) is not None), None)
    return found or _stacked([tuple(p.shape) for p in part.parameters()])


def _listed(part: nn.Module, path: str) -> Banks | None:
    """What a list of alike parts with parameters holds."""
    shapes = [[tuple(p.shape) for p in m.parameters()] for m in part.get_submodule(path).children()]
    if len(shapes) < 2 or not shapes[0] or any(s != shapes[0] for s in shapes):
        return None
    outside = [tuple(p.shape) for n, p in part.named_parameters() if not n.startswith(f"{path}.")]
    return Banks(len(shapes), *_by_rank(shapes[0]), outside)


def _stacked(shapes: Sequence[Shape]) -> Banks | None:
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
    return Banks(number, [c[1:] for c in cubes], [s[1:] for s in kept], outside)


def _by_rank(shapes: Sequence[Shape]) -> tuple[list[Shape], list[Shape]]:
    return [s for s in shapes if len(s) == 2], [s for s in shapes if len(s) == 1]


def _sizes(banks: Banks) -> dict[str, int]:
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
    return {"num_experts": banks.num_experts, "gated": int(gated), "hidden": hidden, "ffn": ffn,
            "bias": int(bool(banks.vectors)), "shared_ffn": shared}  # fmt: skip


def _hidden(banks: Banks) -> int | None:
    """The width of what experts read: that of the router's matrix, else the one side that all matrices share."""
    number = banks.num_experts
    routers = [s for s in banks.outside if len(s) == 2 and number in s]
    of_router = next((b if a == number else a for a, b in routers), None)
    shared = set.intersection(*(set(m) for m in banks.matrices))
    if of_router in shared:
        return of_router
    return shared.pop() if len(shared) == 1 else None


__all__ = ["bank_like", "experts_like"]
