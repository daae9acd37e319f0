"""What a system file may hold, section by section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from ..network.topology.section import Levels
from .chip import Chip, HostMemory
from .files.kinds import COUNT, Inline
from .files.section import Section, fields_of
from .files.shapes import Fields, Inside, Place
from .machine import Rack, ServerNode
from .package import Assembly, Package
from .software.stack_schema import STACK, StackFile


def _package_fields() -> Fields:
    """The keys of what is outermost in a package stand beside those of the package."""
    whole = {key: place for key, place in fields_of(Assembly).items() if key not in ("name", "count")}
    name = fields_of(Assembly)["name"]
    return {**whole, "name": Place(name.form, "name", default="package"), **fields_of(Package)}


def _package(found: Mapping[str, object]) -> Package:
    own = {place.name for place in fields_of(Package).values()}
    whole = {"name": "package", **{key: value for key, value in found.items() if key not in own}}
    rest = {str(key): value for key, value in found.items() if key in own}
    return Package(Assembly(**whole), **rest)  # type: ignore[arg-type]


PACKAGE = Inside(
    _package_fields,
    _package,
    lambda package, found: package.assembly.faults(found, package.beside),
    title="Package",
    told=(Package.__doc__ or "").strip(),
)


class ChipFile(Section):
    """One accelerator, and what it is sold in."""

    chip: Annotated[Chip, Inline()]
    package: Annotated[Package | None, PACKAGE] = None


class NodeSection(Section):
    """What shares a board and a host."""

    num_chips: Annotated[int, COUNT]
    host_memory: HostMemory | None = None


class NetworkSection(Section):
    """A network of its own, which machines refer to by name: levels from the inside out."""

    name: str
    levels: Levels


class UnpricedSection(Section):
    """The whole file but for prices, with the chip and the software that it refers to put in place."""

    name: str
    chip: ChipFile
    node: NodeSection
    network: Levels
    server: ServerNode | None = None
    rack: Rack | None = None
    stack: Annotated[StackFile, STACK]


class SystemSection(UnpricedSection):
    """A file that gives no prices; one that does is a `PricedSection`, whose schema takes as long to make as this."""

    prices: None = None
