"""The price book: data files beside this module, a profile over them, and what a user says over both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import UnknownNameError
from ..machine.files.catalogue import File, laid_over, read_at
from ..machine.files.faults import FileOrigin, in_files
from ..machine.files.section import section_of
from ..machine.files.system_overrides import override
from ..technology.files.memories import memory_file, priced
from ..technology.files.memories import origins as record_origins
from .section import Prices, PricesSection

if TYPE_CHECKING:
    from ..machine.files.system_tree import Tree

_BOOK = Path(__file__).parent
USUAL = "chiplet-actuary"


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

    What a profile does not say is as in the data that is shipped.

    Args:
        profile: `catch`, or a path that ends in .yaml or .yml.
        overrides: `nodes.N5.wafer_price=13400USD`, in order.

    Raises:
        UnknownNameError: a profile that there is not, an override of a key that there is not.
        SystemFileError: a file that cannot be read or breaks the schema; all faults with their lines.
    """
    return build_prices([*shipped(), profile_file(profile)], overrides)


def build_prices(files: Sequence[File], overrides: Sequence[str] = ()) -> Prices:
    """Lay files over one another, the last over the others, then the overrides; check the whole."""
    tree, origins = laid_down(files)
    for text in overrides:
        tree = override(tree, text, PricesSection, "prices")
    section = section_of(PricesSection, tree, f"prices '{files[-1].name}'", in_files(origins))
    return Prices(section)


def laid_down(files: Sequence[File]) -> tuple[dict[str, Tree], list[FileOrigin]]:
    """Lay files over one another, the last over the others; also say where each part lies, the last file first."""
    tree: dict[str, Tree] = {"name": files[-1].name}
    origins: list[FileOrigin] = []
    for file in files:
        tree = laid_over(tree, priced(file).tree)
        origins += [*_origins(file), *record_origins(file)]
    return tree, origins[::-1]


def profile_file(profile: str | Path, folder: Path | None = None) -> File:
    """Find a profile by name, or by a path that starts from `folder`."""
    path = Path(profile)
    if path.suffix in (".yaml", ".yml"):
        path = path if folder is None else folder / path
        return read_at(path.name, str(path), path, f"price file '{path}'")
    if str(profile) not in profile_names():
        raise UnknownNameError.of("price profile", str(profile), profile_names())
    file = _BOOK / "profiles" / f"{profile}.yaml"
    return read_at(str(profile), f"prices/profiles/{profile}.yaml", file, f"price profile '{profile}'")


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
