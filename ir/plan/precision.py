"""Recipes of low precision in training: in which type the products of weights run, and how operands get there.

Those of inference are in `low_inference`; what either needs of a plan and of a chip is checked here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NoReturn, Protocol

from ..errors import NotBuiltError, PlanError, UnknownNameError, UsageError
from ..graph import Workload
from ..records import dataclass
from ..types import DType
from .low_inference import INFERENCE, KV_WORDS, SAME
from .training.wildcards import REGEX, expression

NONE = "none"


class Words(Protocol):
    """What a plan says of precision; each is explained in `ir/plan/words.py`."""

    @property
    def workload(self) -> Workload:
        """What is lowered."""
        ...

    @property
    def precision(self) -> str:
        """The recipe."""
        ...

    @property
    def precision_of(self) -> tuple[tuple[str, str], ...]:
        """Recipes by patterns of paths."""
        ...

    @property
    def published_of(self) -> tuple[tuple[str, str], ...]:
        """Recipes of a checkpoint."""
        ...

    @property
    def bf16_first(self) -> int:
        """First layers that stay in bf16."""
        ...

    @property
    def bf16_last(self) -> int:
        """Last layers that stay in bf16."""
        ...

    @property
    def fp8_param_gather(self) -> bool:
        """Whether gathers carry fp8."""
        ...

    @property
    def lora_rank(self) -> int:
        """Rank of adapters, beside which all weights are frozen; 0 without."""
        ...

    @property
    def fp8_attention(self) -> bool:
        """Whether attention multiplies in fp8."""
        ...

    @property
    def fp8_output_proj(self) -> bool:
        """Whether the head multiplies by the recipe."""
        ...

    @property
    def kv_dtype(self) -> str:
        """Type of the cache."""
        ...

    @property
    def main_params_dtype(self) -> str:
        """Type of master weights."""
        ...

    @property
    def reshard(self) -> str:
        """When ZeRO 3 frees what it gathered."""
        ...

    @property
    def offload(self) -> tuple[str, ...]:
        """What rests on the host."""
        ...


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
        of_weight_gradients: whether products that make gradients of weights are quantised too.
    """

    dtype: DType
    reads: tuple[int, int, int]
    turns: bool
    turns_weights: bool
    sends: bool
    doc: str
    of_weight_gradients: bool = True


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "fp8": Recipe(DType.FP8, (2, 2, 2), True, True, True, "one scale a tensor, of its own maximum"),
        "fp8-delayed": Recipe(DType.FP8, (1, 1, 1), True, True, True, "one scale a tensor, of earlier maxima"),
        "fp8-rowwise": Recipe(DType.FP8_ROW, (1, 2, 3), False, False, False, "one scale a row, of both dims"),
        "fp8-block": Recipe(DType.FP8_BLOCK, (1, 1, 1), False, True, True, "scales of 1 x 128, weights 128 x 128"),
        "mxfp8": Recipe(DType.MXFP8, (1, 1, 1), False, False, True, "scales of 32 elements"),
        "int8": Recipe(DType.INT8, (1, 2, 3), False, False, False, "one scale a row, of both dims"),
        "int8-dgrad": Recipe(DType.INT8, (1, 2, 3), False, False, False, "as int8, gradients of weights aside", False),
        "nvfp4": Recipe(DType.NVFP4, (2, 2, 2), False, True, True, "scales of 16 elements and one a tensor"),
    }
)
# Recipes that leave modules of multi-token prediction as they are: Megatron-LM enters an fp8 context for them, and none
# of fp4 (core/transformer/multi_token_prediction.py, `_proj_and_transformer_layer`).
OF_DECODER_LAYERS = frozenset({"nvfp4"})
OF_TRAINING = (
    "--precision-of: of inference only in this version; training runs all layers by one --precision, but "
    "--bf16-first and --bf16-last leave some out"
)
# Every word there is, of training and of inference.
PRECISIONS = (NONE, *dict.fromkeys((*RECIPES, *INFERENCE)))


def check_precision(family: Words) -> None:
    """Raise for a word that is no recipe of the workload, or for options that do not go with one."""
    if family.precision not in PRECISIONS:
        raise UnknownNameError.of("precision", family.precision, PRECISIONS)
    _check_workload(family)
    edges = (family.bf16_first, family.bf16_last)
    if min(edges) < 0:
        raise PlanError(f"bf16-first={edges[0]} bf16-last={edges[1]}: layers, 0 or more")
    low = lowers(family)
    asked = [
        ("fp8-param-gather", family.fp8_param_gather),
        ("fp8-attention", family.fp8_attention),
        ("fp8-output-proj", family.fp8_output_proj),
        ("bf16-first or bf16-last", any(edges)),
    ]
    given = ", ".join(name for name, there in asked if there)
    if given and not low:
        raise PlanError(f"{given}: of low-precision training, and precision=none; use --precision, or leave it out")
    if family.fp8_output_proj and family.precision != "mxfp8":
        # As Megatron-Core has it: core/transformer/transformer_config.py, `fp8_output_proj`.
        raise PlanError(f"fp8-output-proj: precision={family.precision} leaves the head as it is; legal: mxfp8")
    if family.fp8_param_gather:
        _check_gather(family)
    _check_pairs(family)


def lowers(family: Words) -> bool:
    """Whether any weight may run by a recipe of low precision."""
    return any(recipe != NONE for recipe in recipes_in(family))


