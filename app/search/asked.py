"""The record of a search: typed words over the words of a space file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ...ir.errors import UsageError
from ...ir.plan.word import Value
from ...ir.records import dataclass
from ..arguments.options import options_of
from ..plans.words import LOWERED, STEP
from ..request import Request
from ..sources import VerbArguments
from .axes import SERVER, Asked, as_value, check_no_range, is_path, numbers_of, parameter, values_of
from .sampling import Sampling
from .space_file import read_space


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """What a user wants of a search, as typed."""

    objectives: tuple[str, ...]
    constraints: tuple[str, ...]
    fix: tuple[str, ...]
    vary: tuple[str, ...]
    space_file: Path | None
    max_memory: str
    executor: str
    jobs: int | None
    address: str | None
    resume: str | None
    runs: Path | None
    ledger: bool
    top: int
    why: bool


def asked_by(arguments: VerbArguments, wanted: SearchSettings) -> Asked:
    """Return what arguments ask a search for."""
    asked = _asked(wanted, str(arguments.get("model")), given_words(arguments))
    return replace(asked, sampling=arguments.take(Sampling).over(asked.sampling))


def given_words(arguments: VerbArguments) -> dict[str, tuple[Value, ...]]:
    """Return the words of plans and servers that anybody said, by field, each with its one value."""
    fields = [opt.field for opt in options_of(*STEP, *LOWERED, *SERVER).values()]
    return {name: (as_value(arguments.get(name)),) for name in fields if arguments.is_given(name)}


def _asked(wanted: SearchSettings, model: str, typed: dict[str, tuple[Value, ...]]) -> Asked:
    """What the command line asks for, over what its file does; UsageError for what it says twice."""
    flags = {name: value for name, value in typed.items() if name not in ("overrides", "quiet", "cache")}
    if "system" in flags:
        flags["system"] = values_of("system", str(flags["system"][0]))
    paths: dict[str, tuple[str, ...]] = {}
    (given,) = typed.get("overrides", ((),))
    for flag, texts in (
        ("--set", given if isinstance(given, tuple) else ()),
        ("--fix", wanted.fix),
        ("--vary", wanted.vary),
    ):
        for text in texts:
            key, value = _pair(text, flag)
            name = key if is_path(key) else parameter(key)
            if name in paths or name in flags:
                raise UsageError(f"{flag} {text}: '{key}' is said twice, and a plan has one: leave one of them out")
            if is_path(key):
                paths[name] = _numbers(flag, key, value)
            else:
                found = values_of(key, value)
                if flag == "--fix" and (len(found) > 1 or found == ("all",)):
                    raise UsageError(
                        f"--fix {key}={value}: one value is fixed, several are varied: --vary {key}={value}"
                    )
                flags[name] = found
    asked = Asked(model=model, flags=flags, paths=paths, objectives=wanted.objectives, constraints=wanted.constraints)
    below = None if wanted.space_file is None else read_space(wanted.space_file)
    return asked if below is None else asked.over(below)


def _numbers(flag: str, path: str, value: str) -> tuple[str, ...]:
    if flag == "--vary":
        return numbers_of(path, value)
    check_no_range(path, [value])
    return (value,)


def _pair(text: str, flag: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise UsageError(f"{flag} {text}: KEY=VALUE, as in tp=8 or system.hbm.bandwidth=2TB/s:10TB/s:9")
    return key.strip(), value.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest(Request):
    """What is searched, where, and what is shown of it; `Request` has the defaults of all words."""

    asked: Asked
    wanted: SearchSettings

    @classmethod
    def parts_of(cls, arguments: VerbArguments) -> Mapping[str, object]:
        """Return what is said of the search."""
        wanted = arguments.take(SearchSettings)
        return {"asked": asked_by(arguments, wanted), "wanted": wanted}
