"""Model names, hub ids and paths, read into checked `config.json` texts; nothing is ever downloaded."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NotRequired, TypedDict, cast

from ....ir.errors import InternalError, NotUnderstoodError, UnknownNameError, UsageError
from ....ir.plan.experts.words import OF_MODEL
from ....ir.plan.precision import NONE
from ....ir.records import dataclass
from ....ir.text.formats import read_json
from ....ir.text.untrusted import read_settings

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]*[\w-]")


@dataclass(frozen=True, slots=True)
class Config:
    """A HuggingFace model config as text, checked to be an object that names its `model_type`.

    Attributes:
        name: Catalogue name; else the file's stem, or the folder's name for a file called `config.json`.
        origin: `catalogue/NAME.json`, or the path that was given.
        text: Canonical JSON: keys sorted, no spaces. Equal configs have equal texts.
        model_type: The key by which transformers picks its classes.
        is_shipped: Whether it is of the catalogue, and so no file of a user.
    """

    name: str
    origin: str
    text: str
    model_type: str
    is_shipped: bool = False


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """What the catalogue says of one of its configs.

    Attributes:
        name: Catalogue name.
        family: Models of one architecture and release.
        source: Document or repository path the numbers come from, with commit or version.
        num_parameters: Exact count of distinct parameters; a tied one counts once, buffers do not count.
        published_parameters: Size in the publisher's words, opening with a number and M or B.
        note: What a reader should know: quantisation as published, departures, assumptions.
        aliases: Other spellings and hub ids, compared without regard to case.
        precision: Recipe by which it was published quantised; none where it was not.
        expert_popularity: How unevenly it is known to use its experts, as a plan says it; empty where nobody says.
        popularity_source: Who says so.
    """

    name: str
    family: str
    source: str
    num_parameters: int
    published_parameters: str
    note: str
    aliases: tuple[str, ...]
    precision: str = NONE
    expert_popularity: str = ""
    popularity_source: str = ""


class _IndexRow(TypedDict):
    family: str
    source: str
    num_parameters: int
    published_parameters: str
    note: str
    aliases: list[str]
    precision: NotRequired[str]
    expert_popularity: NotRequired[str]
    popularity_source: NotRequired[str]


def names() -> tuple[str, ...]:
    """Return the catalogue names, families together and sizes ascending.

    >>> names()[:2]
    ('gpt2', 'gpt2-medium')
    """
    return tuple(index())


@cache
def index() -> Mapping[str, CatalogueEntry]:
    """Return the catalogue's entries by name, read-only.

    >>> index()["llama-3.1-8b"].num_parameters
    8030261248
    """
    rows = cast("dict[str, _IndexRow]", json.loads(_resource("index").read_text(encoding="utf-8")))
    return MappingProxyType({name: _entry(name, row) for name, row in rows.items()})


def popularity_of(model: str, text: str) -> str:
    """Return a popularity of experts as it is, or that of a model where `model` was asked for.

    >>> popularity_of("deepseek-v3", "model"), popularity_of("deepseek-v3", "power:1.2")
    ('power:1.01', 'power:1.2')

    Raises:
        UsageError: the catalogue has none of this model.
    """
    if text != OF_MODEL:
        return text
    entry = index().get(aliases().get(model.casefold(), model))
    if entry is None or not entry.expert_popularity:
        known = ", ".join(name for name, one in index().items() if one.expert_popularity)
        raise UsageError(f"--expert-popularity {text}: none published for '{model}'; known: {known}; or give power:X")
    return entry.expert_popularity


@cache
def aliases() -> Mapping[str, str]:
    """Return every accepted spelling, in lower case, with the catalogue name it stands for, read-only.

    >>> aliases()["meta-llama/llama-3.1-8b"]
    'llama-3.1-8b'

    Raises:
        InternalError: Two entries of the catalogue claim one spelling.
    """
    table: dict[str, str] = {}
    for entry in index().values():
        for spelling in (entry.name, *entry.aliases):
            claimed = table.setdefault(spelling.casefold(), entry.name)
            if claimed != entry.name:
                raise InternalError(f"alias '{spelling}' stands for both '{claimed}' and '{entry.name}'")
    return MappingProxyType(table)


def read_config(name_or_path: str) -> Config:
    """Return the config behind a catalogue name, an alias, a `config.json` or a folder that holds one.

    Text with a slash or ending in `.json` is a path. Where no such path exists, a known hub id is an alias.

    >>> read_config("Llama-3.1-8B").model_type, read_config("llama 3.1 8b").name
    ('llama', 'llama-3.1-8b')

    Raises:
        UnknownNameError: Neither a catalogue name nor an alias, or a hub id that the catalogue lacks.
        UsageError: A path that does not exist or cannot be read, or a folder without `config.json`.
        NotUnderstoodError: A file that is not a JSON object, or one without `model_type`.
    """
    if _is_path(name_or_path):
        path = os.path.expanduser(name_or_path)
        if os.path.exists(path):
            return _read_file(Path(path))
    spelt = name_or_path.casefold()
    known = aliases().get(spelt) or aliases().get(spelt.strip().replace("_", "-").replace(" ", "-"))
    if known is None:
        raise _not_found(name_or_path)
    origin = f"catalogue/{known}.json"
    return replace(_config(known, origin, _resource(known).read_text(encoding="utf-8")), is_shipped=True)


def config_of(name: str, fields: Mapping[str, object]) -> Config:
    """Return the config that some fields make; NotUnderstoodError without a `model_type`.

    >>> config_of("mine", {"model_type": "llama"}).text
    '{"model_type":"llama"}'
    """
    return _config(name, name, json.dumps(fields))


def _resource(name: str) -> Path:
    return Path(__file__).parents[2] / "catalogue" / f"{name}.json"


def _entry(name: str, row: _IndexRow) -> CatalogueEntry:
    return CatalogueEntry(
        name=name,
        family=row["family"],
        source=row["source"],
        num_parameters=row["num_parameters"],
        published_parameters=row["published_parameters"],
        note=row["note"],
        aliases=tuple(row["aliases"]),
        precision=row.get("precision", NONE),
        expert_popularity=row.get("expert_popularity", ""),
        popularity_source=row.get("popularity_source", ""),
    )


def _is_path(given: str) -> bool:
    is_file = given.endswith((".json", ".safetensors", ".gguf"))
    return is_file or given in {".", "..", "~"} or "/" in given or os.sep in given


def _read_file(path: Path) -> Config:
    if path.suffix in (".safetensors", ".gguf") and path.is_file():
        raise NotUnderstoodError(f"'{path}' holds weights only; give the config.json of its model")
    file = path / "config.json" if path.is_dir() else path
    if not file.exists():
        raise UsageError(f"folder '{path}' holds no config.json{_json_files(path)}")
    try:
        text = read_settings(file)
    except OSError as error:
        raise UsageError(f"cannot read '{file}': {error.strerror}; give a readable config.json") from error
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return _config(name, str(file), text)


def _json_files(folder: Path) -> str:
    found = sorted(file.name for file in folder.glob("*.json"))
    return f"; its JSON files are {', '.join(found)}: name one" if found else " and no other JSON file"


def _config(name: str, origin: str, written: str) -> Config:
    loaded = read_json(written, origin)
    model_type = _model_type(origin, loaded)
    text = json.dumps(loaded, sort_keys=True, separators=(",", ":"))
    return Config(name=name, origin=origin, text=text, model_type=model_type)


def _model_type(origin: str, loaded: object) -> str:
    if not isinstance(loaded, dict):
        raise NotUnderstoodError(f"'{origin}' holds a JSON {type(loaded).__name__}; a model config is a JSON object")
    fields = cast("dict[str, object]", loaded)
    given = fields.get("model_type")
    if isinstance(given, str) and given:
        return given
    problem = "has no 'model_type'" if "model_type" not in fields else f"has model_type {given!r}"
    raise NotUnderstoodError(f"'{origin}' {problem}; a model config names it, for example \"llama\"")


def _not_found(given: str) -> UsageError:
    if given.endswith(".py") and os.path.isfile(given):
        return UsageError(f"'{given}' is Python: name the class or factory in it, as in {given}:Net")
    if not _is_path(given):
        error = UnknownNameError(f"{UnknownNameError.of('model', given, names())}; or the path of a config.json")
        if not given or not os.path.isdir(given):
            return error
        return UnknownNameError(f"{error}; for the folder of that name write ./{given}")
    # an existing first folder says that a local path was meant and mistyped
    owner = given.partition("/")[0]
    if _HUB_ID.fullmatch(given) is not None and not given.endswith(".json") and not os.path.exists(owner):
        return UnknownNameError(
            f"'{given}' is not a file or folder here, and nothing is downloaded from the hub; "
            f"{_nearest_text(given)}give the path of a config.json, or one of: {', '.join(names())}"
        )
    return UsageError(f"no file or folder '{given}'; {_nearest_text(given)}give the path of a config.json")


def _nearest_text(given: str) -> str:
    spellings = [spelling for spelling in aliases() if "/" not in spelling]
    last = Path(given).stem if given.endswith(".json") else given.rstrip("/").rpartition("/")[2]
    from difflib import get_close_matches

    near = get_close_matches(last.casefold(), spellings, n=1, cutoff=0.6)
    return f"the nearest in the catalogue is '{aliases()[near[0]]}'; " if near else ""