def recipes_in(family: Words) -> tuple[str, ...]:
    """Name the recipes that a family asks for, `none` too, each once."""
    pairs = (*family.published_of, *family.precision_of)
    return tuple(dict.fromkeys((family.precision, *(recipe for _, recipe in pairs))))


def counted_dtype(family: Words, written: str) -> str:
    """Return the dtype whose dense peak an MFU is over: that of a plan's products, or the one a model is written in."""
    return unit_of(family.precision, family.workload) or written


def read_pair(text: str) -> tuple[str, str]:
    """Read PATTERN=RECIPE; UsageError for what is none, ParseError for an expression that is none.

    >>> read_pair("model.layers.*.mlp=nvfp4")
    ('model.layers.*.mlp', 'nvfp4')
    """
    pattern, _, recipe = text.rpartition("=")
    if not pattern or not recipe:
        raise UsageError(f"--precision-of {text}: PATTERN=RECIPE, as in --precision-of lm_head=fp8")
    if pattern.startswith(REGEX):
        expression(pattern)
    return pattern, recipe


def _check_pairs(family: Words) -> None:
    pairs = (*family.published_of, *family.precision_of)
    if pairs and family.workload is Workload.TRAIN:
        raise NotBuiltError(OF_TRAINING)
    legal = (NONE, *recipes_of(family.workload))
    for _, recipe in pairs:
        if recipe not in legal:
            raise UnknownNameError.of(f"precision of {family.workload}", recipe, legal)
    if family.precision_of and not lowers(family):
        named = ", ".join(pattern for pattern, _ in family.precision_of)
        raise PlanError(f"--precision-of {named}: none, and all else is in the model's type: leave it out")


def recipes_of(workload: Workload) -> Collection[str]:
    """Name the recipes that a workload can run by."""
    return RECIPES if workload is Workload.TRAIN else INFERENCE


def _check_workload(family: Words) -> None:
    legal = (NONE, *recipes_of(family.workload))
    if family.precision not in legal:
        other = "inference" if family.workload is Workload.TRAIN else "training"
        raise PlanError(f"precision={family.precision}: of {other} only; {family.workload} has {', '.join(legal)}")
    if family.kv_dtype != SAME and family.workload is Workload.TRAIN:
        raise PlanError(f"kv-dtype={family.kv_dtype}: of inference only; training keeps no KV cache: leave it out")


def _check_gather(family: Words) -> None:
    if family.main_params_dtype == NONE:
        raise PlanError("fp8-param-gather with main-params-dtype=none: weights in fp8 need others to be updated")
    # Frozen weights are cast before the run, whatever the recipe: none travels to be updated.
    legal = [n for n, r in RECIPES.items() if family.lora_rank or r.dtype not in (DType.FP8_ROW, DType.INT8)]
    if family.precision not in legal:
        raise NotBuiltError(
            f"fp8-param-gather with precision={family.precision}: its weights travel in the model's type and are cast "
            f"where they arrive; what is modelled: {', '.join(legal)}"
        )
    if family.precision == "mxfp8" and family.reshard != "layer" and not family.lora_rank:
        raise NotBuiltError(
            f"fp8-param-gather of mxfp8 with reshard={family.reshard}: forward and backward read different copies, and "
            "each is gathered for one layer; use --reshard layer"
        )
    if "optimizer" in family.offload:
        raise NotBuiltError("fp8-param-gather with --offload optimizer: not modelled in this version; use one of them")


def check_units(family: Words, chip: str, peaks: Collection[str]) -> None:
    """Raise PlanError where a chip has no matrix units for the recipe; `peaks` are the dtypes that it has."""
    for precision in recipes_in(family):
        unit = unit_of(precision, family.workload)
        if unit and unit not in peaks:
            recipes = (name for name in recipes_of(family.workload) if _runs(unit_of(name, family.workload), peaks))
            _refuse(f"precision={precision}", unit, chip, peaks, (NONE, *recipes))
    if family.kv_dtype == "fp4" and "fp4" not in peaks:
        _refuse("kv-dtype=fp4", "fp4", chip, peaks, [word for word in KV_WORDS if word != "fp4"])


def _runs(unit: str, peaks: Collection[str]) -> bool:
    return not unit or unit in peaks


def _refuse(what: str, unit: str, chip: str, peaks: Collection[str], legal: Iterable[str]) -> NoReturn:
    has, words = ", ".join(peaks), ", ".join(legal)
    raise PlanError(f"{what} runs on {unit} matrix units, and {chip} has {has}; legal: {words}")


def unit_of(precision: str, workload: Workload = Workload.TRAIN) -> str:
    """Return the dtype of the matrix units that a recipe needs; empty where it needs none of its own.

    >>> unit_of("mxfp8"), unit_of("nvfp4"), unit_of("w4a16", Workload.DECODE)
    ('fp8', 'fp4', '')
    """
    if precision == NONE:
        return ""
    if workload is not Workload.TRAIN:
        return INFERENCE[precision].unit
    return {DType.NVFP4: "fp4", DType.INT8: "int8"}.get(RECIPES[precision].dtype, "fp8")


def trains_low(family: Words) -> bool:
    """Whether the family trains by a recipe of low precision."""
    return family.precision != NONE and family.workload is Workload.TRAIN
