"""Low precision in tables: the words of published runs for recipes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .rows import NotJudged, Row

# DeepSeek-V3 is the only one to say "mixed" (arXiv 2412.19437, section 3.3).
_RECIPES: Mapping[str, str] = MappingProxyType(
    {
        "fp8": "fp8",
        "fp8 (linear)": "fp8",
        "fp8 tensorwise": "fp8",
        "fp8-cs": "fp8",
        "fp8-cs (fp8-mx)": "fp8",
        "fp8 rowwise": "fp8-rowwise",
        "fp8 mixed": "fp8-block",
        "fp8-mx": "mxfp8",
        "mxfp8": "mxfp8",
        "nvfp4": "nvfp4",
    }
)


def recipe_of(row: Row) -> str:
    """Return the recipe of low precision; NotJudged where a row speaks of one and does not say which.

    What is called fp8 alone is delayed scaling in NeMo's tables up to 25.04 and current scaling in Megatron-Bridge's,
    whose other rows name theirs. Of Composer's `amp_fp8` TransformerEngine's default is taken.
    """
    given = row.text("precision").lower()
    if not any(word in given for word in ("fp8", "fp4")):
        return "none"
    delayed = given == "amp_fp8" or (given == "fp8" and row.dataset.startswith("nemo"))
    found = "fp8-delayed" if delayed else _RECIPES.get(given)
    if found is None:
        raise NotJudged(f"which recipe of low precision '{given}' is, is not said")
    return found
