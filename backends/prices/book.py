"""The price book: data files beside this module, a profile over them, and what a user says over both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import UnknownNameError, UsageError
from ...ir.units import is_digits
from ..machine.files.catalogue import File, laid_over, read_at
from ..machine.files.faults import FileOrigin, in_files
from ..machine.files.section import section_of
from ..machine.files.versions import AT
from ..technology.files.memories import memory_file, priced
from ..technology.files.memories import origins as record_origins
from .section import Prices, PricesSection

if TYPE_CHECKING:
    from ..machine.files.system_tree import Tree

_BOOK = Path(__file__).parent
_PROFILES = "prices/profiles/"
USUAL, ALL = "market", "all"
# Years that limits and prices are known for, or foreseen; `market@2027` is the book of that year.
YEARS = range(2020, 2036)


def at_year(profile: str | None, year: int | None) -> str | None:
    """Return a profile in a year, whatever year its name has; the usual one where none is given.

    >>> at_year(None, 2027), at_year("catch", None)
    ('market@2027', 'catch')
    """
    return profile if year is None else f"{(profile or USUAL).partition(AT)[0]}{AT}{year}"


def books_of(profile: str | None) -> tuple[str, ...]:
    """Name the books that a ranking is asked for: of `all`, every profile, the usual one first.

    >>> books_of("all@2027")[0], books_of("catch")
    ('market@2027', ('catch',))
    """
    name, at, year = (profile or USUAL).partition(AT)
    if name != ALL:
        return (profile or USUAL,)
    others = (other for other in profile_names() if other != USUAL)
    return tuple(f"{other}{at}{year}" for other in (USUAL, *others))


def profile_names() -> tuple[str, ...]:
    """Name the profiles of the price book.

    >>> USUAL in profile_names()
    True
    """
    found = (file.name for file in (_BOOK / "profiles").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


@cache
def load_prices(profile: str | Path = USUAL, overrides: tuple[str, ...] = ()) -> Prices:
    """Read the book under a profile of the catalogue by name, or a YAML file by path.

    What a profile does not say is as in the data that is shipped; what a file does not say, as in the usual profile.

    Args:
        profile: `catch`, `market@2027`, or a path that ends in .yaml or .yml, with a year likewise.
        overrides: `nodes.N5.wafer_price=13400USD`, in order.

    Raises:
        UnknownNameError: a profile that there is not, an override of a key that there is not.
        SystemFileError: a file that cannot be read or breaks the schema; all faults with their lines.
    """
    return build_prices([*shipped(), *profile_files(profile)], overrides)


def with_memories(records: Mapping[str, Tree], profile: str | Path = USUAL, overrides: Sequence[str] = ()) -> Prices:
    """Read the book under a profile, with records of memories that it does not have; errors as of `load_prices`."""
    if not records:
        return load_prices(profile, tuple(overrides))
    own = File("own memories", "the technology file", Path(), {"memories": dict(records)})
    return build_prices([*shipped(), *profile_files(profile), own], overrides)


def build_prices(files: Sequence[File], overrides: Sequence[str] = ()) -> Prices:
    """Lay files over one another, the last over the others, then the overrides; check the whole."""
    tree, origins = laid_down(files, overrides)
    if overrides:
        from ..machine.files.system_overrides import override

        for text in overrides:
            tree = override(tree, text, PricesSection, "prices")
    section = section_of(PricesSection, tree, f"prices '{files[-1].name}'", in_files(origins))
    return Prices(section)


def laid_down(files: Sequence[File], overrides: Sequence[str] = ()) -> tuple[dict[str, Tree], list[FileOrigin]]:
    """Lay files over one another, the last over the others; also say where each part lies, the last file first.

    Over each file lie its own `years` up to the year that the last file or an override says, if any does.
    """
    year = _year_of(files, overrides)
    tree: dict[str, Tree] = {}
    origins: list[FileOrigin] = []
    for file in files:
        for part in (file, *_dated(file, year)):
            tree = laid_over(tree, {key: leaf for key, leaf in priced(part).tree.items() if key != "years"})
            origins += [*_origins(part), *record_origins(part)]
    return tree, origins[::-1]


def _year_of(files: Sequence[File], overrides: Sequence[str]) -> int | None:
    """Return the year of a book; UsageError for one that nobody knows prices of."""
    said = [file.tree["year"] for file in files if "year" in file.tree]
    said += [text.partition("=")[2] for text in overrides if text.startswith("year=")]
    if not said:
        return None
    text = str(said[-1])
    if not is_digits(text) or int(text) not in YEARS:
        raise UsageError(f"prices of the year {text}: give one from {YEARS[0]} to {YEARS[-1]}, as market@2027")
    return int(text)


def _dated(file: File, year: int | None) -> Iterator[File]:
    """Yield what a file says of each year up to one, the earliest first."""
    years = file.tree.get("years")
    for at in sorted(years) if year is not None and isinstance(years, dict) else ():
        part = years[at] if isinstance(years, dict) else None
        if int(at) <= (year or 0) and isinstance(part, dict):
            yield replace(file, tree=part, part=(*file.part, "years", at))


def profile_files(profile: str | Path, folder: Path | None = None) -> list[File]:
    """Return a profile; a YAML file with the usual profile below it."""
    file = profile_file(profile, folder)
    if file.where.startswith(_PROFILES):
        return [file]
    return [profile_file(USUAL), replace(file, tree={"name": file.name, **file.tree})]


def profile_file(profile: str | Path, folder: Path | None = None) -> File:
    """Find a profile by name, or by a path that starts from `folder`; a year behind it is one of its keys."""
    name, _, year = str(profile).partition(AT)
    if year:
        plain = profile_file(name, folder)
        return replace(plain, tree={**plain.tree, "year": year})
    path = Path(profile)
    if path.suffix in (".yaml", ".yml"):
        path = path if folder is None else folder / path
        return read_at(path.name, str(path), path, f"price file '{path}'")
    if name == ALL:
        told = "`cost` or `size` of several systems, `choose`, `sweep`; one answer has one book"
        raise UsageError(f"prices 'all' are of a ranking: {told}")
    if str(profile) not in profile_names():
        raise UnknownNameError.of("price profile", str(profile), profile_names())
    file = _BOOK / "profiles" / f"{profile}.yaml"
    return read_at(str(profile), f"{_PROFILES}{profile}.yaml", file, f"price profile '{profile}'")


@cache
def shipped() -> tuple[File, ...]:
    """Return the data that every profile lies over."""
    return tuple(_read_shipped())


def _read_shipped() -> Iterator[File]:
    for file in sorted((_BOOK / "data").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            yield read_at(file.name, f"prices/data/{file.name}", file, f"price file '{file.name}'")
    yield memory_file()


def _origins(file: File) -> Iterator[FileOrigin]:
    """Each part of a file, and each part of that, lies in the file."""
    for part, found in file.tree.items():
        yield file.origin((part,), (part,))
        if isinstance(found, dict) and "source" not in found:
            yield from (file.origin((part, name), (part, name)) for name in found)
