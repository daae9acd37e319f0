"""Names of what passes join: one name for several paths that differ in one part."""

from __future__ import annotations

from collections.abc import Sequence


def joined_name(paths: Sequence[str]) -> str:
    """Return one path for several: parts in which they differ stand side by side.

    >>> joined_name(["layers.*.attn.q_proj.weight", "layers.*.attn.k_proj.weight"])
    'layers.*.attn.q_proj+k_proj.weight'
    """
    parts = [path.split(".") for path in paths]
    if len({len(p) for p in parts}) > 1:
        return "+".join(dict.fromkeys(paths))
    return ".".join("+".join(dict.fromkeys(column)) for column in zip(*parts, strict=True))


def parent_of(scope: str) -> str:
    """Return the module that holds a module.

    >>> parent_of("layers.*.attn.q_proj")
    'layers.*.attn'
    """
    return scope.rpartition(".")[0]
