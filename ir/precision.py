"""Recipes of low precision in training: in which type the products of weights run, and how operands get there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from .errors import NotBuiltError, PlanError, UnknownNameError
from .graph import Workload
from .types import DType

if TYPE_CHECKING:
    from .family import Family

NONE = "none"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one recipe quantises.

    An operand has a copy in rows, whose scales run along what the forward product sums over, and one in columns for
    the product that sums over the other dim.

    Attributes:
        dtype: of the operands, scales included.
        reads: how often a tensor passes through memory for its copy in rows, in columns, and for both at once: twice
            where a scale needs the maximum of more than a tile first.
        turns: the copy in columns is the one in rows transposed, for activations and gradients.
        turns_weights: the same for weights, whose blocks may be square.
        sends: tensor parallelism gathers activations and gradients quantised.
        doc: whose recipe it is.
    """

    dtype: DType
    reads: tuple[int, int, int]
    turns: bool
    turns_weights: bool
    sends: bool
    doc: str


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "fp8": Recipe(DType.FP8, (2, 2, 2), True, True, True, "one scale a tensor, of its own maximum"),
        "fp8-delayed": Recipe(DType.FP8, (1, 1, 1), True, True, True, "one scale a tensor, of earlier maxima"),
        "fp8-rowwise": Recipe(DType.FP8_ROW, (1, 2, 3), False, False, False, "one scale a row, of both dims"),
        "fp8-block": Recipe(DType.FP8_BLOCK, (1, 1, 1), False, True, True, "scales of 1 x 128, weights 128 x 128"),
        "mxfp8": Recipe(DType.MXFP8, (1, 1, 1), False, False, True, "scales of 32 elements"),
        "nvfp4": Recipe(DType.NVFP4, (2, 2, 2), False, True, True, "scales of 16 elements and one a tensor"),
    }
)
PRECISIONS = (NONE, *RECIPES)


def check_precision(family: Family) -> None:
    """Raise for a word that is no recipe, or for options that do not go with one."""
    if family.precision not in PRECISIONS:
        raise UnknownNameError.of("precision", family.precision, PRECISIONS)
    edges = (family.bf16_first, family.bf16_last)
    if min(edges) < 0:
        raise PlanError(f"bf16-first={edges[0]} bf16-last={edges[1]}: layers, 0 or more")
    asked = [("fp8-param-gather", family.fp8_param_gather), ("bf16-first or bf16-last", any(edges))]
    given = ", ".join(name for name, there in asked if there)
    if given and family.precision == NONE:
        raise PlanError(f"{given}: of low-precision training, and precision=none; use --precision, or leave it out")
    if family.fp8_param_gather:
        _check_gather(family)


def _check_gather(family: Family) -> None:
    legal = [name for name, r in RECIPES.items() if r.turns_weights and r.dtype is not DType.NVFP4]
    if family.precision not in legal:
        raise NotBuiltError(
            f"fp8-param-gather with precision={family.precision}: its weights travel in the model's type and are cast "
            f"where they arrive; what is modelled: {', '.join(legal)}"
        )
    if "optimizer" in family.offload:
        raise NotBuiltError("fp8-param-gather with --offload optimizer: not modelled in this version; use one of them")


def check_units(family: Family, chip: str, peaks: Collection[str]) -> None:
    """Raise PlanError where a chip has no matrix units for the recipe; `peaks` are the dtypes that it has."""
    if not trains_low(family) or unit_of(family.precision) in peaks:
        return
    unit, has = unit_of(family.precision), ", ".join(peaks)
    legal = ", ".join([NONE, *(name for name in RECIPES if unit_of(name) in peaks)])
    raise PlanError(f"precision={family.precision} runs on {unit} matrix units, and {chip} has {has}; legal: {legal}")


def unit_of(precision: str) -> str:
    """Return the dtype of the matrix units of a recipe.

    >>> unit_of("mxfp8"), unit_of("nvfp4")
    ('fp8', 'fp4')
    """
    return "fp4" if RECIPES[precision].dtype is DType.NVFP4 else "fp8"


def trains_low(family: Family) -> bool:
    """Whether the family trains by a recipe of low precision."""
    return family.precision != NONE and family.workload is Workload.TRAIN
