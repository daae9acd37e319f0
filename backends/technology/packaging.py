"""What a designed chip, or a table of them, is packaged in, as the record that costs are made of."""

from __future__ import annotations

import numpy as np

from ..machine.package import Assembly, D2d, Die, Package, Stack
from .data import Technology
from .design import Design
from .files.package_file import Joint, design_joint


def packaged(design: Design, technology: Technology, joint: Joint | None = None) -> Package:
    """Return the package of a design, as its file says it; of a table, with arrays.

    `joint` says how dies and memory are joined; None for as usual with such memory.
    """
    b, kind = design.budget, technology.memory(design.budget.memory)
    die = Die(f"{b.node}-die", b.node, b.die_mm2, b.num_dies, d2d=_interface(design))
    stack = Stack(b.memory, kind.capacity.si, design.memory.num_stacks * b.num_ranks, b.memory)
    assembly = Assembly("package", joint or design_joint(design, technology), (die, stack))
    return Package(assembly, num_ranks=int(_one(b.num_ranks)))


def _interface(design: Design) -> D2d | None:
    b = design.budget
    if not b.d2d or _one(b.num_dies) == 1:
        return None
    return D2d(b.d2d, b.d2d_bytes_per_s, design.interface.num_neighbours, "" if b.one_device else "d2d")


def _one(count: object) -> float:
    """The dies of a package decide its form: those of a table are all as many."""
    return float(np.ravel(np.asarray(count, dtype=np.float64))[0])
