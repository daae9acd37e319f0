"""Words of low-rank adapters: which linear layers get one, how their names are matched, how frozen weights rest."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from ...errors import PlanError
from ...records import dataclass
from ...types import DType
from ..low_inference import SAME
from ..word import Word
from .wildcards import matches

ALL_LINEAR = "all-linear"
# Names of the two matrices of an adapter, behind the path of its layer, as PEFT has them.
DOWN, UP = "lora_A", "lora_B"
# How frozen matrices rest. NF4 has a scale of 64 values that is itself in 8 bits: 4.127 bits a value, QLoRA's double
# quantisation; `int4_group` has 4.125. LLM.int8() has one scale a row.
BASES: Mapping[str, DType | None] = MappingProxyType({SAME: None, "nf4": DType.INT4_GROUP, "int8": DType.INT8})


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterWords:
    """Words of a plan that trains adapters beside frozen weights."""

    lora_rank: Annotated[int, Word(
        "Rank of low-rank adapters (LoRA): all other weights are frozen, without gradients and optimizer states; 0: "
        "all weights are trained.",
        also=("--lora-r", "--lora-dim"), section="Workload", behind="exp_avg_sq_dtype", of_training=True, least=0,
    )] = 0
    lora_modules: Annotated[tuple[str, ...], Word(
        "Linear layers that get an adapter, by the end of their paths (q_proj,v_proj), separated by commas.  "
        "[default: all-linear, all but the head]",
        also=("--lora-target-modules", "--lora-target"), metavar="LIST", section="Workload", of_training=True,
    )] = ()
    lora_dropout: Annotated[float, Word(
        "Dropout in front of adapters: above 0, a kernel and a mask for each.", section="Workload", of_training=True,
    )] = 0.0
    lora_base: Annotated[str, Word(
        "How frozen matrices of layers rest under adapters: same (as --dtype), nf4 (QLoRA) or int8; they are widened "
        "before each product.",
        choices=tuple(BASES), noun="type of frozen weights", section="Workload", of_training=True,
    )] = SAME


# fmt: on
def is_target(module: str, word: str) -> bool:
    """Return whether a word names a module as PEFT has it: the whole path, its end behind a dot, or a wildcard.

    >>> is_target("model.layers.*.self_attn.q_proj", "q_proj"), is_target("model.layers.*.self_attn.q_proj", "proj")
    (True, False)
    """
    return module == word or module.endswith(f".{word}") or ("*" in word and matches(module, word))


def adapted_layer(parameter: str) -> tuple[str, str]:
    """Return the weight beside which an adapter's matrix stands, and which of the two it is; empty for another one.

    >>> adapted_layer("layers.*.q_proj.lora_A.weight"), adapted_layer("layers.*.q_proj.weight")
    (('layers.*.q_proj.weight', 'lora_A'), ('', ''))
    """
    layer, _, part = parameter.removesuffix(".weight").rpartition(".")
    return (f"{layer}.weight", part) if part in (DOWN, UP) else ("", "")


def check_adapters(family: AdapterWords) -> None:
    """Raise PlanError for words of adapters without a rank, or a dropout that is no share."""
    if not 0 <= family.lora_dropout < 1:
        raise PlanError(f"lora-dropout={family.lora_dropout:g}: a share from 0 to below 1")
    if family.lora_rank:
        return
    given = [
        ("lora-modules", bool(family.lora_modules)),
        ("lora-base", family.lora_base != SAME),
        ("lora-dropout", family.lora_dropout > 0),
    ]
    if asked := ", ".join(name for name, there in given if there):
        raise PlanError(f"{asked}: of adapters, and lora-rank=0 trains all weights: use --lora-rank, or leave it out")
