"""What the words of a table stand for: accelerators, engines, models and recipes of low precision by the catalogue."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ...backends.machine.files.catalogue import names
from ...backends.machine.software.engine_file import engine_names
from ...frontend.huggingface.configs.models import aliases, read_config
from ...ir.plan.precision import PRECISIONS
from ...ir.records import dataclass
from .publications import Accelerator, PublishedModel, named_in
from .rows import NotJudged, Row

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CaseModel:
    """A config as transformers reads it, and what had to be assumed for it."""

    fields: Fields
    assumed: tuple[str, ...] = ()


def system_of(row: Row) -> str:
    """Return the system of a row; NotJudged where the catalogue has none.

    >>> system_of(Row({"accelerator": "H100-SXM-80GB"})), system_of(Row({"accelerator": "dgx-h200"}))
    ('dgx-h100', 'dgx-h200')
    """
    given = row.text("accelerator")
    found = named_in(row.source.accelerators, given)
    if isinstance(found, Accelerator):
        return found.system
    if isinstance(found, str):
        return found
    if given in names("systems"):
        return given
    raise NotJudged(f"no system of the catalogue is a '{given}'")


def overrides_of(row: Row) -> tuple[str, ...]:
    """Return what the machine of a row has other than its system: assignments as `load_system` takes them."""
    found = named_in(row.source.accelerators, row.text("accelerator"))
    return found.set if isinstance(found, Accelerator) else ()


def engine_of(row: Row) -> str:
    """Return the name of the engine of a row, by how tables write it or as the catalogue has it; empty for another.

    >>> engine_of(Row({"engine": "trtllm 1.0.0rc3"})), engine_of(Row({"engine": "RTP-LLM"}))
    ('tensorrt-llm', '')
    """
    given = row.text("engine").lower()
    first = given.split(" ")[0]
    return str(named_in(row.source.engines, given) or (first if first in engine_names() else ""))


def recipe_of(row: Row) -> str:
    """Return the recipe of low precision of a row, `none` where it speaks of none.

    NotJudged where it does not say which.
    """
    given = row.text("precision").lower()
    return recipe_named(row) if "fp8" in given or "fp4" in given else "none"


def recipe_named(row: Row) -> str:
    """Return the recipe that a row names; NotJudged where it is none."""
    given = row.text("precision").lower()
    found = named_in(row.source.precisions, given) or (given if given in PRECISIONS else None)
    if found is None:
        raise NotJudged(f"which recipe of low precision '{given}' is, is not said")
    return str(found)


def named(row: Row) -> CaseModel:
    """Return the model that a row only names; NotJudged where no config of it is known.

    >>> named(Row({"model": "LLAMA3_70B"})).fields["hidden_size"]
    8192
    """
    given = row.text("model")
    name = given.partition(" (")[0]
    found = row.source.models.get(name) or aliases().get(name.casefold())
    if isinstance(found, PublishedModel):
        return CaseModel(found.config, (f"sizes of {name} from {found.source}",))
    if found is None:
        raise NotJudged(f"the sizes of '{name}' are not given, and the catalogue has no such model")
    config: Fields = json.loads(read_config(found).text)
    return CaseModel(config, () if given == name else (f"'{given}' as {found}",))
