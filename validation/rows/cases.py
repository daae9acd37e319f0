"""A measured kernel as a model sees it, and what a judge of one kind of table does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...backends.machine.system import System
from ...ir.records import dataclass
from .rows import Row

Array = NDArray[np.float64]
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Case(Generic[S]):
    """One measured kernel.

    Attributes:
        row: the row as published.
        system: name of the catalogue's system it ran on.
        library: whose kernel it is and how it was timed: the name of the constants in `libraries` of a calibration.
        cls: the class of constants, `gemm`.
        kind: the kind within the class, `bf16`.
        group: the configuration it belongs to; a split into what is fitted and what is judged keeps a group whole.
        sizes: what the model needs to know of it.
        measured_s: what was measured.
        outlier: why no sane model fits it, empty for most; such rows are in no fit, and counted beside the others.
    """

    row: Row
    system: str
    library: str
    cls: str
    kind: str
    group: str
    sizes: S
    measured_s: float
    outlier: str = ""


class Judge(Protocol[S]):
    """Reads one kind of table and predicts its rows."""

    @property
    def name(self) -> str:
        """What people call the table: `gemm`."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that tell this kind of table from others, and that it needs."""
        ...

    def case(self, row: Row) -> Case[S]:
        """Read a row; NotJudged says why it has no prediction."""
        ...

    def seconds(self, cases: Sequence[Case[S]], system: System, constants: object) -> Array:
        """Predict cases that share system, library, class and kind, under these constants of their class."""
        ...

    def fixed(self, cls: str, kind: str) -> tuple[str, ...]:
        """Name the constants that rows of a kind cannot tell, which a fit leaves as they are."""
        ...
