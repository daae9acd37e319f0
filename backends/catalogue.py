"""Files of the catalogue and of users: found by name or path, and what they refer to put in its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..ir.errors import SystemFileError, UnknownNameError
from .faults import Keys, Origin
from .network.edges import with_edges

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from .system_tree import Tree

# Calibrations over one another, each with its name; the last goes before the others.
Layers: TypeAlias = "list[tuple[str, dict[str, Tree]]]"

_PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class File:
    """A file that was read: what people call it, where it is, what is in it."""

    name: str
    where: str
    file: Traversable
    tree: dict[str, Tree]

    @property
    def folder(self) -> Path | None:
        """Where a file of a user lies, which is where paths in it start."""
        return self.file.parent if isinstance(self.file, Path) else None

    def origin(self, keys: Keys = (), inner: Keys = (), layer: str | None = None) -> Origin:
        """Say that a part of a tree is a part of this file."""
        return Origin(keys, self.where, self.file, inner, layer)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A system with what it refers to in place, the calibrations of its kernels, and where each part was read."""

    file: File
    tree: dict[str, Tree]
    layers: Layers
    origins: tuple[Origin, ...]


def names(kind: str) -> tuple[str, ...]:
    """Name what the catalogue has of a kind: systems, chips, networks, stacks or calibration.

    >>> "ndr-infiniband" in names("networks")
    True
    """
    files = (resources.files(_PACKAGE) / kind).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def read_file(kind: str, name_or_path: str | Path, folder: Path | None = None) -> File:
    """Read a file of the catalogue by its name, or one by its path, which starts from `folder`.

    UnknownNameError names the nearest in the catalogue; SystemFileError says why a file cannot be read.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        return _of_catalogue(kind, str(name_or_path))
    path = path if folder is None else folder / path
    return read_at(path.name, str(path), path, f"{kind.removesuffix('s')} file '{path}'")


def read_stack(name_or_path: str | Path, folder: Path | None = None, above: tuple[str, ...] = ()) -> File:
    """Read a software stack; one that is `like` another has what it does not say itself from that one.

    SystemFileError where stacks are like one another in a circle.
    """
    file = read_file("stacks", name_or_path, folder)
    tree = dict(file.tree)
    base = tree.pop("like", None)
    if base is None:
        return file
    if not isinstance(base, str) or file.where in above:
        raise SystemFileError(f"stack '{file.name}': like: {base} names no other stack that ends the chain")
    under = read_stack(base, file.folder, (*above, file.where))
    return File(file.name, file.where, file.file, _over(under.tree, tree))


def on_chip(stack: dict[str, Tree], chip: Tree) -> dict[str, Tree]:
    """Return a stack as it is on a chip: what it says of that chip alone laid over the rest.

    >>> on_chip({"kernels": "eager", "chips": {"a100": {"kernels": "fused"}}}, "a100")
    {'kernels': 'fused'}
    """
    rest = {key: value for key, value in stack.items() if key != "chips"}
    chips = stack.get("chips")
    here = chips.get(chip) if isinstance(chips, dict) and isinstance(chip, str) else None
    return _over(rest, here) if isinstance(here, dict) else rest


def _over(base: dict[str, Tree], tree: dict[str, Tree]) -> dict[str, Tree]:
    """Lay a tree over another: sections join, numbers and lists are replaced."""
    found = dict(base)
    for key, value in tree.items():
        under = base.get(key)
        joined = isinstance(under, dict) and isinstance(value, dict) and "source" not in value
        found[key] = _over(under, value) if joined and isinstance(under, dict) and isinstance(value, dict) else value
    return found


def assemble(name_or_path: str | Path, stack: str | None = None, calibration: str | None = None) -> Assembled:
    """Read a system, and put chip, network and stack where it names them; see `load_system`."""
    file = read_file("systems", name_or_path)
    tree = dict(file.tree)
    chip = tree.get("chip")
    layers, origins = _calibrations(file, calibration or tree.pop("calibration", None), chip)
    tree.pop("calibration", None)
    origins.append(file.origin())
    for key, kind, given in (("chip", "chips", chip), ("stack", "stacks", stack or tree.get("stack", "default"))):
        if isinstance(given, str):
            # What stands on the command line starts from where the user is, what stands in a file from the file.
            folder = None if given is stack else file.folder
            part = read_stack(given, folder) if kind == "stacks" else read_file(kind, given, folder)
            tree[key] = on_chip(part.tree, chip) if kind == "stacks" else dict(part.tree)
            origins.append(part.origin((key,)))
    levels = list(_levels(file, tree.get("network")))
    if levels:
        tree["network"] = [with_edges(level, part.folder) for level, part, _ in levels]
        origins += [part.origin(("network", place), inner) for place, (_, part, inner) in enumerate(levels)]
    return Assembled(file, tree, layers, tuple(origins))


def calibration_layers(given: Tree, chip: Tree, folder: Path | None = None) -> list[tuple[str, File | Tree]]:
    """Return the constants that carry over, then those given or else those of the chip."""
    base: list[tuple[str, File | Tree]] = [(name, read_file("calibration", name)) for name in carried_over()]
    if isinstance(given, dict):
        return [*base, ("calibration", given)]
    name = given if isinstance(given, str) else chip if chip in names("calibration") else "default"
    if name == "default" or not isinstance(name, str):
        return base
    file = read_file("calibration", name, folder)
    return [*base, (file.name, file)]


def carried_over() -> tuple[str, ...]:
    """Name the calibrations for any chip: what people set, over which lies what was fitted over many chips.

    >>> carried_over()[0]
    'default'
    """
    return tuple(name for name in ("default", "joint") if name in names("calibration"))


def _calibrations(system: File, given: Tree, chip: Tree) -> tuple[Layers, list[Origin]]:
    layers: Layers = []
    origins: list[Origin] = []
    in_file = given is system.tree.get("calibration")
    for name, found in calibration_layers(given, chip, system.folder if in_file else None):
        if isinstance(found, File):
            layers.append((name, found.tree))
            origins.append(found.origin(layer=name))
        elif isinstance(found, dict):
            layers.append((name, found))
            origins.append(system.origin(inner=("calibration",), layer=name))
    return layers, origins


def _levels(system: File, network: Tree) -> Iterator[tuple[Tree, File, Keys]]:
    """Each level of a network, the file it stands in and the way to it there."""
    entries = [network] if isinstance(network, str) else network
    if not isinstance(entries, list):
        return
    for place, entry in enumerate(entries):
        if not isinstance(entry, str):
            yield entry, system, ("network", place)
            continue
        part = read_file("networks", entry, system.folder)
        levels = part.tree.get("levels")
        if not isinstance(levels, list):
            raise SystemFileError(f"network '{part.name}' has no list of levels")
        yield from ((level, part, ("levels", inner)) for inner, level in enumerate(levels))


def _of_catalogue(kind: str, name: str) -> File:
    known = names(kind)
    if name not in known:
        raise UnknownNameError.of(kind.removesuffix("s"), name, known)
    file = resources.files(_PACKAGE) / kind / f"{name}.yaml"
    return read_at(name, f"{kind}/{name}.yaml", file, f"{kind.removesuffix('s')} '{name}'")


def read_at(name: str, where: str, file: Traversable, what: str) -> File:
    """Read a file that was found; SystemFileError says why it cannot be."""
    from .system_tree import read_tree

    try:
        return File(name, where, file, read_tree(file.read_text(encoding="utf-8"), name))
    except OSError as error:
        raise SystemFileError(f"cannot read {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SystemFileError(f"{what} is not UTF-8 text") from error
