"""Which recipe each weight rests in: one for all layers, and those that patterns over module paths name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product

from ...ir.plan.training import wildcards
from ...ir.records import dataclass
from ...ir.units import is_digits

_WILD = re.compile(r"[*?\[]")
Pair = tuple[str, str]


@dataclass(frozen=True)
class Patterns:
    """Pairs of a pattern and a recipe; of several that name a weight the last one holds.

    A pattern is of shell wildcards (`fnmatch`) or, behind `re:`, a regular expression from the start of a path. It
    names a module with all that is in it, or a parameter.
    """

    pairs: tuple[Pair, ...]

    @cached_property
    def _exact(self) -> Mapping[str, int]:
        return {
            p: k for k, (p, _) in enumerate(self.pairs) if not p.startswith(wildcards.REGEX) and not _WILD.search(p)
        }

    @cached_property
    def _wild(self) -> Sequence[tuple[int, str]]:
        return [(k, p) for k, (p, _) in enumerate(self.pairs) if p.startswith(wildcards.REGEX) or _WILD.search(p)]

    @property
    def numbered(self) -> bool:
        """Whether layers have to be told apart by their numbers."""
        return any(is_digits(c) for p, _ in self.pairs for c in p)

    def naming(self, name: str) -> list[int]:
        """Return the pairs that name a parameter, in order."""
        scopes = list(_scopes(name))
        found = [self._exact[s] for s in scopes if s in self._exact]
        return sorted({*found, *(k for k, p in self._wild if any(matches(s, p) for s in scopes))})

    def recipe(self, name: str) -> str | None:
        """Return the recipe that a parameter is given; None where no pattern names it."""
        found = self.naming(name)
        return self.pairs[found[-1]][1] if found else None


def matches(scope: str, pattern: str) -> bool:
    """Whether a pattern names a path, whose layers may have stars for their numbers.

    >>> matches("model.layers.*.mlp.up_proj", "model.layers.*.mlp.*"), matches("lm_head", "*experts*")
    (True, False)
    >>> matches("model.layers.*.mlp.gate", r"re:model.layers.[0-9]+.mlp.gate$")
    True
    """
    if not pattern.startswith(wildcards.REGEX):
        return wildcards.matches(scope, pattern)
    return wildcards.expression(pattern).match(scope.replace("*", "0")) is not None


def _scopes(name: str) -> Iterator[str]:
    """A parameter's path and those of the modules that it lies in, innermost first."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def parts_of(name: str) -> Iterator[str]:
    """Yield the names of which a joined weight was made; see `names.joined_name`.

    >>> list(parts_of("layers.*.attn.q_proj+k_proj.weight"))
    ['layers.*.attn.q_proj.weight', 'layers.*.attn.k_proj.weight']
    """
    return (".".join(parts) for parts in product(*(part.split("+") for part in name.split("."))))


def in_layer(name: str, number: int) -> str:
    """Return the path of a parameter in one layer.

    >>> in_layer("model.layers.*.mlp.up_proj.weight", 3)
    'model.layers.3.mlp.up_proj.weight'
    """
    return name.replace("*", str(number), 1)
