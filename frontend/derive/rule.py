"""What a backward rule is: it reads a forward node and the gradients of its outputs, and gives some to its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ...ir.errors import UnsupportedOpError
from ...ir.graph import Node
from .tape import Tape


@dataclass(frozen=True, slots=True)
class Grads:
    """The gradients of a node's outputs, None where there is none."""

    node: Node
    given: tuple[int | None, ...]

    @property
    def first(self) -> int:
        """The gradient of the first output; UnsupportedOpError when another output alone has one."""
        found = self.given[0]
        if found is None or any(g is not None for g in self.given[1:]):
            raise UnsupportedOpError(
                f"no backward rule for '{self.node.op}' whose further outputs lead to the loss (in '{self.node.scope}')"
            )
        return found


Rule: TypeAlias = Callable[[Tape, Node, Grads], None]
